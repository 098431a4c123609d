"""Values of the model in a few words: `snapshot([node("n1", cpu=4)], [gang("a/train", 2, cpu=2)])`.

Everything is in namespace `a` unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache as _cached
from typing import Any

import numpy as np

from extender.cache.changes import SeenPod, Upsert
from extender.cache.cluster import Cluster
from extender.cache.queue_policy import QueuePolicy
from extender.model.gang import VOLCANO, Gang, GangKey, Membership, Phase, PodGroup
from extender.model.memo import Memo
from extender.model.node import HostPorts, Node, NodeFacts, NodeTable, Taint
from extender.model.pod import OCCUPYING_SET, Pod, PodUid, Shape, Status
from extender.model.queue import NamespaceShare, Queue, QueueState
from extender.model.resources import CPU, MEMORY, NOTHING, PODS, Resources
from extender.model.snapshot import DisruptionBudget, Snapshot
from extender.planner.plan import Plan
from extender.sim.clock import VirtualClock

GI = 2**30
#: The initial time of a `VirtualClock`.
NOW = VirtualClock().now()
#: The time of snapshots: soon after gangs were created at 0, so that none has waited for long.
SOON = 100.0
GANG = GangKey("a/train")


def amounts(*, cpu: float = 0, memory: float = 0, pods: int = 0, **others: int) -> Resources:
    """Write amounts: cpu in cores, memory in Gi, others by name with `_` for `/` and `.`."""
    found = {CPU: round(cpu * 1000), MEMORY: round(memory * GI), PODS: pods}
    found |= {_names.get(name, name): amount for name, amount in others.items()}
    return Resources({name: amount for name, amount in found.items() if amount})


_names = {"gpu": "nvidia.com/gpu"}


@_cached
def shape(
    *,
    cpu: float = 0,
    memory: float = 0,
    gpu: int = 0,
    selector: tuple[tuple[str, str], ...] = (),
    **rest: Any,
) -> Shape:
    """Return the shared shape of such pods; identical pods must share one."""
    requests = amounts(cpu=cpu, memory=memory, pods=1, gpu=gpu)
    return Shape(requests=requests, selector=selector, **rest)


ONE_CPU = shape(cpu=1)


def node(
    name: str,
    *,
    cpu: float = 4,
    memory: float = 64,
    pods: int = 110,
    gpu: int = 0,
    taints: Sequence[str] = (),
    **rest: Any,
) -> Node:
    """Make a node; a taint is written `key=value` and means NoSchedule."""
    rest.setdefault("allocatable", amounts(cpu=cpu, memory=memory, pods=pods, gpu=gpu))
    return Node(name=name, taints=tuple(Taint(*taint.split("=")) for taint in taints), **rest)


def nodes(count: int, **rest: Any) -> list[Node]:
    """Make *count* equal nodes, from n1."""
    return [node(f"n{number}", **rest) for number in range(1, count + 1)]


def uid(name: str, namespace: str = "a") -> PodUid:
    """Return the uid of a pod of this name."""
    return PodUid(f"{namespace}-{name}")


def pod(
    name: str, shape: Shape = ONE_CPU, *, on: str = "", namespace: str = "a", **rest: Any
) -> Pod:
    """Make a pod, running if it is *on* a node."""
    rest.setdefault("status", Status.RUNNING if on else Status.PENDING)
    rest.setdefault("uid", uid(name, namespace))
    return Pod(namespace=namespace, name=name, shape=shape, node=on, **rest)


def member_of(gang: str = "train", *, named: bool = True, **rest: Any) -> Membership:
    """Make the membership of a pod that names the PodGroup *gang*."""
    return Membership(key=GangKey(f"a/{gang}"), named=named, **rest)


def seen(name: str, gang: str = "train", *, queue: str = "", **rest: Any) -> SeenPod:
    """Make a pod as the watch decodes it; it names the PodGroup *gang*, or none if that is ""."""
    single = Membership(key=GangKey(f"a/pod:{name}"), queue=queue)
    return SeenPod(pod(name, **rest), member_of(gang) if gang else single)


def pod_group(name: str = "train", min_member: int = 2, **rest: Any) -> PodGroup:
    """Make a PodGroup of Volcano."""
    facts = {"namespace": "a", "name": name, "min_member": min_member, "dialect": VOLCANO}
    return PodGroup(**(facts | rest))


def gang(
    key: str,
    size: int = 1,
    *,
    on: Sequence[str] = (),
    min_member: int | None = None,
    queue: str = "default",
    priority: int = 0,
    created: float = 0.0,
    pods: Iterable[Pod] | None = None,
    group: Mapping[str, Any] | None = None,
    each: Mapping[str, Any] | None = None,
    **kind: Any,
) -> Gang:
    """Make a gang of *size* equal members; the first ones run *on* the nodes named.

    *min_member* is its size unless given, *each* is for its pods, *group* for its
    PodGroup, and the rest is the request of a member.
    """
    namespace, name = key.split("/")
    about = {"created": created, "priority": priority, **(each or {})}
    if pods is None:
        places = [*on, *([""] * (size - len(on)))]
        pods = [
            pod(f"{name}-{number}", shape(**kind), on=place, namespace=namespace, **about)
            for number, place in enumerate(places)
        ]
    members = tuple(sorted(pods, key=lambda member: member.uid))
    written = {
        "namespace": namespace,
        "min_member": len(members) if min_member is None else min_member,
        "queue": queue,
        "phase": Phase.RUNNING if on else Phase.PENDING,
        "created": created,
        **(group or {}),
    }
    return Gang(group=pod_group(name, **written), pods=members, queue=queue, priority=priority)


def single(key: str, *, on: str = "", **rest: Any) -> Gang:
    """Make an ordinary pod: a gang of one without any PodGroup."""
    return gang(key, 1, on=[on] if on else [], group={"dialect": ""}, **rest)


def queue(name: str, weight: int = 1, **rest: Any) -> Queue:
    """Make a queue; `state="Closed"` closes it."""
    state = QueueState(rest.pop("state", "Open"))
    return Queue(name=name, weight=weight, state=state, **rest)


def share(
    name: str, *, at_most: Resources | None = None, at_least: Resources | None = None
) -> NamespaceShare:
    """Give a namespace a share of a queue, written `queue/namespace`."""
    queue, namespace = name.split("/")
    return NamespaceShare(
        queue=queue, namespace=namespace, limit=at_most or NOTHING, guarantee=at_least or NOTHING
    )


def snapshot(
    nodes: Iterable[Node],
    gangs: Iterable[Gang] = (),
    queues: Iterable[Queue] = (),
    *,
    shares: Iterable[NamespaceShare] = (),
    taken: Mapping[str, Resources] | None = None,
    budgets: Sequence[DisruptionBudget] = (),
    now: float = SOON,
    protected: Mapping[PodUid, str] | None = None,
) -> Snapshot:
    """Make a snapshot of these objects; *taken* is used by pods of other schedulers."""
    known = {each.key: each for each in gangs}
    table = _table(sorted(nodes, key=lambda each: each.name), known, taken or {})
    return Snapshot(
        generation=1,
        now=now,
        nodes=table,
        gangs={key: known[key] for key in sorted(known)},
        queues={each.name: each for each in sorted(queues, key=lambda each: each.name)},
        shares={each.name: each for each in sorted(shares, key=lambda each: each.name)},
        budgets=tuple(budgets),
        protected=protected or {},
    )


def _table(
    nodes: Sequence[Node], gangs: Mapping[GangKey, Gang], taken: Mapping[str, Resources]
) -> NodeTable:
    pods = [each for one in gangs.values() for each in one.pods]
    names = {name for each in nodes for name in each.allocatable}
    names |= {name for each in pods for name in each.requests}
    first = (CPU, MEMORY, PODS)
    dimensions = (*first, *sorted(names - set(first)))
    index = {each.name: row for row, each in enumerate(nodes)}
    whole = np.array([_line(each.allocatable, dimensions) for each in nodes], dtype=np.int64)
    whole = whole.reshape(len(nodes), len(dimensions))
    used, releasing = np.zeros_like(whole), np.zeros_like(whole)
    for name, amount in taken.items():
        used[index[name]] += _line(amount, dimensions)
    for each in pods:
        if each.status in OCCUPYING_SET and each.node in index:
            used[index[each.node]] += _line(each.requests, dimensions)
            if each.status is Status.RELEASING:
                releasing[index[each.node]] += _line(each.requests, dimensions)
    ports: dict[str, HostPorts] = {}
    for each in pods:
        if each.node and each.shape.host_ports:
            ports[each.node] = ports.get(each.node, HostPorts()).plus(each.shape.host_ports)
    facts = NodeFacts(tuple(nodes), index)
    return NodeTable(facts, dimensions, whole, used, releasing, ports)


def _line(amount: Resources, dimensions: Sequence[str]) -> np.ndarray[Any, Any]:
    return np.array([amount.amount(name) for name in dimensions], dtype=np.int64)


def after(before: Snapshot, plan: Plan) -> Snapshot:
    """Return the cluster after *plan*: placed pods run, evicted pods are gone and pending again."""
    gone = {order.uid for order in plan.evictions}
    places = {
        uid: name for each in plan.placements.values() for uid, name in each.placements.items()
    }
    gangs = []
    for each in before.gangs.values():
        pods = [_after(member, places.get(member.uid), member.uid in gone) for member in each.pods]
        phase = plan.verdicts[each.key].phase
        gangs.append(
            replace(each, pods=tuple(pods), group=replace(each.group, phase=phase), memo=Memo())
        )
    return snapshot(
        before.nodes.nodes, gangs, before.queues.values(), shares=before.shares.values(),
        budgets=before.budgets, now=before.now,
    )  # fmt: skip


def _after(member: Pod, place: str | None, is_gone: bool) -> Pod:
    if place is not None:
        return replace(member, status=Status.RUNNING, node=place)
    if is_gone:
        return replace(member, status=Status.PENDING, node="")
    return member


def cache(
    *items: Any, clock: VirtualClock | None = None, policy: QueuePolicy | None = None
) -> Cluster:
    """Make a cache that has received *items* from the watches."""
    made = Cluster(clock or VirtualClock(), policy)
    for item in items:
        made.apply(Upsert(item))
    return made
