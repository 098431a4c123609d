"""A gang of which only a part was bound is completed, unless the setting says to evict it."""

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
    Instruction,
    MarkWaiting,
    Opened,
    Release,
    ReportPartial,
)
from extender.permit.states import AttemptState
from extender.permit.timeouts import Timeouts
from extender.ports import BindOutcome

from .world import BOUND, FAILED, GANG, LOST, UNKNOWN, MachineDriver, a_gang_of, bound_uids, the

EVICTING = Timeouts(evict_partial_s=60)


def a_gang_sent_with(*outcomes: BindOutcome, limits: Timeouts | None = None) -> MachineDriver:
    """Return a gang whose bindings were sent and had these outcomes; it is partial."""
    driver = a_gang_of(len(outcomes), limits=limits)
    uids = [f"w-{index}" for index in range(len(outcomes))]
    driver.commits(driver.arrives(*uids))
    for uid, outcome in zip(uids, outcomes, strict=True):
        out = driver.settled(uid, outcome=outcome)
    assert out[-1] == ReportPartial(GANG)
    assert driver.machine.state_of(GANG) is AttemptState.PARTIAL
    return driver


def partial_gang(second: BindOutcome = FAILED, limits: Timeouts | None = None) -> MachineDriver:
    """Return a gang of two of which w-0 runs and w-1 was not bound."""
    driver = a_gang_sent_with(BOUND, second, limits=limits)
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    return driver


def evicted(instructions: list[Instruction]) -> list[str]:
    """Return the pods of the only eviction."""
    return [order.uid for order in the(EvictPartial, instructions).orders]


def test_a_gang_bound_below_its_minimum_is_reported_and_completed():
    driver = a_gang_sent_with(BOUND, LOST, BOUND)
    driver.world.add_pod("w-9", reserved=False)

    assert bound_uids(driver.arrives("w-9")) == ["w-9"]
    driver.settled("w-9")
    assert driver.machine.state_of(GANG) is None


def test_a_gang_without_any_bound_member_assembles_again():
    driver = a_gang_of(2)
    driver.commits(driver.arrives("w-0", "w-1"))
    out = driver.settled("w-0", "w-1", outcome=FAILED)

    assert out[-1] == BackOff(GANG, driver.limits.backoff_s)
    assert driver.machine.state_of(GANG) is None
    assert driver.world.flight == {}
    driver.passes(driver.limits.backoff_s)
    driver.world.add_pod("w-0")
    assert driver.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]


def test_a_replaced_group_ends_the_completion_of_the_partial_gang():
    driver = a_gang_sent_with(BOUND, LOST)
    driver.world.add_pod("w-2")
    driver.world.add_group(3, uid="g-2")

    assert driver.arrives("w-2") == [MarkWaiting(PodUid("w-2"), "n-1")]


def test_the_completion_of_a_partial_gang_ends_after_a_while():
    driver = partial_gang()
    driver.passes(driver.limits.partial_s)

    assert driver.machine.state_of(GANG) is None


def test_a_partial_gang_whose_group_is_deleted_is_forgotten():
    driver = partial_gang()
    driver.tell(GroupChanged(GANG, None))

    assert driver.machine.state_of(GANG) is None


def test_a_member_whose_binding_failed_keeps_its_reservation_and_is_bound_on_retry():
    driver = partial_gang()

    assert driver.world.flight[PodUid("w-1")] == ("filtered", "n-1")
    assert bound_uids(driver.arrives("w-1")) == ["w-1"]
    driver.settled("w-1", outcome=BOUND)
    assert driver.machine.state_of(GANG) is None


def test_a_partial_gang_is_evicted_after_its_grace_if_the_setting_asks_for_it():
    driver = partial_gang(limits=EVICTING)
    assert driver.passes(59) == []

    assert evicted(driver.passes(1)) == ["w-0"]
    assert driver.tell(EvictionStarted(GANG)) == [BackOff(GANG, driver.limits.backoff_s)]
    driver.arrives("w-1")
    assert driver.cause_of(3) is Cause.BACKING_OFF


def gang_with_an_eviction_in_question() -> MachineDriver:
    """Return a gang that is to be evicted, and a member that comes before that is decided."""
    driver = partial_gang(limits=EVICTING)
    out = driver.passes(60)
    assert not any(isinstance(each, BackOff | Release) for each in out)
    assert driver.arrives("w-1") == [MarkWaiting(PodUid("w-1"), "n-1")]
    return driver


def test_a_member_that_comes_before_the_eviction_is_refused_is_bound_then():
    driver = gang_with_an_eviction_in_question()

    assert bound_uids(driver.commits(driver.tell(EvictionRefused(GANG)))) == ["w-1"]
    driver.settled("w-1", outcome=BOUND)
    assert driver.machine.state_of(GANG) is None


def test_a_member_that_comes_before_the_eviction_starts_is_refused_then():
    driver = gang_with_an_eviction_in_question()
    out = driver.tell(EvictionStarted(GANG))

    assert driver.cause_of(3) is Cause.EVICTED_PARTIAL
    assert out[-1] == BackOff(GANG, driver.limits.backoff_s)
    assert driver.world.reserved_node(PodUid("w-1")) is None


def test_a_bound_member_is_evicted_before_the_watch_shows_it_bound():
    driver = a_gang_sent_with(BOUND, FAILED, limits=EVICTING)

    assert evicted(driver.passes(60)) == ["w-0"]


def test_a_member_of_unknown_outcome_is_evicted_with_its_gang():
    driver = partial_gang(second=UNKNOWN, limits=EVICTING)

    assert evicted(driver.passes(60)) == ["w-0", "w-1"]


def test_a_call_does_not_wait_for_ever_for_the_result_of_an_eviction():
    driver = partial_gang(limits=EVICTING)
    driver.passes(60)
    driver.passes(60)
    driver.arrives("w-1")

    assert driver.machine.waiting_binds == 1


def test_a_partial_gang_with_a_refused_eviction_does_not_back_off():
    driver = partial_gang(limits=EVICTING)
    driver.passes(60)
    driver.tell(EvictionStarted(GANG))
    assert driver.tell(EvictionRefused(GANG)) == [BackOff(GANG, 0.0)]

    assert driver.tell(EvictionRefused(GANG)) == [], "once is enough"
    driver.world.flight[PodUid("w-1")] = ("filtered", "n-1")  # by the next plan, which may try it
    driver.arrives("w-1")
    assert driver.machine.waiting_binds == 1


def test_a_gang_that_was_completed_meanwhile_is_not_evicted():
    driver = partial_gang(second=UNKNOWN, limits=EVICTING)
    driver.world.change_pod("w-1", status=Status.RUNNING, node="n-1")

    assert driver.passes(60) == []
    assert driver.machine.state_of(GANG) is None


def test_a_partial_gang_is_not_evicted_while_a_member_is_being_bound():
    driver = partial_gang(limits=EVICTING)
    driver.passes(59)
    driver.arrives("w-1")
    assert driver.passes(1) == []
    driver.settled("w-1")

    assert driver.passes(60) == []


def partial_gang_of_an_earlier_term(limits: Timeouts | None = None) -> MachineDriver:
    """Return a gang of two of which an earlier leader has bound w-0."""
    driver = a_gang_of(2, limits=limits)
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    assert driver.tell(FoundPartial(GANG)) == []
    return driver


def test_a_partial_gang_of_an_earlier_term_is_evicted_in_time_too():
    driver = partial_gang_of_an_earlier_term(EVICTING)
    assert driver.passes(59) == []

    assert evicted(driver.passes(1)) == ["w-0"]
    assert driver.machine.state_of(GANG) is None


def test_the_time_until_eviction_starts_over_with_the_next_term():
    driver = partial_gang(limits=EVICTING)
    driver.passes(30)
    driver.tell(Closed(Cause.LEASE_LOST))
    assert driver.passes(25) == []
    driver.tell(Opened())
    driver.tell(FoundPartial(GANG))
    assert driver.passes(59) == [], "another leader may just have begun to complete it"

    assert evicted(driver.passes(1)) == ["w-0"]


def test_no_gang_is_evicted_after_the_lease_was_lost():
    driver = partial_gang(limits=EVICTING)
    driver.tell(Closed(Cause.LEASE_LOST))
    assert driver.passes(3600) == []

    sent = a_gang_of(2, limits=EVICTING)
    sent.arrives("w-0")
    sent.commits(sent.arrives("w-1"))
    sent.tell(Closed(Cause.LEASE_LOST))
    sent.settled("w-0")
    assert ReportPartial(GANG) in sent.settled("w-1", outcome=FAILED)
    sent.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    assert sent.passes(3600) == []
    assert sent.machine.state_of(GANG) is None


def test_a_partial_gang_of_an_earlier_term_is_completed_as_its_members_come():
    driver = partial_gang_of_an_earlier_term(EVICTING)
    driver.passes(30)
    assert bound_uids(driver.arrives("w-1")) == ["w-1"]
    driver.settled("w-1")
    driver.world.change_pod("w-1", status=Status.RUNNING, node="n-1")
    driver.pod_changed("w-1")

    assert driver.passes(60) == []
    assert driver.machine.state_of(GANG) is None


def test_without_the_eviction_setting_a_partial_gang_of_an_earlier_term_assembles():
    driver = partial_gang_of_an_earlier_term()

    assert driver.machine.state_of(GANG) is None
    assert driver.passes(3600) == []


def test_a_complete_or_assembling_gang_is_not_taken_for_partial():
    whole = a_gang_of(1, limits=EVICTING)
    whole.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    whole.tell(FoundPartial(GANG))
    assert whole.machine.state_of(GANG) is None

    gathers = a_gang_of(3, limits=EVICTING)
    gathers.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    gathers.arrives("w-1")
    gathers.tell(FoundPartial(GANG))
    assert gathers.machine.state_of(GANG) is AttemptState.ASSEMBLING


def found_partial_while_assembling(limits: Timeouts | None = None) -> MachineDriver:
    """Return a gang of three of which an earlier leader has bound w-0, while w-1 waits for w-2."""
    driver = a_gang_of(3, limits=limits or EVICTING)
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    driver.arrives("w-1")
    assert driver.tell(FoundPartial(GANG)) == []
    assert driver.machine.state_of(GANG) is AttemptState.ASSEMBLING
    return driver


def test_a_gang_found_partial_while_it_assembles_is_evicted_when_the_attempt_fails():
    driver = found_partial_while_assembling()
    early = driver.passes(59)
    assert driver.cause_of(1) is Cause.DEADLINE
    assert not any(isinstance(each, EvictPartial) for each in early)

    assert evicted(driver.passes(1)) == ["w-0"]
    driver.tell(EvictionStarted(GANG))
    assert not any(isinstance(each, EvictPartial) for each in driver.passes(3600)), "once is enough"


def test_a_gang_found_partial_is_also_evicted_when_its_last_caller_disconnects():
    driver = found_partial_while_assembling()
    driver.peer_goes(1)
    assert driver.passes(59) == []

    assert the(EvictPartial, driver.passes(1)).gang == GANG


def test_a_gang_found_partial_is_also_evicted_when_none_of_its_binds_succeeds():
    driver = found_partial_while_assembling()
    driver.commits(driver.arrives("w-2"))
    for uid in ("w-1", "w-2"):
        driver.settled(uid, outcome=FAILED)
    driver.passes(59)

    assert the(EvictPartial, driver.passes(1)).gang == GANG


def test_a_gang_found_partial_is_evicted_at_once_when_its_attempt_takes_too_long():
    driver = found_partial_while_assembling(Timeouts(evict_partial_s=20))
    driver.passes(29)
    assert driver.machine.state_of(GANG) is AttemptState.ASSEMBLING

    assert the(EvictPartial, driver.passes(1)).gang == GANG


def test_a_gang_found_partial_is_completed_as_its_members_come():
    driver = found_partial_while_assembling()
    driver.passes(40)
    for uid in ("w-1", "w-2"):
        driver.world.flight[PodUid(uid)] = ("filtered", "n-1")
        assert bound_uids(driver.arrives(uid)) == [uid]
        driver.settled(uid)

    assert driver.machine.state_of(GANG) is None


def test_a_gang_found_partial_while_it_assembles_is_forgotten_once_it_started():
    driver = found_partial_while_assembling()
    driver.commits(driver.arrives("w-2"))
    driver.settled("w-1", "w-2")
    the_pods_are_gone(driver, "w-1")  # it has started by now

    assert driver.passes(3600) == []
    assert driver.machine.table.partial_until == {}


def test_the_time_until_eviction_starts_over_when_this_term_binds_a_part():
    driver = found_partial_while_assembling()
    driver.passes(10)
    driver.commits(driver.arrives("w-2"))
    driver.settled("w-1")
    assert ReportPartial(GANG) in driver.settled("w-2", outcome=FAILED)
    assert driver.passes(59) == []

    assert evicted(driver.passes(1)) == ["w-0", "w-1"]


def test_a_gang_found_partial_is_forgotten_when_its_group_or_the_lease_is_gone():
    gone, replaced, closed = (found_partial_while_assembling() for _ in range(3))
    gone.world.groups.clear()
    gone.tell(GroupChanged(GANG, None))
    replaced.tell(GroupChanged(GANG, replaced.world.add_group(3, uid="g-2")))
    closed.tell(Closed(Cause.LEASE_LOST))
    closed.tell(Opened())

    for driver in (gone, replaced, closed):
        assert driver.passes(3600) == []
        assert driver.machine.table.partial_until == {}


def the_pods_are_gone(driver: MachineDriver, *uids: str) -> None:
    for uid in uids:
        driver.world.remove_pod(uid)
        driver.world.flight.pop(PodUid(uid), None)
        driver.pod_changed(uid, None)


def test_a_partial_gang_without_any_member_left_assembles_again():
    driver = a_gang_sent_with(BOUND, BOUND, FAILED)
    the_pods_are_gone(driver, "w-0", "w-1")

    assert driver.machine.state_of(GANG) is None
    the_pods_are_gone(driver, "w-2")
    for index in range(3):
        driver.world.add_pod(f"x-{index}")
    assert driver.arrives("x-0") == [MarkWaiting(PodUid("x-0"), "n-1")]
    driver.arrives("x-1")
    assert bound_uids(driver.commits(driver.arrives("x-2"))) == ["x-0", "x-1", "x-2"]


def test_a_partial_gang_whose_bound_members_left_while_the_last_was_bound_has_not_started():
    driver = a_gang_sent_with(BOUND, BOUND, FAILED)
    for uid in ("w-0", "w-1"):
        driver.world.change_pod(uid, status=Status.RUNNING, node="n-1")
        driver.world.flight.pop(PodUid(uid))
    driver.arrives("w-2")
    the_pods_are_gone(driver, "w-0", "w-1")
    driver.settled("w-2")

    assert driver.machine.state_of(GANG) is AttemptState.PARTIAL
    for uid in ("x-0", "x-1"):
        driver.world.add_pod(uid)
        assert bound_uids(driver.arrives(uid)) == [uid]
        driver.settled(uid)
    assert driver.machine.state_of(GANG) is None


def test_a_partial_gang_of_an_earlier_term_whose_members_left_has_not_started():
    driver = a_gang_of(3, limits=EVICTING)
    driver.world.change_pod("w-0", status=Status.RUNNING, node="n-1")
    driver.tell(FoundPartial(GANG))
    driver.arrives("w-1")
    driver.settled("w-1")
    driver.arrives("w-2")
    the_pods_are_gone(driver, "w-0")
    driver.settled("w-2")

    assert driver.machine.state_of(GANG) is AttemptState.PARTIAL


def test_a_gang_whose_members_left_while_the_others_were_bound_has_not_started():
    driver = a_gang_of(3)
    driver.commits(driver.arrives("w-0", "w-1", "w-2"))
    driver.settled("w-0")
    the_pods_are_gone(driver, "w-0")
    driver.settled("w-1")

    assert driver.settled("w-2")[-1] == ReportPartial(GANG)
    assert driver.machine.state_of(GANG) is AttemptState.PARTIAL


def test_a_gang_with_members_that_finish_before_the_last_is_bound_has_started():
    driver = a_gang_of(3)
    driver.commits(driver.arrives("w-0", "w-1", "w-2"))
    driver.settled("w-0")
    driver.world.change_pod("w-0", status=Status.SUCCEEDED, node="n-1")
    driver.world.flight.pop(PodUid("w-0"))
    driver.settled("w-1", "w-2")

    assert driver.machine.state_of(GANG) is None


def test_a_bound_member_counts_before_the_watch_shows_that_it_exists():
    driver = a_gang_sent_with(BOUND, BOUND, FAILED)
    the_pods_are_gone(driver, "w-2")
    driver.world.add_pod("x-2", is_shown=False)
    assert bound_uids(driver.arrives("x-2")) == ["x-2"]
    driver.settled("x-2")

    assert driver.machine.state_of(GANG) is None


def test_a_partial_gang_whose_deletion_was_not_reported_assembles_again():
    driver = a_gang_sent_with(BOUND, BOUND, FAILED)
    for uid in ("w-0", "w-1", "w-2"):
        driver.world.remove_pod(uid)
        driver.world.flight.pop(PodUid(uid), None)
    driver.world.add_pod("x-0")

    assert driver.arrives("x-0") == [MarkWaiting(PodUid("x-0"), "n-1")]
    assert driver.machine.state_of(GANG) is AttemptState.ASSEMBLING


def test_a_gang_whose_binds_all_have_unknown_outcomes_assembles_again():
    driver = a_gang_sent_with(UNKNOWN, UNKNOWN, UNKNOWN)

    assert driver.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]
    driver.arrives("w-1")
    assert bound_uids(driver.commits(driver.arrives("w-2"))) == ["w-0", "w-1", "w-2"]


def test_a_member_bound_with_unknown_outcome_counts_with_those_that_retry():
    driver = a_gang_sent_with(UNKNOWN, UNKNOWN, UNKNOWN)
    driver.arrives("w-1", "w-2")
    driver.world.change_pod("w-0", status=Status.BOUND, node="n-1")
    driver.world.flight.pop(PodUid("w-0"))

    assert bound_uids(driver.commits(driver.pod_changed("w-0"))) == ["w-1", "w-2"]


def test_a_gang_without_any_bound_member_is_forgotten_once_that_is_known():
    driver = a_gang_sent_with(UNKNOWN, FAILED)
    driver.world.flight.pop(PodUid("w-0"))  # too long ago: its reservation has expired
    assert driver.pod_changed("w-1") == []

    assert driver.machine.state_of(GANG) is None


def test_a_gang_whose_outcomes_are_unknown_is_not_forgotten_before_they_are_known():
    driver = a_gang_sent_with(UNKNOWN, FAILED)
    driver.pod_changed("w-1")

    assert driver.machine.state_of(GANG) is AttemptState.PARTIAL


def test_a_gang_without_any_bound_member_is_not_evicted():
    driver = a_gang_sent_with(UNKNOWN, UNKNOWN, limits=EVICTING)

    assert driver.passes(60) == []
    assert driver.machine.state_of(GANG) is None


def test_a_gang_without_a_role_that_it_needs_has_not_started():
    driver = a_gang_of(2)
    driver.world.add_group(2, roles={"chief": 1})
    driver.world.add_pod("chief", role="chief")
    driver.commits(driver.arrives("w-0", "w-1", "chief"))
    driver.settled("w-0", "w-1")
    assert driver.settled("chief", outcome=FAILED)[-1] == ReportPartial(GANG)

    assert bound_uids(driver.arrives("chief")) == ["chief"]
    driver.settled("chief")
    assert driver.machine.state_of(GANG) is None


def test_an_attempt_with_unknown_outcomes_ends_when_its_reservations_expire():
    driver = a_gang_sent_with(UNKNOWN, UNKNOWN)
    driver.passes(10)
    assert driver.machine.state_of(GANG) is AttemptState.PARTIAL, "they may be bound still"
    for uid in ("w-0", "w-1"):
        driver.world.flight.pop(PodUid(uid))
    driver.passes(driver.limits.check_s)

    assert driver.machine.state_of(GANG) is None
    driver.world.add_pod("w-0")
    assert driver.arrives("w-0") == [MarkWaiting(PodUid("w-0"), "n-1")]


def test_a_partial_gang_that_runs_has_started_without_any_notification():
    driver = a_gang_sent_with(BOUND, UNKNOWN)
    driver.world.change_pod("w-1", status=Status.BOUND, node="n-1")
    driver.passes(driver.limits.check_s)

    assert driver.machine.state_of(GANG) is None


def test_a_partial_gang_has_one_pending_check_however_often_it_was_partial():
    driver = partial_gang()
    table = driver.machine.table
    for _ in range(5):
        table.alarms.set(driver.now, GANG)  # left over from earlier attempts
    driver.passes(10 * driver.limits.check_s)

    assert len(table.alarms.gangs) == 2, "the next look, and the deadline of the hold"
