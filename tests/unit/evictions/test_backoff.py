"""Which pods and gangs are protected from eviction for a while."""

from __future__ import annotations

import pytest

from extender.durations import Backoff
from extender.evictions.backoff import FORGET_S, LONGEST_S, MEMORY_S, EvictionBackoff
from extender.model.gang import Gang, GangKey
from extender.model.pod import PodUid, Status
from extender.model.snapshot import DisruptionBudget
from tests.builders import NOW, pod
from tests.scene import budget, gang, plan, snapshot, verdict
from tests.unit.evictions.runner_harness import RunnerHarness

OLD = GangKey("a/old")


def protected(backoff: EvictionBackoff, since: float | None, now: float = NOW) -> set[str]:
    seen = snapshot(gang("old", 2), now=now)
    return set(backoff.protected(seen, {OLD: since}.get, now))


def test_a_pod_is_protected_until_its_backoff_ends() -> None:
    backoff = EvictionBackoff()
    backoff.add(pod("old-0", on="n"), "a budget forbids it", Backoff(10, 40), NOW)

    seen = snapshot(gang("old", 2))
    assert backoff.protected(seen, {}.get, NOW) == {PodUid("a-old-0"): "a budget forbids it"}
    assert protected(backoff, None, now=NOW + 10) == set()


def test_the_backoff_of_a_pod_that_may_not_be_evicted_grows_each_time() -> None:
    backoff, now, lasted = EvictionBackoff(), NOW, []
    for _ in range(4):
        backoff.add(pod("old-0", on="n"), "no", Backoff(10, 40), now)
        until = now
        while backoff.protects(pod("old-0", on="n"), until):
            until += 1
        lasted.append(until - now)
        now = until

    assert lasted == [10, 20, 40, 40]
    assert protected(backoff, None, now=now + FORGET_S) == set()
    backoff.add(pod("old-0", on="n"), "no", Backoff(10, 40), now + FORGET_S)
    assert not backoff.protects(pod("old-0", on="n"), now + FORGET_S + 10), "and then forgotten"


@pytest.mark.parametrize(
    ("later", "is_over"),
    [
        pytest.param([budget("db", 0, app="db")], False, id="it says the same"),
        pytest.param([budget("db", 1, app="db")], True, id="it allows more"),
        pytest.param([], True, id="it is gone"),
        pytest.param(
            [budget("db", 0, app="db"), budget("web", 9, app="web")], False, id="another one"
        ),
    ],
)
def test_a_backoff_caused_by_a_budget_ends_when_the_budget_allows_more_or_is_gone(
    later: list[DisruptionBudget], is_over: bool
) -> None:
    backoff = EvictionBackoff()
    guarded = pod("old-0", on="n", labels={"app": "db"})
    backoff.add(guarded, "no", Backoff(600, 600), NOW, [budget("db", 0, app="db")])
    seen = snapshot(gang("old", [guarded]), budgets=later)

    assert bool(backoff.protected(seen, {}.get, NOW + 1)) is not is_over


def test_a_clock_that_was_set_back_does_not_protect_a_gang_for_longer() -> None:
    backoff = EvictionBackoff(min_run_s=30)

    assert protected(backoff, since=NOW + 3600) == set()


def test_a_gang_may_run_for_the_minimum_time_before_it_can_be_a_victim() -> None:
    backoff = EvictionBackoff(min_run_s=30)

    assert protected(backoff, since=NOW - 29) == {"a-old-0", "a-old-1"}
    assert protected(backoff, since=NOW - 30) == set()
    assert protected(backoff, since=None) == set()


def test_only_members_on_a_node_are_protected() -> None:
    backoff = EvictionBackoff(min_run_s=30)
    seen = snapshot(gang("old", [pod("old-0", on="n"), pod("old-1")]))

    assert set(backoff.protected(seen, {OLD: NOW}.get, NOW)) == {"a-old-0"}


def test_the_protection_of_an_evicted_gang_grows_each_time() -> None:
    backoff = EvictionBackoff(rerun_s=60)
    allowed = []
    for _ in range(6):
        backoff.gang_evicted(OLD, NOW)
        allowed.append(backoff.protection_s(OLD))

    assert allowed == [60, 120, 240, 480, LONGEST_S, LONGEST_S]
    assert protected(backoff, since=NOW - 599) == {"a-old-0", "a-old-1"}
    assert protected(backoff, since=NOW - 600) == set()


def test_evictions_of_long_ago_are_forgotten() -> None:
    backoff = EvictionBackoff(rerun_s=60)
    backoff.gang_evicted(OLD, NOW)
    later = NOW + MEMORY_S + 1

    assert protected(backoff, since=later, now=later) == set()
    assert backoff.protection_s(OLD) == 0


# The minimum runtime of a gang, whichever replica led when it started.

MINE = {"old-0", "old-1"}


def gang_started_at(*ago_s: float, min_member: int = 2) -> Gang:
    """A gang that waited for an hour, with members that started at these times."""
    pods = [
        pod(f"old-{index}", on="n", created=NOW - 3600, began=NOW - each)
        for index, each in enumerate(ago_s)
    ]
    return gang("old", pods, min_member=min_member, created=NOW - 3600)


def test_a_gang_that_started_just_before_this_process_has_its_minimum_runtime_too() -> None:
    harness, young = RunnerHarness(min_run_s=30), gang_started_at(20, 10)
    assert harness.protected(young) == MINE, "at the first look, before anything was noted"

    harness.clock.advance(19)
    assert harness.protected(young) == MINE
    harness.clock.advance(1)
    assert harness.protected(young) == set()


def test_a_gang_that_restarted_under_another_leader_has_its_minimum_runtime_too() -> None:
    harness = RunnerHarness(min_run_s=30)
    before = gang("old", 2)
    harness.history.note(snapshot(before, now=NOW - 1800), plan(verdict("a/old")))

    assert harness.protected(gang_started_at(10, 10)) == MINE
    assert harness.protected(gang_started_at(40, 40)) == set()


def test_surplus_members_do_not_change_the_start_of_their_gang() -> None:
    harness = RunnerHarness(min_run_s=30)

    assert harness.protected(gang_started_at(60, 60, 1)) == set()
    assert harness.protected(gang_started_at(60, 10, 1)) == {*MINE, "old-2"}


def test_a_gang_with_too_few_running_members_has_not_started() -> None:
    harness = RunnerHarness(min_run_s=30)

    assert harness.protected(gang_started_at(10, min_member=2)) == set()
    waits = gang("old", 2, status=Status.PENDING)
    assert harness.protected(waits) == set()


@pytest.mark.parametrize(("ahead_s", "names"), [(5, MINE), (3600, set())])
def test_a_node_whose_clock_is_ahead_does_not_protect_its_pods_for_long(
    ahead_s: float, names: set[str]
) -> None:
    assert RunnerHarness(min_run_s=30).protected(gang_started_at(-ahead_s, -ahead_s)) == names
