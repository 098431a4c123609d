"""The values of series, as Prometheus scrapes them."""

from __future__ import annotations

from extender.metrics import Metrics


def value(metrics: Metrics, series: str, **labels: str) -> float:
    """Return the value of a series by its exported name; 0 before its first sample."""
    return metrics.registry.get_sample_value(f"gang_extender_{series}", labels) or 0.0


def labels(metrics: Metrics, series: str) -> list[dict[str, str]]:
    """Return the labels of each exported sample of a series."""
    return [
        sample.labels
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == f"gang_extender_{series}"
    ]
