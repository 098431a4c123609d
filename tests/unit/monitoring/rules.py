"""The shipped alerts, and the same alerts with shorter times for tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

MONITORING = Path(__file__).parents[3] / "manifests" / "monitoring"
ALERTS = MONITORING / "alerts.yaml"

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
#: `5m`, also in `[5m]`; and a time in seconds, always written as `30 * 60`.
_DURATION = re.compile(r"\b(\d+)([smhd])\b")
_SECONDS = re.compile(r"\b(\d+) \* (60|3600|86400)\b")


class Alert(NamedTuple):
    """One alerting rule."""

    name: str
    expression: str
    held: str
    labels: dict[str, str]
    annotations: dict[str, str]


def shipped() -> dict[str, Any]:
    """Return the rule file: the `spec` of the PrometheusRule."""
    spec: dict[str, Any] = yaml.safe_load(ALERTS.read_text())["spec"]
    return spec


def alerts() -> list[Alert]:
    """Return every alert."""
    return [
        Alert(each["alert"], each["expr"], each.get("for", ""), each["labels"], each["annotations"])
        for group in shipped()["groups"]
        for each in group["rules"]
    ]


def accelerated(times: int) -> dict[str, Any]:
    """Return the rule file with every time divided: `for`, windows, and limits in seconds.

    Nothing else in an expression changes, so the shipped rules are what is tested.
    """
    spec = shipped()
    for group in spec["groups"]:
        for rule in group["rules"]:
            rule["expr"] = _shortened(rule["expr"], times)
            if "for" in rule:
                rule["for"] = _shortened(rule["for"], times)
    return spec


def _shortened(text: str, times: int) -> str:
    def seconds(found: re.Match[str]) -> str:
        return f"{int(found[1]) * int(found[2]) / times:g}"

    def duration(found: re.Match[str]) -> str:
        return f"{int(found[1]) * _UNITS[found[2]] * 1000 // times}ms"

    return _DURATION.sub(duration, _SECONDS.sub(seconds, text))
