"""State of deleted objects is removed: tenants choose the names, and may choose ever new ones."""

from __future__ import annotations

from extender.cache.budget_gangs import BudgetGangs
from extender.cache.changes import Delete, Kind, Upsert
from extender.model.gang import GangKey
from extender.model.pod import Requirement, Status
from extender.model.snapshot import DisruptionBudget, ResourceQuota
from tests.builders import GANG, NOW, cache, node, pod, pod_group, seen, uid


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

    assert made._quotas_in == {}


def test_a_namespace_whose_last_budget_is_deleted_is_forgotten() -> None:
    budgets = BudgetGangs()
    need = Requirement("app", "In", ("x",))
    budget = DisruptionBudget(namespace="a", name="b", selector=(need,), least=2)
    budgets.change(None, budget)
    budgets.change(budget, None)

    assert budgets._namespaces == {}


def test_roles_that_a_gang_no_longer_has_are_forgotten() -> None:
    made = cache(node("n"), pod_group())
    for number in range(5):
        scheduled = {"on": "n", "status": Status.RUNNING, "started_in": f"q{number}"}
        made.apply(Upsert(seen("w-0", role=f"role-{number}", **scheduled)))

    members = made._pods.members(GANG)
    assert members is not None
    assert (members._by_role, members._started) == ({"role-4": 1}, {"q4": 1})
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

    assert len(made._gangs.stale) <= 1_001
    assert not made.reservations._steps
    assert not made.reservations._touched
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
