"""Closing a queue closes the queues below it, and its figures include theirs."""

from __future__ import annotations

import pytest

from extender.model.gang import GangKey
from extender.model.queue import QueueState
from extender.model.reason import Reason
from extender.model.resources import NOTHING, Resources
from extender.planner import policy_parser
from extender.planner.explain.explain import explain
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from tests.builders import amounts, gang, nodes, queue, snapshot

CAPACITY = policy_parser.DEFAULT_TEXT.replace("proportion", "capacity")
TREE = CAPACITY.replace("- name: capacity", "- name: capacity\n    enableHierarchy: true")
EVERY_POLICY = pytest.mark.parametrize(
    "policy",
    [
        pytest.param(policy_parser.DEFAULT, id="proportion"),
        pytest.param(policy_parser.parse(CAPACITY), id="capacity"),
        pytest.param(policy_parser.parse(TREE), id="a tree of deserved amounts"),
        pytest.param(policy_parser.parse("compatibility: volcano"), id="volcano"),
    ],
)
TRAIN = GangKey("a/train")


@EVERY_POLICY
@pytest.mark.parametrize("state", [QueueState.CLOSED, QueueState.CLOSING])
def test_a_gang_below_a_closed_queue_waits_and_names_it(policy: Policy, state: QueueState) -> None:
    family = [queue("org", state=state), queue("dept", parent="org"), queue("team", parent="dept")]
    seen = snapshot(nodes(1, cpu=4), [gang("a/train", 2, queue="team", cpu=1)], family)

    plan = make_plan(seen, policy)

    verdict = plan.verdicts[TRAIN]
    assert plan.placements == {}
    assert verdict.reason is Reason.QUEUE_CLOSED
    assert verdict.message == f"queue team is below org, and queue org is {state.value.lower()}"


@EVERY_POLICY
def test_hundreds_of_nested_queues_are_planned_and_those_above_limit_the_last(
    policy: Policy,
) -> None:
    family = [queue("q0", capability=amounts(cpu=2))]
    family += [queue(f"q{n}", parent=f"q{n - 1}") for n in range(1, 800)]
    wants = [gang("a/train", 3, queue="q799", cpu=1), gang("a/other", 2, queue="default", cpu=1)]
    plan = make_plan(snapshot(nodes(2, cpu=4), wants, family), policy)

    assert GangKey("a/other") in plan.placements
    if policy.rules.reservations_hold_together:
        assert TRAIN not in plan.placements


def test_a_path_of_a_hundred_thousand_levels_is_planned() -> None:
    tree = policy_parser.DEFAULT_TEXT.replace("  - name: proportion\n", "").replace(
        "- name: drf", "- name: drf\n    enableHierarchy: true"
    )
    deep = {"volcano.sh/hierarchy": "root" + "/x" * 100_000}
    wants = [gang("a/train", 2, queue="deep", cpu=1), gang("a/other", 2, queue="flat", cpu=1)]
    seen = snapshot(nodes(1, cpu=4), wants, [queue("deep", annotations=deep), queue("flat")])

    assert {*make_plan(seen, policy_parser.parse(tree)).placements} == {TRAIN, GangKey("a/other")}


@EVERY_POLICY
def test_a_gang_below_an_open_queue_starts(policy: Policy) -> None:
    family = [queue("org"), queue("team", parent="org"), queue("other", state=QueueState.CLOSED)]
    seen = snapshot(nodes(1, cpu=4), [gang("a/train", 2, queue="team", cpu=1)], family)

    assert list(make_plan(seen, policy).placements) == [TRAIN]


def test_there_is_no_direct_admission_below_a_closed_queue() -> None:
    family = [queue("org", state=QueueState.CLOSED), queue("team", parent="org"), queue("free")]

    plan = make_plan(snapshot(nodes(1, cpu=4), [], family))

    assert set(plan.direct_admission) == {"free", "default"}


def test_gangs_below_a_closed_queue_do_not_count_for_deserved_shares() -> None:
    family = [queue("org", state=QueueState.CLOSED), queue("team", parent="org"), queue("free")]
    gangs = [
        gang("a/train", 4, queue="team", cpu=1),
        gang("a/one", 4, queue="free", cpu=1, created=1),
        gang("a/two", 4, queue="free", cpu=1, created=2),
    ]

    plan = make_plan(snapshot(nodes(2, cpu=4), gangs, family))

    assert plan.queues["free"].deserved.amount("cpu") == 8000
    assert sorted(plan.placements) == ["a/one", "a/two"]


def test_explain_suggests_opening_the_queues_above() -> None:
    family = [
        queue("org", state=QueueState.CLOSED),
        queue("dept", parent="org", state=QueueState.CLOSED),
        queue("team", parent="dept"),
    ]
    seen = snapshot(nodes(1, cpu=4), [gang("a/train", 2, queue="team", cpu=1)], family)

    told = explain(seen, make_plan(seen), policy_parser.DEFAULT, TRAIN)

    assert told is not None
    assert list(told.remedies) == ["queues dept and org opened again"]


@pytest.mark.parametrize("text", [policy_parser.DEFAULT_TEXT, CAPACITY, TREE])
def test_guarantees_that_add_up_to_more_do_not_lift_a_parent_above_its_ceiling(text: str) -> None:
    family = [queue("org", capability=amounts(cpu=4))]
    family += [
        queue(name, parent="org", guarantee=amounts(cpu=3), deserved=amounts(cpu=3))
        for name in ("a", "b")
    ]
    gangs = [gang(f"a/{name}{n}", 1, queue=name, cpu=1) for name in ("a", "b") for n in range(3)]

    plan = make_plan(snapshot(nodes(1, cpu=16), gangs, family), policy_parser.parse(text))

    assert plan.queues["org"].allocated.amount("cpu") == 4000


@EVERY_POLICY
def test_a_queue_shows_what_the_queues_below_it_use_and_request(policy: Policy) -> None:
    family = [queue("org"), queue("dept", parent="org"), queue("team", parent="dept")]
    family += [queue("lab", parent="org"), queue("else")]
    gangs = [
        gang("a/run", 2, on=["n1"] * 2, queue="team", cpu=1),
        gang("a/ran", 1, on=["n1"], queue="lab", cpu=1),
        gang("a/other", 1, on=["n2"], queue="else", cpu=1),
        gang("a/start", 1, queue="team", cpu=1),
        gang("a/huge", 99, queue="lab", cpu=1),
    ]

    shown = make_plan(snapshot(nodes(2, cpu=4), gangs, family), policy).queues

    def used(amount: Resources) -> float:
        return amount.amount("cpu") / 1000

    assert {name: used(shown[name].allocated) for name in ("org", "dept", "team", "lab")} == {
        "org": 4,
        "dept": 3,
        "team": 3,
        "lab": 1,
    }
    assert used(shown["else"].allocated) == 1
    assert used(shown["org"].own) == used(shown["dept"].own) == 0
    assert used(shown["team"].own) == 3
    assert used(shown["org"].requested) == 4 + 99


def test_in_a_tree_of_deserved_amounts_the_share_of_a_parent_includes_its_children() -> None:
    family = [
        queue("org", deserved=amounts(cpu=4)),
        queue("team", parent="org", deserved=amounts(cpu=4)),
    ]
    seen = snapshot(nodes(1, cpu=8), [gang("a/run", 2, on=["n1"] * 2, queue="team", cpu=1)], family)

    shown = make_plan(seen, policy_parser.parse(TREE)).queues

    assert shown["org"].share == shown["team"].share == 0.5


def test_by_weight_the_share_of_a_parent_counts_its_own_gangs_alone() -> None:
    family = [queue("org"), queue("team", parent="org")]
    seen = snapshot(nodes(1, cpu=8), [gang("a/run", 2, on=["n1"] * 2, queue="team", cpu=1)], family)

    shown = make_plan(seen).queues

    assert (shown["org"].share, shown["org"].overused, shown["org"].borrowed) == (0, False, NOTHING)
