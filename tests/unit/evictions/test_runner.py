"""Victim sets are sent whole, one at a time for each gang that needs capacity."""

from __future__ import annotations

import pytest

from extender.evictions.pending import AGAIN, LET_OFF_S
from extender.evictions.runner import BLOCKED, REFUSED, UNSEEN_S
from extender.model.gang import GangKey
from extender.model.pod import Pod, PodUid, Status
from extender.planner.plan import Plan
from extender.ports import EvictOutcome, EvictResult
from tests.builders import pod
from tests.doubles import SlowEvictor
from tests.scene import budget, evictions, gang, snapshot, verdict
from tests.unit.evictions.runner_harness import NEEDY, OLD, RunnerHarness


def test_a_victim_set_is_sent_once_although_every_plan_names_it() -> None:
    harness = RunnerHarness()
    for _ in range(3):
        harness.run(OLD, NEEDY, wanted=evictions(OLD))

    assert harness.evictor.names() == ["old-0", "old-1"]
    assert harness.counted("reclaim", "evicted") == 2


def test_other_victims_are_not_evicted_while_a_set_is_in_progress() -> None:
    harness = RunnerHarness()
    other = gang("other", 2)
    harness.run(OLD, other, NEEDY, wanted=evictions(OLD))
    half = gang("old", [pod("old-0", on="n", status=Status.RELEASING), pod("old-1", on="n")])
    harness.run(half, other, NEEDY, wanted=evictions(other))

    assert harness.evictor.names() == ["old-0", "old-1"]


def test_the_next_set_is_sent_after_the_first_is_gone_and_not_while_it_terminates() -> None:
    harness = RunnerHarness()
    other = gang("other", 2)
    harness.run(OLD, other, NEEDY, wanted=evictions(OLD))
    for _ in range(10):
        harness.clock.advance(60)
        leaving = gang("old", 2, status=Status.RELEASING)
        harness.run(leaving, other, NEEDY, wanted=evictions(other))
    assert harness.evictor.names() == ["old-0", "old-1"]

    harness.run(other, NEEDY, wanted=evictions(other))
    assert harness.evictor.names() == ["old-0", "old-1", "other-0", "other-1"]


def test_a_set_is_finished_when_its_last_pods_are_stuck_terminating() -> None:
    harness = RunnerHarness()
    other = gang("other", 2)
    harness.run(OLD, other, NEEDY, wanted=evictions(OLD))
    leaving = gang("old", 2, status=Status.RELEASING)
    stuck = frozenset(pod.uid for pod in leaving.pods)
    harness.run(leaving, other, NEEDY, wanted=evictions(other), stuck=stuck)

    assert harness.evictor.names() == ["old-0", "old-1", "other-0", "other-1"]


def test_evicted_pods_that_never_terminate_are_protected_and_others_are_chosen() -> None:
    harness = RunnerHarness()
    other = gang("other", 2)
    harness.run(OLD, other, NEEDY, wanted=evictions(OLD))
    harness.clock.advance(UNSEEN_S + 1)
    harness.run(OLD, other, NEEDY, wanted=evictions(OLD))

    assert harness.evictor.names() == ["old-0", "old-1"], "not again at once"
    assert harness.protected() == {"old-0", "old-1"}
    assert harness.plan_requests == 1

    harness.run(OLD, other, NEEDY, wanted=evictions(other))
    assert harness.evictor.names() == ["old-0", "old-1", "other-0", "other-1"]


def test_a_pod_is_not_evicted_for_two_gangs_at_once() -> None:
    harness = RunnerHarness()
    third = gang("third", 1, status=Status.PENDING, queue="right")
    twice = evictions(OLD) + evictions(OLD, beneficiary="a/third")
    harness.run(OLD, NEEDY, third, wanted=twice)

    assert harness.evictor.names() == ["old-0", "old-1"]


def test_a_whole_gang_may_be_evicted_for_two_gangs_together() -> None:
    harness = RunnerHarness()
    third = gang("third", 1, status=Status.PENDING, queue="right")
    large = gang("old", 3, min_member=2)
    surplus = evictions(large, only=1)
    rest = [each for each in evictions(large, beneficiary="a/third") if each.name != "old-0"]
    harness.run(large, NEEDY, third, wanted=surplus + rest)

    assert harness.evictor.names() == ["old-0", "old-1", "old-2"]


def test_a_set_with_a_victim_that_may_not_be_evicted_is_not_sent_and_the_plan_gets_the_reason() -> (
    None
):
    harness = RunnerHarness()
    guarded = gang("guarded", [pod("guarded-0", on="n", labels={"app": "db"})])
    wanted = evictions(OLD, guarded)
    seen = harness.run(OLD, guarded, NEEDY, wanted=wanted, budgets=[budget("db", 0, app="db")])

    assert harness.evictor.orders == []
    assert harness.plan_requests == 1, "at once, not when something happens to change"
    assert harness.counted("reclaim", "refused") == 1
    assert harness.runner.protect(seen).protected == {
        PodUid("a-guarded-0"): "PodDisruptionBudget a/db allows 0 disruptions, not 1"
    }
    harness.clock.advance(REFUSED.first_s)
    assert harness.runner.protect(snapshot(now=harness.clock.now())).protected == {}


def test_a_blocked_victim_is_protected_and_another_plan_is_requested() -> None:
    harness = RunnerHarness()
    harness.evictor.outcomes["old-1"] = EvictOutcome(EvictResult.BLOCKED, "the budget says no")
    seen = harness.run(OLD, NEEDY, wanted=evictions(OLD))

    assert harness.plan_requests == 1
    assert harness.runner.protect(seen).protected == {PodUid("a-old-1"): "the budget says no"}
    assert harness.counted("reclaim", "blocked") == 1
    harness.clock.advance(BLOCKED.first_s)
    assert harness.runner.protect(snapshot(now=harness.clock.now())).protected == {}


def test_after_a_refusal_other_victims_are_evicted_as_soon_as_the_rest_is_terminating() -> None:
    harness = RunnerHarness()
    other = gang("other", 2)
    harness.evictor.outcomes["old-1"] = EvictOutcome(EvictResult.BLOCKED, "no")
    harness.run(OLD, other, NEEDY, wanted=evictions(OLD))
    harness.run(OLD, other, NEEDY, wanted=evictions(other))
    half = gang("old", [pod("old-0", on="n", status=Status.RELEASING), pod("old-1", on="n")])
    harness.run(half, other, NEEDY, wanted=evictions(other))

    assert harness.evictor.names() == ["old-0", "old-1", "other-0", "other-1"]


def evict_partly(harness: RunnerHarness, outcome: EvictOutcome) -> None:
    """Evict one of two members; the other eviction has this *outcome*."""
    harness.evictor.outcomes["old-1"] = outcome
    harness.run(OLD, NEEDY, wanted=evictions(OLD))
    harness.run(
        gang("old", [pod("old-0", on="n", status=Status.RELEASING), pod("old-1", on="n")]),
        NEEDY,
        wanted=[],
    )


@pytest.mark.parametrize("result", [EvictResult.FAILED, EvictResult.BLOCKED])
def test_the_remaining_member_of_a_partly_evicted_gang_is_evicted_again_until_it_is_gone(
    result: EvictResult,
) -> None:
    harness, rest = RunnerHarness(), gang("old", [pod("old-1", on="n")], min_member=2)
    evict_partly(harness, EvictOutcome(result, "no answer"))
    for _ in range(3):
        harness.clock.advance(AGAIN.longest_s)
        harness.run(rest, NEEDY, wanted=[])
    assert harness.evictor.names()[2:] == ["old-1"] * 3
    harness.run(rest, NEEDY, wanted=[])
    assert len(harness.evictor.names()) == 5, "not again at once"

    harness.evictor.outcomes.clear()
    harness.clock.advance(AGAIN.longest_s)
    harness.run(rest, NEEDY, wanted=[])
    harness.clock.advance(AGAIN.longest_s)
    harness.run(NEEDY, wanted=[])
    assert harness.evictor.names()[5:] == ["old-1"]
    assert harness.counted("reclaim", "evicted") == 1
    assert harness.counted("follow", "evicted") == 1


def test_a_new_leader_evicts_the_remaining_members_that_are_marked_for_eviction() -> None:
    harness = RunnerHarness()
    marked = pod("old-1", on="n", terminating=True)
    for members in ([pod("old-0", on="n", terminating=True), marked], [pod("old-1", on="n")]):
        for _ in range(2):
            harness.run(gang("old", members, min_member=2), NEEDY, wanted=[])
            harness.clock.advance(AGAIN.first_s)
    assert harness.evictor.names() == [], "it is complete, or its owner removed a member"

    for _ in range(2):
        harness.run(gang("old", [marked], min_member=2), NEEDY, wanted=[])
        harness.clock.advance(AGAIN.first_s)
    assert harness.evictor.names() == ["old-1"]


def test_a_marked_pod_is_not_evicted_when_its_gang_loses_a_member_much_later() -> None:
    """A leader that stops between marking and evicting leaves marks on pods that stay."""
    harness = RunnerHarness()
    whole = gang(
        "old", [pod("old-0", on="n", terminating=True), pod("old-1", on="n", terminating=True)]
    )
    for _ in range(3):
        harness.run(whole, NEEDY, wanted=[])
        harness.clock.advance(LET_OFF_S / 2)

    for _ in range(3):
        harness.run(
            gang("old", [pod("old-1", on="n", terminating=True)], min_member=2), NEEDY, wanted=[]
        )
        harness.clock.advance(AGAIN.longest_s)
    assert harness.evictor.names() == [], "its other member failed by itself"


def test_an_expired_mark_does_not_protect_a_pod_from_a_later_eviction_of_its_gang() -> None:
    harness = RunnerHarness()
    marked = gang(
        "old", [pod("old-0", on="n", terminating=True), pod("old-1", on="n", terminating=True)]
    )
    for _ in range(3):
        harness.run(marked, NEEDY, wanted=[])
        harness.clock.advance(LET_OFF_S)
    harness.evictor.outcomes["old-1"] = EvictOutcome(EvictResult.FAILED, "no answer")
    harness.run(marked, NEEDY, wanted=evictions(marked))
    harness.clock.advance(AGAIN.longest_s)
    harness.run(
        gang("old", [pod("old-1", on="n", terminating=True)], min_member=2), NEEDY, wanted=[]
    )

    assert harness.evictor.names() == ["old-0", "old-1", "old-1"]


def test_an_eviction_cancelled_at_the_end_of_a_lease_is_repeated_in_the_next() -> None:
    harness = RunnerHarness(evictor=SlowEvictor())
    harness.run(OLD, NEEDY, wanted=evictions(OLD))
    assert isinstance(harness.evictor, SlowEvictor)
    harness.evictor.answer("old-0")
    harness.evictor.futures["old-1"].cancel()
    harness.clock.advance(AGAIN.first_s)
    rest = gang("old", [pod("old-1", on="n")], min_member=2)
    harness.run(rest, NEEDY, wanted=[])

    assert harness.evictor.names() == ["old-0", "old-1", "old-1"]


def test_a_gang_that_still_has_enough_members_after_evictions_is_left_alone() -> None:
    harness = RunnerHarness()
    large = gang("old", 3, min_member=2)
    harness.evictor.outcomes["old-1"] = EvictOutcome(EvictResult.FAILED, "no answer")
    harness.run(large, NEEDY, wanted=evictions(large)[:2])
    harness.clock.advance(AGAIN.longest_s)
    rest = gang("old", [pod("old-1", on="n"), pod("old-2", on="n")], min_member=2)
    harness.run(rest, NEEDY, wanted=[])
    harness.clock.advance(AGAIN.longest_s)
    harness.run(gang("old", [pod("old-1", on="n")], min_member=2), NEEDY, wanted=[])

    assert "old-1" not in harness.evictor.names()[2:], "later changes by its owner do not count"


def test_a_remaining_member_is_not_evicted_if_its_gang_is_complete_again_since_the_snapshot() -> (
    None
):
    harness = RunnerHarness()
    evict_partly(harness, EvictOutcome(EvictResult.BLOCKED, "no"))
    whole = gang("old", [pod("old-1", on="n"), pod("new", on="n")])
    harness.current = {OLD.key: whole}
    harness.clock.advance(AGAIN.longest_s)
    harness.run(gang("old", [pod("old-1", on="n")], min_member=2), NEEDY, wanted=[])

    assert harness.evictor.names() == ["old-0", "old-1"]


def test_a_remaining_member_counts_as_leaving_unless_its_eviction_was_refused() -> None:
    harness = RunnerHarness()
    evict_partly(harness, EvictOutcome(EvictResult.BLOCKED, "no"))
    slow, left = SlowEvictor(), gang("old", [pod("old-1", on="n")], min_member=2)
    harness.evictor = slow
    harness.clock.advance(AGAIN.longest_s)
    assert harness.leaving_members(left) == []
    harness.run(left, NEEDY, wanted=[])
    assert harness.leaving_members(left) == ["old-1"]

    slow.answer("old-1", result=EvictResult.BLOCKED)
    assert harness.leaving_members(left) == []


def test_an_evicted_member_counts_as_leaving_until_its_eviction_is_refused() -> None:
    slow = SlowEvictor()
    harness = RunnerHarness(evictor=slow)
    harness.run(OLD, NEEDY, wanted=evictions(OLD))
    assert harness.leaving_members(OLD) == ["old-0", "old-1"]

    half = gang("old", [pod("old-0", on="n", status=Status.RELEASING), pod("old-1", on="n")])
    assert harness.leaving_members(half) == ["old-1"], "the other one is seen to leave"
    slow.answer("old-0")
    assert harness.leaving_members(OLD) == ["old-0", "old-1"]
    slow.answer("old-1", result=EvictResult.BLOCKED)
    assert harness.leaving_members(OLD) == ["old-0"]


def test_in_a_dry_run_no_member_counts_as_leaving() -> None:
    harness = RunnerHarness(dry_run=True)
    harness.run(OLD, NEEDY, wanted=evictions(OLD))

    assert harness.leaving_members(OLD) == []


LATE = pod("late", on="n")


def test_a_member_bound_before_the_eviction_of_its_gang_but_not_in_the_plan_is_evicted() -> None:
    harness = RunnerHarness(sent=frozenset({LATE.uid}))
    harness.run(OLD, NEEDY, wanted=evictions(OLD))
    alone = gang("old", [LATE], min_member=2)
    harness.clock.advance(AGAIN.first_s)
    harness.run(alone, NEEDY, wanted=[])

    assert harness.evictor.names() == ["old-0", "old-1", "late"]


@pytest.mark.parametrize(
    ("then", "asked"),
    [(Status.BINDING, ["old-0", "old-1", "late"]), (Status.PENDING, ["old-0", "old-1"])],
    ids=["bind in flight", "not bound after all"],
)
def test_a_member_whose_bind_was_in_flight_during_the_eviction_is_evicted_once_it_is_bound(
    then: Status, asked: list[str]
) -> None:
    harness = RunnerHarness(sent=frozenset({LATE.uid}))
    harness.run(OLD, NEEDY, wanted=evictions(OLD))
    harness.clock.advance(AGAIN.first_s)
    for status in (then, Status.RUNNING):
        alone = gang("old", [pod("late", on="n", status=status)], min_member=2)
        harness.run(alone, NEEDY, wanted=[])

    assert harness.evictor.names() == asked


@pytest.mark.parametrize(
    ("now", "taken"),
    [
        ([pod("old-0", on="n"), pod("old-1", on="n"), LATE], []),
        ([pod("old-0", on="n"), pod("old-1", on="n", status=Status.RELEASING)], ["old-0", "old-1"]),
    ],
    ids=["a member was added", "a member is terminating anyway"],
)
def test_a_gang_is_evicted_whole_or_not_at_all_judged_by_its_current_members(
    now: list[Pod], taken: list[str]
) -> None:
    harness = RunnerHarness(current={OLD.key: gang("old", now, min_member=2)})
    harness.run(OLD, NEEDY, wanted=evictions(OLD))

    assert harness.evictor.names() == taken


def test_a_member_that_became_necessary_since_the_snapshot_is_not_evicted() -> None:
    large = gang("old", 3, min_member=2)
    fewer = gang(
        "old", [*large.pods[:2], pod("old-2", on="n", status=Status.RELEASING)], min_member=2
    )
    harness = RunnerHarness(current={OLD.key: fewer})
    harness.run(large, NEEDY, wanted=evictions(large, only=1))

    assert harness.evictor.orders == []
    assert harness.plan_requests == 0, "the change itself asks for the next plan"


def test_a_set_that_breaks_a_gang_even_in_the_snapshot_is_counted_and_its_victims_protected() -> (
    None
):
    """kube-batch chooses victims pod by pod, and external plugins may do so."""
    harness = RunnerHarness()
    harness.run(OLD, NEEDY, wanted=evictions(OLD, only=1))

    assert harness.evictor.orders == []
    assert (harness.plan_requests, harness.counted("reclaim", "refused")) == (1, 1)
    assert harness.protected(OLD, NEEDY) == {"old-0"}


def test_a_member_that_is_necessary_beside_victims_of_kube_scheduler_is_not_evicted() -> None:
    large = gang("old", 3, min_member=2)
    harness = RunnerHarness()
    harness.pending.granted = lambda *_: 1
    harness.run(large, NEEDY, wanted=evictions(large, only=1))
    assert harness.evictor.orders == []

    harness.pending.granted = lambda *_: 0
    harness.run(large, NEEDY, wanted=evictions(large, only=1))
    assert harness.evictor.names() == ["old-0"]


@pytest.mark.parametrize(
    ("size", "bound", "evicted"),
    [(2, (), ["old-0", "old-1"]), (3, (LATE.uid,), ["old-0"])],
    ids=["it joins when the gang starts again", "the gang lost only surplus members"],
)
def test_a_new_member_of_a_gang_is_not_evicted_with_the_earlier_ones(
    size: int, bound: tuple[PodUid, ...], evicted: list[str]
) -> None:
    harness = RunnerHarness(sent=frozenset(bound))
    large = gang("old", size, min_member=2)
    harness.run(large, NEEDY, wanted=evictions(large, only=len(evicted)))
    harness.clock.advance(AGAIN.first_s)
    harness.run(gang("old", [LATE], min_member=2), NEEDY, wanted=[])

    assert harness.evictor.names() == evicted


def test_event_and_history_have_one_entry_per_gang_and_not_per_pod() -> None:
    harness = RunnerHarness()
    harness.run(OLD, NEEDY, wanted=evictions(OLD))

    assert harness.announcer.said() == [("old", "Evict")]
    assert harness.announcer.notices[0].message == (
        "2 of 2 running members evicted: queue right reclaims its deserved share from queue left"
        " for a/needy"
    )
    assert [line.text for line in harness.history.entries(GangKey("a/needy"))] == [
        "reclaim evicts 2 pods for it, of a/old"
    ]
    assert [line.word for line in harness.history.entries(GangKey("a/old"))] == ["Evict"]


def test_an_eviction_order_names_the_gang_that_needs_the_capacity() -> None:
    harness = RunnerHarness()
    needy = gang("needy", 1, status=Status.PENDING, queue="left", priority=100)
    harness.run(OLD, needy, wanted=evictions(OLD, action="preempt"))

    assert {order.why for order in harness.evictor.orders} == {"a/needy has priority 100 over 0"}


def test_a_dry_run_reports_and_does_not_evict() -> None:
    harness = RunnerHarness(dry_run=True)
    for _ in range(3):
        harness.run(OLD, NEEDY, wanted=evictions(OLD))

    assert harness.evictor.orders == []
    assert harness.announcer.said() == [("old", "WouldEvict")]
    assert harness.counted("reclaim", "dry-run") == 2


def test_a_gang_that_runs_again_after_an_eviction_is_protected_for_a_while() -> None:
    harness = RunnerHarness()
    harness.run(OLD, NEEDY, wanted=evictions(OLD))
    back = snapshot(OLD, NEEDY, now=harness.clock.now())
    harness.history.note(back, Plan(verdicts={GangKey("a/old"): verdict("a/old")}))

    assert set(harness.runner.protect(back).protected) == {"a-old-0", "a-old-1"}
    harness.clock.advance(61)
    later = snapshot(OLD, NEEDY, now=harness.clock.now())
    assert harness.runner.protect(later).protected == {}
