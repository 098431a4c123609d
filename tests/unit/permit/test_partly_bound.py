"""A gang of which only a part got bound: forward, unless it was decided to take it back."""

from __future__ import annotations

from extender.model.pod import PodUid, Status
from extender.permit.messages import (
    BackOff,
    Cause,
    Closed,
    EvictionRefused,
    EvictionStarted,
    EvictPartial,
    FoundPartial,
    GroupChanged,
    MarkWaiting,
    Opened,
    Release,
    ReportPartial,
)
from extender.permit.states import AttemptState
from extender.permit.timeouts import Timeouts
from extender.ports import BindOutcome, BindResult

from .world import BOUND, FAILED, GANG, LOST, Desk, a_gang_of, bound_uids, the

UNKNOWN = BindOutcome(BindResult.UNKNOWN, "the API server does not answer")


def broken_gang(
    second: BindOutcome = FAILED, limits: Timeouts | None = None, *, is_shown: bool = True
) -> Desk:
    """Give a gang of two of which w-0 got bound and w-1 did not."""
    desk = a_gang_of(2, limits=limits)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.settled("w-0")
    desk.settled("w-1", second)
    if is_shown:
        desk.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    return desk


def test_a_gang_bound_below_its_minimum_is_reported_and_completed():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.commits(desk.arrives("w-2"))
    desk.settled("w-0")
    desk.settled("w-1", LOST)
    out = desk.settled("w-2")

    assert out[-1] == ReportPartial(GANG)
    assert desk.book.state_of(GANG) is AttemptState.PARTIAL
    desk.world.add_pod("w-9", ticket=False)
    assert bound_uids(desk.arrives("w-9")) == ["w-9"]
    desk.settled("w-9")
    assert desk.book.state_of(GANG) is None


def test_a_gang_without_any_bound_member_assembles_again():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.settled("w-0", FAILED)
    out = desk.settled("w-1", FAILED)

    assert out[-1] == BackOff(GANG, desk.limits.backoff_s)
    assert desk.book.state_of(GANG) is None
    desk.passes(desk.limits.backoff_s)
    desk.world.add_pod("w-0")
    assert desk.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]


def test_a_gang_with_a_bind_of_unknown_outcome_is_completed():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.settled("w-0", FAILED)
    out = desk.settled("w-1", BindOutcome(BindResult.UNKNOWN, "the API server does not answer"))

    assert out[-1] == ReportPartial(GANG)
    assert desk.book.state_of(GANG) is AttemptState.PARTIAL


def test_a_replaced_group_ends_the_completion_of_the_partial_gang():
    desk = a_gang_of(3, min_member=2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.settled("w-0")
    desk.settled("w-1", LOST)
    desk.world.add_group(3, uid="g-2")

    assert desk.arrives("w-2") == [MarkWaiting(PodUid("w-2"), "n-1")]


def test_the_completion_of_a_partial_gang_ends_after_a_while():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.settled("w-0")
    desk.settled("w-1", LOST)
    desk.passes(desk.limits.partial_s)

    assert desk.book.state_of(GANG) is None


def test_a_partial_gang_whose_group_is_deleted_is_forgotten():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.settled("w-0")
    desk.settled("w-1", FAILED)
    desk.tell(GroupChanged(GANG, None))

    assert desk.book.state_of(GANG) is None


def test_a_member_whose_binding_failed_keeps_its_reservation_and_is_bound_on_retry():
    desk = broken_gang()

    assert desk.world.flight[PodUid("w-1")] == ("passed", "n-1")
    assert bound_uids(desk.arrives("w-1")) == ["w-1"]
    desk.settled("w-1", BOUND)
    assert desk.book.state_of(GANG) is None


def test_a_gang_without_any_bound_member_releases_all_its_capacity():
    desk = a_gang_of(2)
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.settled("w-0", FAILED)
    desk.settled("w-1", FAILED)

    assert desk.world.flight == {}


def test_a_partial_gang_is_evicted_after_its_grace_if_the_setting_asks_for_it():
    desk = broken_gang(limits=Timeouts(evict_partial_s=60))
    assert desk.passes(59) == []
    out = desk.passes(1)

    assert [order.uid for order in the(EvictPartial, out).orders] == ["w-0"]
    assert desk.tell(EvictionStarted(GANG)) == [BackOff(GANG, desk.limits.backoff_s)]
    desk.arrives("w-1")
    assert desk.cause_of(3) is Cause.BACKING_OFF


def asked_whether_it_leaves() -> Desk:
    """Give a gang that is to be taken back, and a member that comes before it is known to leave."""
    desk = broken_gang(limits=Timeouts(evict_partial_s=60))
    out = desk.passes(60)
    assert not any(isinstance(each, BackOff | Release) for each in out)
    assert desk.arrives("w-1") == [MarkWaiting(PodUid("w-1"), "n-1")]
    return desk


def test_a_member_that_comes_before_the_eviction_is_refused_is_bound_then():
    desk = asked_whether_it_leaves()

    assert bound_uids(desk.commits(desk.tell(EvictionRefused(GANG)))) == ["w-1"]
    desk.settled("w-1", BOUND)
    assert desk.book.state_of(GANG) is None


def test_a_member_that_comes_before_the_eviction_starts_is_refused_then():
    desk = asked_whether_it_leaves()
    out = desk.tell(EvictionStarted(GANG))

    assert desk.cause_of(3) is Cause.EVICTED_PARTIAL
    assert out[-1] == BackOff(GANG, desk.limits.backoff_s)
    assert desk.world.reserved_node(PodUid("w-1")) is None


def test_a_bound_member_is_evicted_before_the_watch_shows_it_bound():
    desk = broken_gang(limits=Timeouts(evict_partial_s=60), is_shown=False)
    out = desk.passes(60)

    assert [order.uid for order in the(EvictPartial, out).orders] == ["w-0"]


def test_a_member_of_unknown_outcome_is_evicted_with_its_gang():
    desk = broken_gang(second=UNKNOWN, limits=Timeouts(evict_partial_s=60))
    out = desk.passes(60)

    assert [order.uid for order in the(EvictPartial, out).orders] == ["w-0", "w-1"]


def test_a_call_does_not_wait_for_ever_for_the_result_of_an_eviction():
    desk = broken_gang(limits=Timeouts(evict_partial_s=60))
    desk.passes(60)
    desk.passes(60)
    desk.arrives("w-1")

    assert desk.book.waiting_binds == 1


def test_a_partial_gang_with_a_refused_eviction_does_not_back_off():
    desk = broken_gang(limits=Timeouts(evict_partial_s=60))
    desk.passes(60)
    desk.tell(EvictionStarted(GANG))
    assert desk.tell(EvictionRefused(GANG)) == [BackOff(GANG, 0.0)]

    assert desk.tell(EvictionRefused(GANG)) == [], "once is enough"
    desk.world.flight[PodUid("w-1")] = ("passed", "n-1")  # by the next plan, which may try it
    desk.arrives("w-1")
    assert desk.book.waiting_binds == 1


def test_a_gang_that_was_completed_meanwhile_is_not_evicted():
    desk = broken_gang(second=UNKNOWN, limits=Timeouts(evict_partial_s=60))
    desk.world.change_pod("w-1", status=Status.RUNNING, node="n-1")

    assert desk.passes(60) == []
    assert desk.book.state_of(GANG) is None


def test_a_partial_gang_is_not_evicted_while_a_member_is_being_bound():
    desk = broken_gang(limits=Timeouts(evict_partial_s=60))
    desk.passes(59)
    desk.arrives("w-1")
    assert desk.passes(1) == []
    desk.settled("w-1")

    assert desk.passes(60) == []


def left_in_part(limits: Timeouts | None = None) -> Desk:
    """Give a gang of two of which somebody else has bound w-0, before he was ended."""
    desk = a_gang_of(2, limits=limits)
    desk.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    assert desk.tell(FoundPartial(GANG)) == []
    return desk


def test_a_partial_gang_of_an_earlier_term_is_evicted_in_time_too():
    desk = left_in_part(Timeouts(evict_partial_s=60))
    assert desk.passes(59) == []
    out = desk.passes(1)

    assert [order.uid for order in the(EvictPartial, out).orders] == ["w-0"]
    assert desk.book.state_of(GANG) is None


def test_the_time_until_eviction_starts_over_with_the_next_term():
    desk = broken_gang(limits=Timeouts(evict_partial_s=60))
    desk.passes(30)
    desk.tell(Closed(Cause.LEASE_LOST))
    assert desk.passes(25) == []
    desk.tell(Opened())
    desk.tell(FoundPartial(GANG))
    assert desk.passes(59) == [], "whoever led meanwhile may just have begun to complete it"
    out = desk.passes(1)

    assert [order.uid for order in the(EvictPartial, out).orders] == ["w-0"]


def test_no_gang_is_evicted_after_the_lease_was_lost():
    desk = broken_gang(limits=Timeouts(evict_partial_s=60))
    desk.tell(Closed(Cause.LEASE_LOST))
    assert desk.passes(3600) == []

    sent = a_gang_of(2, limits=Timeouts(evict_partial_s=60))
    sent.arrives("w-0")
    sent.commits(sent.arrives("w-1"))
    sent.tell(Closed(Cause.LEASE_LOST))
    sent.settled("w-0")
    assert ReportPartial(GANG) in sent.settled("w-1", FAILED)
    sent.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    assert sent.passes(3600) == []
    assert sent.book.state_of(GANG) is None


def test_a_partial_gang_of_an_earlier_term_is_completed_as_its_members_come():
    desk = left_in_part(Timeouts(evict_partial_s=60))
    desk.passes(30)
    assert bound_uids(desk.arrives("w-1")) == ["w-1"]
    desk.settled("w-1")
    desk.world.change_pod("w-1", status=Status.RUNNING, node="n-1")
    desk.pod_changed("w-1")

    assert desk.passes(60) == []
    assert desk.book.state_of(GANG) is None


def test_without_the_eviction_setting_a_partial_gang_of_an_earlier_term_assembles():
    desk = left_in_part()

    assert desk.book.state_of(GANG) is None
    assert desk.passes(3600) == []


def test_a_complete_or_assembling_gang_is_not_taken_for_partial():
    whole = a_gang_of(1, limits=Timeouts(evict_partial_s=60))
    whole.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    whole.tell(FoundPartial(GANG))
    assert whole.book.state_of(GANG) is None

    gathers = a_gang_of(3, limits=Timeouts(evict_partial_s=60))
    gathers.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    gathers.arrives("w-1")
    gathers.tell(FoundPartial(GANG))
    assert gathers.book.state_of(GANG) is AttemptState.ASSEMBLING


def found_while_it_gathers(limits: Timeouts | None = None) -> Desk:
    """Give a gang of three of which somebody else has bound w-0, while w-1 waits for w-2."""
    desk = a_gang_of(3, limits=limits or Timeouts(evict_partial_s=60))
    desk.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    desk.arrives("w-1")
    assert desk.tell(FoundPartial(GANG)) == []
    assert desk.book.state_of(GANG) is AttemptState.ASSEMBLING
    return desk


def test_a_gang_found_partial_while_it_assembles_is_evicted_when_the_attempt_fails():
    desk = found_while_it_gathers()
    early = desk.passes(59)
    assert desk.cause_of(1) is Cause.DEADLINE
    assert not any(isinstance(each, EvictPartial) for each in early)
    out = desk.passes(1)

    assert [order.uid for order in the(EvictPartial, out).orders] == ["w-0"]
    desk.tell(EvictionStarted(GANG))
    assert not any(isinstance(each, EvictPartial) for each in desk.passes(3600)), "once is enough"


def test_a_gang_found_partial_is_also_evicted_when_its_last_caller_disconnects():
    desk = found_while_it_gathers()
    desk.peer_goes(1)
    assert desk.passes(59) == []

    assert the(EvictPartial, desk.passes(1)).gang == GANG


def test_a_gang_found_partial_is_also_evicted_when_none_of_its_binds_succeeds():
    desk = found_while_it_gathers()
    desk.commits(desk.arrives("w-2"))
    for uid in ("w-1", "w-2"):
        desk.settled(uid, FAILED)
    desk.passes(59)

    assert the(EvictPartial, desk.passes(1)).gang == GANG


def test_a_gang_found_partial_is_evicted_at_once_when_its_attempt_takes_too_long():
    desk = found_while_it_gathers(Timeouts(evict_partial_s=20))
    desk.passes(29)
    assert desk.book.state_of(GANG) is AttemptState.ASSEMBLING

    assert the(EvictPartial, desk.passes(1)).gang == GANG


def test_a_gang_found_partial_is_completed_as_its_members_come():
    desk = found_while_it_gathers()
    desk.passes(40)
    for uid in ("w-1", "w-2"):
        desk.world.flight[PodUid(uid)] = ("passed", "n-1")
        assert bound_uids(desk.arrives(uid)) == [uid]
        desk.settled(uid)

    assert desk.book.state_of(GANG) is None


def test_a_gang_found_partial_while_it_assembles_is_forgotten_once_it_started():
    desk = found_while_it_gathers()
    desk.commits(desk.arrives("w-2"))
    desk.settled("w-1")
    desk.settled("w-2")
    the_pods_are_gone(desk, "w-1")  # it is another story by now

    assert desk.passes(3600) == []
    assert desk.book._table.partial_until == {}


def test_the_time_until_eviction_starts_over_when_this_term_binds_a_part():
    desk = found_while_it_gathers()
    desk.passes(10)
    desk.commits(desk.arrives("w-2"))
    desk.settled("w-1")
    assert ReportPartial(GANG) in desk.settled("w-2", FAILED)
    assert desk.passes(59) == []

    assert [order.uid for order in the(EvictPartial, desk.passes(1)).orders] == ["w-0", "w-1"]


def test_a_gang_found_partial_is_forgotten_when_its_group_or_the_lease_is_gone():
    gone, replaced, closed = (found_while_it_gathers() for _ in range(3))
    gone.world.groups.clear()
    gone.tell(GroupChanged(GANG, None))
    replaced.tell(GroupChanged(GANG, replaced.world.add_group(3, uid="g-2")))
    closed.tell(Closed(Cause.LEASE_LOST))
    closed.tell(Opened())

    for desk in (gone, replaced, closed):
        assert desk.passes(3600) == []
        assert desk.book._table.partial_until == {}


def the_pods_are_gone(desk: Desk, *uids: str) -> None:
    for uid in uids:
        desk.world.remove_pod(uid)
        desk.world.flight.pop(PodUid(uid), None)
        desk.pod_changed(uid, None)


def a_gang_sent_with(*outcomes: BindOutcome) -> Desk:
    """Give a gang whose bindings were sent and came to these ends."""
    desk = a_gang_of(len(outcomes))
    for index in range(len(outcomes)):
        out = desk.arrives(f"w-{index}")
    desk.commits(out)
    for index, outcome in enumerate(outcomes):
        desk.settled(f"w-{index}", outcome)
    assert desk.book.state_of(GANG) is AttemptState.PARTIAL
    return desk


def test_a_partial_gang_without_any_member_left_assembles_again():
    desk = a_gang_sent_with(BOUND, BOUND, FAILED)
    the_pods_are_gone(desk, "w-0", "w-1")

    assert desk.book.state_of(GANG) is None
    the_pods_are_gone(desk, "w-2")
    for index in range(3):
        desk.world.add_pod(f"x-{index}")
    assert desk.arrives("x-0") == [MarkWaiting(PodUid("x-0"), "n-1")]
    desk.arrives("x-1")
    assert bound_uids(desk.commits(desk.arrives("x-2"))) == ["x-0", "x-1", "x-2"]


def test_a_partial_gang_whose_bound_members_left_while_the_last_was_bound_has_not_started():
    desk = a_gang_sent_with(BOUND, BOUND, FAILED)
    for uid in ("w-0", "w-1"):
        desk.world.change_pod(uid, status=Status.RUNNING, node="n-1")
        desk.world.flight.pop(PodUid(uid))
    desk.arrives("w-2")
    the_pods_are_gone(desk, "w-0", "w-1")
    desk.settled("w-2")

    assert desk.book.state_of(GANG) is AttemptState.PARTIAL
    for uid in ("x-0", "x-1"):
        desk.world.add_pod(uid)
        assert bound_uids(desk.arrives(uid)) == [uid]
        desk.settled(uid)
    assert desk.book.state_of(GANG) is None


def test_a_partial_gang_of_an_earlier_term_whose_members_left_has_not_started():
    desk = a_gang_of(3, limits=Timeouts(evict_partial_s=60))
    desk.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    desk.tell(FoundPartial(GANG))
    desk.arrives("w-1")
    desk.settled("w-1")
    desk.arrives("w-2")
    the_pods_are_gone(desk, "w-0")
    desk.settled("w-2")

    assert desk.book.state_of(GANG) is AttemptState.PARTIAL


def test_a_gang_whose_members_left_while_the_others_were_bound_has_not_started():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.commits(desk.arrives("w-2"))
    desk.settled("w-0")
    the_pods_are_gone(desk, "w-0")
    desk.settled("w-1")

    assert desk.settled("w-2")[-1] == ReportPartial(GANG)
    assert desk.book.state_of(GANG) is AttemptState.PARTIAL


def test_a_gang_with_members_that_finish_before_the_last_is_bound_has_started():
    desk = a_gang_of(3)
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.commits(desk.arrives("w-2"))
    desk.settled("w-0")
    desk.world.change_pod("w-0", status=Status.SUCCEEDED, node="n-1")
    desk.world.flight.pop(PodUid("w-0"))
    desk.settled("w-1")
    desk.settled("w-2")

    assert desk.book.state_of(GANG) is None


def test_a_bound_member_counts_before_the_watch_shows_that_it_exists():
    desk = a_gang_sent_with(BOUND, BOUND, FAILED)
    the_pods_are_gone(desk, "w-2")
    desk.world.add_pod("x-2", is_shown=False)
    assert bound_uids(desk.arrives("x-2")) == ["x-2"]
    desk.settled("x-2")

    assert desk.book.state_of(GANG) is None


def test_a_partial_gang_whose_deletion_was_not_reported_assembles_again():
    desk = a_gang_sent_with(BOUND, BOUND, FAILED)
    for uid in ("w-0", "w-1", "w-2"):
        desk.world.remove_pod(uid)
        desk.world.flight.pop(PodUid(uid), None)
    desk.world.add_pod("x-0")

    assert desk.arrives("x-0") == [MarkWaiting(PodUid("x-0"), "n-1")]
    assert desk.book.state_of(GANG) is AttemptState.ASSEMBLING


def test_a_gang_whose_binds_all_have_unknown_outcomes_assembles_again():
    desk = a_gang_sent_with(UNKNOWN, UNKNOWN, UNKNOWN)

    assert desk.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]
    desk.arrives("w-1")
    assert bound_uids(desk.commits(desk.arrives("w-2"))) == ["w-0", "w-1", "w-2"]


def test_a_member_bound_with_unknown_outcome_counts_with_those_that_retry():
    desk = a_gang_sent_with(UNKNOWN, UNKNOWN, UNKNOWN)
    desk.arrives("w-1")
    desk.arrives("w-2")
    desk.world.change_pod("w-0", status=Status.BOUND, node="n-1")
    desk.world.flight.pop(PodUid("w-0"))

    assert bound_uids(desk.commits(desk.pod_changed("w-0"))) == ["w-1", "w-2"]


def test_a_gang_without_any_bound_member_is_forgotten_once_that_is_known():
    desk = a_gang_sent_with(UNKNOWN, FAILED)
    desk.world.flight.pop(PodUid("w-0"))  # too long ago: what was promised has lapsed
    assert desk.pod_changed("w-1") == []

    assert desk.book.state_of(GANG) is None


def test_a_gang_whose_outcomes_are_unknown_is_not_forgotten_before_they_are_known():
    desk = a_gang_sent_with(UNKNOWN, FAILED)
    desk.pod_changed("w-1")

    assert desk.book.state_of(GANG) is AttemptState.PARTIAL


def test_a_partial_gang_that_turns_out_to_run_has_started():
    desk = a_gang_sent_with(BOUND, UNKNOWN)
    desk.world.change_pod("w-1", status=Status.BOUND, node="n-1")
    desk.pod_changed("w-1")

    assert desk.book.state_of(GANG) is None


def test_a_gang_without_any_bound_member_is_not_evicted():
    desk = a_gang_of(2, limits=Timeouts(evict_partial_s=60))
    desk.arrives("w-0")
    desk.commits(desk.arrives("w-1"))
    desk.settled("w-0", UNKNOWN)
    desk.settled("w-1", UNKNOWN)

    assert desk.passes(60) == []
    assert desk.book.state_of(GANG) is None


def test_a_gang_without_a_role_that_it_needs_has_not_started():
    desk = a_gang_of(2)
    desk.world.add_group(2, roles={"chief": 1})
    desk.world.add_pod("chief", role="chief")
    desk.arrives("w-0")
    desk.arrives("w-1")
    desk.commits(desk.arrives("chief"))
    desk.settled("w-0")
    desk.settled("w-1")
    assert desk.settled("chief", FAILED)[-1] == ReportPartial(GANG)

    assert bound_uids(desk.arrives("chief")) == ["chief"]
    desk.settled("chief")
    assert desk.book.state_of(GANG) is None


def test_an_attempt_with_unknown_outcomes_ends_when_its_reservations_expire():
    desk = a_gang_sent_with(UNKNOWN, UNKNOWN)
    desk.passes(10)
    assert desk.book.state_of(GANG) is AttemptState.PARTIAL, "they may be bound still"
    for uid in ("w-0", "w-1"):
        desk.world.flight.pop(PodUid(uid))
    desk.passes(desk.limits.check_s)

    assert desk.book.state_of(GANG) is None
    desk.world.add_pod("w-0")
    assert desk.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]


def test_a_partial_gang_that_runs_has_started_without_any_notification():
    desk = a_gang_sent_with(BOUND, UNKNOWN)
    desk.world.change_pod("w-1", status=Status.BOUND, node="n-1")
    desk.passes(desk.limits.check_s)

    assert desk.book.state_of(GANG) is None


def test_a_partial_gang_has_one_pending_check_however_often_it_was_partial():
    desk = broken_gang()
    table = desk.book._table
    for _ in range(5):
        table.alarms.set(desk.now, GANG)  # left over from earlier attempts
    desk.passes(10 * desk.limits.check_s)

    assert len(table.alarms._heap) == 2, "the next look, and the deadline of the hold"
