"""Of thousands of gangs of a namespace in a queue, a cycle considers a few in rotation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from extender.model.gang import Gang, GangKey
from extender.model.reason import Reason
from extender.model.snapshot import DisruptionBudget, Snapshot
from extender.planner import accounting, policy_parser
from extender.planner.actions.allocate import allocate
from extender.planner.actions.enqueue import enqueue
from extender.planner.explain.explain import explain
from extender.planner.obstacles import ProtectedPods
from extender.planner.plan import GangStatus, Plan
from extender.planner.planner import make_plan
from extender.planner.session import Session
from extender.planner.verdicts import Verdicts
from extender.planner.victims.make_room import MOST_FAILURES, VictimFinder
from tests.builders import SOON, gang, nodes, queue, snapshot
from tests.steps import opcodes, steps
from tests.strategies import examples


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consider four gangs in every cycle, and two of the others in rotation."""
    monkeypatch.setattr(accounting, "FIRST", 4)
    monkeypatch.setattr(accounting, "ROTATING", 2)
    monkeypatch.setattr(accounting, "MOST", 6)


def many(count: int, **rest: Any) -> list[Gang]:
    return [gang(f"a/g{number:03}", 1, **{"cpu": 1} | rest) for number in range(count)]


def admitted(plan: Plan) -> list[str]:
    return [key for key, said in plan.verdicts.items() if said.status is GangStatus.ADMITTED]


def without_a_turn(plan: Plan) -> list[str]:
    return [key for key, said in plan.verdicts.items() if "gangs waiting in" in said.message]


def at(now: float, gangs: Iterable[Gang], **rest: Any) -> Snapshot:
    return snapshot(nodes(1, cpu=64), gangs, now=now, **rest)


def test_up_to_the_limit_every_gang_has_a_turn(small_limits: None) -> None:
    assert len(admitted(make_plan(at(SOON, many(6))))) == 6


def test_beyond_the_limit_the_first_gangs_and_some_of_the_others_have_a_turn(
    small_limits: None,
) -> None:
    plan = make_plan(at(SOON, many(20)))
    started = admitted(plan)

    assert len(started) == 6
    assert started[:4] == ["a/g000", "a/g001", "a/g002", "a/g003"]
    assert len(without_a_turn(plan)) == 14
    left_out = plan.verdicts[GangKey(without_a_turn(plan)[0])]
    assert left_out.reason is Reason.BEHIND_IN_ORDER
    assert left_out.message == (
        "namespace a has more than 6 gangs waiting in queue default:"
        " every cycle considers 4 of them, and the others in turns"
    )


def test_many_gangs_do_not_delay_those_of_another_namespace_or_queue(small_limits: None) -> None:
    others = [gang("b/mine", 1, cpu=1), gang("a/elsewhere", 1, cpu=1, queue="q1")]
    plan = make_plan(at(SOON, [*many(20), *others], queues=[queue("q1")]))

    assert {"b/mine", "a/elsewhere"} <= set(admitted(plan))


def test_no_gang_waits_for_ever_behind_gangs_that_find_no_capacity(small_limits: None) -> None:
    large = many(10, cpu=99)
    small = [gang(f"a/small-{number}", 1, cpu=1) for number in range(5)]
    started: set[str] = set()
    for second in range(60):
        started |= set(admitted(make_plan(at(SOON + second, [*large, *small]))))

    assert started == {each.key for each in small}


def test_partial_gangs_and_gangs_of_high_priority_are_among_the_first(
    small_limits: None,
) -> None:
    partial = gang("a/partial", 2, on=["n1"], cpu=1)
    high = gang("a/vip", 1, cpu=1, priority=9)
    short = [gang(f"a/a-short-{number}", 1, min_member=2, cpu=1) for number in range(9)]
    seen = at(SOON, [*short, *many(20), partial, high])
    plan = make_plan(replace(seen, partial_gangs=frozenset({partial.key})))

    assert {"a/partial", "a/vip", "a/g000", "a/g001"} <= set(admitted(plan))


def test_no_pod_is_evicted_for_a_gang_that_only_has_a_rotating_turn(small_limits: None) -> None:
    old = [gang(f"b/old-{number}", 1, on=["n1"], cpu=32) for number in range(2)]
    large, wanting = many(4, cpu=99, priority=9), many(20, cpu=32, priority=5)[4:]
    for second in range(9):
        plan = make_plan(at(SOON + second, [*old, *large, *wanting]))
        assert plan.evictions == ()

    assert make_plan(at(SOON, [*old, *large, *wanting[:2]])).evictions


def test_a_gang_without_a_turn_says_what_it_lacks(small_limits: None) -> None:
    short = [gang(f"a/z-short-{number}", 1, min_member=2, cpu=1) for number in range(9)]
    running = gang("a/zz", 2, min_member=1, on=["n1"], cpu=1)
    plan = make_plan(at(SOON, [*many(20), *short, running]))

    said = [plan.verdicts[each.key] for each in short]
    assert {each.reason for each in said} == {Reason.NOT_ENOUGH_MEMBERS}
    assert plan.verdicts[running.key].reason is Reason.RUNNING


def test_a_verdict_is_the_same_before_and_after_a_turn_without_success(
    small_limits: None,
) -> None:
    """Otherwise hundreds of conditions would be written in every cycle."""
    waiting = many(20, cpu=99)
    plans = [make_plan(at(SOON + second, waiting)) for second in range(9)]
    behind = [key for key in plans[0].verdicts if key > "a/g003"]

    assert len(behind) == 16
    for key in behind:
        assert len({plan.verdicts[key].message for plan in plans}) == 1


def test_the_request_of_a_queue_includes_gangs_without_a_turn(small_limits: None) -> None:
    """Otherwise its deserved share, and those of others, would change with every rotation."""
    before = at(SOON, many(20), queues=[queue("q1")])
    session = Session(before, policy_parser.DEFAULT)

    assert session.startable["default"].amount("cpu") == 20_000


def test_a_gang_without_a_turn_is_explained_like_any_other(small_limits: None) -> None:
    before = at(SOON, many(20))
    plan = make_plan(before)
    key = GangKey(without_a_turn(plan)[0])
    told = explain(before, plan, policy_parser.DEFAULT, key)

    assert told is not None
    assert told.verdict.reason is Reason.BEHIND_IN_ORDER
    assert told.needs[0].slots == 64 - 6


@given(st.integers(1, 40), st.integers(0, 5))
@settings(max_examples=examples(40))
def test_every_gang_is_first_or_rotating_or_behind(count: int, now: int) -> None:
    behind, rotating = accounting.rotation(many(count), float(now))
    assert (behind, rotating) == (frozenset(), frozenset())

    behind, rotating = accounting.rotation(many(accounting.MOST + count), float(now))

    assert len(rotating) == accounting.ROTATING
    assert len(behind) == count
    assert not behind & rotating


def test_gangs_beyond_the_limit_cost_a_fraction_of_those_with_a_turn(small_limits: None) -> None:
    def work(count: int) -> int:
        before = snapshot(nodes(3), [gang(f"a/g{n:03}", 1, cpu=1 + n / 100) for n in range(count)])
        make_plan(before)
        return steps(lambda: make_plan(before))

    # A turn costs hundreds.
    assert work(200) - work(100) < 100 * 120


def test_naming_the_gangs_that_went_first_costs_the_same_for_any_number() -> None:
    def work(count: int, waiting: int) -> int:
        started = [gang(f"a/g{n:03}", 1, cpu=1, priority=1) for n in range(count)]
        others = [gang(f"b/w{n}", 1, cpu=1) for n in range(waiting)]
        before = snapshot(nodes(1, cpu=count, pods=9999), [*started, *others])
        session = Session(before, policy_parser.DEFAULT)
        enqueue(session)
        allocate(session)
        said = Verdicts(session).all()[others[0].key].message
        assert said.endswith(f": a/g000, a/g001 and {count - 2} more gangs went first")
        return opcodes(Verdicts(session).all)

    more, less = work(200, 4) - work(200, 2), work(30, 4) - work(30, 2)
    assert abs(more - less) < 500, "a look at each gang would cost thousands"


def test_the_note_on_protected_pods_is_computed_once_for_a_queue_and_priority() -> None:
    keep = [DisruptionBudget(namespace="a", name="keep", allowed=0)]
    old = [
        gang(f"a/old-{number}", 1, on=["n1"], cpu=1, priority=-number) for number in range(1, 30)
    ]
    new = many(30)
    session = Session(snapshot(nodes(1, cpu=29), [*old, *new], budgets=keep), policy_parser.DEFAULT)
    protected = ProtectedPods(session)
    states = list(session.accounting.contenders.values())
    first = steps(lambda: protected.note(states[0]))

    assert "29 pods" in protected.note(states[0])
    assert steps(lambda: [protected.note(each) for each in states[1:]]) < 29 * first / 5


def test_failed_eviction_searches_are_remembered_up_to_a_maximum() -> None:
    waiting = [
        gang(f"a/g{n:03}", 1, cpu=100 + n, memory=1000 - n) for n in range(MOST_FAILURES + 10)
    ]
    session = Session(snapshot(nodes(1), waiting), policy_parser.DEFAULT)
    finder = VictimFinder(session, "reclaim")
    for state in session.accounting.contenders.values():
        finder.free_capacity(state, lambda _: False)

    assert finder.failures == MOST_FAILURES
