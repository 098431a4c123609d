"""The table of metrics, from the registry behind `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from prometheus_client.metrics import MetricWrapperBase

from extender.forecast.forecaster import Forecaster
from extender.metrics import Metrics
from extender.policy_file import PolicyFile
from extender.status.history import GangHistory
from extender.web.app import create_app
from extender.web.dashboard.context import AppContext
from tests.scene import gang, plan, snapshot, verdict
from tests.unit.docs.tables.parts import table


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
    policies = PolicyFile()
    create_app(
        AppContext(
            history=history,
            findings=list,
            policies=policies,
            metrics=metrics,
            readiness=list,
            warmth=list,
            standby=list,
            notes=list,
            silence=dict,
            forecaster=Forecaster(policies.current),
        )
    )
    return metrics, [each for family in _families(metrics) for each in _series(family)]


def series() -> str:
    """Write every metric with its type, labels and meaning."""
    return table(
        ("series", "type", "labels", "meaning"),
        (
            (f"`{each.name}`", each.kind, ", ".join(each.labels), each.meaning)
            for each in exported()[1]
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
