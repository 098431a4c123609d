"""Pods that could free capacity but are protected are counted, with the reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from extender.model.gang import Gang, Phase
from extender.model.pod import PodUid, Status
from extender.model.queue import Queue
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.obstacles import ProtectedPods
from extender.planner.session import Session
from tests.builders import pod
from tests.scene import budget, gang, node_table, snapshot

VIP = gang("vip", 2, status=Status.PENDING, priority=10, phase=Phase.INQUEUE)


def guarded(count: int = 3, **rest: Any) -> Gang:
    members = [pod(f"old-{index}", on="n0", labels={"app": "db"}) for index in range(count)]
    return gang("old", members, phase=Phase.RUNNING, **rest)


def note(seen: Snapshot, mine: Gang = VIP) -> str:
    session = Session(seen, policy_parser.DEFAULT)
    state = session.accounting.state(mine.key)
    assert state is not None
    return ProtectedPods(session).note(state)


def full(*gangs: Gang, **rest: Any) -> Snapshot:
    table = node_table([3])
    table.used[0, 0] = 3000
    return snapshot(*gangs, nodes=table, **rest)


def test_a_budget_that_allows_less_than_is_there_is_named() -> None:
    seen = full(guarded(), VIP, budgets=[budget("keep", 1, app="db")])

    assert note(seen) == "; protected: 3 pods (PodDisruptionBudget a/keep allows 1 disruptions)"


def test_a_budget_that_allows_enough_is_not_named() -> None:
    assert note(full(guarded(), VIP, budgets=[budget("keep", 3, app="db")])) == ""


def test_protected_pods_are_named_with_their_reason() -> None:
    seen = replace(full(guarded(), VIP), protected={PodUid("a-old-0"): "it has only just started"})

    assert note(seen) == "; protected: 1 pod (it has only just started)"


def test_pods_that_would_not_be_evicted_anyway_are_not_counted() -> None:
    keep = [budget("keep", 0, app="db")]

    assert note(full(guarded(priority=10), VIP, budgets=keep)) == ""
    queues = [Queue(name="left"), Queue(name="right", reclaimable=False)]
    assert note(full(guarded(queue="right"), VIP, budgets=keep, queues=queues)) == ""


def test_protected_pods_of_another_queue_count_when_it_is_reclaimable() -> None:
    seen = full(guarded(queue="right"), VIP, budgets=[budget("keep", 0, app="db")])

    assert "3 pods (PodDisruptionBudget a/keep" in note(seen)


def test_remembered_budgets_of_a_gang_are_forgotten_when_they_change() -> None:
    old = guarded()
    strict = note(full(old, VIP, budgets=[budget("keep", 0, app="db")]))
    lenient = note(full(old, VIP, budgets=[budget("keep", 3, app="db")]))

    assert "allows 0 disruptions" in strict
    assert lenient == ""


def test_without_budgets_and_protected_pods_nothing_is_said() -> None:
    assert note(full(guarded(), VIP)) == ""


def test_pods_that_should_have_terminated_long_ago_are_named() -> None:
    stuck = frozenset({PodUid("a-old-0"), PodUid("uid-of-another-scheduler")})
    hanging = gang("old", [pod("old-0", on="n0", status=Status.RELEASING)], phase=Phase.RUNNING)

    assert (
        note(full(hanging, VIP, stuck=stuck)) == "; 2 pods should have terminated long ago: a/old-0"
    )
