"""resourcequota: gangs whose pods a quota of their namespace would not admit are not enqueued."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.model.gang import Gang, GangKey, Phase
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.model.snapshot import ResourceQuota, Snapshot
from extender.planner import policy_parser
from extender.planner.explain.explain import remedies
from extender.planner.plan import GangStatus, Plan, Verdict
from extender.planner.planner import make_plan
from tests.builders import amounts, gang, node, pod, shape, snapshot
from tests.unit.planner.plans import VOLCANO

KEY = GangKey("a/train")


def quota(hard: dict[str, Any], used: dict[str, Any] | None = None, **rest: Any) -> ResourceQuota:
    return ResourceQuota(
        **{"namespace": "a", "name": "compute"} | rest,
        hard=Resources.parse(hard),
        used=Resources.parse(used or {}),
    )


def without_pods(key: str, size: int, cpu: float = 1, **group: Any) -> Gang:
    """A gang whose controller creates no pod before it is enqueued."""
    about = {"min_member": size, "min_resources": amounts(cpu=size * cpu), **group}
    return gang(key, 0, group=about, queue="default")


def seen(*gangs: Gang, quotas: tuple[ResourceQuota, ...]) -> Snapshot:
    return replace(snapshot([node("n1", cpu=64)], gangs), quotas={"a": quotas})


def verdict(plan: Plan, key: GangKey = KEY) -> Verdict:
    return plan.verdicts[key]


def test_a_gang_that_a_quota_would_not_admit_is_not_enqueued_and_names_all_figures() -> None:
    plan = make_plan(seen(without_pods("a/train", 4), quotas=(quota({"cpu": "8"}, {"cpu": "6"}),)))

    told = verdict(plan)
    assert (told.status, told.reason) == (GangStatus.WAITING, Reason.NOT_ENQUEUED)
    assert told.phase is Phase.PENDING
    assert told.message == (
        "its minimum requests 4 cpu for pods that do not exist yet; ResourceQuota a/compute"
        " allows 8, of which 6 in use"
    )


@pytest.mark.parametrize("name", ["cpu", "requests.cpu"])
def test_a_gang_that_a_quota_would_admit_is_enqueued(name: str) -> None:
    plan = make_plan(seen(without_pods("a/train", 4), quotas=(quota({name: "8"}, {name: "4"}),)))

    assert verdict(plan).phase is Phase.INQUEUE


def test_quotas_of_other_namespaces_and_resources_limit_no_gang() -> None:
    quotas = (quota({"memory": "1Gi", "requests.storage": "1Gi"}),)
    elsewhere = replace(seen(without_pods("a/train", 4), quotas=quotas))
    tight = {"b": (quota({"cpu": "1"}, namespace="b"),)}

    assert verdict(make_plan(elsewhere)).phase is Phase.INQUEUE
    assert verdict(make_plan(replace(elsewhere, quotas=tight))).phase is Phase.INQUEUE


def test_a_gang_whose_pods_exist_does_not_wait_for_the_quota_they_use() -> None:
    whole = gang("a/train", 4, cpu=1, group={"min_resources": amounts(cpu=4)})
    plan = make_plan(seen(whole, quotas=(quota({"cpu": "4"}, {"cpu": "4"}),)))

    assert verdict(plan).status is GangStatus.ADMITTED


def test_a_gang_that_lacks_members_needs_quota_for_those_alone() -> None:
    three = gang("a/train", 3, cpu=1, min_member=4, group={"min_resources": amounts(cpu=4)})
    fits = make_plan(seen(three, quotas=(quota({"cpu": "4"}, {"cpu": "3"}),)))
    full = make_plan(seen(three, quotas=(quota({"cpu": "4"}, {"cpu": "4"}),)))

    assert verdict(fits).reason is Reason.NOT_ENOUGH_MEMBERS
    assert verdict(full).reason is Reason.NOT_ENQUEUED
    assert verdict(full).message.startswith("its minimum requests 1 cpu for pods that do not exist")


def test_members_that_terminate_or_have_ended_must_be_created_again() -> None:
    pods = [
        pod("train-0", shape(cpu=1), on="n1", status=Status.RELEASING),
        pod("train-1", shape(cpu=1), status=Status.FAILED),
        pod("train-2", shape(cpu=1)),
    ]
    incomplete = gang("a/train", pods=pods, min_member=3, group={"min_resources": amounts(cpu=3)})
    plan = make_plan(seen(incomplete, quotas=(quota({"cpu": "3"}, {"cpu": "2"}),)))

    assert verdict(plan).message.startswith("its minimum requests 2 cpu")


def test_a_driver_whose_executors_the_quota_would_not_admit_waits() -> None:
    """Spark: one member, and minResources for its executors too."""
    driver = gang("a/train", 1, cpu=1, group={"min_resources": amounts(cpu=5)})
    plan = make_plan(seen(driver, quotas=(quota({"cpu": "4"}, {"cpu": "1"}),)))

    assert verdict(plan).reason is Reason.NOT_ENQUEUED
    assert not plan.placements


def test_a_group_without_min_resources_is_not_judged() -> None:
    unsaid = gang("a/train", 0, group={"min_member": 4}, queue="default")
    plan = make_plan(seen(unsaid, quotas=(quota({"cpu": "1", "pods": 1}),)))

    assert verdict(plan).reason is Reason.NOT_ENOUGH_MEMBERS


@pytest.mark.parametrize("name", ["pods", "count/pods"])
def test_the_number_of_pods_counts_though_min_resources_does_not_name_it(name: str) -> None:
    plan = make_plan(seen(without_pods("a/train", 4), quotas=(quota({name: 4}, {name: 1}),)))

    assert f"requests 4 {name} for pods" in verdict(plan).message


def test_of_limits_the_part_of_members_that_do_not_exist_yet_counts() -> None:
    about = {"min_resources": amounts(cpu=4), "min_limits": Resources({"limits.cpu": 8000})}
    one = gang("a/train", 1, cpu=1, min_member=4, group=about)
    plan = make_plan(seen(one, quotas=(quota({"limits.cpu": "8"}, {"limits.cpu": "4"}),)))

    assert "requests 6 limits.cpu for pods" in verdict(plan).message
    assert "allows 8, of which 4 in use" in verdict(plan).message


def test_two_gangs_that_fit_one_after_the_other_are_not_enqueued_together() -> None:
    gangs = [without_pods("a/one", 3), without_pods("a/two", 3)]
    plan = make_plan(seen(*gangs, quotas=(quota({"cpu": "4"}),)))

    assert verdict(plan, GangKey("a/one")).phase is Phase.INQUEUE
    assert verdict(plan, GangKey("a/two")).phase is Phase.PENDING
    assert verdict(plan, GangKey("a/two")).message.endswith(
        "allows 4, of which 0 in use and 3 reserved for gangs admitted before"
    )


def test_a_gang_enqueued_by_an_earlier_plan_still_counts() -> None:
    gangs = [without_pods("a/one", 3, phase=Phase.INQUEUE), without_pods("a/two", 3)]
    before = seen(*gangs, quotas=(quota({"cpu": "4"}),))
    recently = replace(before, recently_admitted=frozenset({GangKey("a/one")}))

    assert verdict(make_plan(recently), GangKey("a/two")).phase is Phase.PENDING
    assert verdict(make_plan(before), GangKey("a/two")).phase is Phase.INQUEUE, "but not for ever"


def test_a_quota_with_a_scope_may_mean_other_pods_and_is_left_to_the_api_server() -> None:
    scoped = quota({"cpu": "1"}, is_scoped=True)

    assert (
        verdict(make_plan(seen(without_pods("a/train", 4), quotas=(scoped,)))).phase
        is Phase.INQUEUE
    )


def test_every_quota_of_the_namespace_has_to_admit_it() -> None:
    quotas = (quota({"cpu": "8"}), quota({"cpu": "2"}, name="strict"))
    plan = make_plan(seen(without_pods("a/train", 4), quotas=quotas))

    assert "ResourceQuota a/strict allows 2" in verdict(plan).message


def test_without_the_plugin_every_gang_is_enqueued() -> None:
    silent = policy_parser.parse('tiers: [{plugins: [{name: gang}]}]\nactions: "enqueue, allocate"')
    plan = make_plan(seen(without_pods("a/train", 4), quotas=(quota({"cpu": "1"}),)), silent)

    assert verdict(plan).phase is Phase.INQUEUE


def test_with_the_rules_of_volcano_all_min_resources_count_whatever_the_scope() -> None:
    whole = gang("a/train", 4, cpu=1, group={"min_resources": amounts(cpu=4)})
    used = quota({"cpu": "4"}, {"cpu": "4"}, is_scoped=True)
    plan = make_plan(seen(whole, quotas=(used,)), VOLCANO)

    assert verdict(plan).reason is Reason.NOT_ENQUEUED


def test_with_the_rules_of_volcano_earlier_admissions_and_unnamed_pods_do_not_count() -> None:
    gangs = [without_pods("a/one", 3, phase=Phase.INQUEUE), without_pods("a/two", 3)]
    before = seen(*gangs, quotas=(quota({"cpu": "4", "pods": 1}),))
    plan = make_plan(replace(before, recently_admitted=frozenset({GangKey("a/one")})), VOLCANO)

    assert verdict(plan, GangKey("a/two")).phase is Phase.INQUEUE


def test_explain_suggests_a_larger_quota_or_two_of_them() -> None:
    strict = quota({"cpu": "2"}, name="strict")
    one = seen(without_pods("a/train", 4), quotas=(quota({"cpu": "8"}), strict))
    two = seen(without_pods("a/train", 4), quotas=(quota({"cpu": "1"}), strict))

    assert remedies(one, make_plan(one), policy_parser.DEFAULT, KEY) == (
        "a ResourceQuota a/strict that allows more, and then its pods",
    )
    assert remedies(two, make_plan(two), policy_parser.DEFAULT, KEY) == (
        "a ResourceQuota a/compute that allows more, and a ResourceQuota a/strict that allows more,"
        " and then its pods",
    )
