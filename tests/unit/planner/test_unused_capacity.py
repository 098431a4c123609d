"""No unused capacity: it is borrowed where no other queue can use it, or a reason is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.model.gang import Gang
from extender.model.pod import Status
from extender.model.queue import Queue
from extender.model.reason import Problem, Reason
from extender.model.resources import CPU
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.explain.explain import explain
from extender.planner.plan import GangStatus, Plan, Verdict
from extender.planner.planner import make_plan
from tests.builders import after, amounts, gang, node, nodes, pod, queue, shape, snapshot
from tests.unit.planner.plans import VOLCANO, at_rest

STARTED = (Reason.ADMITTED, Reason.RUNNING)


def small(count: int, queue: str, **rest: Any) -> list[Gang]:
    """Make gangs of one cpu each."""
    return [gang(f"a/{queue}-{number}", 1, queue=queue, cpu=1, **rest) for number in range(count)]


def started(plan: Plan, prefix: str) -> int:
    return sum(
        bool(placement.placements)
        for key, placement in plan.placements.items()
        if key.startswith(f"a/{prefix}")
    )


def gated(key: str) -> Gang:
    pods = [pod(f"gated-{n}", shape(cpu=1), gated=n > 0) for n in range(8)]
    return gang(key, pods=pods, queue="stuck")


#: Gangs that can never start, or not now, and how their queue is meant to be.
UNSTARTABLE: dict[str, tuple[Gang, Queue]] = {
    "larger than the cluster": (gang("a/g", 16, queue="stuck", cpu=1), queue("stuck")),
    "a member larger than any node": (gang("a/g", 1, queue="stuck", cpu=6), queue("stuck")),
    "incomplete": (gang("a/g", 4, min_member=6, queue="stuck", cpu=1), queue("stuck")),
    "short of a role": (
        gang("a/g", 4, queue="stuck", cpu=1, group={"min_by_role": {"ps": 1}}),
        queue("stuck"),
    ),
    "gated": (gated("a/g"), queue("stuck")),
    "backing off": (
        replace(gang("a/g", 8, queue="stuck", cpu=1), backing_off_until=1e9),
        queue("stuck"),
    ),
    "above its own ceiling": (
        gang("a/g", 8, queue="stuck", cpu=1),
        queue("stuck", capability=amounts(cpu=6)),
    ),
    "in a closed queue": (gang("a/g", 8, queue="stuck", cpu=1), queue("stuck", state="Closed")),
    "in an unknown queue": (gang("a/g", 8, queue="nowhere", cpu=1), queue("stuck")),
    "invalid": (
        replace(
            gang("a/g", 8, queue="stuck", cpu=1),
            problem=Problem(Reason.POD_GROUP_MISSING, "the PodGroup cannot be read"),
        ),
        queue("stuck"),
    ),
    "its minResources above its ceiling": (
        gang("a/g", 4, queue="stuck", cpu=1, group={"min_resources": amounts(cpu=7)}),
        queue("stuck", capability=amounts(cpu=6)),
    ),
}


@pytest.mark.parametrize("kind", UNSTARTABLE)
def test_a_gang_that_cannot_start_does_not_count_for_deserved_shares(kind: str) -> None:
    stuck, its_queue = UNSTARTABLE[kind]
    before = snapshot(nodes(2), [stuck, *small(8, "busy")], [its_queue, queue("busy")])

    plan = make_plan(before)

    assert plan.verdicts[stuck.key].status in (GangStatus.WAITING, GangStatus.INVALID)
    assert plan.queues["busy"].deserved[CPU] == 8000
    assert plan.queues["stuck"].deserved.amount(CPU) == 0
    assert started(plan, "busy") == 8


def test_a_gang_above_the_ceiling_of_an_ancestor_does_not_count_for_deserved_shares() -> None:
    tree = [
        queue("family", capability=amounts(cpu=6)),
        queue("stuck", parent="family"),
        queue("busy"),
    ]
    big = gang("a/g", 8, queue="stuck", cpu=1)

    plan = make_plan(snapshot(nodes(2), [big, *small(8, "busy")], tree))

    assert plan.queues["busy"].deserved[CPU] == 8000
    assert "queue family uses 0 of at most 6 cpu" in plan.verdicts[big.key].message


def test_a_gang_above_its_ceiling_is_told_of_the_ceiling_not_of_the_deserved_share() -> None:
    big = gang("a/g", 8, queue="stuck", cpu=1)
    queues = [queue("stuck", capability=amounts(cpu=6)), queue("busy")]

    _, plan = at_rest(snapshot(nodes(2), [big, *small(8, "busy")], queues))

    assert plan.verdicts[big.key].reason is Reason.QUEUE_AT_CAPABILITY
    assert plan.verdicts[big.key].message == (
        "queue stuck uses 0 of at most 6 cpu; 8 more would exceed it"
    )


def test_a_surplus_member_that_fits_no_node_does_not_count_for_deserved_shares() -> None:
    pods = [
        pod("w-0", shape(cpu=1), on="n1"),
        *(pod(f"w-{n}", shape(cpu=6)) for n in range(1, 4)),
    ]
    elastic = gang("a/w", pods=pods, min_member=1, on=["n1"], queue="stuck")

    plan = make_plan(
        snapshot(nodes(2), [elastic, *small(8, "busy")], [queue("stuck"), queue("busy")])
    )

    assert plan.queues["stuck"].deserved[CPU] == 1000
    assert started(plan, "busy") == 7


def test_capacity_that_no_queue_below_its_deserved_share_can_use_is_borrowed() -> None:
    """The queue of a gang that fits no node now deserves half of the cluster."""
    waits = gang("a/waits", 1, queue="left", cpu=4)
    others_use = {"n1": amounts(cpu=1), "n2": amounts(cpu=1)}
    before = snapshot(
        nodes(2), [waits, *small(8, "right")], [queue("left"), queue("right")], taken=others_use
    )

    plan = make_plan(before)

    assert plan.queues["right"].deserved[CPU] == 4000
    assert started(plan, "right") == 6


def test_with_the_rules_of_volcano_nothing_is_borrowed() -> None:
    stuck = gang("a/g", 16, queue="stuck", cpu=1)
    before = snapshot(nodes(2), [stuck, *small(8, "busy")], [queue("stuck"), queue("busy")])

    plan = make_plan(before, VOLCANO)

    assert plan.queues["busy"].deserved[CPU] == 4000
    assert started(plan, "busy") == 4


def test_the_queue_with_the_smallest_part_of_its_deserved_share_borrows_first() -> None:
    """Six cpus are unused; two of three queues can use them, one has twice the weight."""
    waits = gang("a/waits", 1, queue="left", cpu=8)
    gangs = [waits, *small(12, "one"), *small(12, "two")]
    queues = [queue("left", 3), queue("one", 1), queue("two", 2)]
    members = [node("n1", cpu=6), node("n2", cpu=6), node("n3", cpu=8)]
    others_use = {"n3": amounts(cpu=8)}

    plan = make_plan(snapshot(members, gangs, queues, taken=others_use))

    assert started(plan, "one") + started(plan, "two") == 12
    assert started(plan, "one") == 4


def test_a_queue_without_weight_borrows_after_all_others() -> None:
    waits = gang("a/waits", 1, queue="left", cpu=8)
    members = [node("n1", cpu=6), node("n2", cpu=8)]
    gangs = [waits, *small(8, "none"), *small(8, "some")]
    queues = [queue("left", 2), queue("none", 0), queue("some", 1)]

    plan = make_plan(snapshot(members, gangs, queues, taken={"n2": amounts(cpu=8)}))

    assert started(plan, "some") == 6
    assert started(plan, "none") == 0


def half_used(*queues: Queue) -> Snapshot:
    """Eight of ten cpus are unused; `left` deserves half of them, and its gang fits no node now."""
    pinned = [gang(f"a/pinned-{n}", 1, on=[f"n{n}"], queue="pinned", cpu=1) for n in (1, 2)]
    waits = gang("a/waits", 1, queue="left", cpu=5)
    others = [each for q in queues if q.name != "kept" for each in small(8, q.name)]
    standing = [queue("left", 3), queue("pinned", reclaimable=False)]
    return snapshot(nodes(2, cpu=5), [*pinned, waits, *others], [*standing, *queues])


def test_borrowing_queues_stay_below_their_ceilings() -> None:
    plan = make_plan(half_used(queue("right", capability=amounts(cpu=3)), queue("more")))

    assert started(plan, "right") == 3
    assert started(plan, "more") == 5


def test_borrowing_queues_leave_guarantees_alone() -> None:
    plan = make_plan(half_used(queue("kept", guarantee=amounts(cpu=2)), queue("more")))

    assert started(plan, "more") == 6
    waiting = [v for v in plan.verdicts.values() if v.queue == "more" and v.reason not in STARTED]
    assert {verdict.reason for verdict in waiting} == {Reason.QUEUE_AT_CAPABILITY}
    assert "guaranteed to others" in waiting[0].message


def test_a_queue_that_lends_its_guarantee_lets_others_use_it() -> None:
    plan = make_plan(
        half_used(queue("kept", guarantee=amounts(cpu=2), lends_guarantee=True), queue("more"))
    )

    assert started(plan, "more") == 8


def test_a_borrowed_guarantee_is_taken_back_when_its_queue_needs_it() -> None:
    queues = [queue("kept", guarantee=amounts(cpu=4), lends_guarantee=True), queue("more", 9)]
    state, _ = at_rest(snapshot(nodes(2), small(8, "more"), queues))
    wanting = [*state.gangs.values(), *small(4, "kept")]

    state, plan = at_rest(snapshot(state.nodes.nodes, wanting, queues))

    assert plan.queues["kept"].allocated[CPU] == 4000
    assert plan.queues["more"].allocated[CPU] == 4000


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_the_guarantee_of_a_parent_is_not_reserved_against_its_own_children(plugin: str) -> None:
    policy = policy_parser.parse(
        policy_parser.DEFAULT_TEXT.replace("name: proportion", f"name: {plugin}")
    )
    tree = [queue("family", guarantee=amounts(cpu=4)), queue("child", parent="family")]

    plan = make_plan(snapshot(nodes(1), small(4, "child"), tree), policy)

    assert started(plan, "child") == 4


def evicted(plan: Plan) -> set[str]:
    return {order.name.rpartition("-")[0] for order in plan.evictions}


def test_borrowed_capacity_is_reclaimed_before_deserved_even_if_more_pods_are_evicted() -> None:
    own = [gang(f"a/own-{n}", 1, on=["n1"], queue="left", cpu=2, created=n) for n in (0, 1)]
    younger = [
        gang("a/third", 2, on=["n2"] * 2, queue="left", cpu=1, created=2),
        gang("a/borrowed", 2, on=["n2"] * 2, queue="left", cpu=1, created=3),
    ]
    claim = gang("a/claim", 1, queue="right", cpu=2)

    plan = make_plan(snapshot(nodes(2), [*own, *younger, claim], [queue("left"), queue("right")]))

    assert plan.queues["left"].deserved[CPU] == 6000
    assert evicted(plan) == {"borrowed"}


def test_the_deserved_share_of_a_queue_covers_its_gangs_of_high_priority_first() -> None:
    old = gang("a/old", 2, on=["n1"] * 2, queue="left", cpu=2, created=0)
    important = gang("a/important", 2, on=["n2"] * 2, queue="left", cpu=2, created=5, priority=9)
    claim = gang("a/claim", 1, queue="right", cpu=4)

    plan = make_plan(snapshot(nodes(2), [old, important, claim], [queue("left"), queue("right")]))

    assert evicted(plan) == {"old"}


def test_deserved_capacity_is_reclaimed_where_nothing_borrowed_would_help() -> None:
    """Only the older gang of the queue runs where the waiting one can go."""
    members = [node("n1", labels={"disk": "ssd"}), node("n2")]
    old = gang("a/old", 1, on=["n1"], queue="left", cpu=4, created=0)
    younger = gang("a/young", 1, on=["n2"], queue="left", cpu=4, created=5)
    claim = gang("a/claim", 1, queue="right", cpu=4, selector=(("disk", "ssd"),))

    plan = make_plan(snapshot(members, [old, younger, claim], [queue("left"), queue("right")]))

    assert evicted(plan) == {"old"}


@pytest.mark.parametrize("kind", UNSTARTABLE)
def test_a_gang_that_cannot_start_reclaims_nothing(kind: str) -> None:
    stuck, its_queue = UNSTARTABLE[kind]
    running = [gang(f"a/busy-{n}", 1, on=[f"n{1 + n % 2}"], queue="busy", cpu=1) for n in range(8)]

    plan = make_plan(snapshot(nodes(2), [stuck, *running], [its_queue, queue("busy")]))

    assert plan.evictions == ()


def test_borrowed_capacity_is_reclaimed_once_and_stays_where_it_went() -> None:
    queues = [queue("left"), queue("right")]
    state, _ = at_rest(snapshot(nodes(2), small(8, "left"), queues))
    state = snapshot(state.nodes.nodes, [*state.gangs.values(), *small(8, "right")], queues)

    left: list[int] = []
    for _ in range(4):
        plan = make_plan(state)
        left.append(len(plan.evictions))
        state = after(state, plan)

    assert left == [4, 0, 0, 0]
    assert {name: f.allocated.amount(CPU) for name, f in plan.queues.items()} == {
        "default": 0,
        "left": 4000,
        "right": 4000,
    }


def test_with_reclaim_first_borrowed_capacity_does_not_go_back_and_forth() -> None:
    """Freed capacity was reclaimed again by the next gang of the queue, and borrowed instead."""
    text = policy_parser.DEFAULT_TEXT.replace(
        "allocate, backfill, reclaim", "reclaim, allocate, backfill"
    )
    members = [
        node("n0", cpu=1, memory=14),
        node("n1", cpu=3, memory=5),
        node("n2", cpu=4, memory=7, pods=3),
    ]
    gangs = [
        gang("a/g0", 5, min_member=4, cpu=1, memory=3),
        gang("a/g1", 3, cpu=2, memory=3, priority=5, created=2),
        gang(
            "a/g2",
            5,
            min_member=1,
            on=["n0", "n2", "n1", "n0", "n2"],
            queue="low",
            cpu=0.5,
            memory=2,
        ),
        gang("a/g3", 2, min_member=1, queue="low", cpu=2, priority=5),
    ]
    tree = [queue("family", capability=amounts(cpu=4)), queue("low", 0, parent="family")]

    _, plan = at_rest(snapshot(members, gangs, tree), policy_parser.parse(text))

    assert plan.verdicts[gangs[1].key].status is GangStatus.RUNNING


@pytest.mark.parametrize("plugin", ["proportion", "capacity"])
def test_a_gang_of_high_priority_preempts_only_as_much_borrowed_capacity_as_it_needs(
    plugin: str,
) -> None:
    policy = policy_parser.parse(
        policy_parser.DEFAULT_TEXT.replace("name: proportion", f"name: {plugin}")
    )
    state = half_used(queue("more", deserved=amounts(cpu=2)))
    state, _ = at_rest(state, policy)
    important = gang("a/important", 1, queue="more", cpu=1, priority=9)
    state = snapshot(state.nodes.nodes, [*state.gangs.values(), important], state.queues.values())

    plan = make_plan(state, policy)
    _, after = at_rest(state, policy)

    assert len(plan.evictions) == 1
    assert after.verdicts[important.key].status is GangStatus.RUNNING
    assert after.queues["more"].allocated[CPU] == 8000


def test_no_pod_is_evicted_for_a_gang_of_high_priority_that_can_borrow() -> None:
    """Its queue has its deserved share, no other can use the rest, and the gang needs no more."""
    pinned = gang("a/pinned", 1, on=["n2"], queue="pinned", cpu=1)
    waits = gang("a/waits", 1, queue="left", cpu=4, selector=(("b", "2"),))
    runs = [gang(f"a/runs-{n}", 1, on=["n1"], queue="more", cpu=1) for n in range(3)]
    important = gang("a/important", 1, queue="more", cpu=1, priority=9)
    members = [node("n1"), node("n2", labels={"b": "2"})]
    queues = [queue("left", 9), queue("pinned", reclaimable=False), queue("more")]

    plan = make_plan(snapshot(members, [pinned, waits, *runs, important], queues))

    assert plan.evictions == ()
    assert plan.verdicts[important.key].status is GangStatus.ADMITTED


def words(plan: Plan) -> list[str]:
    return [each.why for each in plan.held]


def test_the_plan_says_what_a_queue_has_borrowed() -> None:
    _, plan = at_rest(half_used(queue("more")))

    assert plan.queues["more"].allocated[CPU] == 8000
    assert plan.queues["more"].borrowed[CPU] == 8000 - plan.queues["more"].deserved[CPU]
    assert plan.queues["pinned"].borrowed.amount(CPU) == 0


def test_unused_guaranteed_capacity_is_named_and_so_is_what_would_help() -> None:
    state, plan = at_rest(half_used(queue("kept", guarantee=amounts(cpu=2)), queue("more")))
    waits = next(v.gang for v in plan.verdicts.values() if v.queue == "more" and waiting(v))

    told = explain(state, plan, policy_parser.DEFAULT, waits)

    assert plan.unused[CPU] == 2000
    assert [(each.why, each.amounts[CPU]) for each in plan.held] == [
        ("guaranteed to queue kept, which does not let others borrow it", 2000)
    ]
    assert told is not None
    assert told.held == plan.held
    assert told.remedies == (
        "queue kept lending its guarantee (`guarantee.lend: true`)",
        "capacity for 1 more member of 1 cpu each",
    )


def test_unused_capacity_reserved_for_a_gang_that_has_waited_long_is_named() -> None:
    runs = gang("a/runs", 1, on=["n1"], cpu=1)
    large, small_one = gang("a/large", 2, cpu=4), gang("a/small", 1, cpu=1, created=5)
    plan = make_plan(snapshot(nodes(2), [runs, large, small_one], now=1_000.0))

    assert words(plan) == ["reserved for gang a/large, which has waited long"]
    assert "capacity is reserved for a/large" in plan.verdicts[small_one.key].message


def test_unused_capacity_reserved_for_a_gang_while_its_victims_terminate_is_named() -> None:
    runs = [gang(f"a/runs-{n}", 1, on=["n1"], queue="left", cpu=1) for n in range(4)]
    claim = gang("a/claim", 1, queue="right", cpu=2)

    plan = make_plan(snapshot(nodes(1), [*runs, claim], [queue("left"), queue("right")]))

    assert len(plan.evictions) == 2
    assert words(plan) == ["reserved for gang a/claim while its victims terminate"]


def test_capacity_allocated_to_members_that_are_still_binding_is_named() -> None:
    pods = [pod(f"w-{n}", shape(cpu=1), on="n1", status=Status.ALLOCATED) for n in range(2)]
    plan = make_plan(snapshot(nodes(1), [gang("a/w", pods=pods)]))

    assert words(plan) == ["allocated to members of gang a/w that are still binding"]
    assert plan.unused[CPU] == 2000


def test_capacity_on_cordoned_nodes_is_named_and_covers_no_guarantee() -> None:
    closed = [node(f"closed-{n}", cpu=4, unschedulable=True) for n in range(2)]
    runs = gang("a/runs", 1, on=["closed-0"], cpu=1)
    keeps = queue("left", guarantee=amounts(cpu=8))
    plan = make_plan(snapshot([*nodes(1), *closed], [runs], [keeps, queue("default")]))

    assert plan.unused[CPU] == 11000
    assert {each.why: each.amounts.amount(CPU) for each in plan.held} == {
        "guaranteed to queue left, which does not let others borrow it": 4000,
        "on 2 cordoned nodes, where no pod may start": 7000,
    }


def waiting(verdict: Verdict) -> bool:
    return verdict.status is GangStatus.WAITING
