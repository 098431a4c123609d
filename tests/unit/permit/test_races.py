"""Races of waiting binds and the cluster: the rows of the table in docs/internals/permit.md."""

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
    StillIncomplete,
    Verified,
    Verify,
)
from extender.permit.states import AttemptState
from extender.permit.timeouts import Timeouts

from .world import (
    GANG,
    LOST,
    MachineDriver,
    a_gang_of,
    a_gang_with_a_surplus_member,
    bound_uids,
    the,
)


def test_a_last_member_just_before_the_deadline_still_commits():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.passes(driver.limits.hold_s - 0.01)
    verify = driver.arrives("w-1")
    assert driver.passes(0.02) == []

    assert bound_uids(driver.commits(verify)) == ["w-0", "w-1"]


def test_a_last_member_just_after_the_deadline_is_too_late():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.passes(driver.limits.hold_s)
    driver.arrives("w-1")

    assert driver.cause_of(1) is Cause.DEADLINE
    assert driver.cause_of(2) is Cause.BACKING_OFF


def test_a_waiting_pod_that_is_deleted_is_answered_at_once_and_the_others_wait():
    driver = a_gang_of(4, min_member=3)
    driver.arrives("w-0", "w-1")
    driver.world.remove_pod("w-1")
    driver.pod_changed("w-1")
    driver.passes(driver.limits.grace_s)

    assert driver.cause_of(2) is Cause.POD_GONE
    assert driver.machine.state_of(GANG) is AttemptState.ASSEMBLING


def test_a_gang_that_lost_a_member_is_refused_after_the_grace():
    driver = a_gang_of(3)
    driver.arrives("w-0", "w-1")
    driver.world.remove_pod("w-2")
    driver.pod_changed("w-2", gang=None)
    assert driver.passes(driver.limits.grace_s - 0.1) == []
    driver.passes(0.1)

    assert {driver.cause_of(1), driver.cause_of(2)} == {Cause.NOT_ENOUGH_MEMBERS}


def test_a_member_that_is_replaced_within_the_grace_changes_nothing():
    driver = a_gang_of(3)
    driver.arrives("w-0", "w-1")
    driver.world.remove_pod("w-2")
    driver.pod_changed("w-2", gang=None)
    driver.world.add_pod("w-2b")
    driver.pod_changed("w-2b")
    driver.passes(driver.limits.grace_s)

    assert bound_uids(driver.commits(driver.arrives("w-2b"))) == ["w-0", "w-1", "w-2b"]


def test_a_disconnect_does_not_end_a_gang_that_is_still_being_created():
    driver = a_gang_of(2, min_member=4)
    driver.arrives("w-0", "w-1")
    driver.peer_goes(1)
    driver.passes(driver.limits.grace_s)

    assert driver.cause_of(2) is None


def test_a_member_that_moves_to_another_gang_is_lost_to_the_old_one():
    driver = a_gang_of(3)
    driver.arrives("w-0", "w-1")
    other = GangKey("team/other")
    driver.world.gangs[PodUid("w-1")] = other
    driver.pod_changed("w-1", gang=other)
    driver.passes(driver.limits.grace_s)

    assert driver.cause_of(2) is Cause.POD_CHANGED
    assert driver.cause_of(1) is Cause.NOT_ENOUGH_MEMBERS


def test_a_pod_deleted_during_the_commit_fails_alone():
    driver = a_gang_with_a_surplus_member()
    driver.world.remove_pod("w-1")
    assert driver.pod_changed("w-1") == []
    driver.settled("w-1", outcome=LOST)
    driver.settled("w-0")
    driver.settled("w-2")

    assert [driver.error_of(call) for call in (1, 2, 3)] == ["", LOST.message, ""]
    assert driver.machine.state_of(GANG) is None


def test_a_surplus_pod_that_is_deleted_during_the_commit_is_answered_at_once():
    driver = a_gang_with_a_surplus_member()
    driver.world.remove_pod("w-2")
    driver.pod_changed("w-2")

    assert driver.cause_of(3) is Cause.POD_GONE
    driver.settled("w-0")
    assert bound_uids(driver.settled("w-1")) == []
    assert driver.machine.state_of(GANG) is None


def test_a_recreated_pod_is_another_waiting_bind():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.world.remove_pod("w-0")
    driver.world.add_pod("w-0-again")
    driver.pod_changed("w-0")
    driver.arrives("w-0-again")

    assert driver.cause_of(1) is Cause.POD_GONE
    assert bound_uids(driver.commits(driver.arrives("w-1"))) == ["w-0-again", "w-1"]


def test_a_lowered_minimum_releases_the_waiting_binds():
    driver = a_gang_of(3)
    driver.arrives("w-0", "w-1")
    group = driver.world.add_group(2)
    verify = driver.tell(GroupChanged(GANG, group))

    assert bound_uids(driver.commits(verify)) == ["w-0", "w-1"]


def moved(driver: MachineDriver) -> PodGroup:
    """Return the PodGroup after a move to another queue."""
    driver.world.groups[GANG] = replace(driver.world.groups[GANG], queue="other")
    return driver.world.groups[GANG]


def test_a_waiting_gang_that_is_moved_to_another_queue_must_pass_filter_there():
    driver = a_gang_of(3)
    driver.arrives("w-0", "w-1")
    driver.tell(GroupChanged(GANG, moved(driver)))

    assert [driver.cause_of(1), driver.cause_of(2)] == [Cause.GROUP_MOVED] * 2
    assert driver.world.backoffs == []
    assert driver.world.flight == {PodUid("w-2"): driver.world.flight[PodUid("w-2")]}


def test_a_gang_with_bound_members_is_completed_though_it_is_moved():
    driver = a_gang_of(2)
    driver.world.change_pod("w-1", node="n-1", status=Status.RUNNING)
    verify = driver.arrives("w-0")
    driver.tell(GroupChanged(GANG, moved(driver)))

    assert bound_uids(driver.commits(verify)) == ["w-0"]


def test_a_raised_minimum_ends_the_verification():
    driver = a_gang_of(3, min_member=2)
    old = the(Verify, driver.arrives("w-0", "w-1"))
    raised = driver.world.add_group(3)

    assert driver.tell(GroupChanged(GANG, raised)) == []
    assert driver.verified(old) == []
    assert driver.machine.state_of(GANG) is AttemptState.ASSEMBLING


@pytest.mark.parametrize("during_verification", [False, True])
def test_a_deleted_podgroup_refuses_every_call_without_backoff(during_verification):
    driver = a_gang_of(2 if during_verification else 3)
    driver.arrives("w-0", "w-1")
    del driver.world.groups[GANG]
    out = driver.tell(GroupChanged(GANG, None))

    assert {driver.cause_of(1), driver.cause_of(2)} == {Cause.GROUP_GONE}
    assert not any(isinstance(each, BackOff) for each in out)


def test_a_recreated_podgroup_is_another_attempt():
    driver = a_gang_of(3, min_member=2)
    driver.arrives("w-0")
    driver.world.add_group(2, uid="g-2")
    driver.arrives("w-1")

    assert driver.cause_of(1) is Cause.GROUP_REPLACED
    assert bound_uids(driver.commits(driver.arrives("w-2"))) == ["w-1", "w-2"]


def test_members_of_a_new_podgroup_are_refused_while_the_old_one_commits():
    driver = a_gang_of(3, min_member=2)
    driver.commits(driver.arrives("w-0", "w-1"))
    driver.world.add_group(4, uid="g-2")
    driver.arrives("w-2")

    assert driver.cause_of(3) is Cause.GROUP_REPLACED


def test_after_a_crash_in_the_commit_the_bound_members_count():
    driver = a_gang_of(4)
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    driver.world.change_pod("w-1", status=Status.BOUND, node="n-1")
    driver.arrives("w-2")

    assert bound_uids(driver.commits(driver.arrives("w-3"))) == ["w-2", "w-3"]


def test_closing_stops_a_gang_that_is_being_verified():
    driver = a_gang_of(2)
    verify = driver.arrives("w-0", "w-1")
    driver.tell(Closed(Cause.LEASE_LOST))

    assert driver.commits(verify) == []
    assert {driver.cause_of(1), driver.cause_of(2)} == {Cause.LEASE_LOST}


def test_the_first_call_sets_the_deadline_of_all():
    driver = a_gang_of(3)
    driver.arrives("w-0")
    driver.passes(20)
    driver.arrives("w-1")
    driver.passes(10)

    assert {driver.cause_of(1), driver.cause_of(2)} == {Cause.DEADLINE}


def test_a_reservation_that_ends_while_the_bind_waits_has_no_effect():
    driver = a_gang_of(2)
    verify = driver.arrives("w-0", "w-1")
    driver.world.flight.clear()

    assert bound_uids(driver.commits(verify)) == ["w-0", "w-1"]


def test_a_gang_that_keeps_failing_backs_off_longer_each_time():
    driver = a_gang_of(2, limits=Timeouts(backoff_s=10, max_backoff_s=35))
    spans = []
    for _ in range(4):
        driver.world.add_pod("w-0")
        driver.arrives("w-0")
        spans += [each.span_s for each in driver.passes(30) if isinstance(each, BackOff)]
        driver.passes(spans[-1])

    assert spans == [10, 20, 35, 35]


def test_a_gang_that_started_backs_off_from_the_beginning_again():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.passes(30 + 10)
    driver.world.add_pod("w-0")
    driver.commits(driver.arrives("w-0", "w-1"))
    driver.settled("w-0", "w-1")
    for uid in ("w-0", "w-1"):
        driver.world.remove_pod(uid)
    driver.world.flight.clear()
    driver.world.add_pod("w-2")
    driver.arrives("w-2")

    assert the(BackOff, driver.passes(30)).span_s == driver.limits.backoff_s


GONE, REPLACED, MOVED = Cause.GROUP_GONE, Cause.GROUP_REPLACED, Cause.GROUP_MOVED


@pytest.mark.parametrize(
    ("cause", "live", "cached"),
    [
        (GONE, None, "as before"),
        (GONE, "as before", None),
        (REPLACED, {"uid": "g-2"}, "as before"),
        (REPLACED, "as before", {"uid": "g-2"}),
        (MOVED, {"queue": "other"}, "as before"),
    ],
)
def test_a_change_that_only_the_live_read_or_the_cache_shows_ends_the_attempt(cause, live, cached):
    driver = a_gang_of(2)
    verify = the(Verify, driver.arrives("w-0", "w-1"))
    read, known = (
        verify.group if each == "as before" else each and replace(verify.group, **each)
        for each in (live, cached)
    )
    driver.world.groups = {GANG: known} if known else {}
    out = driver.tell(Verified(GANG, verify.epoch, read))

    assert bound_uids(out) == []
    assert [driver.cause_of(1), driver.cause_of(2)] == [cause] * 2


def test_the_waiting_binds_of_an_incomplete_gang_are_refused_at_once():
    driver = a_gang_of(2, min_member=3)
    driver.arrives("w-0")
    driver.arrives("w-1")

    driver.tell(StillIncomplete(GANG))

    assert {driver.cause_of(1), driver.cause_of(2)} == {Cause.INCOMPLETE}
    assert driver.machine.waiting_binds == 0


def test_an_incomplete_gang_has_no_backoff_when_the_rest_comes():
    driver = a_gang_of(1, min_member=2)
    driver.arrives("w-0")
    driver.tell(StillIncomplete(GANG))
    for uid in ("w-0", "w-1"):
        driver.world.add_pod(uid)  # with a new reservation

    driver.arrives("w-0")
    driver.arrives("w-1")

    assert driver.machine.state_of(GANG) is AttemptState.VERIFYING


def test_an_incomplete_event_after_the_last_member_came_is_ignored():
    driver = a_gang_of(2)
    driver.arrives("w-0")

    driver.tell(StillIncomplete(GANG))

    assert driver.cause_of(1) is None


def test_an_incomplete_event_does_not_end_a_verification():
    driver = a_gang_of(2)
    driver.arrives("w-0")
    driver.arrives("w-1")

    driver.tell(StillIncomplete(GANG))

    assert driver.machine.state_of(GANG) is AttemptState.VERIFYING
