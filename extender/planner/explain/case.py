"""A waiting gang, the changes that could help it, and snapshots with such changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from extender.model.gang import Gang, GangKey
from extender.model.memo import Memo
from extender.model.node import Amounts, Node, NodeFacts, NodeTable
from extender.model.pod import OCCUPYING_SET, Pod, PodUid, Shape
from extender.model.queue import NamespaceShare, Queue
from extender.model.resources import NOTHING, PODS, Resources, total
from extender.model.snapshot import ResourceQuota, Snapshot
from extender.planner.plan import Plan, Verdict
from extender.planner.policy import Policy
from extender.planner.session import Session

#: The kind of remedies that are tried only when nothing else helps.
LAST = "last"


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that an administrator or a user could make."""

    text: str
    apply: Callable[[Snapshot], Snapshot]
    #: Of remedies of one kind, which differ in their amount, only the first that helps is reported.
    kind: str = ""


@dataclass(frozen=True)
class Case:
    """A waiting gang with the snapshot and the plan."""

    snapshot: Snapshot
    plan: Plan
    policy: Policy
    key: GangKey

    @property
    def gang(self) -> Gang:
        """The gang."""
        return self.snapshot.gangs[self.key]

    @property
    def verdict(self) -> Verdict:
        """Its verdict in the plan."""
        return self.plan.verdicts[self.key]

    @property
    def queue(self) -> Queue:
        """Its queue, with default values where the queue does not exist."""
        return self.snapshot.queues.get(self.gang.queue) or Queue(name=self.gang.queue)

    @cached_property
    def wanted(self) -> Counter[Shape]:
        """The members that still need a node, by shape."""
        with Session(self.snapshot, self.policy) as session:
            state = session.accounting.state(self.key)
            needed = session.needed_pods(state) if state is not None else []
        return Counter(pod.shape for pod in needed or self.gang.waiting[:1])

    @property
    def needs(self) -> Resources:
        """The requests of those members."""
        return total(s.requests * count for s, count in self.wanted.items()).without(PODS)

    @property
    def uses(self) -> Resources:
        """The usage of its queue, gangs that start by the plan included."""
        figures = self.plan.queues.get(self.gang.queue)
        return figures.own.without(PODS) if figures is not None else NOTHING


def others_waiting(case: Case) -> set[PodUid]:
    """Return the waiting pods of all other gangs."""
    gangs = case.snapshot.gangs.values()
    return {pod.uid for gang in gangs if gang.key != case.key for pod in gang.waiting}


def some(names: Sequence[str]) -> str:
    """Return the first two names and the number of the others."""
    rest = [f"{len(names) - 2} more"] if len(names) > 2 else []
    return ", ".join([*names[:2], *rest]) if rest else " and ".join(names)


#: Sorts after every name that Kubernetes allows.
_NEW = "~new-{}"


def with_gang(snapshot: Snapshot, gang: Gang) -> Snapshot:
    """Return *snapshot* with *gang* in place of the gang with its key."""
    fresh = replace(gang, memo=Memo())
    return replace(snapshot, gangs={**snapshot.gangs, gang.key: fresh})


def with_members(snapshot: Snapshot, key: GangKey, more: Iterable[Pod]) -> Snapshot:
    """Return *snapshot* with *more* pods in a gang."""
    gang = snapshot.gangs[key]
    return with_gang(snapshot, replace(gang, pods=(*gang.pods, *more)))


def with_queues(snapshot: Snapshot, queues: Iterable[Queue]) -> Snapshot:
    """Return *snapshot* with *queues* replaced or added."""
    known = {**snapshot.queues, **{queue.name: queue for queue in queues}}
    return replace(snapshot, queues=dict(sorted(known.items())))


def with_shares(snapshot: Snapshot, shares: Iterable[NamespaceShare]) -> Snapshot:
    """Return *snapshot* with namespace *shares* replaced or added."""
    known = {**snapshot.shares, **{share.name: share for share in shares}}
    return replace(snapshot, shares=dict(sorted(known.items())))


def with_open_nodes(snapshot: Snapshot) -> Snapshot:
    """Return *snapshot* with every node ready and none cordoned."""
    table = snapshot.nodes
    return replace(snapshot, nodes=replace(table, facts=table.facts.opened))


def with_all_nodes(snapshot: Snapshot) -> Snapshot:
    """Return *snapshot* with every node managed."""
    table = snapshot.nodes
    nodes = tuple(replace(node, managed=True) for node in table.nodes)
    return replace(snapshot, nodes=replace(table, facts=NodeFacts(nodes, table.facts.index)))


def with_quota(snapshot: Snapshot, quota: ResourceQuota) -> Snapshot:
    """Return *snapshot* with *quota* in place of the ResourceQuota with its name."""
    others = snapshot.quotas[quota.namespace]
    changed = tuple(quota if each.name == quota.name else each for each in others)
    return replace(snapshot, quotas={**snapshot.quotas, quota.namespace: changed})


def with_less_used(snapshot: Snapshot, name: str, amounts: Resources) -> Snapshot:
    """Return *snapshot* with *amounts* more free capacity on the node *name*."""
    table = snapshot.nodes
    used = table.used.copy()
    used[table.facts.index[name]] -= _row(table, amounts)
    return replace(snapshot, nodes=replace(table, used=used))


def with_capacity(
    snapshot: Snapshot, shapes: Mapping[Shape, int], like: Mapping[Shape, Node]
) -> Snapshot:
    """Return *snapshot* with new nodes for so many pods of each of *shapes*, one for each pod.

    A new node copies labels and taints of a node that the shape may use. Without such a node it has
    the labels that the shape selects.
    """
    nodes = [
        Node(
            name=_NEW.format(len(snapshot.nodes.nodes) + number),
            allocatable=shape.requests,
            labels=like[shape].labels if shape in like else dict(shape.selector),
            taints=like[shape].taints if shape in like else (),
        )
        for number, shape in enumerate(s for s, count in shapes.items() for _ in range(count))
    ]
    return replace(snapshot, nodes=_with_nodes(snapshot.nodes, nodes))


def without_pods(snapshot: Snapshot, gone: Collection[PodUid]) -> Snapshot:
    """Return *snapshot* without those pods and with their capacity free."""
    table, gangs = snapshot.nodes, dict(snapshot.gangs)
    used, releasing = table.used.copy(), table.releasing.copy()
    for key, gang in snapshot.gangs.items():
        removed = [pod for pod in gang.pods if pod.uid in gone]
        if not removed:
            continue
        gangs[key] = replace(
            gang, pods=tuple(pod for pod in gang.pods if pod.uid not in gone), memo=Memo()
        )
        for pod in removed:
            row = table.facts.index.get(pod.node)
            if row is not None and pod.status in OCCUPYING_SET:
                amounts = _row(table, pod.requests)
                used[row] -= amounts
                releasing[row] -= np.minimum(releasing[row], amounts)
    table = replace(table, used=used, releasing=releasing)
    return replace(snapshot, gangs=gangs, nodes=table)


def _row(table: NodeTable, amounts: Resources) -> Amounts:
    return np.array([amounts.amount(name) for name in table.dimensions], dtype=np.int64)


def _with_nodes(table: NodeTable, more: list[Node]) -> NodeTable:
    added = total(node.allocatable for node in more)
    first = table.dimensions[:3]
    rest = sorted({*table.dimensions[3:], *(name for name in added if name not in first)})
    names = (*first, *rest)
    columns = [names.index(name) for name in table.dimensions]

    def enlarged(amounts: Amounts) -> Amounts:
        larger = np.zeros((len(table.nodes) + len(more), len(names)), dtype=np.int64)
        larger[: len(table.nodes), columns] = amounts
        return larger

    allocatable = enlarged(table.allocatable)
    for number, node in enumerate(more, start=len(table.nodes)):
        allocatable[number] = [node.allocatable.amount(name) for name in names]
    nodes = (*table.nodes, *more)
    return replace(
        table,
        facts=NodeFacts(nodes, {node.name: row for row, node in enumerate(nodes)}),
        dimensions=names,
        allocatable=allocatable,
        used=enlarged(table.used),
        releasing=enlarged(table.releasing),
    )
