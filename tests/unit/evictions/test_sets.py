"""A set of evictions stays one set, at any size, until every pod of it is gone or refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from extender.evictions.pending import WAVE
from extender.model.gang import Gang
from extender.model.pod import Status
from extender.ports import EvictResult
from tests.builders import pod
from tests.doubles import SlowEvictor
from tests.scene import budget, evictions, gang
from tests.unit.evictions.runner_harness import NEEDY, OLD, RunnerHarness, without

OTHER = gang("other", 2)


def slow_harness() -> tuple[RunnerHarness, SlowEvictor]:
    evictor = SlowEvictor()
    return RunnerHarness(evictor=evictor), evictor


def guarded(name: str, count: int = 2) -> Gang:
    """A gang that the budget `db` covers."""
    return gang(
        name, [pod(f"{name}-{index}", on="n", labels={"app": "db"}) for index in range(count)]
    )


def test_a_set_whose_evictions_are_queued_for_minutes_is_still_one_set() -> None:
    harness, evictor = slow_harness()
    harness.run(OLD, OTHER, NEEDY, wanted=evictions(OLD))
    for _ in range(20):
        harness.clock.advance(30)
        harness.run(OLD, OTHER, NEEDY, wanted=evictions(OTHER))

    assert evictor.names() == ["old-0", "old-1"]


def test_a_large_set_is_sent_in_waves_of_whole_gangs() -> None:
    harness, evictor = slow_harness()
    gangs = [gang(f"old{number}", 7) for number in range(20)]
    harness.run(*gangs, NEEDY, wanted=evictions(*gangs))

    first = evictor.names()
    assert len(first) == 56, "the fewest whole gangs that are at least a wave"
    evictor.answer(*first[:-1])
    assert evictor.names() == first, "one of them has not answered yet"
    evictor.answer()
    assert len(evictor.names()) == 112
    evictor.answer()
    assert sorted(evictor.names()) == sorted(each.name for old in gangs for each in old.pods)


def test_a_set_of_hundreds_is_sent_to_the_last_pod() -> None:
    harness = RunnerHarness()
    gangs = [gang(f"old{number}", 2) for number in range(8 * WAVE)]
    harness.run(*gangs, NEEDY, wanted=evictions(*gangs))

    assert len(set(harness.evictor.names())) == 16 * WAVE


def test_pods_covered_by_a_budget_are_evicted_first_and_no_other_is_evicted_in_vain() -> None:
    harness, evictor = slow_harness()
    seen = (OLD, guarded("db"), OTHER, NEEDY)
    wanted = evictions(OLD, guarded("db"), OTHER)
    budgets = [budget("db", 2, app="db")]
    harness.run(*seen, wanted=wanted, budgets=budgets)
    assert evictor.names() == ["db-0", "db-1"]

    evictor.answer("db-0", result=EvictResult.BLOCKED)

    assert evictor.names() == ["db-0", "db-1"], "the others would free no capacity"
    assert harness.announcer.said() == [("db", "Evict")]
    assert evictor.futures["db-1"].cancelled(), "a gang that cannot leave whole stays whole"
    assert harness.protected(budgets=budgets) == {"db-0"}
    harness.run(*seen, wanted=evictions(OLD, OTHER), budgets=budgets)
    assert evictor.names()[2:] == ["old-0", "old-1", "other-0", "other-1"]


def test_the_other_gangs_follow_when_every_pod_covered_by_a_budget_may_be_evicted() -> None:
    harness, evictor = slow_harness()
    two, wanted = [guarded("db"), guarded("web")], evictions(OLD, guarded("db"), guarded("web"))
    harness.run(OLD, *two, NEEDY, wanted=wanted, budgets=[budget("db", 4, app="db")])
    asked = [evictor.names()]
    for _ in range(2):
        evictor.answer()
        asked.append(evictor.names()[sum(map(len, asked)) :])

    assert asked == [["db-0", "db-1"], ["web-0", "web-1"], ["old-0", "old-1"]]


def test_no_more_pods_are_evicted_when_the_gang_that_needed_the_capacity_is_gone() -> None:
    harness, evictor = slow_harness()
    gangs = [gang(f"old{number}", 30) for number in range(4)]
    harness.run(*gangs, NEEDY, wanted=evictions(*gangs))
    asked = evictor.names()
    harness.run(*gangs, wanted=[])
    evictor.answer()

    assert evictor.names() == asked == [each.name for old in gangs[:2] for each in old.pods]


def test_a_victim_that_terminates_by_itself_is_not_evicted() -> None:
    harness, evictor = slow_harness()
    gangs = [gang(f"old{number}", 60) for number in range(2)]
    harness.run(*gangs, NEEDY, wanted=evictions(*gangs))
    left = without(gangs[1], ["old1-7"])
    harness.run(gangs[0], left, NEEDY, wanted=[])
    evictor.answer()

    assert evictor.names()[60:] == [each.name for each in left.pods]


def test_two_gangs_that_want_the_same_victims_wait_for_one_set() -> None:
    harness, evictor = slow_harness()
    third = gang("third", 1, status=Status.PENDING, queue="right")
    harness.run(OLD, OTHER, NEEDY, third, wanted=evictions(OLD))
    both = evictions(OLD, OTHER, beneficiary="a/third")
    for _ in range(5):
        harness.clock.advance(60)
        harness.run(OLD, OTHER, NEEDY, third, wanted=both)
    assert evictor.names() == ["old-0", "old-1"]

    evictor.answer()
    harness.run(OTHER, NEEDY, third, wanted=evictions(OTHER, beneficiary="a/third"))
    assert evictor.names()[2:] == ["other-0", "other-1"]


def test_a_budget_is_not_overdrawn_by_two_sets_before_it_shows_the_first() -> None:
    harness, evictor = slow_harness()
    third = gang("third", 1, status=Status.PENDING, queue="right")
    one, two = guarded("one"), guarded("two")
    seen, allowed = (one, two, NEEDY, third), [budget("db", 3, app="db")]
    harness.run(*seen, wanted=evictions(one), budgets=allowed)
    harness.run(*seen, wanted=evictions(two, beneficiary="a/third"), budgets=allowed)

    assert evictor.names() == ["one-0", "one-1"]
    assert harness.history_texts("a/third", "VictimNotEvicted") == [
        "a/two-1 stays: PodDisruptionBudget a/db allows 1 disruptions, not 2"
    ]


def test_a_refusal_during_a_planning_cycle_counts_for_that_plan() -> None:
    harness, evictor = slow_harness()
    seen = harness.run(OLD, OTHER, NEEDY, wanted=evictions(OLD))
    harness.runner.protect(seen)
    evictor.answer("old-0", result=EvictResult.BLOCKED)
    harness.run(without(OLD, ["old-1"]), OTHER, NEEDY, wanted=evictions(OLD, only=1))

    assert evictor.names() == ["old-0", "old-1"]
    assert harness.plan_requests == 2, "another plan is needed, and at once"


def test_answers_from_many_threads_send_every_wave_once() -> None:
    harness, evictor = slow_harness()
    gangs = [gang(f"old{number}", 10) for number in range(40)]
    harness.run(*gangs, NEEDY, wanted=evictions(*gangs))
    with ThreadPoolExecutor(8) as hands:
        while waiting := evictor.unanswered():
            list(hands.map(evictor.answer, waiting))

    assert sorted(evictor.names()) == sorted(each.name for old in gangs for each in old.pods)
