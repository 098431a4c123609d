"""Races between the barrier and the cluster: the rows of the table in docs/holds.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid, Status
from extender.permit.messages import (
    BackOff,
    Cause,
    Closed,
    GroupChanged,
    NodeChanged,
    Verified,
    Verify,
)
from extender.permit.states import AttemptState
from extender.permit.timeouts import Timeouts

from .world import GANG, LOST, Desk, World, a_gang_of, bound_uids, the


def test_a_last_member_just_before_the_deadline_still_commits():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.passes(desk.limits.hold_s - 0.01)
    verify = desk.arrives("w-1")
    assert desk.passes(0.02) == []

    assert bound_uids(desk.commits(verify)) == ["w-0", "w-1"]


def test_a_last_member_just_after_the_deadline_is_too_late():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.passes(desk.limits.hold_s)
    desk.arrives("w-1")

    assert desk.cause_of(1) is Cause.DEADLINE
    assert desk.cause_of(2) is Cause.BACKING_OFF


def test_a_waiting_pod_that_is_deleted_is_answered_at_once_and_the_others_wait():
    desk = a_gang_of(4, min_member=3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.world.remove_pod("w-1")
    desk.pod_changed("w-1")
    desk.passes(desk.limits.grace_s)

    assert desk.cause_of(2) is Cause.POD_GONE
    assert desk.book.state_of(GANG) is AttemptState.ASSEMBLING


def test_a_gang_that_lost_a_member_is_refused_after_the_grace():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.world.remove_pod("w-2")
    desk.pod_changed("w-2", gang=None)
    assert desk.passes(desk.limits.grace_s - 0.1) == []
    desk.passes(0.1)

    assert {desk.cause_of(1), desk.cause_of(2)} == {Cause.NOT_ENOUGH_MEMBERS}


def test_a_member_that_is_replaced_within_the_grace_changes_nothing():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.world.remove_pod("w-2")
    desk.pod_changed("w-2", gang=None)
    desk.world.add_pod("w-2b")
    desk.pod_changed("w-2b")
    desk.passes(desk.limits.grace_s)

    assert bound_uids(desk.commits(desk.arrives("w-2b"))) == ["w-0", "w-1", "w-2b"]


def test_a_disconnect_does_not_end_a_gang_that_is_still_being_created():
    desk = a_gang_of(2, min_member=4)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.peer_goes(1)
    desk.passes(desk.limits.grace_s)

    assert desk.cause_of(2) is None


def test_a_member_that_moves_to_another_gang_is_lost_to_the_old_one():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    other = GangKey("team/other")
    desk.world.gangs[PodUid("w-1")] = other
    desk.pod_changed("w-1", gang=other)
    desk.passes(desk.limits.grace_s)

    assert desk.cause_of(2) is Cause.POD_CHANGED
    assert desk.cause_of(1) is Cause.NOT_ENOUGH_MEMBERS


def test_a_pod_deleted_during_the_commit_fails_alone():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.arrives("w-2")
    desk.commits(verify)
    desk.world.remove_pod("w-1")
    assert desk.pod_changed("w-1") == []
    desk.settled("w-1", LOST)
    desk.settled("w-0")
    desk.settled("w-2")

    assert [desk.error_of(call) for call in (1, 2, 3)] == ["", LOST.message, ""]
    assert desk.book.state_of(GANG) is None


def test_a_surplus_pod_that_is_deleted_during_the_commit_is_answered_at_once():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.arrives("w-2")
    desk.commits(verify)
    desk.world.remove_pod("w-2")
    desk.pod_changed("w-2")

    assert desk.cause_of(3) is Cause.POD_GONE
    desk.settled("w-0")
    assert bound_uids(desk.settled("w-1")) == []
    assert desk.book.state_of(GANG) is None


def test_a_recreated_pod_is_another_waiting_bind():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.world.remove_pod("w-0")
    desk.world.add_pod("w-0-again")
    desk.pod_changed("w-0")
    desk.arrives("w-0-again")

    assert desk.cause_of(1) is Cause.POD_GONE
    assert bound_uids(desk.commits(desk.arrives("w-1"))) == ["w-0-again", "w-1"]


def test_a_lowered_minimum_releases_the_waiting_binds():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    group = desk.world.add_group(2)
    verify = desk.tell(GroupChanged(GANG, group))

    assert bound_uids(desk.commits(verify)) == ["w-0", "w-1"]


def moved(desk: Desk) -> PodGroup:
    """Give the PodGroup as it is after somebody moved it to another queue."""
    desk.world.groups[GANG] = replace(desk.world.groups[GANG], queue="other")
    return desk.world.groups[GANG]


def test_a_waiting_gang_that_is_moved_to_another_queue_must_pass_filter_there():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.tell(GroupChanged(GANG, moved(desk)))

    assert [desk.cause_of(1), desk.cause_of(2)] == [Cause.GROUP_MOVED] * 2
    assert desk.world.backoffs == []
    assert desk.world.flight == {PodUid("w-2"): desk.world.flight[PodUid("w-2")]}


def test_a_move_that_only_the_live_read_shows_counts_too():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    verify = the(Verify, desk.arrives("w-1"))
    live = replace(desk.world.groups[GANG], queue="other")

    assert bound_uids(desk.tell(Verified(GANG, verify.epoch, live))) == []
    assert [desk.cause_of(1), desk.cause_of(2)] == [Cause.GROUP_MOVED] * 2


def test_a_gang_with_bound_members_is_completed_though_it_is_moved():
    desk = a_gang_of(2)
    desk.world.change_pod("w-1", node="n-1", status=Status.RUNNING)
    verify = desk.arrives("w-0")
    desk.tell(GroupChanged(GANG, moved(desk)))

    assert bound_uids(desk.commits(verify)) == ["w-0"]


def test_a_raised_minimum_ends_the_verification():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    old = the(Verify, desk.arrives("w-1"))
    raised = desk.world.add_group(3)

    assert desk.tell(GroupChanged(GANG, raised)) == []
    assert desk.verified(old) == []
    assert desk.book.state_of(GANG) is AttemptState.ASSEMBLING


@pytest.mark.parametrize("during_verification", [False, True])
def test_a_deleted_podgroup_refuses_every_call_without_backoff(during_verification):
    desk = a_gang_of(2 if during_verification else 3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    del desk.world.groups[GANG]
    out = desk.tell(GroupChanged(GANG, None))

    assert {desk.cause_of(1), desk.cause_of(2)} == {Cause.GROUP_GONE}
    assert not any(isinstance(each, BackOff) for each in out)


def test_the_live_read_finds_a_podgroup_that_was_deleted_unnoticed():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    verify = the(Verify, desk.arrives("w-1"))
    desk.tell(Verified(GANG, verify.epoch, None))

    assert {desk.cause_of(1), desk.cause_of(2)} == {Cause.GROUP_GONE}


def test_a_deleted_podgroup_is_found_though_an_old_read_still_shows_it():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    verify = the(Verify, desk.arrives("w-1"))
    del desk.world.groups[GANG]
    desk.verified(verify)

    assert {desk.cause_of(1), desk.cause_of(2)} == {Cause.GROUP_GONE}


def test_a_recreated_podgroup_is_another_attempt():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    desk.world.add_group(2, uid="g-2")
    desk.arrives("w-1")

    assert desk.cause_of(1) is Cause.GROUP_REPLACED
    assert bound_uids(desk.commits(desk.arrives("w-2"))) == ["w-1", "w-2"]


def test_the_live_read_finds_a_podgroup_that_was_recreated_unnoticed():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    verify = the(Verify, desk.arrives("w-1"))
    desk.verified(verify, replace(verify.group, uid="g-2"))

    assert {desk.cause_of(1), desk.cause_of(2)} == {Cause.GROUP_REPLACED}


def test_members_of_a_new_podgroup_are_refused_while_the_old_one_commits():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.world.add_group(4, uid="g-2")
    desk.arrives("w-2")

    assert desk.cause_of(3) is Cause.GROUP_REPLACED


def test_after_a_crash_in_the_commit_the_bound_members_count():
    desk = a_gang_of(4)
    desk.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    desk.world.change_pod("w-1", status=Status.BOUND, node="n-1")
    desk.arrives("w-2")

    assert bound_uids(desk.commits(desk.arrives("w-3"))) == ["w-2", "w-3"]


@pytest.mark.parametrize("cause", [Cause.SHUT_DOWN, Cause.LEASE_LOST])
def test_closing_refuses_waiting_binds_and_lets_sent_bindings_finish(cause):
    world = World()
    world.add_node("n-1")
    other = GangKey("team/other")
    world.add_group(2)
    world.add_group(2, gang=other)
    for uid, gang in [("w-0", GANG), ("w-1", GANG), ("o-0", other)]:
        world.add_pod(uid, gang)
    desk = Desk(world)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.arrives("o-0")
    out = desk.tell(Closed(cause))

    assert desk.cause_of(3) is cause
    assert not any(isinstance(each, BackOff) for each in out)
    desk.settled("w-0")
    desk.settled("w-1")
    assert [desk.error_of(1), desk.error_of(2)] == ["", ""]
    desk.arrives("o-0")
    assert desk.cause_of(4) is cause


def test_closing_stops_a_gang_that_is_being_verified():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.tell(Closed(Cause.LEASE_LOST))

    assert desk.commits(verify) == []
    assert {desk.cause_of(1), desk.cause_of(2)} == {Cause.LEASE_LOST}


def test_a_drained_node_refuses_only_its_own_members():
    desk = a_gang_of(3)
    desk.arrives("w-0", node="n-1")
    desk.arrives("w-1", node="n-2")
    desk.world.add_node("n-1", unschedulable=True)
    desk.tell(NodeChanged("n-1"))

    assert [desk.cause_of(1), desk.cause_of(2)] == [Cause.NODE_LOST, None]


def test_a_waiting_pod_that_is_preempted_is_answered_at_once():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.world.change_pod("w-0", status=Status.RELEASING)
    desk.pod_changed("w-0")

    assert desk.cause_of(1) is Cause.POD_GONE


def test_two_gangs_that_block_each_other_back_off_for_different_times():
    world = World()
    world.add_node("n-1")
    other = GangKey("team/other")
    world.add_group(2)
    world.add_group(2, gang=other)
    world.add_pod("w-0")
    world.add_pod("o-0", other)
    desk = Desk(world)
    desk.arrives("w-0")
    desk.now += 1
    desk.arrives("o-0")
    out = desk.passes(desk.limits.hold_s)

    assert [each for each in out if isinstance(each, BackOff)] == [
        BackOff(GANG, desk.limits.backoff_s),
        BackOff(other, desk.limits.backoff_s),
    ]
    assert desk.book.waiting_binds == 0


def test_surplus_members_are_bound_at_once_after_the_gang_has_started():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.settled("w-0")
    desk.settled("w-1")

    assert bound_uids(desk.arrives("w-2")) == ["w-2"]


def test_the_first_call_sets_the_deadline_of_all():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.passes(20)
    desk.arrives("w-1")
    desk.passes(10)

    assert {desk.cause_of(1), desk.cause_of(2)} == {Cause.DEADLINE}


def test_a_reservation_that_ends_while_the_bind_waits_has_no_effect():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    verify = desk.arrives("w-1")
    desk.world.flight.clear()

    assert bound_uids(desk.commits(verify)) == ["w-0", "w-1"]


def test_a_gang_that_keeps_failing_backs_off_longer_each_time():
    desk = a_gang_of(2, limits=Timeouts(backoff_s=10, max_backoff_s=35))
    spans = []
    for _ in range(4):
        desk.world.add_pod("w-0")
        desk.arrives("w-0")
        spans += [each.span_s for each in desk.passes(30) if isinstance(each, BackOff)]
        desk.passes(spans[-1])

    assert spans == [10, 20, 35, 35]


def test_a_gang_that_started_backs_off_from_the_beginning_again():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.passes(30 + 10)
    desk.world.add_pod("w-0")
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.settled("w-0")
    desk.settled("w-1")
    for uid in ("w-0", "w-1"):
        desk.world.remove_pod(uid)
    desk.world.flight.clear()
    desk.world.add_pod("w-2")
    desk.arrives("w-2")

    assert the(BackOff, desk.passes(30)).span_s == desk.limits.backoff_s


def test_all_members_of_a_gang_get_the_same_message():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.passes(desk.limits.hold_s)

    text = "gang team/train: members did not assemble in time"
    assert [desk.error_of(1), desk.error_of(2)] == [text, text]
