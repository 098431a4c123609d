"""Queues use the capacity that other queues cannot use."""

from __future__ import annotations

from collections.abc import Callable

from tests import objects

from . import reported
from .api import Api, Object
from .control_plane import ControlPlane
from .train_gang import GangScheduler, Pool, gang
from .waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]

#: Timeout for starts after the last change.
SOON_S = 10


def test_backlog_uses_the_share_of_a_queue_whose_gang_can_never_start(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(2, cpu="4")
    stuck, busy = f"stuck-{namespace}", f"busy-{namespace}"
    create(objects.queue(stuck), objects.queue(busy))
    reported.wait_until_queue_is_known(gang_scheduler.extender, stuck)
    reported.wait_until_queue_is_known(gang_scheduler.extender, busy)
    with plane.binds(namespace) as binds:
        gang(api, "before", namespace, 8, pool, queue=busy)
        binds.wait_for(8, 20, prefix="before")
        gang(api, "huge", namespace, 9, pool, queue=stuck)
        reported.wait_until_waiting(gang_scheduler.extender, namespace, "huge", "ExceedsCluster")
        for number in range(8):
            gang(api, f"small{number}", namespace, 1, pool, queue=busy)
        wait_until_all_wait(gang_scheduler, namespace, 8)

        for index in range(8):
            api.delete("pods", f"before-{index}", namespace, grace_seconds=0)
        binds.wait_for(8, SOON_S, prefix="small")

    assert binds.of("huge") == []


def test_arriving_gangs_borrow_what_a_waiting_gang_cannot_use(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    """The other queue deserves half, but no node has enough free capacity for its gang."""
    pool = nodes(2, cpu="4")
    pinned, left, right = (f"{name}-{namespace}" for name in ("pinned", "left", "right"))
    create(objects.queue(pinned, reclaimable=False), objects.queue(left), objects.queue(right))
    for queue in (pinned, left, right):
        reported.wait_until_queue_is_known(gang_scheduler.extender, queue)
    with plane.binds(namespace) as binds:
        for number, node in enumerate(pool.names):
            only = {"nodeSelector": {"kubernetes.io/hostname": node}}
            api.create(objects.pod_group(f"pin{number}", namespace, 1, queue=pinned))
            api.create(objects.pod(f"pin{number}-0", namespace, gang=f"pin{number}", **only))
        binds.wait_for(2, 20, prefix="pin")
        gang(api, "whole", namespace, 1, pool, queue=left, cpu="4")
        reported.wait_until_waiting(
            gang_scheduler.extender, namespace, "whole", "InsufficientCapacity"
        )

        for number in range(6):
            gang(api, f"small{number}", namespace, 1, pool, queue=right)
        binds.wait_for(6, SOON_S, prefix="small")

    assert binds.of("whole") == []


def test_borrowed_capacity_is_reclaimed_by_the_queue_that_deserves_it(
    plane: ControlPlane,
    api: Api,
    gang_scheduler: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(2, cpu="4")
    stuck, busy = f"stuck-{namespace}", f"busy-{namespace}"
    create(objects.queue(stuck), objects.queue(busy))
    reported.wait_until_queue_is_known(gang_scheduler.extender, stuck)
    reported.wait_until_queue_is_known(gang_scheduler.extender, busy)
    with plane.binds(namespace) as binds:
        gang(api, "huge", namespace, 9, pool, queue=stuck)
        reported.wait_until_waiting(gang_scheduler.extender, namespace, "huge", "ExceedsCluster")
        for number in range(8):
            gang(api, f"small{number}", namespace, 1, pool, queue=busy)
        binds.wait_for(8, SOON_S, prefix="small")

        gang(api, "due", namespace, 4, pool, queue=stuck)
        binds.wait_for(4, 2 * SOON_S, prefix="due")

    running = [pod for pod in api.list("pods", namespace) if is_running_small(pod)]
    assert len(running) == 4


def is_running_small(pod: Object) -> bool:
    about = pod["metadata"]
    return about["name"].startswith("small") and "deletionTimestamp" not in about


def wait_until_all_wait(pair: GangScheduler, namespace: str, count: int) -> None:
    """Wait until a plan has the verdict waiting for every small gang."""

    def waiting() -> int:
        gangs = [reported.explanation(pair.extender, namespace, f"small{n}") for n in range(count)]
        return sum(gang.get("verdict") == "waiting" for gang in gangs)

    wait_for(lambda: waiting() == count, 20, "all small gangs wait", seeing=waiting)
