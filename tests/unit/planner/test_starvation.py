"""Capacity is reserved for starving gangs; others only fill the rest."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from extender.model.gang import Gang, GangKey
from extender.model.pod import HostPort, Status
from extender.model.reason import Reason
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser, starvation
from extender.planner.plan import HoldReason, Plan
from extender.planner.planner import make_plan
from extender.planner.policy import Starvation
from extender.planner.starvation import is_due
from tests.builders import after, amounts, gang, node, nodes, pod, queue, shape, single, snapshot

BIG = gang("a/big", 2, cpu=4)
LONG = 1_000.0


def half_used(*others: Gang, now: float = LONG, **rest: object) -> Snapshot:
    """Two nodes, one of them half used, and a gang that needs both whole."""
    running = single("a/old", on="n1", cpu=2)
    return snapshot(nodes(2, cpu=4), [BIG, running, *others], now=now, **rest)  # type: ignore[arg-type]


def reserved_for(plan: Plan) -> list[str]:
    return [each.beneficiary for each in plan.held if each.reason is HoldReason.STARVING]


def test_capacity_is_reserved_for_a_gang_that_waits_too_long() -> None:
    plan = make_plan(half_used())

    assert plan.held_on_nodes == {"n1": amounts(cpu=2, pods=1), "n2": amounts(cpu=4, pods=1)}
    verdict = plan.verdicts[GangKey("a/big")]
    assert verdict.reason is Reason.INSUFFICIENT_CAPACITY
    assert "capacity is reserved for it on n1 and n2" in verdict.message


def test_before_that_others_may_use_the_capacity() -> None:
    plan = make_plan(half_used(single("a/new", cpu=1), now=100.0))

    assert plan.held_on_nodes == {}
    assert "a/new" in plan.placements


def test_others_cannot_take_what_is_reserved() -> None:
    plan = make_plan(half_used(single("a/new", cpu=1)))

    assert plan.placements == {}
    assert plan.verdicts[GangKey("a/new")].reason is Reason.BEHIND_IN_ORDER
    assert "capacity is reserved for a/big" in plan.verdicts[GangKey("a/new")].message


@pytest.mark.parametrize("status", [Status.ALLOCATED, Status.BINDING])
def test_capacity_is_reserved_beside_pods_that_are_still_binding(status: Status) -> None:
    """They use capacity like running pods, and are no more certain to stay."""
    binding = single("a/critical", on="n2", cpu=1, each={"status": status})

    plan = make_plan(half_used(binding, single("a/new", cpu=1)))

    assert plan.held_on_nodes == {"n1": amounts(cpu=2, pods=1), "n2": amounts(cpu=3, pods=1)}
    assert plan.placements == {}


def test_others_may_use_what_the_starving_gang_does_not_need() -> None:
    before = snapshot(
        [*nodes(2, cpu=4), node("n3", cpu=1)],
        [BIG, single("a/old", on="n1", cpu=2), single("a/new", cpu=1)],
        now=LONG,
    )

    assert dict(make_plan(before).placements[GangKey("a/new")].placements) == {"a-new-0": "n3"}


def test_the_starving_gang_starts_first_as_soon_as_its_capacity_is_free() -> None:
    before = snapshot(nodes(2, cpu=4), [BIG, single("a/aaa", cpu=1, created=1.0)], now=LONG)
    plan = make_plan(before)

    assert list(plan.placements) == ["a/big"]


def test_smaller_gangs_that_come_and_go_cannot_starve_a_large_one() -> None:
    """In every round a small pod ends and a new one waits; the gang starts all the same."""
    state = half_used(single("a/next-0", cpu=2))
    for round_ in range(4):
        plan = make_plan(state)
        if "a/big" in plan.placements:
            return
        state = after(state, plan)
        running = [each for each in state.gangs.values() if each.key != "a/big" and each.scheduled]
        others = [each for each in state.gangs.values() if each not in running[:1]]
        following = single(f"a/next-{round_ + 1}", cpu=2, created=float(round_))
        state = snapshot(state.nodes.nodes, [*others, following], now=LONG)
    raise AssertionError("it never started")


def test_capacity_used_by_other_schedulers_is_not_reserved() -> None:
    before = snapshot(
        nodes(3, cpu=4), [BIG], taken={"n1": amounts(cpu=1), "n2": amounts(cpu=1)}, now=LONG
    )

    assert make_plan(before).held_on_nodes == {}


def test_no_gang_behind_the_starving_one_in_its_queue_evicts_pods() -> None:
    low = single("a/low", on="n1", cpu=2, priority=-5)
    rival = gang("a/rival", 1, cpu=2, created=1.0)
    before = snapshot(nodes(2, cpu=4), [BIG, low, rival], now=LONG)

    beneficiaries = {order.beneficiary for order in make_plan(before).evictions}
    assert beneficiaries <= {"a/big"}


def test_a_gang_of_a_queue_above_its_deserved_share_gets_no_reservation() -> None:
    greedy = gang("a/greedy", 4, queue="q1", cpu=2)
    modest = gang("a/modest", 1, queue="q2", cpu=2, created=1.0)
    before = snapshot(nodes(2, cpu=4), [greedy, modest], [queue("q1"), queue("q2")], now=LONG)

    assert "a/modest" in make_plan(before).placements


@pytest.mark.parametrize(
    ("age_s", "is_reserved"),
    [
        (0, False),
        (599, False),
        (600, True),
        (2399, True),
        (2400, False),
        (2999, False),
        (3000, True),
    ],
)
def test_capacity_is_reserved_for_a_while_and_again_after_the_same_wait(
    age_s: float, is_reserved: bool
) -> None:
    assert is_due(age_s, Starvation()) is is_reserved


def test_reservations_for_starving_gangs_can_be_turned_off() -> None:
    off = policy_parser.parse(policy_parser.DEFAULT_TEXT + "starvation: {after: 0s}")

    assert make_plan(half_used(), off).held_on_nodes == {}


def test_with_the_rules_of_volcano_nothing_is_reserved_for_starving_gangs() -> None:
    volcano = policy_parser.parse(policy_parser.DEFAULT_TEXT + "compatibility: volcano")

    message = make_plan(half_used(), volcano).verdicts[GangKey("a/big")].message
    assert "reserved for it" not in message


# ── a gang that could not use a reservation blocks none ─────────────────────────────────────

RESERVED = {"n1": amounts(cpu=2, pods=1), "n2": amounts(cpu=4, pods=1)}


def among(*others: Gang, named: str = "q1", **rest: Any) -> Snapshot:
    """The two nodes above for queue q2, and a small third one of which a daemon uses a bit."""
    small = node("n3", cpu=1, labels={"zone": "z"})
    big = gang("a/big", 2, cpu=4, queue="q2", created=1.0)
    old = single("a/old", on="n1", cpu=2, queue="q2")
    return snapshot(
        [*nodes(2, cpu=4), small],
        [big, old, *others],
        [queue(named, **rest), queue("q2")],
        taken={"n3": amounts(cpu=0.1)},
        now=LONG,
    )


FULL = single("b/full", on="n3", cpu=0.5, queue="q1")
NEXT = single("b/next", cpu=0.5, queue="q1")
#: An empty node would take it; beside the daemon there it never starts.
FITS_NO_NODE = {"cpu": 1, "selector": (("zone", "z"),)}


def test_a_gang_at_its_queues_ceiling_does_not_block_the_reservation_of_another() -> None:
    plan = make_plan(among(FULL, NEXT, capability=amounts(cpu=0.5)))

    assert plan.verdicts[NEXT.key].reason is Reason.QUEUE_AT_CAPABILITY
    assert plan.held_on_nodes == RESERVED


def test_a_gang_at_the_ceiling_of_a_queue_with_priority_does_not_block_it_either() -> None:
    late = single("b/next", cpu=0.5, queue="q1", created=LONG)

    assert (
        make_plan(among(FULL, late, capability=amounts(cpu=0.5), priority=5)).held_on_nodes
        == RESERVED
    )


@pytest.mark.parametrize("where", ["q1", "q2"])
def test_a_gang_that_fits_no_node_does_not_block_the_reservation_of_another(where: str) -> None:
    plan = make_plan(among(single("b/unfit", queue=where, **FITS_NO_NODE)))

    assert plan.verdicts[GangKey("b/unfit")].reason is Reason.INSUFFICIENT_CAPACITY
    assert plan.held_on_nodes == RESERVED


#: Each of them would find a node, but not all of them do.
FIT_ONLY_APART = [pod(f"v-{memory}", shape(cpu=4, memory=memory)) for memory in range(3)]


@pytest.mark.parametrize("where", ["q1", "q2"])
def test_a_gang_of_different_members_that_do_not_fit_together_does_not_block_it(where: str) -> None:
    unfit = gang("b/unfit", pods=FIT_ONLY_APART, queue=where)

    assert make_plan(among(unfit)).held_on_nodes == RESERVED


def test_a_gang_of_different_members_that_need_the_same_port_does_not_block_it() -> None:
    port = (HostPort(80),)
    kinds = [shape(cpu=0.1, memory=memory, host_ports=port) for memory in range(4)]
    members = [pod(f"v-{number}", kind) for number, kind in enumerate(kinds)]
    plan = make_plan(among(gang("b/unfit", pods=members, queue="q2")))

    assert reserved_for(plan) == ["a/big"]


def test_many_different_gangs_of_a_namespace_cost_no_more_than_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layouts = Mock(wraps=starvation.PortUsage)
    monkeypatch.setattr(starvation, "PortUsage", layouts)

    def cost(count: int) -> int:
        layouts.reset_mock()
        kinds = [[shape(cpu=4 - n / 100, memory=m) for m in range(3)] for n in range(count)]
        unfit = [
            gang(f"b/v{n}", pods=[pod(f"v{n}-{m}", k) for m, k in enumerate(three)], queue="q2")
            for n, three in enumerate(kinds)
        ]
        plan = make_plan(among(*unfit))
        assert reserved_for(plan) == ["a/big"]
        return layouts.call_count

    assert 0 < cost(20) == cost(40)


def test_capacity_is_reserved_for_members_that_fit_in_only_one_arrangement() -> None:
    """The large one fits on either node, the small one only on the first."""
    zoned = node("n1", cpu=4, labels={"zone": "z"})
    members = [pod("c-0", shape(cpu=4)), pod("c-1", shape(cpu=1, selector=(("zone", "z"),)))]
    careful = gang("b/careful", pods=members)
    old = single("a/old", on="n1", cpu=4, priority=9)
    all_nodes = [zoned, node("n2", cpu=4), node("n3", cpu=1)]
    plan = make_plan(snapshot(all_nodes, [old, careful], now=LONG))

    assert "capacity is reserved for it" in plan.verdicts[careful.key].message


def test_of_two_starving_gangs_only_one_gets_a_reservation() -> None:
    other = gang("b/big", 2, cpu=4, queue="q1")
    plan = make_plan(among(other))

    assert reserved_for(plan) == ["b/big"]


MINE = single("a/mine", cpu=4, queue="q2", created=LONG)
THREE = [queue(f"q{number}") for number in (1, 2, 3)]


@pytest.mark.parametrize(
    "unfit",
    [
        single("b/unfit", queue="q2", **FITS_NO_NODE),
        gang("b/unfit", pods=FIT_ONLY_APART, queue="q2"),
    ],
)
def test_gangs_behind_one_that_fits_no_node_reclaim_their_deserved_share(unfit: Gang) -> None:
    borrowed = [
        single(f"c/borrowed-{n}", on=f"n{n}", cpu=4, queue="q1", created=2.0) for n in (1, 2)
    ]
    before = snapshot(
        [*nodes(2, cpu=4), node("n3", cpu=1, labels={"zone": "z"})],
        [*borrowed, unfit, MINE],
        [queue("q1"), queue("q2")],
        taken={"n3": amounts(cpu=0.1)},
        now=LONG,
    )

    assert {each.beneficiary for each in make_plan(before).evictions} == {"a/mine"}


def test_gangs_behind_one_without_victims_and_reservation_reclaim_their_deserved_share() -> None:
    """It needs more than its queue deserves, and an older gang has the reservation."""
    borrowed = [
        single(f"c/borrowed-{n}", on=f"n{n}", cpu=4, queue="q1", created=2.0) for n in range(1, 7)
    ]
    older = gang("d/older", 3, cpu=4, queue="q3", created=0.5)
    larger = gang("b/larger", 3, cpu=4, queue="q2", created=1.0)
    before = snapshot(nodes(6, cpu=4), [*borrowed, older, larger, MINE], THREE, now=LONG)
    plan = make_plan(before)

    told = [
        each for each in (older, larger) if "reserved for it" in plan.verdicts[each.key].message
    ]
    assert told == [older]
    assert {each.beneficiary for each in plan.evictions} == {"a/mine"}


def test_gangs_behind_one_that_has_victims_wait_for_it() -> None:
    borrowed = [
        single(f"c/borrowed-{n}", on=f"n{n}", cpu=4, queue="q1", created=2.0) for n in range(1, 7)
    ]
    older = gang("d/older", 2, cpu=4, queue="q2", created=0.5)
    before = snapshot(nodes(6, cpu=4), [*borrowed, older, MINE], THREE[:2], now=LONG)

    assert {each.beneficiary for each in make_plan(before).evictions} == {older.key}
