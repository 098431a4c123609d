from __future__ import annotations

from extender.timing.freshness import Freshness
from tests.cache.building import StoppedClock, cluster


def test_nothing_is_expected_of_a_cluster_nobody_follows() -> None:
    assert cluster().readiness() == []


def test_a_source_is_awaited_until_it_has_listed_everything() -> None:
    freshness = Freshness()
    freshness.expect("pods", 0.0)
    freshness.heard("pods", 1.0)

    assert freshness.complaints(1.0) == ["pods: first list not complete"]

    freshness.listed("pods", 2.0)

    assert freshness.complaints(2.0) == []


def test_a_silent_watch_is_named_with_its_silence() -> None:
    freshness = Freshness(stale_s=90)
    for name in ("pods", "nodes"):
        freshness.expect(name, 0.0)
        freshness.listed(name, 0.0)
    freshness.heard("pods", 50.0)

    assert freshness.complaints(95.0) == ["nodes: watch silent for 95 s"]
    assert freshness.silence(95.0) == {"pods": 45.0, "nodes": 95.0}


def test_the_reason_of_a_failure_is_part_of_the_complaint() -> None:
    freshness = Freshness()
    freshness.expect("pods", 0.0)
    freshness.failed("pods", "403: forbidden")

    assert freshness.complaints(0.0) == ["pods: first list not complete (403: forbidden)"]

    freshness.listed("pods", 1.0)

    assert freshness.complaints(1.0) == []


def test_a_failure_alone_does_not_make_a_fresh_source_stale() -> None:
    freshness = Freshness(stale_s=90)
    freshness.expect("pods", 0.0)
    freshness.listed("pods", 0.0)
    freshness.failed("pods", "connection refused")

    assert freshness.complaints(10.0) == []
    assert freshness.complaints(91.0) == ["pods: watch silent for 91 s (connection refused)"]


def test_a_source_that_is_forbidden_is_named_until_it_is_followed() -> None:
    freshness = Freshness(stale_s=90)
    freshness.expect("pods", 0.0)
    freshness.listed("pods", 0.0)
    assert freshness.complaints(1.0) == []
    freshness.forbidden("pods", "we may not watch pods")

    named = ["pods: changes are not heard (we may not watch pods)"]
    assert freshness.complaints(1.0) == named

    freshness.heard("pods", 2.0)
    assert freshness.complaints(2.0) == named

    freshness.followed("pods")
    assert freshness.complaints(2.0) == []


def test_the_cluster_measures_silence_by_its_own_clock() -> None:
    clock = StoppedClock()
    made = cluster(clock=clock)
    made.freshness.expect("pods", clock.time)
    made.freshness.listed("pods", clock.time)
    clock.time += 100

    assert made.readiness() == ["pods: watch silent for 100 s"]
