"""Series of the last plan: with Volcano's names where they mean the same, and limited in number."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from extender.findings.finding import Finding
from extender.metrics import Metrics
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.planner.plan import Plan, QueueFigures
from extender.status.history import CycleResult
from extender.web.plan_metrics import MOST_GANGS, MOST_QUEUES, FindingCollector, PlanCollector
from tests.builders import NOW, pod
from tests.scene import gang, plan, snapshot, verdict

FIGURES = QueueFigures(
    name="left",
    weight=2,
    deserved=Resources({"cpu": 4000, "memory": 1 << 30, "example.com/gpu": 3}),
    allocated=Resources({"cpu": 2500, "pods": 2}),
    requested=Resources({"cpu": 6000}),
    share=0.625,
    overused=True,
)
RUNS, WAITS = gang("runs"), gang("waits", 4, status=Status.PENDING)
DECIDED = plan(
    verdict("a/runs"),
    verdict("a/waits", Reason.INSUFFICIENT_CAPACITY, min_member=4),
    queues={"left": FIGURES},
)


def scraped(decided: Plan = DECIDED) -> dict[tuple[str, ...], float]:
    """Return every sample as (name, label values…) -> value, as Prometheus reads it."""
    registry = CollectorRegistry()
    registry.register(PlanCollector(lambda: CycleResult(snapshot(RUNS, WAITS), decided)))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_series_of_a_queue_have_deserved_used_and_requested_amounts() -> None:
    seen = scraped()

    assert seen["gang_extender_queue_deserved", "left", "cpu"] == 4
    assert seen["gang_extender_queue_deserved", "left", "memory"] == 1 << 30
    assert seen["gang_extender_queue_allocated", "left", "cpu"] == 2.5
    assert seen["gang_extender_queue_requested", "left", "cpu"] == 6
    assert seen["gang_extender_queue_share", "left"] == 0.625
    assert seen["gang_extender_queue_overused", "left"] == 1


def test_findings_are_counted_by_kind_and_reason() -> None:
    found = [
        Finding("Queue", "a", "ParentMissing", "mend it"),
        Finding("Queue", "b", "ParentMissing", "mend it"),
        Finding("Namespace", "a", "UnknownQueue", "mend it"),
    ]
    registry = CollectorRegistry()
    registry.register(FindingCollector(lambda: found))

    def counted(kind: str, reason: str) -> float | None:
        labels = {"kind": kind, "reason": reason}
        return registry.get_sample_value("gang_extender_findings", labels)

    assert counted("Queue", "ParentMissing") == 2
    assert counted("Namespace", "UnknownQueue") == 1
    found.clear()
    assert counted("Queue", "ParentMissing") is None


def test_volcanos_series_have_volcanos_names_and_units() -> None:
    seen = scraped()

    assert seen["volcano_queue_deserved_milli_cpu", "left"] == 4000
    assert seen["volcano_queue_allocated_milli_cpu", "left"] == 2500
    assert seen["volcano_queue_request_milli_cpu", "left"] == 6000
    assert seen["volcano_queue_deserved_memory_bytes", "left"] == 1 << 30
    assert seen["volcano_queue_deserved_scalar_resources", "left", "example.com/gpu"] == 3000
    assert seen["volcano_queue_share", "left"] == 0.625
    assert seen["volcano_queue_weight", "left"] == 2
    assert seen["volcano_queue_pod_group_running_count", "left"] == 1
    assert seen["volcano_queue_pod_group_inqueue_count", "left"] == 1


def test_gangs_are_counted_by_verdict_and_reason_and_waiting_ones_by_missing_resource() -> None:
    seen = scraped()

    assert seen["gang_extender_gangs", "Running", "running"] == 1
    assert seen["gang_extender_gangs", "InsufficientCapacity", "waiting"] == 1
    assert seen["volcano_unschedule_job_count",] == 1
    assert seen["volcano_unschedule_task_count", "a/waits"] == 4


def test_many_resource_names_written_by_tenants_do_not_add_series() -> None:
    junk = {f"x.io/r{number}": 1 for number in range(8000)}
    wanted = Resources({"cpu": 6000, **junk, "example.com/gpu": 5})
    few = scraped()
    seen = scraped(plan(queues={"left": replace(FIGURES, allocated=wanted, requested=wanted)}))

    assert len(seen) < len(few) + 10
    assert seen["gang_extender_queue_requested", "left", "cpu"] == 6
    assert seen["gang_extender_queue_requested", "left", "example.com/gpu"] == 5
    assert seen["volcano_queue_request_scalar_resources", "left", "example.com/gpu"] == 5000
    assert seen["gang_extender_series_left_out", "resources"] == 16_000


def test_sixty_four_resources_named_by_a_queue_have_series() -> None:
    named = Resources({"cpu": 1000, **{f"x.io/r{number}": 1 for number in range(100)}})
    seen = scraped(plan(queues={"left": replace(FIGURES, deserved=named)}))

    shown = [key[-1] for key in seen if key[0] == "gang_extender_queue_deserved"]
    assert len(shown) == 64
    assert "cpu" in shown
    assert seen["gang_extender_series_left_out", "resources"] == 37


def test_what_has_no_series_is_counted() -> None:
    waiting = [verdict(f"a/g{n}", Reason.INSUFFICIENT_CAPACITY) for n in range(MOST_GANGS + 100)]
    queues = {f"q{n}": replace(FIGURES, name=f"q{n}") for n in range(MOST_QUEUES + 7)}
    seen = scraped(plan(*waiting, queues=queues))

    assert sum(name == "volcano_unschedule_task_count" for name, *_ in seen) == MOST_GANGS
    assert seen["volcano_unschedule_job_count",] == MOST_GANGS + 100
    assert seen["gang_extender_series_left_out", "gangs"] == 100
    assert seen["gang_extender_series_left_out", "queues"] == 7
    assert seen["gang_extender_series_left_out", "resources"] == 0


def waits(**reason: object) -> tuple[float, float]:
    """Return the oldest wait in queue `left`, and the oldest wait for its deserved capacity."""
    waiting = gang("late", [pod("late-0", created=NOW - 700)], created=NOW - 900)
    figures = replace(FIGURES, **reason.pop("figures", {}))  # type: ignore[arg-type]
    said = verdict("a/late", **reason)  # type: ignore[arg-type]
    registry = CollectorRegistry()
    decided = plan(said, queues={"left": figures})
    registry.register(PlanCollector(lambda: CycleResult(snapshot(waiting), decided)))
    oldest, starved = (
        registry.get_sample_value(f"gang_extender_{name}_seconds", {"queue": "left"})
        for name in ("oldest_waiting", "starved")
    )
    assert oldest is not None
    assert starved is not None
    return oldest, starved


def test_a_queue_has_series_for_its_oldest_wait_and_the_wait_for_deserved_capacity() -> None:
    within = {"deserved": Resources({"cpu": 4000}), "allocated": Resources({"cpu": 3000})}
    full = {"deserved": Resources({"cpu": 4000}), "allocated": Resources({"cpu": 3500})}

    assert waits(reason=Reason.INSUFFICIENT_CAPACITY, figures=within) == (700, 700)
    assert waits(reason=Reason.INSUFFICIENT_CAPACITY, figures=full) == (700, 0)
    assert waits(reason=Reason.NOT_ENOUGH_MEMBERS, figures=within) == (700, 0)
    assert waits(reason=Reason.RUNNING, figures=within) == (0, 0)


def test_a_queue_without_a_deserved_share_has_no_wait_for_it() -> None:
    nothing = {"deserved": Resources({}), "allocated": Resources({})}

    assert waits(reason=Reason.BEHIND_IN_ORDER, figures=nothing) == (700, 0)


def test_there_are_no_series_before_the_first_plan_and_no_conflicts_with_others() -> None:
    metrics = Metrics()
    metrics.registry.register(PlanCollector(lambda: None))
    before = generate_latest(metrics.registry).decode()

    assert "gang_extender_queue" not in before
    metrics.registry.register(PlanCollector(lambda: CycleResult(snapshot(), DECIDED)))
    text = generate_latest(metrics.registry).decode()
    kinds = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(kinds) == len(set(kinds))


def test_every_series_is_explained_in_the_manual() -> None:
    metrics = Metrics()
    metrics.registry.register(PlanCollector(lambda: CycleResult(snapshot(RUNS, WAITS), DECIDED)))
    manual = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text()
    explained = set(re.findall(r"(?:gang_extender|volcano|process|python)_\w+", manual))
    names = [family.name for family in metrics.registry.collect()]

    assert [name for name in names if not {name, f"{name}_total"} & explained] == []
