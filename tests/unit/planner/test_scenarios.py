"""The end-to-end scenarios of kube-batch and Volcano as files for `gang-extender plan`.

What a scenario starts first is written as running; what it waits for is one plan.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from extender.cli.plan import plan
from extender.planner.policy_parser import DEFAULT_TEXT
from tests.unit.planner.case_objects import objects

Written = dict[str, Any]
Plan = dict[str, Any]

CAPACITY = """
actions: "enqueue, allocate, reclaim"
tiers: [{plugins: [{name: gang}, {name: capacity}, {name: predicates}, {name: nodeorder}]}]
"""


class Scenario:
    """Builds a cluster and plans it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._case: dict[str, list[Written]] = {
            key: [] for key in ("nodes", "queues", "podgroups", "pods")
        }
        self._case["priority_classes"] = [
            {"name": "low", "value": 10},
            {"name": "high", "value": 1000},
        ]

    def nodes(self, count: int, cpu: int, **rest: Any) -> Scenario:
        for _ in range(count):
            number = len(self._case["nodes"])
            amounts = {"cpu_milli": cpu * 1000, "memory_bytes": 64 * 2**30, "pods": 110}
            self._case["nodes"].append({"name": f"n{number}", **amounts, **rest})
        return self

    def queue(self, name: str, weight: int = 1, **rest: Any) -> Scenario:
        self._case["queues"].append({"name": name, "weight": weight, **rest})
        return self

    def gang(
        self,
        name: str,
        pods: int,
        *,
        least: int | None = None,
        on: str = "",
        cpu: float = 1,
        priority: str = "",
        pod: Written | None = None,
        **rest: Any,
    ) -> Scenario:
        """Add a gang; *on* names the node of each member that runs, by digits."""
        group = {
            "namespace": "a",
            "name": name,
            "min_member": pods if least is None else least,
            "queue": "default",
            "priority_class": priority,
            "phase": "Running" if on else "Inqueue",
            **rest,
        }
        self._case["podgroups"].append(group)
        for number in range(pods):
            one: Written = {"namespace": "a", "name": f"{name}-{number}", "group": name}
            one |= {"cpu_milli": int(cpu * 1000), "phase": "Pending", **(pod or {})}
            if number < len(on):
                one |= {"node": f"n{on[number]}", "phase": "Running"}
            self._case["pods"].append(one)
        return self

    def plan(self, config: str = "", change: Any = None) -> Plan:
        """Plan it; *change* may still edit the objects."""
        written = objects(self._case)
        if change is not None:
            for item in written["items"]:
                change(item)
        cluster = self._folder / "cluster.json"
        cluster.write_text(json.dumps(written))
        arguments = ["-f", str(cluster), "-o", "json"]
        if config:
            policy = self._folder / "policy.yaml"
            policy.write_text(config)
            arguments += ["--config", str(policy)]
        result = CliRunner().invoke(plan, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        decided: Plan = json.loads(result.stdout)
        return decided


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    return Scenario(tmp_path)


def started(decided: Plan, name: str) -> int:
    return sum(key.startswith(f"a/{name}-") for key in decided["binds"])


def reason(decided: Plan, name: str) -> str:
    return str(next(each["reason"] for each in decided["gangs"] if each["name"] == name))


def evicted(decided: Plan) -> list[str]:
    return sorted(each["pod"].partition("/")[2] for each in decided["evictions"])


# -------------------------------------------------------------------- gangs


def test_e2e_00_a_job_gets_at_least_its_minimum(scenario: Scenario) -> None:
    assert started(scenario.nodes(3, 2).gang("job", 6, least=2).plan(), "job") >= 2


def test_several_jobs_each_get_at_least_their_minimum(scenario: Scenario) -> None:
    decided = scenario.nodes(3, 2).gang("one", 4, least=2).gang("two", 4, least=2).plan()

    assert started(decided, "one") + started(decided, "two") == 6
    assert min(started(decided, "one"), started(decided, "two")) >= 2


def test_a_gang_larger_than_what_is_left_does_not_start_at_all(scenario: Scenario) -> None:
    decided = scenario.nodes(2, 2).gang("old", 2, on="01").gang("new", 3).plan()

    assert started(decided, "new") == 0
    assert reason(decided, "new") == "InsufficientCapacity"


def test_a_gang_may_take_the_whole_cluster_and_the_next_waits(scenario: Scenario) -> None:
    decided = scenario.nodes(2, 2).gang("all", 4, on="0011").gang("next", 4).plan()

    assert reason(decided, "all") == "Running"
    assert started(decided, "next") == 0
    assert evicted(decided) == []


def test_members_without_requests_start_beside_a_full_gang(scenario: Scenario) -> None:
    decided = scenario.nodes(1, 2).gang("all", 2, on="00").gang("modest", 2, cpu=0).plan()

    assert started(decided, "modest") == 2


def test_e2e_07_partial_preemption_is_rolled_back(scenario: Scenario) -> None:
    decided = scenario.nodes(2, 2).gang("one", 4, on="0011").gang("two", 4).plan()

    assert reason(decided, "two") == "InsufficientCapacity"
    assert evicted(decided) == []


def test_the_more_important_members_of_a_gang_go_first(scenario: Scenario) -> None:
    def promote(item: Written) -> None:
        if item["metadata"]["name"] == "job-3":
            item["spec"]["priority"] = 100

    decided = scenario.nodes(1, 2).gang("job", 4, least=1).plan(change=promote)

    assert "a/job-3" in decided["binds"]
    assert started(decided, "job") == 2


def test_a_member_that_fits_nowhere_does_not_keep_the_others_out(scenario: Scenario) -> None:
    def inflate(item: Written) -> None:
        if item["metadata"]["name"] == "job-0":
            item["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "50"

    decided = scenario.nodes(1, 2).gang("job", 3, least=1).plan(change=inflate)

    assert set(decided["binds"]) == {"a/job-1", "a/job-2"}


def test_the_gang_of_higher_priority_gets_the_only_capacity(scenario: Scenario) -> None:
    decided = scenario.nodes(1, 2).gang("low", 2, priority="low").gang("top", 2, priority="high")

    assert started(decided.plan(), "top") == 2


def test_scheduling_gates_keep_a_gang_from_starting_and_from_preempting(scenario: Scenario) -> None:
    def gate(item: Written) -> None:
        if item["metadata"]["name"].startswith("top-"):
            item["spec"]["schedulingGates"] = [{"name": "later"}]

    scenario.nodes(1, 2).gang("low", 2, on="00", priority="low").gang("top", 2, priority="high")
    decided = scenario.plan(change=gate)

    assert reason(decided, "top") == "Gated"
    assert evicted(decided) == []


# -------------------------------------------------------------------- nodes


def test_node_affinity_is_kept(scenario: Scenario) -> None:
    scenario.nodes(1, 4).nodes(1, 4, labels={"disk": "fast"})
    decided = scenario.gang("job", 2, pod={"selector": {"disk": "fast"}}).plan()

    assert set(decided["binds"].values()) == {"n1"}


def test_a_host_port_is_given_once_per_node(scenario: Scenario) -> None:
    def open_port(item: Written) -> None:
        if item["kind"] == "Pod":
            item["spec"]["containers"][0]["ports"] = [{"containerPort": 1, "hostPort": 28080}]

    decided = scenario.nodes(2, 4).gang("job", 4, least=2).plan(change=open_port)

    assert sorted(decided["binds"].values()) == ["n0", "n1"]


def test_e2e_14_a_gang_that_fits_one_node_is_planned_onto_one(scenario: Scenario) -> None:
    """Affinity between pods is kube-scheduler's; packing does not stand in its way."""
    decided = scenario.nodes(3, 4).gang("job", 4).plan()

    assert len(set(decided["binds"].values())) == 1


def test_taints_keep_away_pods_that_do_not_tolerate_them(scenario: Scenario) -> None:
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}

    def tolerate(item: Written) -> None:
        if item["metadata"]["name"].startswith("knows-"):
            item["spec"]["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]

    scenario.nodes(1, 4, taints=[taint]).gang("knows", 1).gang("not", 1)
    decided = scenario.plan(change=tolerate)

    assert decided["binds"] == {"a/knows-0": "n0"}


# -------------------------------------------------------------------- preempt


def test_e2e_28_no_pod_is_preempted_where_both_gangs_fit(scenario: Scenario) -> None:
    scenario.nodes(2, 1).gang("low", 1, on="0", priority="low").gang("top", 1, priority="high")
    decided = scenario.plan()

    assert started(decided, "top") == 1
    assert evicted(decided) == []


def test_pods_of_lower_priority_are_evicted_where_free_capacity_is_not_enough(
    scenario: Scenario,
) -> None:
    scenario.nodes(1, 3).gang("low", 3, least=1, on="000", priority="low")
    decided = scenario.gang("top", 2, priority="high").plan()

    assert len(evicted(decided)) == 2
    assert reason(decided, "top") == "WaitingForVictims"


def test_preemption_stays_in_the_queue(scenario: Scenario) -> None:
    scenario.queue("mine").queue("theirs").nodes(1, 2)
    scenario.gang("low", 1, on="0", priority="low", queue="theirs")
    scenario.gang("mid", 1, on="0", priority="high", queue="mine")
    decided = scenario.gang("top", 1, priority="high", queue="mine").plan()

    assert evicted(decided) == []


def test_no_pod_is_evicted_when_that_would_not_suffice(scenario: Scenario) -> None:
    scenario.nodes(1, 3).gang("low", 2, on="00", priority="low")
    decided = scenario.gang("top", 4, priority="high").plan()

    assert evicted(decided) == []


def test_several_gangs_of_higher_priority_are_served_in_order(scenario: Scenario) -> None:
    scenario.nodes(1, 2).gang("low", 2, least=1, on="00")
    decided = scenario.gang("mid", 1, priority="low").gang("top", 1, priority="high").plan()

    assert {each["for"] for each in decided["evictions"]} >= {"a/top"}


# -------------------------------------------------------------------- queues


def test_e2e_21_nothing_is_reclaimed_while_there_is_enough(scenario: Scenario) -> None:
    scenario.nodes(4, 1)
    for name in ("q1", "q2", "q3"):
        scenario.queue(name).gang(name, 1, queue=name)
    decided = scenario.plan()

    assert len(decided["binds"]) == 3
    assert evicted(decided) == []


def test_a_queue_gets_its_half_back(scenario: Scenario) -> None:
    scenario.queue("q1").queue("q2").nodes(2, 2)
    scenario.gang("old", 4, least=1, on="0011", queue="q1")
    decided = scenario.gang("new", 2, queue="q2").plan()

    assert len(evicted(decided)) == 2
    assert {each["action"] for each in decided["evictions"]} == {"reclaim"}


def test_nothing_is_reclaimed_for_a_gang_that_was_not_enqueued(scenario: Scenario) -> None:
    amounts = {"cpu_milli": 100_000}
    scenario.queue("q1").queue("q2").nodes(2, 2)
    scenario.gang("old", 4, least=1, on="0011", queue="q1")
    scenario.gang("new", 2, queue="q2", phase="Pending", min_resources=amounts)
    config = DEFAULT_TEXT.replace("  - name: gang", "  - name: overcommit\n  - name: gang")
    decided = scenario.plan(config)

    assert reason(decided, "new") == "NotEnqueued"
    assert evicted(decided) == []


def test_nothing_is_reclaimed_for_a_queue_that_does_not_exist(scenario: Scenario) -> None:
    scenario.nodes(1, 2).gang("old", 2, least=1, on="00")
    decided = scenario.gang("new", 1, queue="nowhere").plan()

    assert reason(decided, "new") == "QueueNotFound"
    assert evicted(decided) == []


def test_nothing_is_reclaimed_for_a_queue_that_has_its_deserved_share(scenario: Scenario) -> None:
    scenario.queue("q1").queue("q2").nodes(2, 2)
    scenario.gang("one", 2, least=1, on="00", queue="q1").gang("two", 2, on="11", queue="q2")
    decided = scenario.gang("more", 1, queue="q2").plan()

    assert reason(decided, "more") == "QueueOverDeserved"
    assert evicted(decided) == []


def test_nothing_is_reclaimed_for_a_gang_that_may_not_use_the_nodes(scenario: Scenario) -> None:
    scenario.queue("q1").queue("q2").nodes(1, 2).gang("old", 2, least=1, on="00", queue="q1")
    decided = scenario.gang("new", 1, queue="q2", pod={"selector": {"disk": "fast"}}).plan()

    assert evicted(decided) == []


def test_a_queue_that_must_not_be_reclaimed_from_keeps_everything(scenario: Scenario) -> None:
    scenario.queue("q1", reclaimable=False).queue("q2").nodes(1, 2)
    decided = (
        scenario.gang("old", 2, least=1, on="00", queue="q1").gang("new", 1, queue="q2").plan()
    )

    assert evicted(decided) == []


def test_several_queues_give_back_what_they_borrowed(scenario: Scenario) -> None:
    scenario.queue("q1").queue("q2").queue("q3", 2).nodes(4, 1)
    scenario.gang("one", 2, least=1, on="01", queue="q1").gang(
        "two", 2, least=1, on="23", queue="q2"
    )
    decided = scenario.gang("new", 2, queue="q3").plan()

    assert len(evicted(decided)) == 2
    assert {name.partition("-")[0] for name in evicted(decided)} == {"one", "two"}


def test_with_capacity_queues_give_back_what_exceeds_their_stated_deserved_amount(
    scenario: Scenario,
) -> None:
    scenario.queue("q1", deserved={"cpu_milli": 1000}).queue("q2", deserved={"cpu_milli": 1000})
    scenario.nodes(2, 1).gang("old", 2, least=1, on="01", queue="q1")
    decided = scenario.gang("new", 1, queue="q2").plan(CAPACITY)

    assert len(evicted(decided)) == 1


def test_one_queue_may_reserve_the_whole_cluster(scenario: Scenario) -> None:
    guarantee = {"cpu_milli": 4000, "memory_bytes": 2 * 64 * 2**30}
    scenario.queue("q1", guarantee=guarantee).queue("q2").nodes(2, 2)
    decided = scenario.gang("mine", 4, queue="q1").gang("theirs", 1, queue="q2").plan()

    assert started(decided, "mine") == 4
    assert started(decided, "theirs") == 0


def test_what_others_are_guaranteed_is_not_enough_for_a_gang(scenario: Scenario) -> None:
    scenario.queue("q1", guarantee={"cpu_milli": 2000}).queue("q2").nodes(2, 2)
    decided = scenario.gang("large", 3, queue="q2").plan()

    assert started(decided, "large") == 0


def test_a_queue_at_its_capability_starts_nothing_more(scenario: Scenario) -> None:
    scenario.queue("q1", capability={"cpu_milli": 2000}).nodes(2, 2)
    decided = scenario.gang("old", 2, on="01", queue="q1").gang("new", 1, queue="q1").plan()

    assert reason(decided, "new") == "QueueAtCapability"


def test_queues_share_fairly_by_weight(scenario: Scenario) -> None:
    scenario.queue("q1", 1).queue("q2", 3).nodes(4, 2)
    scenario.gang("one", 8, least=1, queue="q1").gang("two", 8, least=1, queue="q2")
    decided = scenario.plan()

    assert (started(decided, "one"), started(decided, "two")) == (2, 6)


def test_e2e_35_without_enqueue_gangs_start_in_the_pending_phase(scenario: Scenario) -> None:
    scenario.nodes(1, 2).gang("half", 1, cpu=0.5, phase="Pending").gang("one", 1, phase="Pending")
    decided = scenario.plan(DEFAULT_TEXT.replace("enqueue, ", ""))

    assert len(decided["binds"]) == 2
