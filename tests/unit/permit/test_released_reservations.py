"""A gang whose reservations were released: its queue was closed, left, or its ceiling lowered."""

from __future__ import annotations

import pytest

from extender.cache.reservation_table import Stage
from extender.model.gang import GangKey
from extender.model.queue import Queue, QueueState
from extender.model.resources import Resources
from extender.permit.messages import Cause, Withdrawn
from tests import builders
from tests.doubles import Call
from tests.unit.reservations.world import World

from .test_cache_facts import Scene, pod
from .world import GANG, a_gang_of, bound_uids


def test_waiting_binds_of_a_released_gang_must_pass_filter_again() -> None:
    driver = a_gang_of(3)
    driver.arrives("w-0", "w-1")
    driver.tell(Withdrawn(GANG))

    assert [driver.cause_of(1), driver.cause_of(2)] == [Cause.NO_RESERVATION] * 2
    assert driver.world.backoffs == []


def test_a_released_gang_whose_group_is_being_read_must_pass_filter_again() -> None:
    driver = a_gang_of(2)
    verify = driver.arrives("w-0", "w-1")
    driver.tell(Withdrawn(GANG))

    assert bound_uids(driver.commits(verify)) == []


def test_sent_bindings_of_a_released_gang_continue() -> None:
    driver = a_gang_of(2)
    driver.commits(driver.arrives("w-0", "w-1"))
    driver.tell(Withdrawn(GANG))
    for uid in ("w-0", "w-1"):
        driver.settled(uid)

    assert [driver.cause_of(1), driver.cause_of(2)] == [Cause.BOUND] * 2


def test_the_ledger_notifies_the_permit_runner_of_a_release() -> None:
    scene = Scene()
    scene.show_group(min_member=2)
    scene.show(pod("w-0"))
    scene.reserve("w-0")
    call = Call(scene.runner, "w-0")
    scene.ledger.release_gang(GangKey("team/train"))
    scene.clock.advance()

    assert call.result(0) == Cause.NO_RESERVATION.text(GangKey("team/train"))
    assert scene.stage("w-0") is None


RED = Queue(name="red", capability=Resources({"cpu": 4000}))
CHANGES = {
    "closed": Queue(name="red", state=QueueState.CLOSED),
    "lowered": Queue(name="red", capability=Resources({"cpu": 1000})),
    "left": builders.pod_group(queue="blue"),
}


@pytest.mark.parametrize("stage", [Stage.WAITING, Stage.BINDING], ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_the_ledger_releases_gangs_whose_binds_wait_and_not_those_being_bound(
    change: str, stage: Stage
) -> None:
    blue = Queue(name="blue")
    members = [builders.seen("w-0"), builders.seen("w-1")]
    world = World(RED, blue, builders.pod_group(queue="red"), *members)
    told: list[GangKey] = []
    world.ledger.on_released(told.append)
    world.turn()
    for name in ("w-0", "w-1"):
        assert world.table.advance(builders.uid(name), stage)
    world.see(CHANGES[change])
    world.turn()

    assert told == ([builders.GANG] if stage is Stage.WAITING else [])
