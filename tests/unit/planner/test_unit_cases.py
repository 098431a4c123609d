"""The rows of the behaviour tables that are formulas: scores, phases, comparisons, orders."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from extender.cli import saved as files
from extender.model.gang import Gang, Phase, PodGroup
from extender.model.pod import Status
from extender.model.resources import CPU, MEMORY
from extender.planner import policy_parser
from extender.planner.actions.backfill import release_best_effort
from extender.planner.node_ranking import ScoringTable
from extender.planner.policy import VOLCANO, Vector, exceeds_somewhere, excess, within_somewhere
from extender.planner.session import Session
from extender.planner.verdicts import is_unschedulable, phase_after
from tests.builders import pod, shape
from tests.unit.planner.case_objects import Case, cases, objects, policy_file

ARITHMETIC = VOLCANO.arithmetic
#: Both names of the two vectors.
NAMES = (("resource1", "r"), ("resource2", "rr"))


def vector(written: dict[str, Any] | None) -> dict[str, float]:
    """Read a row's vector; all but cpu, memory and pods stand there in thousandths."""
    raw = written or {}
    found = {CPU: float(raw.get("cpu_milli", 0)), MEMORY: float(raw.get("memory_bytes", 0))}
    for name, amount in raw.get("scalars_raw", {}).items():
        found[name] = amount if name == "pods" else amount / 1000
    return found


#: What each operation of Volcano compares: left, right, and the requested dimensions.
COMPARISONS: dict[str, Callable[[Vector, Vector, Vector], bool]] = {
    "LessEqual": lambda left, right, _: ARITHMETIC.within(left, right),
    "LessEqualWithDimension": lambda left, right, asked: excess(left, right, asked) == [],
    "LessEqualPartlyWithDimensionZeroFiltered": partial(within_somewhere, ARITHMETIC),
    "GreaterPartlyWithRelevantDimensions": partial(exceeds_somewhere, ARITHMETIC),
}
ROWS = [
    case
    for case in cases("resource_arithmetic")
    if case["op"] in COMPARISONS and case["impl"] == "volcano"
]


@pytest.mark.parametrize("case", ROWS, ids=lambda case: case["id"])
def test_amounts_are_compared_as_in_volcano(case: Case) -> None:
    left, right = (vector(case.get(long, case.get(short))) for long, short in NAMES)
    if case.get("missing_dimension_default") == "Infinity":
        right = {name: right.get(name, float("inf")) for name in {*left, *right}}
    (expected,) = (case[key] for key in ("expected", "expectedFlag", "wantBool") if key in case)

    assert COMPARISONS[case["op"]](left, right, vector(case.get("req"))) == expected


def members(written: list[dict[str, str]]) -> Gang:
    pods = tuple(
        pod(each["name"], shape(cpu=1), status=Status(each["status"]), on=each["node"])
        for each in written
    )
    return Gang(group=PodGroup(namespace="a", name="g"), pods=pods)


@pytest.mark.parametrize("case", [*cases("volcano_podgroup_phase")], ids=lambda case: case["id"])
def test_the_phase_after_a_cycle(case: Case) -> None:
    gang = members(case["tasks"])
    group = PodGroup(namespace="a", name="g", min_member=case["min_member"])
    found = phase_after(
        Gang(group=group, pods=gang.pods),
        Phase(case["current_phase"]),
        VOLCANO,
        unschedulable=case["unschedulable_condition_this_session"],
    )

    assert found.value == case["expect"]["phase"]


@pytest.mark.parametrize("case", [*cases("volcano_gang_condition")], ids=lambda case: case["id"])
def test_terminating_members_do_not_make_a_gang_unschedulable(case: Case) -> None:
    group = PodGroup(namespace="a", name="g", min_member=case["min_member"])
    gang = Gang(group=group, pods=members(case["tasks"]).pods)

    skipped = not is_unschedulable(gang, gang.ready)

    assert skipped == case["expect"]["skip_unschedulable_condition"]


def opened(case: Case, tmp_path: Any) -> Session:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(objects(case)))
    snapshot = files.read([str(path)], frozenset({"volcano"})).snapshot()
    chosen = policy_parser.parse(json.dumps(policy_file(case, "volcano")), "case")
    return Session(snapshot, chosen)


@pytest.mark.parametrize("case", [*cases("volcano_binpack")], ids=lambda case: case["id"])
def test_scores_of_packing(case: Case, tmp_path: Any) -> None:
    session = opened({**case, "actions": ["allocate"]}, tmp_path)
    names = [node.name for node in session.snapshot.nodes.nodes]
    shapes = {p.key: p.shape for g in session.snapshot.gangs.values() for p in g.pods}

    for key, expected in case["expect"]["node_scores"].items():
        need = session.capacity.row(shapes[key]).astype(float)
        table = ScoringTable(session.capacity, need, session.capacity.all_rows, 1)
        scores = session.plugins.score(shapes[key], table)[:, 0].tolist()
        assert dict(zip(names, scores, strict=True)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("case", [*cases("volcano_backfill")], ids=lambda case: case["id"])
def test_the_order_of_backfill(case: Case, tmp_path: Any) -> None:
    session = opened(case, tmp_path)

    found = [each.name for _, pods in release_best_effort(session) for each in pods]

    assert found == case["expect"]["backfill_order"]
