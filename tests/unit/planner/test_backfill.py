"""Gangs that end in time may use capacity that is reserved for a starving gang."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from extender.model.gang import Gang, GangKey
from extender.model.memo import Memo
from extender.model.pod import HostPort, Status
from extender.model.reason import Reason
from extender.model.resources import NOTHING, Resources
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.actions import reserved
from extender.planner.actions.reserved import MARGIN_S
from extender.planner.capacity_forecast import stays_until
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.planner.policy import Policy, Starvation
from tests.builders import after, amounts, gang, nodes, queue, single, snapshot
from tests.strategies import examples, snapshots

HOUR = 3600.0
NOW = 1_000.0
BIG = gang("a/big", 2, cpu=4)
OFF = policy_parser.parse("starvation: {backfill: 0s}")


def old(**each: Any) -> Gang:
    """The pod that the big gang waits for; by default it began at 900 and declares two hours."""
    return single("a/old", on="n1", cpu=2, each={"began": 900.0, "lasts_s": 2 * HOUR} | each)


def brief(key: str = "a/new", cpu: float = 1, **rest: Any) -> Gang:
    """A gang that the kubelet ends after five minutes and half a minute of grace."""
    each = {"deadline_s": 300.0, "grace_s": 30.0} | rest.pop("each", {})
    return single(key, cpu=cpu, each=each, **rest)


def crowd(*others: Gang, now: float = NOW, **rest: Any) -> Snapshot:
    """Two nodes, one of them half used, and a gang that needs both whole and has waited long."""
    return snapshot(nodes(2, cpu=4), [BIG, *others], now=now, **rest)


def message_of(before: Snapshot, key: str = "a/new", policy: Policy = policy_parser.DEFAULT) -> str:
    return make_plan(before, policy).verdicts[GangKey(key)].message


def started(before: Snapshot, policy: Policy = policy_parser.DEFAULT) -> set[str]:
    return {
        key
        for key, placement in make_plan(before, policy).placements.items()
        if placement.placements
    }


def test_a_gang_that_ends_before_reserved_capacity_is_needed_may_use_it() -> None:
    plan = make_plan(crowd(old(), brief()))

    assert dict(plan.placements[GangKey("a/new")].placements) == {"a-new-0": "n1"}
    verdict = plan.verdicts[GangKey("a/new")]
    assert verdict.reason is Reason.ADMITTED
    assert verdict.message.endswith("it ends before a/big can start, about 02:15 UTC")


def test_the_rest_stays_reserved_and_the_part_in_use_is_missing() -> None:
    plan = make_plan(crowd(old(), brief()))

    assert plan.held_on_nodes == {"n1": amounts(cpu=1, pods=1), "n2": amounts(cpu=4, pods=1)}
    assert plan.missing_on_nodes == {"n1": amounts(cpu=3)}
    assert "capacity is reserved for it on n1 and n2" in plan.verdicts[GangKey("a/big")].message


def test_gangs_start_whole_in_reserved_capacity_too() -> None:
    pair = gang("a/pair", 2, cpu=2, each={"deadline_s": 300.0})
    wide = gang("a/wide", 2, cpu=2.5, each={"deadline_s": 300.0})

    assert started(crowd(old(), pair)) == {"a/pair"}
    assert started(crowd(old(), wide)) == set()


# ── durations that are not true ─────────────────────────────────────────────────────────────


def test_a_declared_duration_without_a_deadline_is_not_enough() -> None:
    without_deadline = single("a/new", cpu=1, each={"lasts_s": 60.0})

    assert started(crowd(old(), without_deadline)) == set()
    assert message_of(crowd(old(), without_deadline)).endswith(
        "capacity is reserved for a/big; only gangs that activeDeadlineSeconds ends within 10 min"
        " may use it until then"
    )


def test_every_member_needs_a_deadline() -> None:
    pair = gang("a/new", 2, cpu=1, each={"deadline_s": 300.0})
    endless = replace(pair.pods[1], deadline_s=0.0)

    assert started(crowd(old(), pair)) == {"a/new"}
    assert started(crowd(old(), replace(pair, pods=(pair.pods[0], endless)))) == set()


@pytest.mark.parametrize(
    ("deadline_s", "grace_s", "is_backfilled"),
    [(570.0, 30.0, True), (571.0, 30.0, False), (60.0, 86_400.0, False)],
)
def test_a_deadline_with_its_grace_is_at_most_what_the_policy_says(
    deadline_s: float, grace_s: float, is_backfilled: bool
) -> None:
    new = brief(each={"deadline_s": deadline_s, "grace_s": grace_s})

    assert started(crowd(old(), new)) == ({"a/new"} if is_backfilled else set())


def test_a_gang_with_a_longer_deadline_is_told_how_long() -> None:
    assert message_of(crowd(old(), brief(each={"deadline_s": 2 * HOUR}))).endswith(
        "only gangs that activeDeadlineSeconds ends within 10 min may use it until then, this one"
        " in 2 h"
    )


def test_a_gang_that_ends_earlier_than_declared_costs_no_more_than_the_policy_says() -> None:
    """The worst case: others are backfilled by a declared duration, and its gang ends early."""
    early, gone_at = old(lasts_s=24 * HOUR), NOW + 990.0
    without, delayed = (
        starts_at(early, gone_at, policy) for policy in (OFF, policy_parser.DEFAULT)
    )

    assert without == gone_at
    assert without < delayed <= without + Starvation().backfill_s


# ── chains ──────────────────────────────────────────────────────────────────────────────────


def test_any_number_of_backfilled_gangs_in_a_row_do_not_delay_the_starving_gang() -> None:
    declared = old(lasts_s=1_300.0)

    without, with_backfill = (
        starts_at(declared, 2_200.0, policy) for policy in (OFF, policy_parser.DEFAULT)
    )
    assert without == with_backfill == 2_200.0


def test_all_gangs_of_a_chain_are_judged_by_the_same_start_time() -> None:
    first = make_plan(crowd(old(), brief("a/one")))
    state = after(crowd(old(), brief("a/one")), first)
    again = snapshot(
        state.nodes.nodes, [*state.gangs.values(), brief("a/two", each={"lasts_s": 300.0})], now=NOW
    )

    assert message_of(again, "a/two").endswith("it ends before a/big can start, about 02:15 UTC")


def starts_at(occupant: Gang, gone_at: float, policy: Policy) -> float:
    """Advance time by half minutes: short gangs arrive all the time and run as long as they may."""
    running: dict[str, float] = {}
    gangs_by_key = {BIG.key: BIG, occupant.key: occupant}
    for step in range(200):
        now = NOW + 30.0 * step
        if now >= gone_at:
            gangs_by_key.pop(occupant.key, None)
        for key in [key for key, until in running.items() if until <= now]:
            del running[key], gangs_by_key[GangKey(key)]
        new = brief(f"a/new-{step}", cpu=2, created=now)
        gangs_by_key[new.key] = new
        state = snapshot(nodes(2, cpu=4), gangs_by_key.values(), now=now)
        plan = make_plan(state, policy)
        if plan.placements.get(BIG.key):
            return now
        later = after(state, plan).gangs
        for key, placement in plan.placements.items():
            assert placement.placements
            running[key] = now + 330.0
        gangs_by_key = {
            key: _began(later[key], now) if key in running else each
            for key, each in gangs_by_key.items()
            if key in running or key in (BIG.key, occupant.key)
        }
    raise AssertionError("it never started")


def _began(each: Gang, now: float) -> Gang:
    pods = tuple(replace(pod, began=pod.began or now) for pod in each.pods)
    return replace(each, pods=pods, memo=Memo())


# ── no forecast ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "each",
    [
        pytest.param({"lasts_s": 0.0}, id="no duration"),
        pytest.param({"lasts_s": 0.0, "deadline_s": 2 * HOUR}, id="a deadline is no duration"),
        pytest.param({"lasts_s": 90.0}, id="a duration that has passed"),
        pytest.param({"status": Status.RELEASING}, id="terminating"),
    ],
)
def test_no_gang_is_backfilled_where_the_starving_gang_could_start_at_any_moment(
    each: dict[str, Any],
) -> None:
    before = crowd(old(**each), brief())

    assert started(before) == set()
    if each.get("status") is None:
        assert message_of(before).endswith(
            "a/big could start at any moment: not all gangs it waits for state a duration"
        )


def test_the_start_of_a_gang_that_needs_host_ports_is_not_forecast() -> None:
    """The gangs it waits for have declared how long they run."""
    ports = gang("a/big", 2, cpu=4, host_ports=(HostPort(80),))
    before = snapshot(nodes(2, cpu=4), [ports, old(), brief()], now=NOW)

    assert started(before) == set()
    assert message_of(before).endswith(
        "a/big could start at any moment: free host ports are not forecast"
    )


def test_a_gang_that_need_not_end_first_need_not_declare_a_duration() -> None:
    """It cannot start before the gang with a declared duration ends, whenever the other ends."""
    silent = single("a/silent", on="n2", cpu=1)

    assert started(crowd(old(), silent, brief())) == {"a/new"}


def test_a_node_elsewhere_that_becomes_free_sooner_counts() -> None:
    """The big gang would start there and in its reservation, which must be free by then."""
    soon = single("a/soon", on="n3", cpu=4, each={"began": 900.0, "lasts_s": 400.0})
    before = snapshot(nodes(3, cpu=4), [BIG, old(), soon, brief()], now=NOW)

    assert started(before) == set()
    assert "a/big can start about 00:21 UTC, before this one is sure to have ended" in message_of(
        before
    )


@pytest.mark.parametrize(("late_s", "is_backfilled"), [(0.0, True), (-1.0, False)])
def test_a_backfilled_gang_ends_a_margin_before_the_starving_gang_starts(
    late_s: float, is_backfilled: bool
) -> None:
    until = NOW + 330.0 + MARGIN_S + late_s
    before = crowd(old(began=900.0, lasts_s=until - 900.0), brief())

    assert started(before) == ({"a/new"} if is_backfilled else set())


# ── clocks ──────────────────────────────────────────────────────────────────────────────────


def test_a_clock_that_was_set_back_makes_no_pod_run_longer_than_declared() -> None:
    """A start in the future counts as now."""
    assert stays_until(old(), 900.0 - HOUR) == 900.0 - HOUR + 2 * HOUR
    assert stays_until(old(), 1_000.0) == 900.0 + 2 * HOUR
    assert stays_until(old(), 1_000.0 + 24 * HOUR) == 1_000.0 + 24 * HOUR


def test_a_pod_without_a_known_start_is_counted_from_its_creation() -> None:
    unheard = single("a/old", on="n1", cpu=2, created=700.0, each={"lasts_s": HOUR})

    assert stays_until(unheard, NOW) == 700.0 + HOUR


# ── ceilings and deserved shares that the starving gang needs ───────────────────────────────


def test_a_gang_that_would_use_up_the_ceiling_that_the_starving_gang_needs_waits() -> None:
    big = gang("a/big", 2, queue="q", cpu=4)
    gangs = [big, old(), brief(queue="q")]

    def at_most(cpu: int) -> set[str]:
        queues = [queue("q", capability=amounts(cpu=cpu)), queue("default")]
        return started(snapshot(nodes(2, cpu=4), gangs, queues, now=NOW))

    assert at_most(9) == {"a/new"}
    assert at_most(8) == set()


def test_a_gang_that_would_use_up_the_deserved_share_that_the_starving_gang_needs_waits() -> None:
    """Above its deserved share the queue could no longer reclaim from the others."""
    big = gang("a/big", 2, queue="q", cpu=4)
    of_other = single("a/old", on="n3", cpu=4, queue="p", each={"began": 900.0, "lasts_s": HOUR})
    here = single("a/here", on="n1", cpu=2, queue="p", each={"began": 900.0, "lasts_s": HOUR})
    queues = [queue("q", weight=2), queue("p", reclaimable=False)]

    def with_new(in_queue: str) -> set[str]:
        gangs = [big, of_other, here, brief(queue=in_queue)]
        before = snapshot(nodes(3, cpu=4), gangs, queues, now=NOW)
        assert make_plan(before).held_on_nodes
        return started(before)

    assert with_new("p") == {"a/new"}
    assert with_new("q") == set()


def test_backfilled_gangs_do_not_move_the_reservation_to_other_nodes() -> None:
    declared = {"began": 900.0, "lasts_s": HOUR}
    gangs = [
        gang("a/big", 4, cpu=2),
        single("a/full", on="n1", cpu=4, each=declared),
        single("a/half", on="n2", cpu=2, each=declared),
        brief(cpu=3),
    ]
    before = snapshot(nodes(3, cpu=4), gangs, now=NOW)
    plan = make_plan(before)
    assert dict(plan.placements[GangKey("a/new")].placements) == {"a-new-0": "n3"}

    assert (
        set(make_plan(after(before, plan)).held_on_nodes) == set(plan.held_on_nodes) == {"n2", "n3"}
    )


def test_backfill_can_be_turned_off() -> None:
    before = crowd(old(), brief())

    assert started(before, OFF) == set()
    assert message_of(before, policy=OFF).endswith("capacity is reserved for a/big")


def test_the_policy_may_allow_longer_gangs() -> None:
    patient = policy_parser.parse("starvation: {backfill: 1h}")
    new = brief(each={"deadline_s": 1_800.0})

    assert started(crowd(old(), new)) == set()
    assert started(crowd(old(), new), patient) == {"a/new"}


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(crowd(old(), brief(), now=100.0), id="nothing is reserved"),
        pytest.param(crowd(old(), single("a/new", cpu=1)), id="no gang has a deadline"),
        pytest.param(crowd(old()), id="no other gang waits"),
    ],
)
def test_no_forecast_is_computed_where_no_gang_could_be_backfilled(
    before: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserved, "CapacityForecast", None)

    assert make_plan(before).verdicts


# ── messages ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param(
            crowd(old(), single("a/new", cpu=1)),
            "only gangs that activeDeadlineSeconds ends within 10 min may use it until then",
            id="no deadline",
        ),
        pytest.param(
            crowd(old(lasts_s=0.0), brief()),
            "a/big could start at any moment: not all gangs it waits for state a duration",
            id="no forecast",
        ),
        pytest.param(
            crowd(old(lasts_s=400.0), brief()),
            "a/big can start about 00:21 UTC, before this one is sure to have ended",
            id="too late",
        ),
    ],
)
def test_the_message_says_why_a_gang_is_not_backfilled(before: Snapshot, expected: str) -> None:
    assert message_of(before).partition("reserved for a/big; ")[2] == expected


def test_a_backfilled_gang_is_not_named_as_having_gone_first() -> None:
    plan = make_plan(crowd(old(), brief(), single("a/other", cpu=1)))

    told = plan.verdicts[GangKey("a/other")].message
    assert set(plan.placements) == {"a/new"}
    assert "capacity is reserved for a/big; only gangs that activeDeadlineSeconds ends" in told


def with_durations(before: Snapshot, deadline_s: float) -> Snapshot:
    """Give every running gang a declared duration, and every waiting pod a deadline."""
    gangs = [
        replace(
            each,
            group=replace(each.group, lasts_s=HOUR),
            pods=tuple(
                replace(pod, began=before.now, created=min(pod.created, before.now))
                if pod.node
                else replace(pod, deadline_s=deadline_s)
                for pod in each.pods
            ),
            memo=Memo(),
        )
        for each in before.gangs.values()
    ]
    return replace(before, gangs={each.key: each for each in gangs})


def reserved_or_missing(plan: Plan) -> dict[str, Resources]:
    names = sorted({*plan.held_on_nodes, *plan.missing_on_nodes})
    found = {
        n: plan.held_on_nodes.get(n, NOTHING) + plan.missing_on_nodes.get(n, NOTHING) for n in names
    }
    return {name: each for name, each in found.items() if each}


@given(snapshots(), st.sampled_from([60.0, 540.0, 900.0]))
@settings(max_examples=examples(150))
def test_backfill_only_adds_starts_and_reserves_as_much_for_starving_gangs(
    before: Snapshot, deadline_s: float
) -> None:
    state = with_durations(before, deadline_s)
    without, plan = make_plan(state, OFF), make_plan(state)

    assert {
        k: t for k, t in plan.placements.items() if k in without.placements
    } == without.placements
    assert plan.evictions == without.evictions
    assert reserved_or_missing(plan) == reserved_or_missing(without)
    if deadline_s > Starvation().backfill_s:
        assert plan.placements == without.placements
