"""What survives when one of us dies in the middle."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import urllib3

from . import objects
from .api import Api
from .conftest import GangScheduler, Pool
from .control_plane import ControlPlane
from .test_gangs import bound
from .waiting import wait_for

Nodes = Callable[..., Pool]
SCHEDULER = "mortal-scheduler"


@pytest.fixture
def mortals(plane: ControlPlane) -> Iterator[GangScheduler]:
    """An extender and a kube-scheduler of the test's own, to be killed."""
    with plane.extender(f"--scheduler-name={SCHEDULER}") as extender:
        config = plane.scheduler_config(extender, f"--scheduler-name={SCHEDULER}")
        with plane.scheduler(config) as scheduler:
            yield GangScheduler(extender, scheduler)


def held(ops_url: str) -> int:
    """Count the bind calls that wait at the barrier."""
    with urllib3.PoolManager(retries=False, timeout=2) as http:
        text = http.request("GET", f"{ops_url}/metrics").data.decode()
    found = re.search(r"^gang_extender_holds ([0-9.e+]+)$", text, re.MULTILINE)
    assert found, text
    return int(float(found.group(1)))


def hold_a_gang(api: Api, namespace: str, pool: Pool, extender_url: str) -> None:
    """Bring a gang of three to the barrier with two: the third waits for a pod it wants beside it.

    kube-scheduler alone knows about affinity between pods, so the plan lets the gang start.
    """
    api.create(objects.pod_group("train", namespace, 3))
    beside = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"friend": "yes"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
    common = {"gang": "train", "scheduler": SCHEDULER, "node_selector": pool.selector}
    api.create(
        *objects.pods(2, "train", namespace, **common),
        objects.pod("train-2", namespace, affinity=beside, **common),
    )
    wait_for(lambda: held(extender_url) == 2, 10, "two binds held", every_s=0.01)


def send_the_friend(api: Api, namespace: str, pool: Pool) -> None:
    friend = objects.pod(
        "friend",
        namespace,
        scheduler=SCHEDULER,
        labels={"friend": "yes"},
        node_selector=pool.selector,
    )
    api.create(friend)


def test_a_killed_extender_loses_nothing_and_the_gang_starts_whole_after_its_restart(
    plane: ControlPlane, api: Api, mortals: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1)
    hold_a_gang(api, namespace, pool, mortals.extender.ops_url)

    mortals.extender.kill()

    assert bound(api, namespace) == []
    with plane.binds(namespace) as binds:
        mortals.extender.start()
        send_the_friend(api, namespace, pool)
        binds.wait_for(3, 60, prefix="train")
        assert binds.spread_s("train") < 1


def test_a_killed_kube_scheduler_leaves_nothing_held(
    plane: ControlPlane, api: Api, mortals: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1)
    hold_a_gang(api, namespace, pool, mortals.extender.ops_url)

    mortals.scheduler.kill()

    wait_for(lambda: held(mortals.extender.ops_url) == 0, 5, "nothing held")
    assert bound(api, namespace) == []
    with plane.binds(namespace) as binds:
        mortals.scheduler.start()
        send_the_friend(api, namespace, pool)
        binds.wait_for(3, 60, prefix="train")


def test_an_extender_told_to_stop_refuses_what_it_holds_at_once(
    api: Api, mortals: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(1)
    hold_a_gang(api, namespace, pool, mortals.extender.ops_url)

    mortals.extender.terminate()

    def refused() -> bool:
        events = api.list("events", namespace, fields="involvedObject.name=train-0")
        return any("shut" in event["message"] for event in events)

    wait_for(refused, 5, "the held bind was refused because we shut down")
    assert bound(api, namespace) == []
