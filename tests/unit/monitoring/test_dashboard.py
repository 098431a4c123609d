"""The dashboard uses exported metrics and labels, and its panels do not overlap."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

from .exports import samples
from .expressions import named
from .rules import MONITORING

DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
DRAWN = [panel for panel in PANELS if panel["type"] != "row"]
VARIABLES = {each["name"] for each in DASHBOARD["templating"]["list"]}


def panel_expressions() -> list[str]:
    return [target["expr"] for panel in DRAWN for target in panel["targets"]]


def expressions() -> list[str]:
    return panel_expressions() + [
        each["definition"] for each in DASHBOARD["templating"]["list"][1:]
    ]


def test_every_expression_uses_exported_metrics_and_labels() -> None:
    known = samples()

    for expression in expressions():
        asked = named(expression)
        assert asked, f"{expression} uses none of our metrics"
        for name, labels in asked.items():
            assert name in known, f"{expression}: there is no series {name}"
            assert labels <= known[name], f"{expression}: {name} has no {labels - known[name]}"


def test_every_variable_is_used_and_every_used_variable_exists() -> None:
    text = json.dumps(PANELS)
    used = {name for name in VARIABLES if f"${name}" in text or f"${{{name}}}" in text}

    assert used == VARIABLES


def test_panels_do_not_overlap_and_each_has_an_id_and_a_title() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(panel["title"] for panel in PANELS)
    for one, other in combinations((panel["gridPos"] for panel in PANELS), 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y, (one, other)


def test_metrics_and_labels_are_parsed_from_an_expression() -> None:
    asked = named('sum by (queue, le) (rate(gang_extender_start_seconds_bucket{job="x"}[5m]))')

    assert asked == {"gang_extender_start_seconds_bucket": {"queue"}}
