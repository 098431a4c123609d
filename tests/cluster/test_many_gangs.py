"""More gangs than capacity: no deadlock, no partial gang, and every gang runs in the end."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from tests import objects

from .api import Api
from .control_plane import ControlPlane
from .observer import assert_started_whole, gang_of
from .train_gang import GangScheduler, Pool
from .waiting import wait_for

Nodes = Callable[..., Pool]


def test_two_gangs_that_each_need_more_than_half_run_one_after_the_other(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2, cpu="10")
    sizes = {"left": 11, "right": 11}
    for name, size in sizes.items():
        api.create(objects.pod_group(name, namespace, size))
    left, right = (
        objects.pods(11, name, namespace, gang=name, node_selector=pool.selector, run_seconds=2)
        for name in sizes
    )
    with plane.binds(namespace) as binds:
        for pair in zip(left, right, strict=True):
            api.create(*pair)
        seen = binds.wait_for(22, 60)

    assert_started_whole(seen, sizes)
    assert len({gang_of(bind) for bind in seen[:11]}) == 1


def test_thirty_gangs_on_sixteen_slots_all_finish_and_start_whole(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2, cpu="8")
    rng = random.Random(7)
    sizes = {f"gang-{index}": rng.randint(1, 8) for index in range(30)}
    pause = threading.Event()
    with plane.binds(namespace) as binds:
        for name, size in sizes.items():
            api.create(objects.pod_group(name, namespace, size))
            api.create(
                *objects.pods(
                    size, name, namespace, gang=name, node_selector=pool.selector, run_seconds=2
                )
            )
            pause.wait(0.5)  # the arrival rate of the test
        seen = binds.wait_for(sum(sizes.values()), 60)
        assert_started_whole(seen, sizes)

    def all_done() -> bool:
        return all(objects.phase(pod) == "Succeeded" for pod in api.list("pods", namespace))

    wait_for(all_done, 20, "all pods succeed")


def test_deleted_member_of_a_running_gang_is_replaced_at_once(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(2)
    api.create(objects.pod_group("train", namespace, 4))
    with plane.binds(namespace) as binds:
        members = objects.pods(4, "train", namespace, gang="train", node_selector=pool.selector)
        api.create(*members)
        binds.wait_for(4, 15)

        api.delete("pods", "train-1", namespace, grace_seconds=0)
        again = objects.pod("again-1", namespace, gang="train", node_selector=pool.selector)
        api.create(again)

        binds.wait_for(1, 5, prefix="again")
