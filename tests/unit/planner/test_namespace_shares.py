"""What a namespace has of a queue: at most so much, at least so much, with every policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from extender.model.gang import Gang
from extender.model.queue import Namespace, NamespaceShare, Queue
from extender.model.reason import Problem, Reason
from extender.model.resources import CPU
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import GangStatus, Plan, Verdict
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from tests.builders import amounts, gang, nodes, queue, share, snapshot
from tests.unit.planner.explain_output import shown, would_start_with
from tests.unit.planner.plans import CAPACITY, VOLCANO, at_rest

UNLIMITED = policy_parser.parse(
    policy_parser.DEFAULT_TEXT.replace("  - name: proportion\n", "").replace(" reclaim,", "")
)
POLICIES = {
    "default": policy_parser.DEFAULT,
    "capacity": CAPACITY,
    "volcano": VOLCANO,
    "without any limit of queues": UNLIMITED,
}
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def small(namespace: str, count: int, on: str = "", **rest: Any) -> list[Gang]:
    """Make gangs of one cpu each in queue `q`."""
    places = [on] if on else []
    return [
        gang(f"{namespace}/g{number}", 1, on=places, cpu=1, **{"queue": "q", **rest})
        for number in range(count)
    ]


def eight(
    gangs: list[Gang], *shares: NamespaceShare, queues: Sequence[Queue] = (queue("q"),)
) -> Snapshot:
    """Make a cluster of eight cpus."""
    return snapshot(nodes(1, cpu=8), gangs, queues, shares=shares)


def cpus(state: Snapshot, namespace: str, queue: str = "q") -> int:
    """Count the cpus that a namespace has of a queue."""
    gangs = (each for each in state.gangs.values() if each.queue == queue)
    own = (each for each in gangs if each.group.namespace == namespace)
    return sum(each.allocated.amount(CPU) for each in own) // 1000


def waiting(plan: Plan, namespace: str) -> list[Verdict]:
    return [
        verdict
        for key, verdict in plan.verdicts.items()
        if key.startswith(f"{namespace}/") and verdict.status is GangStatus.WAITING
    ]


@EVERY_POLICY
def test_a_namespace_gets_no_more_of_a_queue_than_its_limit(policy: Policy) -> None:
    before = eight([*small("a", 8), *small("b", 2)], share("q/a", at_most=amounts(cpu=3)))

    state, plan = at_rest(before, policy)

    assert (cpus(state, "a"), cpus(state, "b")) == (3, 2)
    assert {verdict.reason for verdict in waiting(plan, "a")} == {Reason.NAMESPACE_OVER_LIMIT}
    assert waiting(plan, "a")[0].message == (
        "namespace a uses 3 of at most 3 cpu in queue q; 1 more would exceed it"
    )


@EVERY_POLICY
def test_ten_small_gangs_together_stay_below_the_limit_like_one_large_gang(policy: Policy) -> None:
    shares = [share("q/a", at_most=amounts(cpu=3))]
    whole = snapshot(
        nodes(2, cpu=8), [gang("a/g", 10, queue="q", cpu=1)], [queue("q")], shares=shares
    )
    parts = snapshot(nodes(2, cpu=8), small("a", 10), [queue("q")], shares=shares)

    assert cpus(at_rest(whole, policy)[0], "a") == 0
    assert cpus(at_rest(parts, policy)[0], "a") == 3


@EVERY_POLICY
def test_a_namespace_with_a_limit_of_zero_gets_nothing(policy: Policy) -> None:
    shares = [share("q/a", at_most=amounts(cpu=1) * 0)]
    before = eight(small("a", 2), *shares)

    assert cpus(at_rest(before, policy)[0], "a") == 0


def test_requests_above_a_namespace_limit_do_not_count_for_the_deserved_share() -> None:
    before = eight(
        [*small("a", 8), *small("b", 8, queue="other")],
        share("q/a", at_most=amounts(cpu=2)),
        queues=[queue("q"), queue("other")],
    )

    plan = make_plan(before)

    assert plan.queues["q"].deserved[CPU] == 2000
    assert plan.queues["other"].deserved[CPU] == 6000


@EVERY_POLICY
def test_other_namespaces_do_not_use_the_guarantee_of_a_namespace(policy: Policy) -> None:
    before = eight(
        [*small("a", 8), *small("c", 8, queue="other")],
        share("q/b", at_least=amounts(cpu=3)),
        queues=[queue("q"), queue("other")],
    )

    state, plan = at_rest(before, policy)

    assert cpus(state, "a") + cpus(state, "c", "other") == 5
    assert plan.unused.amount(CPU) == 3000


@EVERY_POLICY
def test_a_namespace_gets_its_guarantee_when_its_gangs_arrive(policy: Policy) -> None:
    running = small("a", 5, on="n1")
    before = eight(
        [*running, *small("c", 4, queue="other"), *small("b", 3, created=50.0)],
        share("q/b", at_least=amounts(cpu=3)),
        queues=[queue("q", weight=1), queue("other", weight=1)],
    )

    state, _ = at_rest(before, policy)

    assert cpus(state, "b") == 3


def test_a_queue_deserves_the_guarantees_of_its_namespaces_whatever_its_weight() -> None:
    before = eight(
        [*small("b", 8), *small("c", 8, queue="other")],
        share("q/b", at_least=amounts(cpu=3)),
        queues=[queue("q", weight=1), queue("other", weight=7)],
    )

    assert make_plan(before).queues["q"].deserved[CPU] == 3000


def test_a_namespace_guarantee_adds_nothing_for_other_namespaces_of_the_queue() -> None:
    before = eight(
        [*small("a", 8), *small("c", 8, queue="other")],
        share("q/b", at_least=amounts(cpu=3)),
        queues=[queue("q", weight=1), queue("other", weight=4)],
    )

    plan = make_plan(before)

    assert plan.queues["q"].deserved[CPU] == 1000
    assert plan.queues["other"].deserved[CPU] == 4000


@EVERY_POLICY
def test_reclaim_leaves_a_namespace_its_guarantee(policy: Policy) -> None:
    before = eight(
        [
            *small("a", 4, on="n1"),
            *small("b", 4, on="n1", created=50.0),
            *small("c", 8, queue="other"),
        ],
        share("q/b", at_least=amounts(cpu=3)),
        queues=[queue("q"), queue("other", weight=7)],
    )

    state, _ = at_rest(before, policy)

    assert cpus(state, "b") >= 3


@EVERY_POLICY
def test_preemption_leaves_a_namespace_its_guarantee(policy: Policy) -> None:
    before = eight(
        [*small("b", 8, on="n1"), *small("a", 8, priority=9)], share("q/b", at_least=amounts(cpu=3))
    )

    state, _ = at_rest(before, policy)

    assert cpus(state, "b") >= 3
    if policy is not VOLCANO:
        assert cpus(state, "a") == 5


@EVERY_POLICY
def test_a_gang_at_its_namespace_limit_preempts_one_of_its_own_namespace(policy: Policy) -> None:
    before = eight(
        [
            *small("a", 2, on="n1"),
            *small("b", 2, on="n1"),
            gang("a/vip", 2, queue="q", cpu=1, priority=9),
        ],
        share("q/a", at_most=amounts(cpu=2)),
    )

    state, _ = at_rest(before, policy)

    assert cpus(state, "b") == 2, "others are left alone: what they have is no help"
    assert cpus(state, "a") == 2
    if policy is not VOLCANO:
        assert state.gangs[next(k for k in state.gangs if k == "a/vip")].on_nodes == 2


def test_a_namespace_below_its_guarantee_takes_back_within_its_queue() -> None:
    before = eight([*small("a", 8, on="n1"), *small("b", 4)], share("q/b", at_least=amounts(cpu=3)))

    state, _ = at_rest(before)

    assert (cpus(state, "a"), cpus(state, "b")) == (5, 3)


def test_a_namespace_below_its_guarantee_reclaims_from_another_queue() -> None:
    before = eight(
        [*small("c", 8, on="n1", queue="other"), *small("b", 4)],
        share("q/b", at_least=amounts(cpu=3)),
        queues=[queue("q", weight=1), queue("other", weight=7)],
    )

    state, _ = at_rest(before)

    assert cpus(state, "b") == 3


def test_a_gang_over_its_namespace_limit_reserves_no_capacity() -> None:
    before = snapshot(
        nodes(1, cpu=4),
        [*small("a", 2, on="n1"), gang("a/old", 2, queue="q", cpu=1), *small("b", 2, created=1e5)],
        [queue("q")],
        shares=[share("q/a", at_most=amounts(cpu=2))],
        now=1e5 + 10,
    )

    assert cpus(at_rest(before)[0], "b") == 2


def test_a_gang_over_its_namespace_limit_does_not_stop_others_from_preempting() -> None:
    before = snapshot(
        nodes(1, cpu=4),
        [
            *small("a", 2, on="n1"),
            *small("b", 2, on="n1"),
            gang("a/old", 2, queue="q", cpu=1, priority=9),
            gang("c/vip", 2, queue="q", cpu=1, priority=5, created=1e5),
        ],
        [queue("q")],
        shares=[share("q/a", at_most=amounts(cpu=1))],
        now=1e5 + 10,
    )

    assert cpus(at_rest(before)[0], "c") == 2


def test_gangs_over_their_namespace_limit_are_not_enqueued_before_others() -> None:
    least = {"min_resources": amounts(cpu=1)}
    before = eight(
        [*small("a", 8, group=least), *small("b", 2, group=least, created=50.0)],
        share("q/a", at_most=amounts(cpu=1)),
        queues=[queue("q", capability=amounts(cpu=4))],
    )

    state, plan = at_rest(before)

    assert (cpus(state, "a"), cpus(state, "b")) == (1, 2)
    assert {verdict.reason for verdict in waiting(plan, "a")} == {Reason.NAMESPACE_OVER_LIMIT}


def test_a_namespace_share_of_a_missing_queue_reserves_nothing() -> None:
    shares = [share("nowhere/b", at_least=amounts(cpu=3))]
    before = eight(small("a", 8), *shares)

    assert cpus(at_rest(before)[0], "a") == 8


def test_a_queue_that_lends_its_guarantee_keeps_those_of_its_namespaces() -> None:
    before = eight(
        small("c", 8, queue="other"),
        share("q/b", at_least=amounts(cpu=3)),
        queues=[queue("q", guarantee=amounts(cpu=5), lends_guarantee=True), queue("other")],
    )

    assert cpus(at_rest(before)[0], "c", "other") == 5


def test_explain_shows_limit_and_guarantee_of_the_namespace_and_what_would_help() -> None:
    before = eight(
        [*small("a", 3, on="n1"), gang("a/train", 2, queue="q", cpu=1)],
        share("q/a", at_most=amounts(cpu=4), at_least=amounts(cpu=1)),
    )

    lines = shown(before, "a/train")

    assert lines[1] == (
        "NamespaceOverLimit: namespace a uses 3 of at most 4 cpu in queue q; 2 more would exceed it"
    )
    about = [" ".join(line.split()) for line in lines]
    assert about[about.index("namespace a, of that queue") + 1 :][:2] == [
        "at most 4 cpu",
        "at least 1 cpu",
    ]
    assert would_start_with(before) == [
        "a limit 1 cpu higher for namespace a in queue q",
        "1 cpu less in use by namespace a in queue q",
    ]


def test_a_gang_blocked_by_the_guarantee_of_another_namespace_says_so_and_what_would_help() -> None:
    before = eight(
        [*small("a", 2, on="n1"), gang("a/train", 2, queue="q", cpu=1)],
        share("q/b", at_least=amounts(cpu=2)),
        queues=[queue("q", capability=amounts(cpu=4))],
    )

    lines = shown(before, "a/train")

    assert lines[1] == (
        "QueueAtCapability: queue q uses 2 cpu, reserves 2 for its namespaces and may have at most"
        " 4; 2 more would exceed it"
    )
    assert "2 cpu less guaranteed to namespace b in queue q" in would_start_with(before)
    assert "2 cpu more capability of queue q" in would_start_with(before)


def test_capacity_guaranteed_to_a_namespace_is_named() -> None:
    before = eight(
        [gang("a/train", 7, queue="other", cpu=1)],
        share("q/b", at_least=amounts(cpu=2)),
        queues=[queue("q"), queue("other")],
    )

    lines = shown(before, "a/train")

    assert lines[1] == (
        "QueueAtCapability: 2 of 8 cpu is in use or guaranteed to others; 7 more for queue other"
        " would use capacity guaranteed to others"
    )
    kept = "  2 cpu: guaranteed to namespace b in queue q"
    assert kept in lines
    assert kept not in shown(
        eight([gang("b/train", 9, queue="q", cpu=1)], share("q/b", at_least=amounts(cpu=2))),
        "b/train",
    )


def test_the_figures_of_a_namespace_share_include_what_starts_now() -> None:
    before = eight(
        [*small("a", 1, on="n1"), gang("a/train", 2, queue="q", cpu=1)],
        share("q/a", at_most=amounts(cpu=4)),
        share("q/b", at_least=amounts(cpu=1)),
    )

    figures = make_plan(before).shares

    assert list(figures) == ["q/a", "q/b"]
    assert figures["q/a"].allocated.amount(CPU) == 3000
    assert figures["q/a"].requested.amount(CPU) == 3000
    assert figures["q/b"].allocated.amount(CPU) == 0


def test_in_a_full_cluster_the_reason_is_capacity_and_no_guarantee() -> None:
    before = eight(
        [*small("a", 5, on="n1"), *small("b", 3, on="n1"), gang("a/train", 2, queue="q", cpu=1)],
        share("q/b", at_least=amounts(cpu=3)),
    )

    assert shown(before, "a/train")[1] == (
        "InsufficientCapacity: needs 2 x 1 cpu; 0 slots free: 1 node short of cpu"
    )


def test_of_two_ceilings_that_of_the_namespace_is_named() -> None:
    before = eight(
        [*small("a", 2, on="n1"), *small("b", 2, on="n1"), gang("a/train", 2, queue="q", cpu=1)],
        share("q/a", at_most=amounts(cpu=3)),
        queues=[queue("q", capability=amounts(cpu=4))],
    )

    assert shown(before, "a/train")[1] == (
        "NamespaceOverLimit: namespace a uses 2 of at most 3 cpu in queue q; 2 more would exceed it"
    )


@pytest.mark.parametrize(
    ("policy", "helps"),
    [
        (
            {"problem": "the annotation cannot be read"},
            ["the annotations of namespace a fixed"],
        ),
        (
            {"allowed": frozenset({"q", "r", "lost"})},
            [
                "queue q, which namespace a may use, named in its PodGroup",
                "queue default allowed for namespace a",
            ],
        ),
    ],
)
def test_explain_suggests_a_queue_that_the_namespace_may_use(
    policy: dict[str, Any], helps: list[str]
) -> None:
    refused = Problem(Reason.QUEUE_NOT_ALLOWED, "it may not")
    before = snapshot(
        nodes(1, cpu=8),
        [replace(gang("a/train", 2, cpu=1), problem=refused)],
        [queue("q"), queue("r"), queue("default")],
    )
    written = replace(before, namespaces={"a": Namespace(name="a", **policy)})

    assert would_start_with(written) == helps
