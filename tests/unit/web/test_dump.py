"""A dumped snapshot is the cluster again: reading it back and planning gives the same plan."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from extender.cli import saved
from extender.kube.encode import dump
from extender.model.gang import COSCHEDULING, Phase
from extender.model.node import Taint
from extender.model.pod import (
    HostPort,
    NodeTerm,
    Requirement,
    Shape,
    Status,
    Toleration,
)
from extender.model.queue import Namespace, NamespaceShare, Queue, QueueState
from extender.model.reason import Problem, Reason
from extender.model.resources import Resources
from extender.model.snapshot import ResourceQuota, Snapshot
from extender.planner.planner import make_plan
from extender.web import documents
from extender.web.plan_documents import PlanDocuments
from tests.builders import NOW, pod
from tests.scene import budget, gang, node_table, snapshot
from tests.unit.evictions.simulated_cluster import Job, SimulatedCluster

OURS = frozenset({"gang-scheduler"})


def read_back(seen: Snapshot, folder: Path) -> Snapshot:
    file = folder / "snapshot.json"
    file.write_text(json.dumps(dump(seen)))
    return saved.read([str(file)], OURS).snapshot(seen.now)


def planned(seen: Snapshot) -> documents.Plan:
    return structs.replace(PlanDocuments(make_plan(seen), seen).plan(), generation=0)


def test_a_cluster_in_the_middle_of_evictions_is_planned_the_same_again(tmp_path: Path) -> None:
    simulated = SimulatedCluster([8, 8], [Queue(name="left"), Queue(name="right", weight=2)])
    simulated.submit(*(Job(f"l{number}", "left", 3, 2, priority=number % 2) for number in range(6)))
    simulated.pass_seconds(5)
    simulated.submit(Job("r", "right", 4), Job("vip", "left", 5, cpu=2, priority=10))
    simulated.pass_seconds(2)
    seen = simulated.snapshot()

    before, after = planned(seen), planned(read_back(seen, tmp_path))

    assert before.evictions or any(
        each.status is Status.RELEASING for each in simulated.pods.values()
    )
    assert after == before


def test_the_pods_of_other_schedulers_keep_their_capacity(tmp_path: Path) -> None:
    table = node_table([4])
    table.used[0] += np.array([2500, 1 << 30, 7])
    seen = snapshot(gang("train", 2, status=Status.PENDING), nodes=table)

    back = read_back(seen, tmp_path).nodes

    free = (back.allocatable - back.used)[0].tolist()
    assert dict(zip(back.dimensions, free, strict=True)) == {
        "cpu": 1500,
        "memory": 63 << 30,
        "pods": 103,
    }


PICKY = Shape(
    requests=Resources({"cpu": 1500, "example.com/gpu": 1, "pods": 1}),
    selector=(("zone", "a"),),
    affinity=(NodeTerm(labels=(Requirement("disk", "In", ("ssd",)),)),),
    preferred=((7, NodeTerm(labels=(Requirement("rack", "In", ("r1", "r2")),))),),
    tolerations=(Toleration("gpu", "Exists", "", "NoSchedule"),),
    host_ports=(HostPort(8080, "UDP"),),
)


@pytest.mark.parametrize(
    "member",
    [
        pytest.param(pod("x-0", shape=PICKY), id="shape"),
        pytest.param(pod("x-0", gated=True), id="gated"),
        pytest.param(pod("x-0", on="n0", role="chief", preemptable=False), id="role"),
        pytest.param(pod("x-0", on="n0", priority=7, may_preempt=False), id="priority"),
        pytest.param(pod("x-0", on="n0", status=Status.RELEASING, created=NOW - 9), id="leaving"),
        pytest.param(pod("x-0", on="n0", started_in="default"), id="started"),
        pytest.param(pod("x-0", on="n", status=Status.SUCCEEDED, labels={"app": "db"}), id="done"),
        pytest.param(pod("x-0", lasts_s=90.0, deadline_s=300.0, grace_s=60.0), id="brief"),
        pytest.param(pod("x-0", on="n0", began=NOW - 60, lasts_s=600.0), id="gave its word"),
    ],
)
def test_a_pod_is_restored(member: Any, tmp_path: Path) -> None:
    seen = snapshot(gang("x", [member]))

    back = read_back(seen, tmp_path).gangs[gang("x").key].pods[0]

    same = ("uid", "name", "status", "role", "priority", "gated", "preemptable", "may_preempt")
    spans = ("lasts_s", "deadline_s", "grace_s", "began")
    for name in (*same, *spans, "labels", "created", "started_in"):
        assert getattr(back, name) == getattr(member, name), name
    for name in ("requests", "selector", "affinity", "preferred", "tolerations", "host_ports"):
        assert getattr(back.shape, name) == getattr(member.shape, name), name


def test_queues_groups_nodes_budgets_and_quotas_are_restored(tmp_path: Path) -> None:
    queue = Queue(
        name="left",
        uid="q",
        weight=3,
        capability=Resources({"cpu": 9500}),
        guarantee=Resources({"memory": 1 << 30}),
        priority=2,
        reclaimable=False,
        state=QueueState.CLOSING,
        created=NOW - 5,
    )
    table = node_table([4])
    node = replace(table.nodes[0], taints=(Taint("gpu"),), unschedulable=True, ready=False)
    table = replace(table, facts=replace(table.facts, nodes=(node,)))
    train = gang(
        "train", 1, priority=5, dialect=COSCHEDULING, min_resources=Resources({"cpu": 500})
    )
    budgets = [budget("b", 2, app="db"), replace(budget("c", 1, app="x"), least=3)]
    budgets.append(replace(budget("d", 1, app="y"), part="50%"))
    seen = snapshot(train, queues=[queue], nodes=table, budgets=budgets)
    amounts = Resources({"requests.cpu": 1500, "limits.memory": 1 << 30, "pods": 3})
    quotas = (
        ResourceQuota(namespace="a", name="all", hard=amounts, used=amounts, weight=3),
        ResourceQuota(namespace="a", name="some", hard=amounts, is_scoped=True),
    )
    seen = replace(seen, quotas={"a": quotas})

    back = read_back(seen, tmp_path)

    assert back.quotas == seen.quotas

    assert back.queues["left"] == queue
    assert back.budgets == seen.budgets
    assert back.nodes.nodes == (node,)
    again = back.gangs[train.key]
    assert again.group.min_resources == train.group.min_resources
    assert (again.group.dialect, again.queue) == (COSCHEDULING, "left")


def test_the_shares_of_namespaces_in_queues_are_restored(tmp_path: Path) -> None:
    shares = [
        NamespaceShare(queue="left", namespace="a", limit=Resources({"cpu": 0, "memory": 1 << 30})),
        NamespaceShare(queue="left", namespace="empty", guarantee=Resources({"cpu": 1500})),
    ]
    seen = replace(snapshot(gang("x")), shares={share.name: share for share in shares})

    assert read_back(seen, tmp_path).shares == seen.shares


def test_priorities_are_restored_with_the_classes_their_namespace_allows(tmp_path: Path) -> None:
    by_operator = gang("by-operator", 2, status=Status.PENDING, priority=100)
    pods = [pod("bare-0", priority=50, priority_class="unlisted")]
    denied = gang("pod:bare-0", pods, dialect="", min_member=1)
    seen = replace(
        snapshot(by_operator, denied),
        namespaces={"a": Namespace(name="a", classes=frozenset({"high"}))},
    )

    back = read_back(seen, tmp_path)

    assert {key: each.priority for key, each in back.gangs.items()} == {
        "a/by-operator": 100,
        "a/pod:bare-0": 0,
    }
    assert back.namespaces["a"].ranks("high")
    assert not back.namespaces["a"].ranks("unlisted")


def test_pods_without_a_class_have_the_priority_of_the_default_class_again(tmp_path: Path) -> None:
    low = [pod(f"low-{index}", priority=0) for index in range(2)]
    usual = [pod("usual-0", priority=7)]
    gangs = (
        gang("low", low),
        gang("usual", usual, priority=7),
        gang("late", 2, status=Status.PENDING, priority=7),
    )
    seen = replace(snapshot(*gangs), usual_priority=7)

    back = read_back(seen, tmp_path)

    assert back.usual_priority == 7
    assert {key: each.priority for key, each in back.gangs.items()} == {
        "a/late": 7,
        "a/low": 0,
        "a/usual": 7,
    }


def test_pods_without_a_pod_group_form_their_gang_again(tmp_path: Path) -> None:
    declared = gang("set", 2, status=Status.PENDING, dialect="")
    owned = gang("job:train", 2, status=Status.PENDING, dialect="", min_member=1)
    sized = gang("job:sized", 2, status=Status.PENDING, dialect="", min_member=2)
    back = read_back(snapshot(declared, owned, sized), tmp_path)

    assert {key: (len(each.pods), each.group.min_member) for key, each in back.gangs.items()} == {
        "a/job:sized": (2, 2),
        "a/job:train": (2, 1),
        "a/set": (2, 2),
    }
    assert {each.queue for each in back.gangs.values()} == {"left"}


def test_a_group_without_a_phase_has_none_again(tmp_path: Path) -> None:
    fresh, queued = gang("fresh", is_phaseless=True), gang("queued", phase=Phase.INQUEUE)
    back = read_back(snapshot(fresh, queued), tmp_path).gangs

    assert back[fresh.key].group.is_phaseless
    assert back[queued.key].group.phase is Phase.INQUEUE
    assert not back[queued.key].group.is_phaseless


def test_a_snapshot_omits_what_a_new_extender_does_not_know(tmp_path: Path) -> None:
    train = gang("train", 2, status=Status.PENDING)
    problem = Problem(Reason.QUEUE_NOT_ALLOWED, "no")
    seen = replace(
        snapshot(replace(train, backing_off_until=NOW + 60, problem=problem)),
        protected={train.pods[0].uid: "a budget forbids it"},
        rejected_nodes={PICKY: frozenset({"n"})},
    )
    back = read_back(seen, tmp_path)

    assert back.gangs[train.key].problem is None
    assert back.gangs[train.key].backing_off_until == 0
    assert (back.protected, back.rejected_nodes) == ({}, {})


def test_a_snapshot_does_not_contain_what_a_pod_runs(tmp_path: Path) -> None:
    written = tmp_path / "pod.yaml"
    written.write_text(
        """
apiVersion: v1
kind: Pod
metadata: {name: visible, namespace: a, annotations: {note: whisper}}
spec:
  schedulerName: gang-scheduler
  volumes: [{name: v, secret: {secretName: hush}}]
  containers:
  - name: main
    image: registry.example/hidden
    command: [covert]
    env: [{name: TOKEN, value: hunter2}]
    volumeMounts: [{name: v, mountPath: /hush}]
"""
    )
    told = json.dumps(dump(saved.read([str(written)], OURS).snapshot()))

    assert "visible" in told
    for word in ("whisper", "hush", "hidden", "covert", "TOKEN", "hunter2"):
        assert word not in told
