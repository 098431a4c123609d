"""The metrics and labels that a PromQL expression uses."""

from __future__ import annotations

import re

_SERIES = re.compile(
    r"\b((?:gang_extender|volcano|process|python)_\w+)(?:\{((?:[^{}\"]|\"[^\"]*\")*)\})?"
)
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\b(?:by|on|without)\s*\(([^)]*)\)")
#: Added by the scrape configuration, and by the histogram format.
OF_THE_SCRAPE = {"job", "namespace", "instance", "le"}


def named(expression: str) -> dict[str, set[str]]:
    """Return each metric with the labels used; labels of a grouping count for all metrics."""
    grouped = {
        label.strip() for found in _GROUPED.findall(expression) for label in found.split(",")
    }
    return {
        name: {*_LABEL.findall(labels or ""), *grouped} - OF_THE_SCRAPE
        for name, labels in _SERIES.findall(expression)
    }
