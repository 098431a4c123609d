"""The message that kube-scheduler writes into the status of waiting pods: it does not change.

It writes whenever a number in the message changes, in its scheduling loop. If every pod that comes
or goes changed it, new pods would be scheduled later.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count

from tests import objects

from . import reported
from .api import Api
from .train_gang import GangScheduler, Pool, gang
from .waiting import wait_for

Nodes = Callable[..., Pool]


def message_of(api: Api, namespace: str) -> str:
    """Return kube-scheduler's message about the first pod of the gang."""
    conditions = api.get("pods", "big-0", namespace)["status"].get("conditions", [])
    found = (each for each in conditions if each["type"] == "PodScheduled")
    return str(next(found, {}).get("message", ""))


def refusals(pair: GangScheduler) -> float:
    return pair.extender.metric(
        "gang_extender_hook_answers_total", verb="filter", outcome="InsufficientCapacity"
    )


def test_pods_that_come_and_go_do_not_change_the_message_of_a_waiting_gang(
    api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(4, cpu="4")
    others = count()

    def move() -> None:
        """Create a pod on the next node, so that the gang never fits, and delete the previous."""
        number = next(others)
        node = pool.names[number % len(pool.names)]
        api.create(objects.pod(f"other-{number}", namespace, scheduler="others", nodeName=node))
        if number:
            api.delete("pods", f"other-{number - 1}", namespace, grace_seconds=0)

    move()
    gang(api, "big", namespace, 4, pool, cpu="4")
    reported.wait_until_waiting(gang_scheduler.extender, namespace, "big", "InsufficientCapacity")
    # Now each node has been offered to the gang once.
    move()
    wait_for(
        lambda: re.search(r"\b4 InsufficientCapacity", message_of(api, namespace)),
        20,
        "the message counts all its nodes",
        seeing=lambda: message_of(api, namespace),
    )
    messages = set()
    for _ in range(8):
        tried = refusals(gang_scheduler)
        move()
        wait_for(
            lambda before=tried: refusals(gang_scheduler) >= before + 4,
            20,
            "kube-scheduler has tried each of them again",
        )
        messages.add(message_of(api, namespace))

    assert len(messages) == 1, messages
