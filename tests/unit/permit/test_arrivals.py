"""What happens to a bind call the moment it comes in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.model.pod import PodUid, Status
from extender.permit.messages import Answer, Bind, Cause, Closed, MarkWaiting, Opened, Release
from extender.permit.states import AttemptState
from extender.permit.timeouts import Timeouts
from extender.ports import BindOrder

from .world import GANG, Desk, World, a_gang_of, bound_uids


def test_a_pod_of_no_gang_is_bound_at_once():
    world = World()
    world.add_pod("single", gang=None, ticket=False)

    order = BindOrder(uid=PodUid("single"), namespace="team", name="single", node="n-1")
    desk = Desk(world)
    assert desk.arrives("single") == [Bind((order,), until=desk.now + desk.limits.answer_s)]


def test_the_bind_of_an_early_member_waits():
    desk = a_gang_of(2)

    assert desk.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]
    assert desk.book.state_of(GANG) is AttemptState.ASSEMBLING


def test_a_member_of_a_running_gang_is_bound_at_once():
    desk = a_gang_of(3, min_member=2)
    desk.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    desk.world.change_pod("w-1", status=Status.BOUND, node="n-2")

    assert bound_uids(desk.arrives("w-2")) == ["w-2"]


def test_a_replacement_counts_the_members_that_run():
    desk = a_gang_of(3)
    desk.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    desk.world.change_pod("w-1", status=Status.RUNNING, node="n-1")

    assert bound_uids(desk.commits(desk.arrives("w-2"))) == ["w-2"]


def test_a_member_of_a_group_of_one_is_bound_without_a_live_read():
    desk = a_gang_of(2, min_member=1)

    assert bound_uids(desk.arrives("w-0")) == ["w-0"]


def test_a_bind_of_a_pod_that_is_already_on_its_node_succeeds():
    desk = a_gang_of(2)
    desk.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    desk.arrives("w-0", node="n-1")

    assert desk.error_of(1) == ""


def test_a_planned_node_is_not_mistaken_for_a_real_one():
    desk = a_gang_of(2)
    desk.world.change_pod("w-0", status=Status.BINDING, node="n-1")

    assert desk.arrives("w-0", node="n-1") == [MarkWaiting(PodUid("w-0"), "n-1")]


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
    desk = a_gang_of(2)
    desk.world.change_pod("w-0", **change)
    desk.arrives("w-0", node="n-1")

    assert desk.cause_of(1) is cause


def test_an_unknown_pod_is_refused_and_its_capacity_released():
    desk = a_gang_of(2)
    desk.world.remove_pod("w-0")

    text = Cause.POD_GONE.text()
    assert desk.arrives("w-0") == [Answer(1, text, Cause.POD_GONE, 0.0), Release(PodUid("w-0"))]


def test_a_gang_without_its_podgroup_is_refused():
    desk = a_gang_of(2)
    desk.world.groups.clear()
    desk.arrives("w-0")

    assert desk.cause_of(1) is Cause.GROUP_GONE


def test_a_podgroup_that_cannot_be_used_is_refused():
    desk = a_gang_of(2)
    desk.world.groups[GANG] = replace(desk.world.groups[GANG], problem="minMember is negative")
    desk.arrives("w-0")

    assert desk.cause_of(1) is Cause.GROUP_UNUSABLE


def test_a_member_without_a_reservation_is_refused():
    desk = a_gang_of(2)
    desk.world.flight.clear()
    desk.arrives("w-0")

    assert desk.cause_of(1) is Cause.NO_RESERVATION


def test_a_full_table_refuses_instead_of_growing():
    desk = a_gang_of(3, limits=Timeouts(max_waiting_binds=1))
    desk.arrives("w-0")
    desk.arrives("w-1")

    assert desk.cause_of(2) is Cause.TABLE_FULL
    assert desk.book.waiting_binds == 1


def test_a_full_table_accepts_a_repeated_call_of_a_waiting_pod():
    desk = a_gang_of(3, limits=Timeouts(max_waiting_binds=1))
    desk.arrives("w-0")

    assert desk.arrives("w-0", node="n-2")[-1] == MarkWaiting(PodUid("w-0"), "n-2")


def test_a_closed_state_machine_refuses_until_it_opens():
    desk = a_gang_of(2)
    desk.tell(Closed(Cause.LEASE_LOST))
    desk.arrives("w-0")
    desk.tell(Opened())
    desk.world.add_pod("w-0")
    desk.arrives("w-0")

    assert desk.cause_of(1) is Cause.LEASE_LOST
    assert desk.cause_of(2) is None


def test_every_cause_has_one_constant_sentence_for_kube_scheduler():
    texts = [cause.text(GANG) for cause in Cause]

    assert len(set(texts)) == len(texts)
    assert not any(character in "%0123456789" for text in texts for character in text)
