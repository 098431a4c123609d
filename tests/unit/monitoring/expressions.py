"""Which series and labels an expression of PromQL names."""

from __future__ import annotations

import re

_SERIES = re.compile(
    r"\b((?:gang_extender|volcano|process|python)_\w+)(?:\{((?:[^{}\"]|\"[^\"]*\")*)\})?"
)
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\b(?:by|on|without)\s*\(([^)]*)\)")
#: Given by whoever scrapes, and by the form of a histogram.
OF_THE_SCRAPE = {"job", "namespace", "instance", "le"}


def named(expression: str) -> dict[str, set[str]]:
    """Give each series with the labels asked of it; labels of groups count for all of them."""
    grouped = {
        label.strip() for found in _GROUPED.findall(expression) for label in found.split(",")
    }
    return {
        name: {*_LABEL.findall(labels or ""), *grouped} - OF_THE_SCRAPE
        for name, labels in _SERIES.findall(expression)
    }
