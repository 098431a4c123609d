"""Labels and taints of all nodes at once: the same as node by node, linear in the requirements."""

from __future__ import annotations

from hypothesis import given, strategies as st

from extender.model.matching import NodeIndex, is_hard, meets_requirement, tolerates
from extender.model.node import Node, Taint
from extender.model.pod import NodeTerm, Requirement, Shape, Toleration
from extender.planner import policy_parser
from extender.planner.plugins.nodes import Predicates
from extender.planner.policy import Arguments
from extender.planner.session import Session
from tests.builders import amounts, gang, nodes, pod, snapshot
from tests.steps import steps

KEYS = ("zone", "cores", "x")
VALUES = ("a", "b", "", "7", "07", " 8 ", "-1", "99999999999999999999999", "9" * 5000)
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Nonsense")
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
taints = st.lists(
    st.builds(Taint, st.sampled_from(["k", "l"]), st.sampled_from(["", "v"]), effects), max_size=3
).map(tuple)
members = st.lists(st.tuples(labels, taints), max_size=6).map(
    lambda many: [
        Node(name=f"n{row}", allocatable=amounts(), labels=marks, taints=against)
        for row, (marks, against) in enumerate(many)
    ]
)
requirements = st.builds(
    Requirement,
    st.sampled_from(KEYS),
    st.sampled_from(OPERATORS),
    st.lists(st.sampled_from(VALUES), max_size=4).map(tuple),
)
named = st.builds(
    Requirement,
    st.just("metadata.name"),
    st.sampled_from(OPERATORS),
    st.lists(st.sampled_from(["n0", "n1", "n9"]), max_size=2).map(tuple),
)
terms = st.builds(
    NodeTerm,
    labels=st.lists(requirements, max_size=3).map(tuple),
    fields=st.lists(named, max_size=1).map(tuple),
)
tolerations = st.lists(
    st.builds(
        Toleration,
        st.sampled_from(["", "k", "l"]),
        st.sampled_from(["Equal", "Exists"]),
        st.sampled_from(["", "v"]),
        st.one_of(st.just(""), effects),
    ),
    max_size=3,
).map(tuple)


def matches(term: NodeTerm, node: Node) -> bool:
    """Return whether *node* meets a node selector term; an empty term matches nothing."""
    if not term.labels and not term.fields:
        return False
    by_labels = all(meets_requirement(need, node.labels.get(need.key)) for need in term.labels)
    return by_labels and all(meets_requirement(need, node.name) for need in term.fields)


@given(members, terms)
def test_the_index_matches_a_term_like_a_check_of_every_node(all_of_them, term) -> None:  # type: ignore[no-untyped-def]
    found = NodeIndex(all_of_them).matching(term)

    assert found.tolist() == [matches(term, each) for each in all_of_them]


@given(
    members,
    st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)), max_size=2).map(tuple),
    st.none() | st.lists(terms, max_size=3).map(tuple),
)
def test_the_index_selects_nodes_for_a_shape_like_a_check_of_every_node(
    all_of_them, wanted, any_of
) -> None:  # type: ignore[no-untyped-def]
    found = NodeIndex(all_of_them).selected(Shape(selector=wanted, affinity=any_of))

    assert found.tolist() == [
        all(each.labels.get(key) == value for key, value in wanted)
        and (any_of is None or any(matches(term, each) for term in any_of))
        for each in all_of_them
    ]


@given(members, tolerations)
def test_the_index_counts_taints_like_a_check_of_every_node(all_of_them, put_up_with) -> None:  # type: ignore[no-untyped-def]
    shape = Shape(tolerations=put_up_with)
    found = NodeIndex(all_of_them).count_taints(lambda t: is_hard(t) and not tolerates(shape, t))

    assert found.tolist() == [
        sum(is_hard(taint) and not tolerates(shape, taint) for taint in each.taints)
        for each in all_of_them
    ]


def shape_with_terms(terms: int) -> Shape:
    """A pod that requires one of many labels, some of which exist, and prefers as many."""
    wanted = tuple(NodeTerm((Requirement("k", "In", (str(each),)),)) for each in range(terms))
    return Shape(
        requests=amounts(cpu=1, pods=1),
        affinity=wanted,
        preferred=tuple((1, term) for term in wanted),
    )


def test_more_nodes_add_no_more_than_an_array_operation_to_a_requirement() -> None:
    def work(count: int) -> int:
        kind = shape_with_terms(200)
        before = snapshot(
            nodes(count, labels={"k": "7"}), [gang("a/train", pods=[pod("train-0", kind)])]
        )
        session = Session(before, policy_parser.DEFAULT)
        return steps(lambda: session.nodes.ranking(kind).best(1))

    # Node by node the 400 requirements would be 400 * 300 more steps, and more.
    assert work(400) - work(100) < 10 * 300


def test_nodes_that_a_shape_does_not_select_are_remembered_across_cycles() -> None:
    facts = snapshot(nodes(3)).nodes.facts
    kind = shape_with_terms(200)
    plugin = Predicates(Arguments("predicates", {}))

    first = steps(lambda: plugin.obstacles(kind, facts))
    again = steps(lambda: plugin.obstacles(kind, facts))

    assert again < first / 10
