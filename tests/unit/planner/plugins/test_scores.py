"""Which node a pod goes to with nodeorder and binpack."""

from __future__ import annotations

import pytest

from extender.model.gang import GangKey
from extender.model.node import Node, Taint
from extender.model.pod import NodeTerm, Requirement, Shape
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from tests.builders import amounts, gang, node, pod, snapshot


def goes_to(members: list[Node], plugin: str, kind: Shape | None = None, *running: str) -> str:
    """Place one pod of one cpu; *running* names the nodes of pods like it that run."""
    kind = kind or Shape(requests=amounts(cpu=1, memory=1, pods=1))
    old = [
        gang(f"a/old{n}", min_member=0, pods=[pod(f"old{n}", kind, on=name)])
        for n, name in enumerate(running)
    ]
    new = gang("a/new", pods=[pod("new", kind)])
    text = f"actions: allocate\ntiers: [{{plugins: [{{name: gang}}, {plugin}]}}]"
    plan = make_plan(snapshot(members, [*old, new]), policy_parser.parse(text))
    return next(iter(plan.placements[GangKey("a/new")].placements.values()))


EQUAL = [node("n1", cpu=4, memory=4), node("n2", cpu=4, memory=4)]


def with_arguments(name: str, **arguments: float) -> str:
    written = ", ".join(f"{key.replace('__', '.')}: {value}" for key, value in arguments.items())
    return f"{{name: {name}, arguments: {{{written}}}}}"


def test_by_default_the_emptiest_node_is_the_best() -> None:
    assert goes_to(EQUAL, "{name: nodeorder}", None, "n1") == "n2"


def test_the_fullest_node_can_be_made_the_best() -> None:
    weights = with_arguments("nodeorder", leastrequested__weight=0, mostrequested__weight=1)

    assert goes_to(EQUAL, weights, None, "n2") == "n2"


def test_balance_counts_where_nothing_else_does() -> None:
    lopsided = [node("n1", cpu=2, memory=40), node("n2", cpu=8, memory=8)]

    assert goes_to(lopsided, with_arguments("nodeorder", leastrequested__weight=0)) == "n2"


def test_a_pods_preference_outweighs_free_capacity() -> None:
    fast = NodeTerm(labels=(Requirement("disk", "In", ("fast",)),))
    kind = Shape(requests=amounts(cpu=1, memory=1, pods=1), preferred=((10, fast),))
    members = [
        node("n1", cpu=4, memory=4),
        Node(name="n2", allocatable=EQUAL[0].allocatable, labels={"disk": "fast"}),
    ]

    assert goes_to(members, "{name: nodeorder}", kind, "n2") == "n2"


def test_nodes_with_a_soft_taint_are_avoided() -> None:
    avoided = Taint(key="old", effect="PreferNoSchedule")
    members = [Node(name="n1", allocatable=EQUAL[0].allocatable, taints=(avoided,)), EQUAL[1]]

    assert goes_to(members, "{name: nodeorder}", None, "n2") == "n2"


def test_packing_fills_the_node_in_use() -> None:
    assert goes_to(EQUAL, "{name: binpack}", None, "n2") == "n2"


@pytest.mark.parametrize(
    ("weights", "best"),
    [({"binpack__cpu": 1, "binpack__memory": 0}, "n1"), ({"binpack__cpu": 0}, "n2")],
)
def test_packing_weighs_resources(weights: dict[str, float], best: str) -> None:
    members = [node("n1", cpu=2, memory=40), node("n2", cpu=40, memory=2)]

    assert goes_to(members, with_arguments("binpack", **weights)) == best


def test_packing_takes_a_negative_weight_for_one() -> None:
    members = [node("n1", cpu=40, memory=40), node("n2", cpu=2, memory=40)]

    assert goes_to(members, with_arguments("binpack", binpack__cpu=-3, binpack__memory=0)) == "n2"


def test_packing_counts_other_resources_when_they_are_named() -> None:
    kind = Shape(requests=amounts(cpu=1, memory=1, pods=1, **{"nvidia.com/gpu": 1}))
    members = [node("n1", cpu=4, memory=4, gpu=8), node("n2", cpu=4, memory=4, gpu=2)]
    named = "{name: binpack, arguments: {binpack.resources: nvidia.com/gpu}}"

    assert goes_to(members, named, kind) == "n2"


def test_equal_nodes_are_taken_by_name() -> None:
    assert goes_to(list(reversed(EQUAL)), "{name: nodeorder}") == "n1"
