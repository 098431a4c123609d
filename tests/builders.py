"""Short ways to write clusters: `cluster([node("n1", cpu=4)], [gang("a/train", 2, cpu=2)])`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from extender.model.gang import Gang, GangKey, Phase, PodGroup
from extender.model.memo import Memo
from extender.model.node import Node, NodeFacts, NodeTable, Taint
from extender.model.pod import OCCUPYING_SET, Pod, PodUid, Shape, Status
from extender.model.ports import Ports
from extender.model.queue import Queue, QueueState, Share
from extender.model.resources import CPU, MEMORY, NOTHING, PODS, Resources
from extender.model.snapshot import DisruptionBudget, Snapshot
from extender.plan.decision import Plan

GI = 2**30
#: Soon after everything was made: nobody has waited for long.
NOW = 100.0
DIALECT = "scheduling.volcano.sh"


def amounts(*, cpu: float = 0, memory: float = 0, pods: int = 0, **others: int) -> Resources:
    """Write amounts: cpu in cores, memory in Gi, others by name with `_` for `/` and `.`."""
    found = {CPU: round(cpu * 1000), MEMORY: round(memory * GI), PODS: pods}
    found |= {_names.get(name, name): amount for name, amount in others.items()}
    return Resources({name: amount for name, amount in found.items() if amount})


_names = {"gpu": "nvidia.com/gpu"}


@cache
def shape(
    *,
    cpu: float = 0,
    memory: float = 0,
    gpu: int = 0,
    selector: tuple[tuple[str, str], ...] = (),
    **rest: Any,
) -> Shape:
    """Give the one shape of such pods; identical pods must share theirs."""
    requests = amounts(cpu=cpu, memory=memory, pods=1, gpu=gpu)
    return Shape(requests=requests, selector=selector, **rest)


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
    return Node(
        name=name,
        allocatable=amounts(cpu=cpu, memory=memory, pods=pods, gpu=gpu),
        taints=tuple(Taint(*taint.split("=")) for taint in taints),
        **rest,
    )


def nodes(count: int, **rest: Any) -> list[Node]:
    """Make *count* equal nodes, n1 and on."""
    return [node(f"n{number}", **rest) for number in range(1, count + 1)]


def pod(name: str, kind: Shape, *, on: str = "", namespace: str = "a", **rest: Any) -> Pod:
    """Make a pod, running if it is *on* a node."""
    status = rest.pop("status", Status.RUNNING if on else Status.PENDING)
    return Pod(
        uid=PodUid(f"{namespace}-{name}"),
        namespace=namespace,
        name=name,
        shape=kind,
        status=status,
        node=on,
        **rest,
    )


def gang(
    key: str,
    size: int = 1,
    *,
    on: Sequence[str] = (),
    least: int | None = None,
    queue: str = "default",
    priority: int = 0,
    created: float = 0.0,
    pods: Iterable[Pod] | None = None,
    group: Mapping[str, Any] | None = None,
    each: Mapping[str, Any] | None = None,
    **kind: Any,
) -> Gang:
    """Make a gang of *size* equal members; the first ones run *on* the nodes named.

    *least* is its minimum (by default its size), *each* is for its pods, *group* for its
    PodGroup, and the rest says what a member asks for.
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
    written = PodGroup(
        namespace=namespace,
        name=name,
        min_member=len(members) if least is None else least,
        queue=queue,
        dialect=DIALECT,
        phase=Phase.RUNNING if on else Phase.PENDING,
        created=created,
    )
    return Gang(
        group=replace(written, **(group or {})), pods=members, queue=queue, priority=priority
    )


def lone(key: str, *, on: str = "", **rest: Any) -> Gang:
    """Make an ordinary pod: a gang of one without any PodGroup."""
    return gang(key, 1, on=[on] if on else [], group={"dialect": ""}, **rest)


def queue(name: str, weight: int = 1, **rest: Any) -> Queue:
    """Make a queue; `state="Closed"` closes it."""
    state = QueueState(rest.pop("state", "Open"))
    return Queue(name=name, weight=weight, state=state, **rest)


def share(
    name: str, *, at_most: Resources | None = None, at_least: Resources | None = None
) -> Share:
    """Give a namespace a share of a queue, written `queue/namespace`."""
    queue, namespace = name.split("/")
    return Share(
        queue=queue, namespace=namespace, most=at_most or NOTHING, least=at_least or NOTHING
    )


def cluster(
    members: Iterable[Node],
    gangs: Iterable[Gang] = (),
    queues: Iterable[Queue] = (),
    *,
    shares: Iterable[Share] = (),
    strangers: Mapping[str, Resources] | None = None,
    budgets: Sequence[DisruptionBudget] = (),
    now: float = NOW,
    protected: Mapping[PodUid, str] | None = None,
) -> Snapshot:
    """Take a snapshot of all that; *strangers* use up room on nodes and are nobody's business."""
    everybody = {each.key: each for each in gangs}
    table = _table(sorted(members, key=lambda each: each.name), everybody, strangers or {})
    return Snapshot(
        generation=1,
        now=now,
        nodes=table,
        gangs={key: everybody[key] for key in sorted(everybody)},
        queues={each.name: each for each in sorted(queues, key=lambda each: each.name)},
        shares={each.name: each for each in sorted(shares, key=lambda each: each.name)},
        budgets=tuple(budgets),
        protected=protected or {},
    )


def _table(
    members: Sequence[Node], gangs: Mapping[GangKey, Gang], strangers: Mapping[str, Resources]
) -> NodeTable:
    pods = [each for one in gangs.values() for each in one.pods]
    names = {name for each in members for name in each.allocatable}
    names |= {name for each in pods for name in each.requests}
    first = (CPU, MEMORY, PODS)
    dimensions = (*first, *sorted(names - set(first)))
    index = {each.name: row for row, each in enumerate(members)}
    whole = np.array([_line(each.allocatable, dimensions) for each in members], dtype=np.int64)
    whole = whole.reshape(len(members), len(dimensions))
    used, releasing = np.zeros_like(whole), np.zeros_like(whole)
    for name, taken in strangers.items():
        used[index[name]] += _line(taken, dimensions)
    for each in pods:
        if each.status in OCCUPYING_SET and each.node in index:
            used[index[each.node]] += _line(each.requests, dimensions)
            if each.status is Status.RELEASING:
                releasing[index[each.node]] += _line(each.requests, dimensions)
    ports: dict[str, Ports] = {}
    for each in pods:
        if each.node and each.shape.host_ports:
            ports[each.node] = ports.get(each.node, Ports()).plus(each.shape.host_ports)
    facts = NodeFacts(tuple(members), index)
    return NodeTable(facts, dimensions, whole, used, releasing, ports)


def _line(amount: Resources, dimensions: Sequence[str]) -> np.ndarray[Any, Any]:
    return np.array([amount.amount(name) for name in dimensions], dtype=np.int64)


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Give the cluster after *plan*: tickets run, victims are gone and pend anew."""
    gone = {order.uid for order in plan.evictions}
    places = {
        uid: name for ticket in plan.tickets.values() for uid, name in ticket.placements.items()
    }
    gangs = []
    for each in snapshot.gangs.values():
        pods = [_after(member, places.get(member.uid), member.uid in gone) for member in each.pods]
        phase = plan.verdicts[each.key].phase
        gangs.append(
            replace(each, pods=tuple(pods), group=replace(each.group, phase=phase), memo=Memo())
        )
    return cluster(
        snapshot.nodes.nodes, gangs, snapshot.queues.values(), shares=snapshot.shares.values(),
        budgets=snapshot.budgets, now=snapshot.now,
    )  # fmt: skip


def _after(member: Pod, place: str | None, is_gone: bool) -> Pod:
    if place is not None:
        return replace(member, status=Status.RUNNING, node=place)
    if is_gone:
        return replace(member, status=Status.PENDING, node="")
    return member
