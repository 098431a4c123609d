"""predicates, nodeorder and binpack: which nodes a pod may use, and which it goes to."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.gang import GangKey
from extender.model.matching import NodeIndex, tolerates
from extender.model.node import Node, Taint
from extender.model.pod import NodeTerm, Requirement, Shape, Toleration
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.planner.session import Session
from tests.builders import amounts, gang, node, pod, snapshot


def usable(members: list[Node], **kind: Any) -> list[str]:
    shape = Shape(requests=amounts(cpu=1, pods=1), **kind)
    before = snapshot(members, [gang("a/x", pods=[pod("x", shape)])])
    mask = Session(before, policy_parser.DEFAULT).nodes.usable(shape)
    return [each.name for each, free in zip(before.nodes.nodes, mask, strict=True) if free]


def matches(term: NodeTerm, there: Node) -> bool:
    return bool(NodeIndex([there]).matching(term)[0])


def test_nodes_that_are_not_ready_or_cordoned_are_excluded() -> None:
    members = [node("a"), node("b", ready=False), node("c", unschedulable=True)]

    assert usable(members) == ["a"]
    daemon = Toleration(key="node.kubernetes.io/unschedulable", operator="Exists")
    assert usable(members, tolerations=(daemon,)) == ["a", "c"]


def test_a_selector_requires_every_label() -> None:
    members = [node("a", labels={"zone": "x", "gpu": "yes"}), node("b", labels={"zone": "x"})]

    assert usable(members, selector=(("zone", "x"), ("gpu", "yes"))) == ["a"]


def test_of_several_terms_one_is_enough() -> None:
    members = [node(name, labels={"zone": name}) for name in "abc"]
    terms = tuple(NodeTerm(labels=(Requirement("zone", "In", (name,)),)) for name in "ab")

    assert usable(members, affinity=terms) == ["a", "b"]


def test_required_affinity_without_any_term_matches_nothing() -> None:
    assert usable([node("a")], affinity=()) == []


@pytest.mark.parametrize(
    ("operator", "values", "fits"),
    [
        ("In", ("8", "9"), True),
        ("In", ("9",), False),
        ("NotIn", ("9",), True),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
        ("Gt", ("7",), True),
        ("Gt", ("8",), False),
        ("Lt", ("9",), True),
        ("Lt", ("x",), False),
        ("Gt", (), False),
    ],
)
def test_every_operator_of_a_requirement(
    operator: str, values: tuple[str, ...], fits: bool
) -> None:
    there = node("a", labels={"cores": "8"})

    assert matches(NodeTerm(labels=(Requirement("cores", operator, values),)), there) is fits


def test_a_missing_label_satisfies_only_negations() -> None:
    bare = node("a")

    for operator, fits in (("NotIn", True), ("DoesNotExist", True), ("In", False), ("Gt", False)):
        assert matches(NodeTerm(labels=(Requirement("x", operator, ("1",)),)), bare) is fits


def test_fields_mean_the_nodes_name() -> None:
    term = NodeTerm(fields=(Requirement("metadata.name", "In", ("a",)),))

    assert (matches(term, node("a")), matches(term, node("b"))) == (True, False)


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", value="other"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="k", value="v", effect="NoSchedule"), True),
        (Toleration(key="k", value="v", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
    ],
)
def test_every_form_of_toleration(toleration: Toleration, fits: bool) -> None:
    assert tolerates(Shape(tolerations=(toleration,)), Taint("k", "v")) is fits


def test_only_hard_taints_exclude_a_node() -> None:
    plain = node("a")
    hard = Node(name="b", allocatable=plain.allocatable, taints=(Taint("k", "v", "NoExecute"),))
    soft = Node(
        name="c", allocatable=plain.allocatable, taints=(Taint("k", "v", "PreferNoSchedule"),)
    )

    assert usable([plain, hard, soft]) == ["a", "c"]


def test_a_policy_may_switch_checks_off() -> None:
    text = """
tiers:
- plugins:
  - name: predicates
    arguments: {predicate.TaintTolerationEnable: false}
"""
    before = snapshot([node("a", taints=["k=v"])], [gang("a/x", 1, cpu=1)])
    session = Session(before, policy_parser.parse(text))
    (state,) = session.accounting.contenders.values()

    assert session.nodes.usable(state.gang.pods[0].shape).all()


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


FULLEST = with_arguments("nodeorder", leastrequested__weight=0, mostrequested__weight=1)
BALANCED = with_arguments("nodeorder", leastrequested__weight=0)
BY_CPU = with_arguments("binpack", binpack__cpu=1, binpack__memory=0)
BY_MEMORY = with_arguments("binpack", binpack__cpu=0)
NEGATIVE = with_arguments("binpack", binpack__cpu=-3, binpack__memory=0)
LITTLE_CPU = [node("n1", cpu=2, memory=40), node("n2", cpu=40, memory=2)]


@pytest.mark.parametrize(
    ("plugin", "members", "running", "best"),
    [
        pytest.param("{name: nodeorder}", EQUAL, ["n1"], "n2", id="the emptiest"),
        pytest.param(FULLEST, EQUAL, ["n2"], "n2", id="the fullest"),
        pytest.param(
            BALANCED, [LITTLE_CPU[0], node("n2", cpu=8, memory=8)], [], "n2", id="balanced"
        ),
        pytest.param("{name: binpack}", EQUAL, ["n2"], "n2", id="packed"),
        pytest.param(BY_CPU, LITTLE_CPU, [], "n1", id="packed by cpu"),
        pytest.param(BY_MEMORY, LITTLE_CPU, [], "n2", id="packed by memory"),
        pytest.param(
            NEGATIVE, [node("n1", cpu=40), node("n2", cpu=2)], [], "n2", id="a negative weight is 1"
        ),
    ],
)
def test_each_score_has_its_own_best_node(
    plugin: str, members: list[Node], running: list[str], best: str
) -> None:
    assert goes_to(members, plugin, None, *running) == best


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


def test_packing_counts_other_resources_when_they_are_named() -> None:
    kind = Shape(requests=amounts(cpu=1, memory=1, pods=1, **{"nvidia.com/gpu": 1}))
    members = [node("n1", cpu=4, memory=4, gpu=8), node("n2", cpu=4, memory=4, gpu=2)]
    named = "{name: binpack, arguments: {binpack.resources: nvidia.com/gpu}}"

    assert goes_to(members, named, kind) == "n2"


def test_equal_nodes_are_taken_by_name() -> None:
    assert goes_to(list(reversed(EQUAL)), "{name: nodeorder}") == "n1"
