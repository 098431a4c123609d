"""Metrics are exported from the start, and none of deleted queues."""

from __future__ import annotations

import platform

from prometheus_client import generate_latest

from extender import __version__
from extender.evictions.runner import ACTIONS, OUTCOMES
from extender.metrics import Metrics, init_labels


def scraped(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_no_metric_exports_its_creation_time() -> None:
    metrics = Metrics()
    metrics.wakes.inc()
    metrics.start_seconds.labels("left").observe(1)

    assert "_created" not in scraped(metrics)


def test_expected_outcomes_are_exported_as_zero() -> None:
    metrics = Metrics()
    init_labels(metrics.evictions, *((action, word) for action in ACTIONS for word in OUTCOMES))

    assert 'gang_extender_evictions_total{action="reclaim",outcome="blocked"} 0.0' in scraped(
        metrics
    )


def test_leader_changes_and_cycle_steps_are_exported_from_the_start() -> None:
    text = scraped(Metrics())

    assert 'gang_extender_leader_changes_total{change="lost"} 0.0' in text
    assert 'gang_extender_cycle_seconds_count{step="plan"} 0.0' in text
    assert "gang_extender_last_cycle_timestamp_seconds 0.0" in text


def test_version_process_and_garbage_collection_are_exported() -> None:
    text = scraped(Metrics())
    labels = f'python="{platform.python_version()}",version="{__version__}"'

    assert f"gang_extender_build_info{{{labels}}} 1.0" in text
    assert "\nprocess_resident_memory_bytes " in text
    assert 'python_gc_collections_total{generation="2"}' in text


def test_a_deleted_queue_leaves_no_metrics_behind() -> None:
    metrics = Metrics()
    for name in ("left", "right"):
        metrics.admission_seconds.labels(name).observe(1)
        metrics.start_seconds.labels(name).observe(1)

    metrics.forget_queue("left")
    metrics.forget_queue("never-seen")

    assert 'queue="left"' not in scraped(metrics)
    assert 'gang_extender_start_seconds_count{queue="right"} 1.0' in scraped(metrics)
