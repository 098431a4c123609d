from __future__ import annotations

from extender.cache.freshness import Freshness
from extender.sim.clock import VirtualClock
from tests.builders import cache


def test_a_cache_without_watches_has_no_complaints() -> None:
    assert cache().why_not_ready() == []


def test_a_source_is_not_ready_until_its_first_list_is_complete() -> None:
    freshness = Freshness()
    freshness.expect("pods", 0.0)
    freshness.received("pods", 1.0)

    assert freshness.problems(1.0) == ["pods: first list not complete"]

    freshness.listed("pods", 2.0)

    assert freshness.problems(2.0) == []


def test_a_silent_watch_is_named_with_its_silence() -> None:
    freshness = Freshness(stale_s=90)
    for name in ("pods", "nodes"):
        freshness.expect(name, 0.0)
        freshness.listed(name, 0.0)
    freshness.received("pods", 50.0)

    assert freshness.problems(95.0) == ["nodes: watch silent for 95 s"]
    assert freshness.silence(95.0) == {"pods": 45.0, "nodes": 95.0}


def test_the_reason_of_a_failure_is_part_of_the_complaint() -> None:
    freshness = Freshness()
    freshness.expect("pods", 0.0)
    freshness.failed("pods", "403: forbidden")

    assert freshness.problems(0.0) == ["pods: first list not complete (403: forbidden)"]

    freshness.listed("pods", 1.0)

    assert freshness.problems(1.0) == []


def test_a_failure_alone_does_not_make_a_fresh_source_stale() -> None:
    freshness = Freshness(stale_s=90)
    freshness.expect("pods", 0.0)
    freshness.listed("pods", 0.0)
    freshness.failed("pods", "connection refused")

    assert freshness.problems(10.0) == []
    assert freshness.problems(91.0) == ["pods: watch silent for 91 s (connection refused)"]


def test_a_list_that_never_completes_is_reported_however_much_arrives() -> None:
    freshness = Freshness(stale_s=90)
    freshness.expect("pods", 0.0)
    freshness.relists("pods", 0.0)
    freshness.listed("pods", 1.0)
    assert freshness.problems(2.0) == []
    for now in (10.0, 50.0, 100.0):
        freshness.relists("pods", now)
        freshness.received("pods", now)
        freshness.failed("pods", "it broke off")
    assert freshness.problems(100.0) == []

    named = "pods: new list not complete for 91 s (it broke off)"
    assert freshness.problems(101.0) == [named]

    freshness.listed("pods", 102.0)
    assert freshness.problems(180.0) == []


def test_a_forbidden_source_is_reported_until_it_is_watched() -> None:
    freshness = Freshness(stale_s=90)
    freshness.expect("pods", 0.0)
    freshness.listed("pods", 0.0)
    assert freshness.problems(1.0) == []
    freshness.forbidden("pods", "we may not watch pods")

    named = ["pods: changes are not received (we may not watch pods)"]
    assert freshness.problems(1.0) == named

    freshness.received("pods", 2.0)
    assert freshness.problems(2.0) == named

    freshness.followed("pods")
    assert freshness.problems(2.0) == []


def test_the_cluster_measures_silence_by_its_own_clock() -> None:
    clock = VirtualClock()
    made = cache(clock=clock)
    made.freshness.expect("pods", clock.seconds)
    made.freshness.listed("pods", clock.seconds)
    clock.advance(100)

    assert made.why_not_ready() == ["pods: watch silent for 100 s"]


def followed(*names: str) -> Freshness:
    """Make sources that have all listed at 0, with a probe answered then."""
    freshness = Freshness(stale_s=90, silent_s=10)
    freshness.expect_probe(0.0)
    for name in names:
        freshness.expect(name, 0.0)
        freshness.listed(name, 0.0)
    return freshness


def test_a_silent_api_server_is_reported_long_before_its_watches_are_stale() -> None:
    freshness = followed("pods")
    freshness.probe_failed("timed out")

    assert freshness.problems(9.0) == []
    assert freshness.problems(11.0) == [
        "API server: no answer for 11 s (timed out); the cache is as old"
    ]
    assert freshness.is_silent(11.0)


def test_regularly_answered_probes_change_nothing() -> None:
    freshness = followed("pods")

    assert [freshness.probe_answered(now) for now in (3.0, 6.0, 16.0)] == [0, 0, 0]
    assert freshness.problems(17.0) == []


def test_after_a_silence_every_source_must_receive_before_it_is_trusted() -> None:
    freshness = followed("nodes", "pods")
    freshness.received("nodes", 29.5)

    assert freshness.probe_answered(30.0) == 30.0
    assert not freshness.is_suspect("nodes")
    assert freshness.problems(31.0) == [
        "pods: nothing received since the API server fell silent 31 s ago"
    ]

    freshness.received("pods", 32.0)
    assert freshness.problems(32.0) == []


def test_a_resource_that_is_not_installed_is_trusted_after_its_next_list() -> None:
    freshness = followed("queues")
    freshness.probe_answered(200.0)
    assert freshness.problems(200.0)

    freshness.listed("queues", 201.0)
    assert freshness.problems(201.0) == []


def test_the_silence_of_the_api_server_itself_is_measured_too() -> None:
    assert followed("pods").silence(5.0) == {"pods": 5.0, "API server": 5.0}


def test_a_relist_does_not_refresh_a_source_until_it_is_complete() -> None:
    freshness = followed("pods")
    freshness.received("pods", 10.0)
    assert freshness.probe_answered(100.0) == 100.0
    freshness.relists("pods", freshness.current_at("pods"))
    freshness.received("pods", 101.0)  # one page arrived

    assert not freshness.is_suspect("pods")
    assert freshness.problems(102.0) == [
        "pods: nothing received since the API server fell silent 92 s ago"
    ]
    assert freshness.silence(102.0) == {"pods": 1.0, "API server": 2.0}

    freshness.listed("pods", 103.0)
    assert freshness.problems(104.0) == []
