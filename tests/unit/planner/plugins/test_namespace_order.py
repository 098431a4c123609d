"""drf with enableNamespaceOrder: namespaces before queues, by share and weight."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from extender.model.gang import Gang, GangKey
from extender.model.snapshot import ResourceQuota, Snapshot
from extender.planner import policy_parser
from extender.planner.explain.explain import explain
from extender.planner.planner import make_plan
from tests.builders import gang, node, queue, snapshot

BY_NAMESPACE = """
actions: "enqueue, allocate{more}"
tiers:
- plugins:
  - name: gang
  - name: drf
    enableNamespaceOrder: true
  - name: proportion
  - name: predicates
"""
RULES = [
    pytest.param("", id="ours"),
    pytest.param("compatibility: volcano\n", id="volcanos"),
]


def weigh(snapshot: Snapshot, **weights: int) -> Snapshot:
    quotas = {
        name: (
            ResourceQuota(namespace=name, name="light"),
            ResourceQuota(namespace=name, name="weight", weight=weight),
        )
        for name, weight in weights.items()
    }
    return replace(snapshot, quotas=quotas)


def singles(namespace: str, count: int, queue: str = "default") -> list[Gang]:
    return [gang(f"{namespace}/g{n:02d}", 1, cpu=1, queue=queue, created=n) for n in range(count)]


def started(snapshot: Snapshot, text: str) -> Counter[str]:
    plan = make_plan(snapshot, policy_parser.parse(text))
    return Counter(key.partition("/")[0] for key in plan.placements)


@pytest.mark.parametrize("rules", RULES)
def test_namespaces_of_one_queue_share_by_weight(rules: str) -> None:
    before = weigh(snapshot([node("n1", cpu=8)], singles("a", 8) + singles("b", 8)), b=3)

    assert started(before, rules + BY_NAMESPACE.format(more="")) == {"a": 2, "b": 6}


@pytest.mark.parametrize("rules", RULES)
def test_what_a_namespace_uses_already_counts(rules: str) -> None:
    running = gang("a/old", 4, cpu=1, on=["n1"] * 4)
    before = snapshot([node("n1", cpu=8)], [running, *singles("a", 8), *singles("b", 8)])

    assert started(before, rules + BY_NAMESPACE.format(more="")) == {"b": 4}


def test_the_order_of_namespaces_comes_before_that_of_queues() -> None:
    """Two queues deserve half each; `a` has gangs in both, `b` in one, and takes most of that."""
    right = [gang(f"a/right{n}", 1, cpu=1, queue="right") for n in range(8)]
    gangs = [*singles("a", 8, "left"), *singles("b", 8, "left"), *right]
    before = snapshot([node("n1", cpu=8)], gangs, [queue("left"), queue("right")])
    switched = BY_NAMESPACE.format(more="")

    assert started(before, switched) == {"a": 5, "b": 3}
    assert started(before, switched.replace("Order: true", "Order: false")) == {"a": 6, "b": 2}


def test_without_the_switch_weights_of_namespaces_have_no_effect() -> None:
    before = weigh(snapshot([node("n1", cpu=8)], singles("a", 8) + singles("b", 8)), b=3)
    silent = BY_NAMESPACE.format(more="").replace("    enableNamespaceOrder: true\n", "")
    off = BY_NAMESPACE.format(more="").replace("Order: true", "Order: false")

    assert started(before, silent) == started(before, off) == {"a": 4, "b": 4}


def test_explain_names_the_shares_of_both_namespaces() -> None:
    full = [gang("b/old", 4, cpu=1, on=["n1"] * 4), gang("a/old", 4, cpu=1, on=["n1"] * 4)]
    before = weigh(snapshot([node("n1", cpu=8)], [*full, *singles("a", 1), *singles("b", 1)]), b=2)
    policy = policy_parser.parse(BY_NAMESPACE.format(more=""))

    told = explain(before, make_plan(before, policy), policy, GangKey("a/g00"))

    assert told is not None
    assert [(each.gang, each.why) for each in told.ahead] == [
        ("b/g00", "namespace b uses 25.0% of the cluster by weight, a 50.0%")
    ]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize(("weight", "victims"), [(1, 0), (8, 1)])
def test_pods_are_evicted_for_the_namespace_of_larger_weight(
    rules: str, weight: int, victims: int
) -> None:
    """Each has half; with weight 8 that is so small a share that one more pod is still small."""
    gangs = [
        gang("a/old", 4, cpu=1, min_member=1, on=["n1"] * 4, created=1),
        gang(
            "b/old", 4, cpu=1, min_member=1, on=["n1"] * 4, created=1, each={"preemptable": False}
        ),
        gang("b/new", 1, cpu=1, created=2),
    ]
    before = weigh(snapshot([node("n1", cpu=8)], gangs), b=weight)
    plan = make_plan(before, policy_parser.parse(rules + BY_NAMESPACE.format(more=", preempt")))

    assert [order.namespace for order in plan.evictions] == ["a"] * victims
