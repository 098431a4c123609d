"""pdb, sla, overcommit, conformance, drf and priority."""

from __future__ import annotations

from typing import Any

import pytest

from extender.model.gang import Gang, GangKey, Phase
from extender.model.pod import PodUid, Requirement
from extender.model.reason import Reason
from extender.model.snapshot import DisruptionBudget
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from tests.builders import amounts, gang, node, nodes, pod, queue, shape, single, snapshot
from tests.unit.planner.plans import evicted


def labelled(key: str, **rest: Any) -> Gang:
    return gang(key, each={"labels": {"app": "web"}}, **rest)


def budget(allowed: int, **rest: Any) -> DisruptionBudget:
    selector = (Requirement("app", "In", ("web",)),)
    return DisruptionBudget(namespace="a", name="b", selector=selector, allowed=allowed, **rest)


class TestPdb:
    def test_a_budget_that_is_used_up_protects_its_pods(self) -> None:
        low = labelled("a/low", size=3, min_member=1, on=["n1"] * 3, cpu=1)
        high = gang("a/high", 2, priority=9, cpu=1)

        def victims(*budgets: DisruptionBudget) -> int:
            before = snapshot(nodes(1, cpu=3), [low, high], budgets=budgets)
            return len(evicted(make_plan(before)))

        assert victims() == 2
        assert victims(budget(2)) == 2
        assert victims(budget(1)) == 0, "one victim would not be enough for the gang"

    def test_a_disruption_that_the_budget_already_counts_is_allowed(self) -> None:
        low = labelled("a/low", size=1, on=["n1"], cpu=1)
        high = gang("a/high", 1, priority=9, cpu=1)
        before = snapshot(
            nodes(1, cpu=1), [low, high], budgets=[budget(0, disrupted=frozenset({"low-0"}))]
        )

        assert evicted(make_plan(before)) == ["low-0"]


def test_pods_that_are_protected_for_now_are_not_evicted() -> None:
    low, high = single("a/low", on="n1", cpu=1), gang("a/high", 1, priority=9, cpu=1)
    protected = {PodUid("a-low-0"): "it has only just started"}

    assert evicted(make_plan(snapshot(nodes(1, cpu=1), [low, high], protected=protected))) == []


def test_system_pods_are_never_evicted() -> None:
    system = gang("kube-system/dns", 1, on=["n1"], cpu=1)
    critical = gang("a/agent", 1, on=["n1"], cpu=1, each={"priority_class": "system-node-critical"})
    high = gang("a/high", 1, priority=9, cpu=1)

    assert evicted(make_plan(snapshot(nodes(1, cpu=2), [system, critical, high]))) == []


def test_a_pod_that_may_not_preempt_evicts_no_pod() -> None:
    low = single("a/low", on="n1", cpu=1)
    not_preempting = gang("a/high", 1, priority=9, cpu=1, each={"may_preempt": False})

    assert evicted(make_plan(snapshot(nodes(1, cpu=1), [low, not_preempting]))) == []


def test_inside_a_gang_members_of_higher_priority_preempt_surplus_ones() -> None:
    pods = [
        *(pod(f"g-x-{number}", shape(cpu=1), on="n1") for number in range(3)),
        pod("g-x-9", shape(cpu=1), priority=5),
    ]
    mixed = gang("a/g", pods=pods, on=["n1"], min_member=2)
    text = """
actions: preempt
tiers: [{plugins: [{name: priority}]}]
"""
    plan = make_plan(snapshot([node("n1", cpu=3)], [mixed]), policy_parser.parse(text))

    assert evicted(plan) == ["g-x-2"]


class TestSla:
    TEXT = """
actions: "enqueue, allocate"
tiers:
- plugins: [{name: sla, arguments: {sla-waiting-time: 10m}}, {name: gang}]
- plugins: [{name: overcommit}]
"""

    def test_the_nearest_deadline_goes_first(self) -> None:
        patient = gang("a/patient", 1, cpu=4)
        hasty = gang(
            "a/hasty",
            1,
            cpu=4,
            created=50.0,
            group={"annotations": {"sla-waiting-time": "5s"}},
        )
        plan = make_plan(
            snapshot(nodes(1, cpu=4), [patient, hasty]), policy_parser.parse(self.TEXT)
        )

        assert list(plan.placements) == ["a/hasty"]

    def test_a_gang_that_waited_long_enough_is_enqueued_whatever_lower_tiers_say(self) -> None:
        def phase(now: float) -> Phase:
            big = gang("a/big", 1, cpu=1, group={"min_resources": amounts(cpu=99)})
            plan = make_plan(snapshot(nodes(1), [big], now=now), policy_parser.parse(self.TEXT))
            return plan.verdicts[GangKey("a/big")].phase

        assert (phase(599.0), phase(601.0)) == (Phase.PENDING, Phase.INQUEUE)


class TestOvercommit:
    TEXT = """
actions: "enqueue, allocate"
tiers: [{plugins: [{name: gang}, {name: overcommit, arguments: {overcommit-factor: 1.5}}]}]
"""

    def decide(self, *gangs: Gang) -> Plan:
        return make_plan(snapshot(nodes(1, cpu=4), gangs), policy_parser.parse(self.TEXT))

    def wants(self, key: str, cpu: float, **rest: Any) -> Gang:
        return gang(key, 1, cpu=1, group={"min_resources": amounts(cpu=cpu)}, **rest)

    def test_gangs_are_enqueued_up_to_the_factor(self) -> None:
        plan = self.decide(self.wants("a/one", 4), self.wants("a/two", 2, created=1.0))
        assert {v.phase for v in plan.verdicts.values()} == {Phase.INQUEUE}

        plan = self.decide(self.wants("a/one", 4), self.wants("a/two", 3, created=1.0))
        late = plan.verdicts[GangKey("a/two")]
        assert (late.phase, late.reason) == (Phase.PENDING, Reason.NOT_ENQUEUED)
        assert "3 cpu; 6 free with overcommit, 4 of it reserved" in late.message

    def test_a_gang_that_is_not_enqueued_does_not_stop_the_others(self) -> None:
        plan = self.decide(self.wants("a/big", 9), self.wants("a/small", 1, created=1.0))

        assert list(plan.placements) == ["a/small"]

    def test_without_min_resources_a_gang_is_always_enqueued(self) -> None:
        plan = self.decide(self.wants("a/one", 6), gang("a/two", 1, cpu=1, created=1.0))

        assert plan.verdicts[GangKey("a/two")].phase is Phase.INQUEUE


class TestDrfOverQueues:
    TEXT = """
actions: allocate
tiers: [{plugins: [{name: drf, enableHierarchy: true}, {name: predicates}]}]
"""
    BEFORE_PROPORTION = """
actions: allocate
tiers:
- plugins:
  - {name: drf, enableHierarchy: true}
  - {name: gang}
  - {name: proportion, enabledAllocatable: false, enabledOverused: false}
compatibility: volcano
"""

    def queue(self, name: str, path: str, weights: str):  # type: ignore[no-untyped-def]
        annotations = {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}
        return queue(name, annotations=annotations)

    def counts(self, before: Any, text: str = TEXT) -> dict[str, int]:
        plan = make_plan(before, policy_parser.parse(text))
        return {key: len(placement.placements) for key, placement in plan.placements.items()}

    @pytest.mark.parametrize("text", [TEXT, BEFORE_PROPORTION])
    def test_half_of_a_branch_is_used_though_the_other_half_requests_another_resource(
        self, text: str
    ) -> None:
        """The rescaling example of hierarchical DRF: 10 cpus, 10 GB, three groups."""
        queues = [
            self.queue("sci", "root/sci", "100/50"),
            self.queue("dev", "root/eng/dev", "100/50/50"),
            self.queue("prod", "root/eng/prod", "100/50/50"),
        ]
        gangs = [
            gang("a/sci", 10, min_member=0, queue="sci", cpu=1, memory=1),
            gang("a/dev", 10, min_member=0, queue="dev", cpu=1),
            gang("a/prod", 10, min_member=0, queue="prod", memory=1),
        ]
        before = snapshot([node("n", cpu=10, memory=10)], gangs, queues)

        assert self.counts(before, text) == {"a/sci": 5, "a/dev": 5, "a/prod": 5}

    def test_a_branch_that_cannot_use_more_does_not_block_the_others(self) -> None:
        """The blocking example of hierarchical DRF: 30 cpus, 30 GB."""
        queues = [
            self.queue("q1", "root/q1", "100/25"),
            self.queue("q2", "root/q2", "100/25"),
            self.queue("q31", "root/q3/q31", "100/25/50"),
            self.queue("q32", "root/q3/q32", "100/25/50"),
            self.queue("q4", "root/q4", "100/25"),
        ]
        cpus = [gang(f"a/{n}", 30, min_member=0, queue=n, cpu=1) for n in ("q1", "q2", "q31")]
        memories = [gang(f"a/{n}", 30, min_member=0, queue=n, memory=1) for n in ("q32", "q4")]
        before = snapshot([node("n", cpu=30, memory=30, pods=500)], [*cpus, *memories], queues)

        assert self.counts(before) == {
            "a/q1": 10, "a/q2": 10, "a/q31": 10, "a/q32": 15, "a/q4": 15,
        }  # fmt: skip
