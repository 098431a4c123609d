"""State of deleted objects is removed: tenants choose the names, and may choose ever new ones."""

from __future__ import annotations

from itertools import pairwise

from extender.cache.budget_gangs import BudgetGangs
from extender.cache.changes import Delete, Kind, Upsert
from extender.cache.members import GangMembers
from extender.model.gang import GangKey
from extender.model.pod import Requirement, Status
from extender.model.snapshot import DisruptionBudget, ResourceQuota
from tests.builders import GANG, NOW, cache, member_of, node, pod, pod_group, seen, uid


def test_a_node_that_is_deleted_before_its_pods_is_forgotten_with_the_last_pod() -> None:
    made = cache(node("n"), pod_group(), seen("w-0", on="n"))
    made.reservations.reserve(pod("w-1"), GANG, "n", 0.0)
    made.apply(Delete(Kind.NODE, "n"))
    made.apply(Delete(Kind.POD, uid("w-0")))
    made.reservations.release(uid("w-1"))

    assert made.versions == {}


def test_a_namespace_whose_last_quota_is_deleted_is_forgotten() -> None:
    made = cache()
    made.apply(Upsert(ResourceQuota(namespace="a", name="q")))
    made.apply(Delete(Kind.QUOTA, "a/q"))

    assert not made.has_quotas("a")


def test_a_namespace_whose_last_budget_is_deleted_is_forgotten() -> None:
    budgets = BudgetGangs()
    need = Requirement("app", "In", ("x",))
    budget = DisruptionBudget(namespace="a", name="b", selector=(need,), least=2)
    budgets.change(None, budget)
    budgets.change(budget, None)

    assert budgets.namespaces == 0


def test_roles_that_a_gang_no_longer_has_are_forgotten() -> None:
    members = GangMembers()
    states = [
        pod("w-0", on="n", status=Status.RUNNING, role=f"role-{number}", started_in=f"q{number}")
        for number in range(5)
    ]
    members.put(states[0], member_of())
    for old, new in pairwise(states):
        members.update(old, new)

    assert (set(members.roles), set(members.started_queues)) == ({"role-4"}, {"q4"})
    assert members.started_in == "q4"


def test_a_standby_forgets_gangs_that_were_created_and_deleted() -> None:
    """It takes no snapshots. On a leader, they remove such gangs."""
    made = cache(node("n"), pod_group(), seen("w-0"))
    for number in range(3_000):
        made.apply(Upsert(seen(f"p-{number}", "")))
        if number % 2:
            made.reservations.reserve(pod(f"p-{number}"), GangKey(f"a/p-{number}"), "n", 0.0)
            made.reservations.release(uid(f"p-{number}"))
        made.apply(Delete(Kind.POD, uid(f"p-{number}")))
        made.tidy()

    assert made.stale_gangs <= 1_001
    left = made.reservations.changes()
    assert not left.steps
    assert not left.touched
    assert set(made.snapshot(NOW).gangs) == {GANG}


def test_a_standby_keeps_existing_gangs_when_it_cleans_up() -> None:
    made = cache(node("n"), pod_group(), seen("w-0"))
    made.reservations.reserve(pod("w-1"), GANG, "n", 0.0)
    for number in range(1_500):
        made.apply(Upsert(seen(f"p-{number}", "")))
    made.tidy()

    snapshot = made.snapshot(NOW)
    assert len(snapshot.gangs) == 1_501
    assert {each.name for each in snapshot.gangs[GANG].pods} == {"w-0", "w-1"}
