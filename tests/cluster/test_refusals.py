"""What kube-scheduler writes into the status of pods that wait: a sentence that stays.

It writes in its one loop, whenever a number in the sentence has changed; were that so with every
pod that comes or goes on some node, whoever arrives would wait for those who wait.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count

from tests import objects

from . import telling
from .api import Api
from .stage import GangScheduler, Pool, gang
from .waiting import wait_for

Nodes = Callable[..., Pool]


def sentence(api: Api, namespace: str) -> str:
    """Say what kube-scheduler wrote last about the first pod of the gang."""
    conditions = api.get("pods", "big-0", namespace)["status"].get("conditions", [])
    found = (each for each in conditions if each["type"] == "PodScheduled")
    return str(next(found, {}).get("message", ""))


def refusals(pair: GangScheduler) -> float:
    return pair.extender.metric(
        "gang_extender_hook_answers_total", verb="filter", outcome="InsufficientCapacity"
    )


def test_pods_that_come_and_go_elsewhere_do_not_change_what_a_waiting_gang_is_told(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(4, cpu="4")
    others = count()

    def come() -> None:
        """Stand on the next node, so that there is never room for the gang, and leave the last."""
        number = next(others)
        node = pool.names[number % len(pool.names)]
        api.create(objects.pod(f"other-{number}", namespace, scheduler="others", nodeName=node))
        if number:
            api.delete("pods", f"other-{number - 1}", namespace, grace_seconds=0)

    come()
    gang(api, "big", namespace, 4, pool, cpu="4")
    telling.wait_until_waiting(gang_scheduler.extender, namespace, "big", "InsufficientCapacity")
    # Each of the nodes has been offered once all but one were, and then all but another.
    come()
    wait_for(
        lambda: re.search(r"\b4 InsufficientCapacity", sentence(api, namespace)),
        20,
        "the reason is said of all nodes it could have",
        seeing=lambda: sentence(api, namespace),
    )
    said = set()
    for _ in range(8):
        tried = refusals(gang_scheduler)
        come()
        wait_for(
            lambda before=tried: refusals(gang_scheduler) >= before + 4,
            20,
            "kube-scheduler has tried each of them again",
        )
        said.add(sentence(api, namespace))

    assert len(said) == 1, said
