"""Gangs that keep losing their turn: room is kept, others only fill what they leave."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from extender.model.gang import Gang, GangKey
from extender.model.pod import HostPort, Status
from extender.model.reason import Reason
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser, starvation
from extender.planner.plan import HoldReason
from extender.planner.planner import make_plan
from extender.planner.policy import Starvation
from extender.planner.starvation import is_due
from tests.builders import after, amounts, gang, node, nodes, pod, queue, shape, single, snapshot

BIG = gang("a/big", 2, cpu=4)
LONG = 1_000.0


def crowd(*others: Gang, now: float = LONG, **rest: object) -> Snapshot:
    """Two nodes, one of them half taken, and a gang that needs both whole."""
    running = single("a/old", on="n1", cpu=2)
    return snapshot(nodes(2, cpu=4), [BIG, running, *others], now=now, **rest)  # type: ignore[arg-type]


def test_a_gang_that_waits_too_long_has_room_kept_for_it() -> None:
    plan = make_plan(crowd())

    assert plan.reservations == {"n1": amounts(cpu=2, pods=1), "n2": amounts(cpu=4, pods=1)}
    verdict = plan.verdicts[GangKey("a/big")]
    assert verdict.reason is Reason.INSUFFICIENT_CAPACITY
    assert "capacity is reserved for it on n1 and n2" in verdict.message


def test_before_that_others_may_have_the_room() -> None:
    plan = make_plan(crowd(single("a/new", cpu=1), now=100.0))

    assert plan.reservations == {}
    assert "a/new" in plan.placements


def test_others_cannot_take_what_is_kept() -> None:
    plan = make_plan(crowd(single("a/new", cpu=1)))

    assert plan.placements == {}
    assert plan.verdicts[GangKey("a/new")].reason is Reason.BEHIND_IN_ORDER
    assert "capacity is reserved for a/big" in plan.verdicts[GangKey("a/new")].message


@pytest.mark.parametrize("status", [Status.ALLOCATED, Status.BINDING])
def test_it_is_kept_beside_those_who_are_on_their_way_to_a_node(status: Status) -> None:
    """They take room as those do who run, and are no more sure to stay."""
    passing = single("a/critical", on="n2", cpu=1, each={"status": status})

    plan = make_plan(crowd(passing, single("a/new", cpu=1)))

    assert plan.reservations == {"n1": amounts(cpu=2, pods=1), "n2": amounts(cpu=3, pods=1)}
    assert plan.placements == {}


def test_others_may_use_what_it_does_not_need() -> None:
    before = snapshot(
        [*nodes(2, cpu=4), node("n3", cpu=1)],
        [BIG, single("a/old", on="n1", cpu=2), single("a/new", cpu=1)],
        now=LONG,
    )

    assert dict(make_plan(before).placements[GangKey("a/new")].placements) == {"a-new-0": "n3"}


def test_it_starts_as_soon_as_its_room_is_free_before_anybody_else() -> None:
    before = snapshot(nodes(2, cpu=4), [BIG, single("a/aaa", cpu=1, created=1.0)], now=LONG)
    plan = make_plan(before)

    assert list(plan.placements) == ["a/big"]


def test_smaller_gangs_that_come_and_go_cannot_starve_it() -> None:
    """Every round another small pod ends and a new one wants in; the gang starts all the same."""
    state = crowd(single("a/next-0", cpu=2))
    for round_ in range(4):
        plan = make_plan(state)
        if "a/big" in plan.placements:
            return
        state = after(state, plan)
        running = [each for each in state.gangs.values() if each.key != "a/big" and each.scheduled]
        staying = [each for each in state.gangs.values() if each not in running[:1]]
        newcomer = single(f"a/next-{round_ + 1}", cpu=2, created=float(round_))
        state = snapshot(state.nodes.nodes, [*staying, newcomer], now=LONG)
    raise AssertionError("it never started")


def test_the_room_of_strangers_is_not_counted_on() -> None:
    before = snapshot(
        nodes(3, cpu=4), [BIG], taken={"n1": amounts(cpu=1), "n2": amounts(cpu=1)}, now=LONG
    )

    assert make_plan(before).reservations == {}


def test_nobody_behind_it_in_its_queue_makes_others_leave_for_nothing() -> None:
    low = single("a/low", on="n1", cpu=2, priority=-5)
    rival = gang("a/rival", 1, cpu=2, created=1.0)
    before = snapshot(nodes(2, cpu=4), [BIG, low, rival], now=LONG)

    beneficiaries = {order.beneficiary for order in make_plan(before).evictions}
    assert beneficiaries <= {"a/big"}


def test_a_queue_beyond_its_due_has_no_claim_to_room_ahead_of_others() -> None:
    greedy = gang("a/greedy", 4, queue="q1", cpu=2)
    modest = gang("a/modest", 1, queue="q2", cpu=2, created=1.0)
    before = snapshot(nodes(2, cpu=4), [greedy, modest], [queue("q1"), queue("q2")], now=LONG)

    assert "a/modest" in make_plan(before).placements


@pytest.mark.parametrize(
    ("age_s", "due"),
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
def test_room_is_kept_for_a_while_and_again_after_waiting_as_long_again(
    age_s: float, due: bool
) -> None:
    assert is_due(age_s, Starvation()) is due


def test_it_can_be_turned_off() -> None:
    off = policy_parser.parse(policy_parser.DEFAULT_TEXT + "starvation: {after: 0s}")

    assert make_plan(crowd(), off).reservations == {}


def test_volcanos_way_knows_nothing_of_it() -> None:
    volcano = policy_parser.parse(policy_parser.DEFAULT_TEXT + "compatibility: volcano")

    message = make_plan(crowd(), volcano).verdicts[GangKey("a/big")].message
    assert "reserved for it" not in message


# ── who could do nothing with room is in nobody's way ───────────────────────────────────────

KEPT = {"n1": amounts(cpu=2, pods=1), "n2": amounts(cpu=4, pods=1)}


def among(*others: Gang, named: str = "q1", **rest: Any) -> Snapshot:
    """The two nodes of before for queue q2, and a small third one of which a daemon uses a bit."""
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
IN_VAIN = {"cpu": 1, "selector": (("zone", "z"),)}


def test_one_that_waits_for_its_queues_ceiling_keeps_nobody_from_being_served() -> None:
    plan = make_plan(among(FULL, NEXT, capability=amounts(cpu=0.5)))

    assert plan.verdicts[NEXT.key].reason is Reason.QUEUE_AT_CAPABILITY
    assert plan.reservations == KEPT


def test_nor_does_it_where_its_queue_has_priority() -> None:
    late = single("b/next", cpu=0.5, queue="q1", created=LONG)

    assert (
        make_plan(among(FULL, late, capability=amounts(cpu=0.5), priority=5)).reservations == KEPT
    )


@pytest.mark.parametrize("where", ["q1", "q2"])
def test_one_that_no_node_could_hold_keeps_nobody_from_being_served(where: str) -> None:
    plan = make_plan(among(single("b/vain", queue=where, **IN_VAIN)))

    assert plan.verdicts[GangKey("b/vain")].reason is Reason.INSUFFICIENT_CAPACITY
    assert plan.reservations == KEPT


#: Each of them would find a node, but not all of them do.
TOGETHER_IN_VAIN = [pod(f"v-{memory}", shape(cpu=4, memory=memory)) for memory in range(3)]


@pytest.mark.parametrize("where", ["q1", "q2"])
def test_nor_does_one_of_different_members(where: str) -> None:
    vain = gang("b/vain", pods=TOGETHER_IN_VAIN, queue=where)

    assert make_plan(among(vain)).reservations == KEPT


def test_nor_does_one_of_different_members_that_want_the_same_port() -> None:
    port = (HostPort(80),)
    kinds = [shape(cpu=0.1, memory=memory, host_ports=port) for memory in range(4)]
    members = [pod(f"v-{number}", kind) for number, kind in enumerate(kinds)]
    plan = make_plan(among(gang("b/vain", pods=members, queue="q2")))

    assert [each.beneficiary for each in plan.held if each.reason is HoldReason.STARVING] == [
        "a/big"
    ]


def test_many_different_ones_of_a_namespace_cost_no_more_than_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layouts = Mock(wraps=starvation.PortUsage)
    monkeypatch.setattr(starvation, "PortUsage", layouts)

    def cost(count: int) -> int:
        layouts.reset_mock()
        kinds = [[shape(cpu=4 - n / 100, memory=m) for m in range(3)] for n in range(count)]
        vain = [
            gang(f"b/v{n}", pods=[pod(f"v{n}-{m}", k) for m, k in enumerate(three)], queue="q2")
            for n, three in enumerate(kinds)
        ]
        plan = make_plan(among(*vain))
        assert [each.beneficiary for each in plan.held if each.reason is HoldReason.STARVING] == [
            "a/big"
        ]
        return layouts.call_count

    assert 0 < cost(20) == cost(40)


def test_one_whose_members_fit_only_if_laid_out_with_care_has_room_kept_for_it() -> None:
    """The large one fits on either node, the small one only on the first."""
    zoned = node("n1", cpu=4, labels={"zone": "z"})
    members = [pod("c-0", shape(cpu=4)), pod("c-1", shape(cpu=1, selector=(("zone", "z"),)))]
    careful = gang("b/careful", pods=members)
    old = single("a/old", on="n1", cpu=4, priority=9)
    all_nodes = [zoned, node("n2", cpu=4), node("n3", cpu=1)]
    plan = make_plan(snapshot(all_nodes, [old, careful], now=LONG))

    assert "capacity is reserved for it" in plan.verdicts[careful.key].message


def test_two_are_not_served_where_one_may_be() -> None:
    other = gang("b/big", 2, cpu=4, queue="q1")
    plan = make_plan(among(other))

    assert [each.beneficiary for each in plan.held if each.reason is HoldReason.STARVING] == [
        "b/big"
    ]


MINE = single("a/mine", cpu=4, queue="q2", created=LONG)
THREE = [queue(f"q{number}") for number in (1, 2, 3)]


@pytest.mark.parametrize(
    "vain",
    [single("b/vain", queue="q2", **IN_VAIN), gang("b/vain", pods=TOGETHER_IN_VAIN, queue="q2")],
)
def test_those_behind_one_that_no_node_could_hold_get_their_due_back(vain: Gang) -> None:
    lent = [single(f"c/lent-{n}", on=f"n{n}", cpu=4, queue="q1", created=2.0) for n in (1, 2)]
    before = snapshot(
        [*nodes(2, cpu=4), node("n3", cpu=1, labels={"zone": "z"})],
        [*lent, vain, MINE],
        [queue("q1"), queue("q2")],
        taken={"n3": amounts(cpu=0.1)},
        now=LONG,
    )

    assert {each.beneficiary for each in make_plan(before).evictions} == {"a/mine"}


def test_those_behind_one_for_whom_nobody_leaves_and_no_room_is_kept_get_their_due_back() -> None:
    """It asks for more than its queue's due, and room is kept for one that waited longer."""
    lent = [single(f"c/lent-{n}", on=f"n{n}", cpu=4, queue="q1", created=2.0) for n in range(1, 7)]
    older = gang("d/older", 3, cpu=4, queue="q3", created=0.5)
    larger = gang("b/larger", 3, cpu=4, queue="q2", created=1.0)
    before = snapshot(nodes(6, cpu=4), [*lent, older, larger, MINE], THREE, now=LONG)
    plan = make_plan(before)

    told = [
        each for each in (older, larger) if "reserved for it" in plan.verdicts[each.key].message
    ]
    assert told == [older]
    assert {each.beneficiary for each in plan.evictions} == {"a/mine"}


def test_those_behind_one_for_whom_others_leave_wait_for_that() -> None:
    lent = [single(f"c/lent-{n}", on=f"n{n}", cpu=4, queue="q1", created=2.0) for n in range(1, 7)]
    older = gang("d/older", 2, cpu=4, queue="q2", created=0.5)
    before = snapshot(nodes(6, cpu=4), [*lent, older, MINE], THREE[:2], now=LONG)

    assert {each.beneficiary for each in make_plan(before).evictions} == {older.key}
