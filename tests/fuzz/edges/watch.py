"""Watch events and list pages of every kind: what is read of them, however they are cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Self

import msgspec

from extender.audit.everything import audit
from extender.cache.changes import Delete, Upsert
from extender.cache.cluster import Cluster
from extender.errors import ExtenderError
from extender.kube.decode.watched import Resource, resources
from extender.kube.watch.progress import Heard, Progress, lines
from extender.plan.planner import make_plan
from extender.plan.policy import policies
from extender.settings import Settings
from extender.timing.clock import SystemClock
from extender.web import api
from extender.web.dump import dump
from tests.fuzz.edge import Edge, must
from tests.fuzz.mutations import TEXTS, changed, written

_WIRE = Path(__file__).parents[2] / "wire"
_SCHEDULERS = frozenset({"gang-scheduler", "default-scheduler"})
_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "", "added", "NEW")
_INITIAL_END = "k8s.io/initial-events-end"
_MOMENT = 1.8e9


def _meta(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "a",
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": "x"},
        **more,
    }


_AMOUNTS = {"cpu": "2", "memory": "1Gi", "example.com/card": "1"}
#: One of each kind, with every field that is read.
OBJECTS: dict[str, dict[str, Any]] = {
    "nodes": {
        "metadata": _meta("n1", namespace=""),
        "spec": {"unschedulable": False,
                 "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        "status": {"allocatable": {**_AMOUNTS, "pods": "110", "ephemeral-storage": "10Gi"},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    },
    "pods": {
        "metadata": _meta("p1", annotations={
            "scheduling.k8s.io/group-name": "train", "gang-extender.io/min-member": "2",
            "scheduling.volcano.sh/queue-name": "q1", "volcano.sh/task-spec": "worker",
            "volcano.sh/task-priority": "5", "gang-extender.io/woken": "x by y",
            "gang-extender.io/started-in": "q1", "volcano.sh/preemptable": "true"},
            ownerReferences=[{"kind": "Job", "name": "j", "uid": "u", "controller": True}]),
        "spec": {
            "schedulerName": "gang-scheduler", "nodeName": "n1", "priority": 5,
            "priorityClassName": "high", "preemptionPolicy": "Never", "overhead": {"cpu": "1m"},
            "containers": [{"name": "c", "restartPolicy": None,
                            "resources": {"requests": _AMOUNTS, "limits": _AMOUNTS},
                            "ports": [{"hostPort": 80, "protocol": "TCP", "hostIP": "10.0.0.1"}]}],
            "initContainers": [{"name": "i", "restartPolicy": "Always",
                                "resources": {"requests": {"cpu": "1"}}}],
            "nodeSelector": {"zone": "z"}, "resources": {"requests": {"cpu": "1"}},
            "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["5"]}],
                     "matchFields": [{"key": "metadata.name", "operator": "In",
                                      "values": ["n1"]}]}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "preference": {"matchExpressions": [
                        {"key": "zone", "operator": "NotIn", "values": ["z"]}]}}]}},
            "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}],
            "schedulingGates": [], "schedulingGroup": None,
            "workloadRef": {"name": "w", "podGroup": "g"}},
        "status": {
            "phase": "Running", "nominatedNodeName": "n1", "resize": "Infeasible",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                            "message": "no"}],
            "containerStatuses": [{"name": "c", "allocatedResources": {"cpu": "3"},
                                   "resources": {"requests": {"cpu": "4"}}}],
            "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}},
    },
    "namespaces": {"metadata": _meta("a", namespace="", annotations={
        "scheduling.volcano.sh/queue-name": "q1", "gang-extender.io/queues": "q1, q2",
        "gang-extender.io/priority-classes": "high",
        "gang-extender.io/at-most": "{q1: {cpu: 8}}",
        "gang-extender.io/at-least": "{q1: {cpu: 1}}"})},
    "priorityclasses": {"metadata": _meta("high", namespace=""), "value": 1000,
                        "globalDefault": False, "preemptionPolicy": "PreemptLowerPriority"},
    "poddisruptionbudgets": {
        "metadata": _meta("b"),
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "x"},
                 "matchExpressions": [{"key": "t", "operator": "Exists", "values": None}]}},
        "status": {"disruptionsAllowed": 1, "disruptedPods": {"p9": "2026-01-01T00:00:00Z"}}},
    "resourcequotas": {
        "metadata": _meta("r"),
        "spec": {"hard": {"volcano.sh/namespace.weight": "3"}, "scopes": ["BestEffort"],
                 "scopeSelector": {"matchExpressions": []}},
        "status": {"hard": {"requests.cpu": "9", "pods": "5"}, "used": {"requests.cpu": "1"}}},
    "podgroups": {
        "metadata": _meta("train", annotations={"sla-waiting-time": "1h",
                                                "volcano.sh/revocable-zone": "z"}),
        "spec": {"minMember": 2, "minTaskMember": {"worker": 1}, "queue": "q1",
                 "minResources": {**_AMOUNTS, "requests.cpu": "1", "limits.cpu": "2"},
                 "priorityClassName": "high", "networkTopology": {"mode": "soft"},
                 "subGroupPolicy": []},
        "status": {"phase": "Inqueue"}},
    "queues": {
        "metadata": _meta("q1", namespace="", annotations={
            "gang-extender.io/lend-guarantee": "true", "volcano.sh/hierarchy": "root/a",
            "volcano.sh/hierarchy-weights": "1/2"}),
        "spec": {"weight": 2, "capability": _AMOUNTS, "deserved": {"cpu": "1"}, "parent": "root",
                 "guarantee": {"resource": {"cpu": "1"}, "lend": True}, "reclaimable": True,
                 "priority": 1, "dequeueStrategy": "fifo", "affinity": {}, "type": "x"},
        "status": {"state": "Open"}},
}  # fmt: skip


class WatchEvents(Edge):
    """Input: the name of a resource (behind `page ` the page of a list), then what comes of it."""

    name = "watch"
    count = 700
    suffix = ".events"
    longest = 30_000
    words = (
        *(json.dumps(each).encode() for each in (*_TYPES, _INITIAL_END, *TEXTS[:20])),
        b"\n", b"null", b"{}", b"[]", b"[" * 300, b'{"a":' * 300, b'"uid":', b'"name":', b"\xff",
    )  # fmt: skip

    def __enter__(self) -> Self:
        self._by_name = {each.name: each for each in resources(_SCHEDULERS)}
        self._names = sorted(self._by_name)
        return self

    def real(self) -> list[bytes]:
        pod = json.loads((_WIRE / "filter-member.call.json").read_text())["Pod"]
        nodes = json.loads((_WIRE / "filter-whole-nodes.call.json").read_text())["Nodes"]
        messages = [
            b"pods\n" + _event("ADDED", pod),
            b"nodes\n" + _event("ADDED", nodes["items"][0]),
        ]
        for name in self._names:
            thing = OBJECTS[name.partition(".")[0]]
            stream = [*(_event(each, thing) for each in _TYPES[:3]), _bookmark(), _error()]
            page = {"metadata": {"resourceVersion": "9"}, "items": [thing, thing]}
            messages.append(name.encode() + b"\n" + b"".join(stream))
            messages.append(b"page " + name.encode() + b"\n" + json.dumps(page).encode())
        return messages

    def made(self, chance: Random) -> bytes:
        name = chance.choice(self._names)
        thing = OBJECTS[name.partition(".")[0]]
        if chance.random() < 0.15:
            page = {"metadata": {"resourceVersion": "9", "continue": ""}, "items": [thing] * 3}
            document = changed(page, chance, chance.randrange(1, 4))
            return b"page " + name.encode() + b"\n" + written(document, chance)
        events = []
        for _ in range(chance.choice((1, 1, 2, 5))):
            event = {"type": chance.choice(_TYPES[:3] * 3 + _TYPES), "object": thing}
            events.append(written(changed(event, chance, chance.randrange(1, 4)), chance))
        return name.encode() + b"\n" + b"\n".join((*events, _bookmark()))

    def judge(self, data: bytes) -> None:
        head, _, stream = data.partition(b"\n")
        is_page = head.startswith(b"page ")
        name = head.removeprefix(b"page ").decode("latin-1")
        resource = self._by_name.get(name) or self._by_name["pods"]
        if is_page:
            self._judge_page(resource, stream)
            return
        progress, heard = _followed(resource, [stream])
        for pieces in _cuts(stream):
            other = _followed(resource, pieces)[1]
            must(other == heard, "it is read in another way when it is cut")
        cluster = _cluster(self._by_name)
        for each in heard:
            if isinstance(each, Upsert | Delete):
                cluster.apply(each)
        _must_go_on(cluster, resource, progress)

    def _judge_page(self, resource: Resource, body: bytes) -> None:
        progress = Progress(resource.codec, streaming=False)
        progress.next_request(9)
        cluster = _cluster(self._by_name)
        try:
            codec = resource.codec
            cluster.replace(codec.kind, progress.page(body), codec.dialect)
        except ExtenderError:
            pass
        _must_go_on(cluster, resource, progress)


def _event(kind: str, thing: Any) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def _bookmark() -> bytes:
    annotations = {_INITIAL_END: "true"}
    return _event("BOOKMARK", {"metadata": {"resourceVersion": "9", "annotations": annotations}})


def _error() -> bytes:
    return _event("ERROR", {"metadata": {}, "code": 410, "message": "too old"})


def _followed(resource: Resource, pieces: list[bytes]) -> tuple[Progress, list[Heard]]:
    progress = Progress(resource.codec)
    progress.next_request(9)
    return progress, [progress.line(line) for line in lines(pieces)]


def _cuts(stream: bytes) -> Iterator[list[bytes]]:
    sizes = (1, 7, 1000) if len(stream) < 4000 else (997,)
    for size in sizes:
        yield [stream[at : at + size] for at in range(0, len(stream), size)]


def _cluster(known: dict[str, Resource]) -> Cluster:
    """Give a mirror that has one of everything."""
    cluster = Cluster.of(Settings(), SystemClock())
    for name in ("nodes", "namespaces", "queues.scheduling.volcano.sh", "pods",
                 "podgroups.scheduling.volcano.sh"):  # fmt: skip
        codec = known[name].codec
        line = codec.line(_event("ADDED", OBJECTS[name.partition(".")[0]]))
        if line.change is not None:
            cluster.apply(line.change)
    return cluster


def _must_go_on(cluster: Cluster, resource: Resource, progress: Progress) -> None:
    """Object unless a plan can be made of it, told to everybody, and the next event is heard."""
    snapshot = cluster.snapshot(_MOMENT)
    plan = make_plan(snapshot, policies.DEFAULT)
    findings = api.findings(audit(snapshot))
    for document in (api.plan(plan, snapshot), findings, dump(snapshot)):
        msgspec.json.encode(document)
    good = {**OBJECTS[resource.name.partition(".")[0]]}
    good["metadata"] = {**good["metadata"], "name": "next", "uid": "uid-next"}
    progress.start_over()
    progress.next_request(9)
    heard = progress.line(_event("ADDED", good))
    must(isinstance(heard, Upsert), "the next good event is not heard")
    assert isinstance(heard, Upsert)
    cluster.apply(heard)
    cluster.snapshot(_MOMENT)
