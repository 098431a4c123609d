"""Every difference between two plans is visible: its two texts are never the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.model.resources import Resources
from extender.planner.plan import Eviction, GangPlacement, Plan, QueueFigures
from extender.planner.planner import make_plan
from extender.replay.compare import Difference, plan_differences
from tests.unit.planner.reason_cases import SENTENCES

TRAIN = GangKey("lab/train")
PLAN = make_plan(SENTENCES[0].before())
LONG = "x" * 200
FIGURES = QueueFigures(name="research", weight=3, allocated=Resources({"cpu": 4000}), share=0.25)


def placed(**nodes: str) -> Plan:
    where = {PodUid(uid): node for uid, node in nodes.items()}
    return replace(PLAN, placements={TRAIN: GangPlacement(gang=TRAIN, placements=where)})


def with_message(text: str) -> Plan:
    key, verdict = next(iter(PLAN.verdicts.items()))
    return replace(PLAN, verdicts={key: replace(verdict, message=text)})


def figures(**facts: Any) -> Plan:
    return replace(PLAN, queues={"research": replace(FIGURES, **facts)})


def leaving(node: str) -> Plan:
    uid = PodUid("u1")
    order = Eviction(
        uid=uid, namespace="lab", name="p", node=node, action="reclaim", beneficiary=TRAIN
    )
    return replace(PLAN, evictions=(order,))


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        (placed(a="n1", b="n2"), placed(a="n2", b="n1"), ("a on n1", "a on n2")),
        (
            placed(a="n1", b="n2", c="n3", d="n4"),
            placed(a="n1", b="n2", c="n3", d="n5"),
            ("d on n4", "d on n5"),
        ),
        (
            with_message(f"{LONG} 3 slots {LONG}"),
            with_message(f"{LONG} 4 slots {LONG}"),
            ("3 slots", "4 slots"),
        ),
        (
            figures(),
            figures(allocated=Resources({"cpu": 5000})),
            ("allocated Resources({'cpu': 4000})", "allocated Resources({'cpu': 5000})"),
        ),
        (leaving("n1"), leaving("n2"), ("n1", "n2")),
    ],
)
def test_a_difference_is_visible_in_its_text(was: Plan, now: Plan, words: tuple[str, str]) -> None:
    (found,) = plan_differences(was, now)

    assert isinstance(found, Difference)
    assert words[0] in found.was
    assert words[1] in found.now
    assert len(str(found)) < 500
