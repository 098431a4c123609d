"""What happens to a bind call the moment it comes in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.model.pod import PodUid, Status
from extender.permit.messages import Answer, Bind, Cause, Closed, MarkWaiting, Opened, Release
from extender.permit.states import AttemptState
from extender.permit.timeouts import Timeouts
from extender.ports import BindOrder

from .world import GANG, MachineDriver, World, a_gang_of, bound_uids


def test_a_pod_of_no_gang_is_bound_at_once():
    world = World()
    world.add_pod("single", gang=None, reserved=False)

    order = BindOrder(uid=PodUid("single"), namespace="team", name="single", node="n-1")
    driver = MachineDriver(world)
    assert driver.arrives("single") == [Bind((order,), until=driver.now + driver.limits.answer_s)]


def test_the_bind_of_an_early_member_waits():
    driver = a_gang_of(2)

    assert driver.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]
    assert driver.machine.state_of(GANG) is AttemptState.ASSEMBLING


def test_a_member_of_a_running_gang_is_bound_at_once():
    driver = a_gang_of(3, min_member=2)
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    driver.world.change_pod("w-1", status=Status.BOUND, node="n-2")

    assert bound_uids(driver.arrives("w-2")) == ["w-2"]


def test_a_replacement_counts_the_members_that_run():
    driver = a_gang_of(3)
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    driver.world.change_pod("w-1", status=Status.RUNNING, node="n-1")

    assert bound_uids(driver.commits(driver.arrives("w-2"))) == ["w-2"]


def test_a_member_of_a_group_of_one_is_bound_without_a_live_read():
    driver = a_gang_of(2, min_member=1)

    assert bound_uids(driver.arrives("w-0")) == ["w-0"]


def test_a_bind_of_a_pod_that_is_already_on_its_node_succeeds():
    driver = a_gang_of(2)
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    driver.arrives("w-0", node="n-1")

    assert driver.error_of(1) == ""


def test_a_planned_node_is_not_mistaken_for_a_real_one():
    driver = a_gang_of(2)
    driver.world.change_pod("w-0", status=Status.BINDING, node="n-1")

    assert driver.arrives("w-0", node="n-1") == [MarkWaiting(PodUid("w-0"), "n-1")]


@pytest.mark.parametrize(
    ("cause", "change"),
    [
        (Cause.POD_ELSEWHERE, {"status": Status.RUNNING, "node": "n-2"}),
        (Cause.POD_GONE, {"status": Status.RELEASING, "node": ""}),
        (Cause.POD_GONE, {"status": Status.RELEASING, "node": "n-1"}),
    ],
    ids=["on another node", "being deleted", "being deleted on that very node"],
)
def test_a_pod_that_cannot_be_bound_is_refused(cause, change):
    driver = a_gang_of(2)
    driver.world.change_pod("w-0", **change)
    driver.arrives("w-0", node="n-1")

    assert driver.cause_of(1) is cause


def test_an_unknown_pod_is_refused_and_its_capacity_released():
    driver = a_gang_of(2)
    driver.world.remove_pod("w-0")

    text = Cause.POD_GONE.text()
    assert driver.arrives("w-0") == [Answer(1, text, Cause.POD_GONE, 0.0), Release(PodUid("w-0"))]


def test_a_gang_without_its_podgroup_is_refused():
    driver = a_gang_of(2)
    driver.world.groups.clear()
    driver.arrives("w-0")

    assert driver.cause_of(1) is Cause.GROUP_GONE


def test_a_podgroup_that_cannot_be_used_is_refused():
    driver = a_gang_of(2)
    driver.world.groups[GANG] = replace(driver.world.groups[GANG], problem="minMember is negative")
    driver.arrives("w-0")

    assert driver.cause_of(1) is Cause.GROUP_UNUSABLE


def test_a_member_without_a_reservation_is_refused():
    driver = a_gang_of(2)
    driver.world.flight.clear()
    driver.arrives("w-0")

    assert driver.cause_of(1) is Cause.NO_RESERVATION


def test_a_full_table_refuses_instead_of_growing():
    driver = a_gang_of(3, limits=Timeouts(max_waiting_binds=1))
    driver.arrives("w-0")
    driver.arrives("w-1")

    assert driver.cause_of(2) is Cause.TABLE_FULL
    assert driver.machine.waiting_binds == 1


def test_a_full_table_accepts_a_repeated_call_of_a_waiting_pod():
    driver = a_gang_of(3, limits=Timeouts(max_waiting_binds=1))
    driver.arrives("w-0")

    assert driver.arrives("w-0", node="n-2")[-1] == MarkWaiting(PodUid("w-0"), "n-2")


def test_a_closed_state_machine_refuses_until_it_opens():
    driver = a_gang_of(2)
    driver.tell(Closed(Cause.LEASE_LOST))
    driver.arrives("w-0")
    driver.tell(Opened())
    driver.world.add_pod("w-0")
    driver.arrives("w-0")

    assert driver.cause_of(1) is Cause.LEASE_LOST
    assert driver.cause_of(2) is None


def test_every_cause_has_one_constant_sentence_for_kube_scheduler():
    texts = [cause.text(GANG) for cause in Cause]

    assert len(set(texts)) == len(texts)
    assert not any(character in "%0123456789" for text in texts for character in text)
