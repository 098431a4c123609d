"""Room that is kept for a gang may be used meanwhile, by those who are sure to be gone in time."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from extender.kube.decode import pods
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

PAGE = (Path(__file__).parents[3] / "docs" / "backfill.md").read_text()
HOUR = 3600.0
NOW = 1_000.0
BIG = gang("a/big", 2, cpu=4)
OFF = policy_parser.parse("starvation: {backfill: 0s}")


def old(**each: Any) -> Gang:
    """What the big one waits for; by default it began at 900 and says that it runs two hours."""
    return single("a/old", on="n1", cpu=2, each={"began": 900.0, "lasts_s": 2 * HOUR} | each)


def brief(key: str = "a/new", cpu: float = 1, **rest: Any) -> Gang:
    """One that the kubelet ends after five minutes and half a minute of grace."""
    each = {"deadline_s": 300.0, "grace_s": 30.0} | rest.pop("each", {})
    return single(key, cpu=cpu, each=each, **rest)


def crowd(*others: Gang, now: float = NOW, **rest: Any) -> Snapshot:
    """Two nodes, one of them half taken, and a gang that needs both whole and has waited long."""
    return snapshot(nodes(2, cpu=4), [BIG, *others], now=now, **rest)


def said(before: Snapshot, key: str = "a/new", policy: Policy = policy_parser.DEFAULT) -> str:
    return make_plan(before, policy).verdicts[GangKey(key)].message


def started(before: Snapshot, policy: Policy = policy_parser.DEFAULT) -> set[str]:
    return {
        key for key, ticket in make_plan(before, policy).placements.items() if ticket.placements
    }


def test_who_is_gone_before_the_room_is_needed_may_use_it() -> None:
    plan = make_plan(crowd(old(), brief()))

    assert dict(plan.placements[GangKey("a/new")].placements) == {"a-new-0": "n1"}
    verdict = plan.verdicts[GangKey("a/new")]
    assert verdict.reason is Reason.ADMITTED
    assert verdict.message.endswith("it ends before a/big can start, about 02:15 UTC")


def test_the_rest_of_the_room_stays_kept_and_what_is_used_is_owed() -> None:
    plan = make_plan(crowd(old(), brief()))

    assert plan.reservations == {"n1": amounts(cpu=1, pods=1), "n2": amounts(cpu=4, pods=1)}
    assert plan.reservations_missing == {"n1": amounts(cpu=3)}
    assert "capacity is reserved for it on n1 and n2" in plan.verdicts[GangKey("a/big")].message


def test_gangs_start_whole_there_too() -> None:
    pair = gang("a/pair", 2, cpu=2, each={"deadline_s": 300.0})
    wide = gang("a/wide", 2, cpu=2.5, each={"deadline_s": 300.0})

    assert started(crowd(old(), pair)) == {"a/pair"}
    assert started(crowd(old(), wide)) == set()


# ── liars ───────────────────────────────────────────────────────────────────────────────────


def test_a_declared_duration_lets_nobody_in() -> None:
    boaster = single("a/new", cpu=1, each={"lasts_s": 60.0})

    assert started(crowd(old(), boaster)) == set()
    assert said(crowd(old(), boaster)).endswith(
        "capacity is reserved for a/big; only gangs that activeDeadlineSeconds ends within 10 min"
        " may use it until then"
    )


def test_every_member_needs_a_deadline() -> None:
    pair = gang("a/new", 2, cpu=1, each={"deadline_s": 300.0})
    endless = replace(pair.pods[1], deadline_s=0.0)

    assert started(crowd(old(), pair)) == {"a/new"}
    assert started(crowd(old(), replace(pair, pods=(pair.pods[0], endless)))) == set()


@pytest.mark.parametrize(
    ("deadline_s", "grace_s", "is_let_in"),
    [(570.0, 30.0, True), (571.0, 30.0, False), (60.0, 86_400.0, False)],
)
def test_a_deadline_with_its_grace_is_at_most_what_the_policy_says(
    deadline_s: float, grace_s: float, is_let_in: bool
) -> None:
    new = brief(each={"deadline_s": deadline_s, "grace_s": grace_s})

    assert started(crowd(old(), new)) == ({"a/new"} if is_let_in else set())


def test_who_may_run_longer_is_told_how_long() -> None:
    assert said(crowd(old(), brief(each={"deadline_s": 2 * HOUR}))).endswith(
        "only gangs that activeDeadlineSeconds ends within 10 min may use it until then, this one"
        " in 2 h"
    )


def test_who_says_to_stay_for_a_day_and_goes_costs_no_more_than_the_policy_says() -> None:
    """The worst that liars can do together: one lets others in by its word, and then leaves."""
    liar, gone_at = old(lasts_s=24 * HOUR), NOW + 990.0
    honest, lied_to = (starts_at(liar, gone_at, policy) for policy in (OFF, policy_parser.DEFAULT))

    assert honest == gone_at
    assert honest < lied_to <= honest + Starvation().backfill_s


# ── chains ──────────────────────────────────────────────────────────────────────────────────


def test_however_many_follow_each_other_it_starts_when_it_would_have_started() -> None:
    keeps_word = old(lasts_s=1_300.0)

    honest, chained = (
        starts_at(keeps_word, 2_200.0, policy) for policy in (OFF, policy_parser.DEFAULT)
    )
    assert honest == chained == 2_200.0


def test_all_of_a_chain_are_judged_by_the_same_moment() -> None:
    first = make_plan(crowd(old(), brief("a/one")))
    state = after(crowd(old(), brief("a/one")), first)
    again = snapshot(
        state.nodes.nodes, [*state.gangs.values(), brief("a/two", each={"lasts_s": 300.0})], now=NOW
    )

    assert said(again, "a/two").endswith("it ends before a/big can start, about 02:15 UTC")


def starts_at(occupant: Gang, gone_at: float, policy: Policy) -> float:
    """Let time pass by half minutes: brief ones come all the time and stay for all they may."""
    running: dict[str, float] = {}
    standing = {BIG.key: BIG, occupant.key: occupant}
    for step in range(200):
        now = NOW + 30.0 * step
        if now >= gone_at:
            standing.pop(occupant.key, None)
        for key in [key for key, until in running.items() if until <= now]:
            del running[key], standing[GangKey(key)]
        new = brief(f"a/new-{step}", cpu=2, created=now)
        standing[new.key] = new
        state = snapshot(nodes(2, cpu=4), standing.values(), now=now)
        plan = make_plan(state, policy)
        if plan.placements.get(BIG.key):
            return now
        later = after(state, plan).gangs
        for key, ticket in plan.placements.items():
            assert ticket.placements
            running[key] = now + 330.0
        standing = {
            key: _began(later[key], now) if key in running else each
            for key, each in standing.items()
            if key in running or key in (BIG.key, occupant.key)
        }
    raise AssertionError("it never started")


def _began(each: Gang, now: float) -> Gang:
    pods = tuple(replace(pod, began=pod.began or now) for pod in each.pods)
    return replace(each, pods=pods, memo=Memo())


# ── nobody can tell ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "each",
    [
        pytest.param({"lasts_s": 0.0}, id="no word"),
        pytest.param({"lasts_s": 0.0, "deadline_s": 2 * HOUR}, id="a deadline is no word"),
        pytest.param({"lasts_s": 90.0}, id="a word that it has outrun"),
        pytest.param({"status": Status.RELEASING}, id="on its way out"),
    ],
)
def test_where_it_could_start_at_any_moment_nobody_is_let_in(each: dict[str, Any]) -> None:
    before = crowd(old(**each), brief())

    assert started(before) == set()
    if each.get("status") is None:
        assert said(before).endswith(
            "a/big could start at any moment: not all gangs it waits for state a duration"
        )


def test_of_one_that_needs_host_ports_it_says_that_nobody_can_tell() -> None:
    """Those it waits for did say how long they run."""
    ports = gang("a/big", 2, cpu=4, host_ports=(HostPort(80),))
    before = snapshot(nodes(2, cpu=4), [ports, old(), brief()], now=NOW)

    assert started(before) == set()
    assert said(before).endswith(
        "a/big could start at any moment: free host ports are not forecast"
    )


def test_who_it_need_not_wait_for_may_be_silent() -> None:
    """Without the one that gave its word it cannot start, whenever the other ends."""
    silent = single("a/silent", on="n2", cpu=1)

    assert started(crowd(old(), silent, brief())) == {"a/new"}


def test_a_node_elsewhere_that_becomes_free_sooner_counts() -> None:
    """It would start there and in its kept room: what is kept must be free by then."""
    soon = single("a/soon", on="n3", cpu=4, each={"began": 900.0, "lasts_s": 400.0})
    before = snapshot(nodes(3, cpu=4), [BIG, old(), soon, brief()], now=NOW)

    assert started(before) == set()
    assert "a/big can start about 00:21 UTC, before this one is sure to have ended" in said(before)


@pytest.mark.parametrize(("late_s", "is_let_in"), [(0.0, True), (-1.0, False)])
def test_between_its_end_and_the_start_is_a_margin(late_s: float, is_let_in: bool) -> None:
    until = NOW + 330.0 + MARGIN_S + late_s
    before = crowd(old(began=900.0, lasts_s=until - 900.0), brief())

    assert started(before) == ({"a/new"} if is_let_in else set())


# ── clocks ──────────────────────────────────────────────────────────────────────────────────


def test_a_clock_that_was_set_back_makes_nobody_stay_longer_than_it_says() -> None:
    """What began in the future began now, at the latest."""
    assert stays_until(old(), 900.0 - HOUR) == 900.0 - HOUR + 2 * HOUR
    assert stays_until(old(), 1_000.0) == 900.0 + 2 * HOUR
    assert stays_until(old(), 1_000.0 + 24 * HOUR) == 1_000.0 + 24 * HOUR


def test_who_was_not_heard_to_begin_is_counted_from_its_creation() -> None:
    unheard = single("a/old", on="n1", cpu=2, created=700.0, each={"lasts_s": HOUR})

    assert stays_until(unheard, NOW) == 700.0 + HOUR


# ── in nobody's way ─────────────────────────────────────────────────────────────────────────


def test_who_would_use_up_the_ceiling_that_it_needs_waits() -> None:
    big = gang("a/big", 2, queue="q", cpu=4)
    gangs = [big, old(), brief(queue="q")]

    def at_most(cpu: int) -> set[str]:
        queues = [queue("q", capability=amounts(cpu=cpu)), queue("default")]
        return started(snapshot(nodes(2, cpu=4), gangs, queues, now=NOW))

    assert at_most(9) == {"a/new"}
    assert at_most(8) == set()


def test_who_would_carry_its_queue_over_the_due_that_it_needs_waits() -> None:
    """Beyond its due it would lose its claim against the other queues."""
    big = gang("a/big", 2, queue="q", cpu=4)
    of_other = single("a/old", on="n3", cpu=4, queue="p", each={"began": 900.0, "lasts_s": HOUR})
    here = single("a/here", on="n1", cpu=2, queue="p", each={"began": 900.0, "lasts_s": HOUR})
    queues = [queue("q", weight=2), queue("p", reclaimable=False)]

    def with_new(in_queue: str) -> set[str]:
        gangs = [big, of_other, here, brief(queue=in_queue)]
        before = snapshot(nodes(3, cpu=4), gangs, queues, now=NOW)
        assert make_plan(before).reservations
        return started(before)

    assert with_new("p") == {"a/new"}
    assert with_new("q") == set()


def test_those_who_are_let_in_do_not_drive_the_kept_room_to_other_nodes() -> None:
    word = {"began": 900.0, "lasts_s": HOUR}
    gangs = [
        gang("a/big", 4, cpu=2),
        single("a/full", on="n1", cpu=4, each=word),
        single("a/half", on="n2", cpu=2, each=word),
        brief(cpu=3),
    ]
    before = snapshot(nodes(3, cpu=4), gangs, now=NOW)
    plan = make_plan(before)
    assert dict(plan.placements[GangKey("a/new")].placements) == {"a-new-0": "n3"}

    assert (
        set(make_plan(after(before, plan)).reservations) == set(plan.reservations) == {"n2", "n3"}
    )


def test_it_can_be_turned_off() -> None:
    before = crowd(old(), brief())

    assert started(before, OFF) == set()
    assert said(before, policy=OFF).endswith("capacity is reserved for a/big")


def test_a_longer_one_may_be_allowed() -> None:
    patient = policy_parser.parse("starvation: {backfill: 1h}")
    new = brief(each={"deadline_s": 1_800.0})

    assert started(crowd(old(), new)) == set()
    assert started(crowd(old(), new), patient) == {"a/new"}


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(crowd(old(), brief(), now=100.0), id="no room is kept"),
        pytest.param(crowd(old(), single("a/new", cpu=1)), id="nobody has a deadline"),
        pytest.param(crowd(old()), id="nobody else waits"),
    ],
)
def test_nothing_is_worked_out_where_nobody_could_be_let_in(
    before: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserved, "CapacityForecast", None)

    assert make_plan(before).verdicts


# ── what is said ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(crowd(old(), single("a/new", cpu=1)), id="no deadline"),
        pytest.param(crowd(old(lasts_s=0.0), brief()), id="nobody can tell"),
        pytest.param(crowd(old(lasts_s=400.0), brief()), id="too late"),
    ],
)
def test_the_page_has_every_sentence(before: Snapshot) -> None:
    told = said(before).partition("reserved for a/big; ")[2].replace("a/big", "lab/giant")
    told = re.sub(r"\d\d:\d\d UTC", "14:20 UTC", told)

    assert f"| `{told}` |" in PAGE


def test_the_pod_of_the_page_may_be_let_in() -> None:
    written = PAGE.partition("<!-- brief -->\n```yaml\n")[2].partition("```")[0]
    raw = pods.pod(yaml.safe_load(written))
    pod, _ = pods.to_pod(raw, schedulers=frozenset({"gang-scheduler"}))

    assert pod.ours
    assert pod.most_s <= Starvation().backfill_s


def test_others_are_not_told_that_whoever_was_let_in_went_before_them() -> None:
    plan = make_plan(crowd(old(), brief(), single("a/other", cpu=1)))

    told = plan.verdicts[GangKey("a/other")].message
    assert set(plan.placements) == {"a/new"}
    assert "capacity is reserved for a/big; only gangs that activeDeadlineSeconds ends" in told


def with_words(before: Snapshot, deadline_s: float) -> Snapshot:
    """Give everybody who runs a word, and everybody who waits a deadline."""
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


def kept(plan: Plan) -> dict[str, Resources]:
    names = sorted({*plan.reservations, *plan.reservations_missing})
    found = {
        n: plan.reservations.get(n, NOTHING) + plan.reservations_missing.get(n, NOTHING)
        for n in names
    }
    return {name: each for name, each in found.items() if each}


@given(snapshots(), st.sampled_from([60.0, 540.0, 900.0]))
@settings(max_examples=examples(150))
def test_it_only_adds_starts_and_keeps_as_much_for_those_who_wait(
    before: Snapshot, deadline_s: float
) -> None:
    state = with_words(before, deadline_s)
    without, plan = make_plan(state, OFF), make_plan(state)

    assert {
        k: t for k, t in plan.placements.items() if k in without.placements
    } == without.placements
    assert plan.evictions == without.evictions
    assert kept(plan) == kept(without)
    if deadline_s > Starvation().backfill_s:
        assert plan.placements == without.placements
