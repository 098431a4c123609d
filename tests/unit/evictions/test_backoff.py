"""Which pods and gangs are protected from eviction for a while."""

from __future__ import annotations

import pytest

from extender.durations import Backoff
from extender.evictions.backoff import FORGET_S, LONGEST_S, MEMORY_S, EvictionBackoff
from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.model.snapshot import DisruptionBudget
from tests.builders import NOW, pod
from tests.scene import budget, gang, snapshot

OLD = GangKey("a/old")


def protected(backoff: EvictionBackoff, since: float | None, now: float = NOW) -> set[str]:
    seen = snapshot(gang("old", 2), now=now)
    return set(backoff.protected(seen, {OLD: since}.get, now))


def test_no_pod_is_protected_without_a_reason() -> None:
    assert protected(EvictionBackoff(), since=NOW) == set()


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
