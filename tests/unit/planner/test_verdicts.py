"""Every gang gets one reason and one message with the arithmetic."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.model.gang import GangKey, Phase
from extender.model.node import HostPorts
from extender.model.pod import PLACEHOLDER, HostPort, PodUid, Shape, Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import DirectAdmission, GangStatus, Verdict
from extender.planner.planner import make_plan
from tests.builders import (
    NOW,
    amounts,
    cache,
    gang,
    node,
    nodes,
    pod,
    pod_group,
    queue,
    seen,
    shape,
    single,
    snapshot,
)
from tests.unit.planner import reason_cases


def verdict(before: Snapshot, key: str = "a/train") -> Verdict:
    return make_plan(before).verdicts[GangKey(key)]


def told(before: Snapshot, key: str = "a/train") -> tuple[Reason, str]:
    found = verdict(before, key)
    return found.reason, found.message


def test_nodes_without_capacity_are_counted_by_obstacle() -> None:
    members = [
        *nodes(2, cpu=4),
        *(node(f"busy{number}", cpu=1) for number in range(3)),
        node("tainted", cpu=8, taints=["dedicated=x"]),
        node("cordoned", cpu=8, unschedulable=True),
        node("lost", cpu=8, ready=False),
    ]
    before = snapshot(
        members,
        [gang("a/train", 3, cpu=4, memory=16), single("a/old", on="n1", cpu=1)],
        taken={"n2": amounts(memory=60)},
    )

    obstacles = "1 node not ready, 1 cordoned, 1 tainted, 3 short of cpu"
    assert told(before) == (
        Reason.INSUFFICIENT_CAPACITY,
        f"needs 3 x 4 cpu, 16Gi memory; the empty cluster has 2 such slots: {obstacles}",
    )
    smaller = snapshot(
        members,
        [gang("a/train", 2, cpu=4, memory=16), single("a/old", on="n1", cpu=1)],
        taken={"n2": amounts(memory=60)},
    )
    assert told(smaller) == (
        Reason.INSUFFICIENT_CAPACITY,
        "needs 2 x 4 cpu, 16Gi memory; 0 slots free: 1 node not ready, 1 cordoned, 1 tainted,"
        " 4 short of cpu, 1 short of memory",
    )


def test_a_node_that_lacks_several_things_is_counted_once_by_all_of_them() -> None:
    members = [
        node("n1", cpu=9, memory=9),
        node("n2", cpu=9, memory=9),
        node("n3", cpu=9, memory=9),
    ]
    taken = {"n1": amounts(cpu=8), "n2": amounts(cpu=8, memory=8), "n3": amounts(memory=8)}
    before = snapshot(members, [gang("a/train", 1, cpu=2, memory=2)], taken=taken)

    assert told(before)[1] == (
        "needs 1 x 2 cpu, 2Gi memory; 0 slots free:"
        " 1 node short of cpu, 1 short of memory, 1 short of cpu and memory"
    )


def test_a_taken_host_port_is_named_and_says_nothing_of_the_clusters_size() -> None:
    ported = replace(shape(cpu=1), host_ports=(HostPort(80),))
    train = gang("a/train", pods=[pod("train-0", ported)])
    before = snapshot(nodes(1), [train])
    before = replace(before, nodes=replace(before.nodes, ports={"n1": HostPorts([HostPort(80)])}))

    assert told(before) == (
        Reason.INSUFFICIENT_CAPACITY,
        "needs 1 x 1 cpu; 0 slots free: 1 node with a host port taken",
    )


def test_a_gang_waits_for_capacity_that_is_being_released() -> None:
    terminating = single("a/old", on="n1", cpu=4, each={"status": Status.RELEASING})
    reason, message = told(snapshot(nodes(1, cpu=4), [terminating, gang("a/train", 1, cpu=4)]))

    assert reason is Reason.WAITING_FOR_VICTIMS
    assert "capacity being released on n1" in message


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.FAILED])
def test_a_gang_whose_members_have_all_ended_does_not_run_any_more(status: Status) -> None:
    ended = gang("a/train", 2, on=["n1", "n1"], cpu=1, each={"status": status})
    found = verdict(snapshot(nodes(1), [ended]))

    assert (found.status, found.phase) == (GangStatus.FINISHED, Phase.COMPLETED)


def test_a_gang_that_ended_is_finished_even_where_its_queue_is_gone() -> None:
    each = {"status": Status.SUCCEEDED}
    ended = gang("a/train", 1, on=["n1"], cpu=1, queue="nowhere", each=each)

    assert verdict(snapshot(nodes(1), [ended])).status is GangStatus.FINISHED


def test_a_member_created_after_all_had_ended_waits() -> None:
    ended = gang("a/train", 2, on=["n1", "n1"], cpu=1, each={"status": Status.FAILED})
    again = gang("a/train", 3, cpu=1).pods[2]
    recreated = replace(ended, pods=(*ended.pods, again))

    assert verdict(snapshot(nodes(1), [recreated])).status is not GangStatus.FINISHED


def test_a_gang_whose_shapes_only_fit_apart_is_told_so() -> None:
    mixed = gang("a/train", pods=[*gang("a/small", 2, cpu=1).pods, *gang("a/large", 1, cpu=4).pods])
    before = snapshot([node("n1", cpu=4)], [mixed])

    assert told(before) == (
        Reason.INSUFFICIENT_CAPACITY,
        "needs 1 x 4 cpu and 2 x 1 cpu; each finds slots, but not all of them at once",
    )


def test_shares_are_the_dominant_part_of_the_cluster() -> None:
    running = gang("a/train", 2, on=["n1", "n2"], cpu=1, memory=32)

    assert verdict(snapshot(nodes(2, cpu=4, memory=64), [running])).share == 0.5


def test_direct_admission_is_unlimited_only_where_no_gang_waits_ahead() -> None:
    quiet = make_plan(snapshot(nodes(1), [single("a/one", cpu=1)], [queue("q1")]))
    assert quiet.direct_admission == {"default": DirectAdmission(), "q1": DirectAdmission()}

    crowded = make_plan(
        snapshot(
            nodes(2, cpu=4),
            [single("a/old", on="n1", cpu=4), gang("a/big", 2, queue="q1", cpu=4)],
            [queue("q1"), queue("q2")],
        )
    )
    assert not crowded.direct_admission["q1"].is_quiet
    left = crowded.direct_admission["q2"].left
    assert left is not None
    assert left.amount("cpu") == 4_000


@pytest.mark.parametrize(
    "text",
    [
        "actions: backfill",
        "actions: enqueue, allocate\ntiers: [{plugins: [{name: gang}, {name: overcommit}]}]",
    ],
)
def test_there_is_no_direct_admission_where_a_plugin_must_see_every_gang(
    text: str,
) -> None:
    assert make_plan(snapshot(nodes(1), []), policy_parser.parse(text)).direct_admission == {}


def test_a_plan_says_what_queues_are_limited_to_and_used_before_it() -> None:
    limited = queue("limited", capability=amounts(cpu=2), guarantee=amounts(cpu=1))
    family = [
        queue("parent", capability=amounts(cpu=2), parent="root"),
        queue("child", parent="parent"),
    ]
    running = gang("a/one", 1, queue="limited", on=["n1"], cpu=1)
    waiting = gang("a/two", 1, queue="limited", cpu=1)
    plan = make_plan(snapshot(nodes(1), [running, waiting], [limited, *family]))
    limits = {each.name: each for each in plan.limits}

    assert limits["limited"].ceiling.amount("cpu") == 2_000
    assert limits["limited"].guarantee.amount("cpu") == 1_000
    assert limits["limited"].used.amount("cpu") == 1_000, "its own placements are not counted"
    assert limits["child"].parent == "parent"


def test_when_all_gpus_are_in_use_direct_admission_stays_open_for_pods_without_any() -> None:
    cluster_of_three = [node("g1", cpu=64, gpu=8), node("c1", cpu=64), node("c2", cpu=64)]
    runs = gang("a/train", 8, on=["g1"] * 8, cpu=1, gpu=1)
    waits = gang("a/next", 8, cpu=1, gpu=1, created=5.0)

    left = make_plan(snapshot(cluster_of_three, [runs, waits])).direct_admission["default"].left

    assert left is not None
    assert left.amount("cpu") > 0


def test_a_ceiling_of_zero_for_one_resource_does_not_stop_direct_admission() -> None:
    none = queue("default", capability=Resources({"cpu": 100_000, "nvidia.com/gpu": 0}))

    plan = make_plan(snapshot(nodes(1), [], [none]))

    assert "default" in plan.direct_admission


def test_a_lacking_resource_is_named_among_any_number_of_resources() -> None:
    names = [f"r{number:02}" for number in range(61)]
    offered = {**dict.fromkeys(names, 9), "cpu": 4000, "memory": 1 << 36, "pods": 110}
    for lacking in ("r00", "r58", "r60"):
        made = cache(
            node("n", allocatable=Resources(offered)),
            seen("x", "", on="n", shape=Shape(amounts(cpu=1, **{lacking: 9}))),
            pod_group("wide", 1),
            seen("w", "wide", shape=Shape(amounts(cpu=1, **dict.fromkeys(names, 9)))),
        )

        said = make_plan(made.snapshot(NOW)).verdicts[GangKey("a/wide")].message
        assert "1 node short of " in said, (lacking, said)


@pytest.mark.parametrize("told", reason_cases.SENTENCES, ids=lambda told: told.reason.value)
def test_the_message_of_every_reason(told: reason_cases.ReasonCase) -> None:
    plan = make_plan(told.before(), policy_parser.parse(told.policy))
    verdict = plan.verdicts[next(key for key in plan.verdicts if key == "a/train")]

    assert (verdict.reason, verdict.message) == (told.reason, told.message)


def test_every_reason_has_a_case() -> None:
    assert {told.reason for told in reason_cases.SENTENCES} == set(Reason)


def test_a_gang_that_got_its_nodes_from_an_earlier_plan_says_so() -> None:
    allocated = reason_cases.waiting(2, on=["n1", "n1"], each={"status": Status.ALLOCATED})
    verdict = next(iter(make_plan(snapshot(nodes(1, cpu=4), [allocated])).verdicts.values()))

    assert verdict.reason is Reason.ADMITTED
    assert verdict.message.startswith("2 members have nodes")


def test_a_gang_with_members_that_do_not_exist_yet_says_so() -> None:
    coming = pod("train-1", on="n1", uid=PodUid(f"{PLACEHOLDER}1"), status=Status.ALLOCATED)
    train = gang("a/train", pods=[pod("train-0"), coming])

    assert told(snapshot(nodes(1), [train])) == (
        Reason.NOT_ENOUGH_MEMBERS,
        "has 0 of at least 2 members; capacity is reserved for the rest",
    )
