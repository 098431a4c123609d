"""The page of metrics: the registry behind `/metrics`, and the alerts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml
from prometheus_client.metrics import MetricWrapperBase

from extender.metrics import Metrics
from extender.status.history import GangHistory
from tests.scene import gang, plan, snapshot, verdict
from tests.unit.docs.tables.api import operations_port
from tests.unit.docs.tables.parts import ROOT, table

ALERTS = ROOT / "manifests" / "monitoring" / "alerts.yaml"


class Series(NamedTuple):
    """One metric of `/metrics`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def exported() -> tuple[Metrics, list[Series]]:
    """Return every metric that an operations port exports after a plan, and the registry."""
    metrics, history = Metrics(), GangHistory()
    history.note(snapshot(gang("runs")), plan(verdict("a/runs")))
    operations_port(metrics, history)
    return metrics, [each for family in _families(metrics) for each in _series(family)]


def series() -> str:
    """Write every metric with its type, labels and meaning."""
    return table(
        ("metric", "type", "labels", "meaning"),
        (
            (f"`{each.name}`", each.kind, ", ".join(each.labels), each.meaning)
            for each in exported()[1]
        ),
    )


def alerts() -> str:
    """Write every alert, with a link to its runbook."""
    (group,) = yaml.safe_load(ALERTS.read_text())["spec"]["groups"]
    return table(
        ("alert", "severity", "for", "meaning"),
        (
            (
                f"[`{rule['alert']}`](../operate.md#{rule['alert'].lower()})",
                rule["labels"]["severity"],
                str(rule.get("for", "")),
                rule["annotations"]["summary"],
            )
            for rule in group["rules"]
        ),
    )


def _families(metrics: Metrics) -> Iterator[Any]:
    """Yield objects that know their labels: our own metrics, and what other collectors collect."""
    # The library has no public way to ask a registry for its collectors, or a series for labels.
    for collector in metrics.registry._collector_to_names:  # noqa: SLF001
        if isinstance(collector, MetricWrapperBase):
            yield collector
        else:
            yield from collector.collect()


def _series(family: Any) -> Iterator[Series]:
    labels = tuple(family._labelnames)  # noqa: SLF001
    described = family.describe()[0] if isinstance(family, MetricWrapperBase) else family
    counts = "_total" if described.type == "counter" else ""
    yield Series(f"{described.name}{counts}", described.type, labels, described.documentation)
