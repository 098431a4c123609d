"""A gang that waits, and something that could help it: what ideas are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
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
from extender.planner.accounting import Accounting
from extender.planner.plan import Plan, Verdict
from extender.planner.policy import Policy
from extender.planner.session import Session, needed_pods

#: The kind of ideas that are tried only where nothing else helps.
LAST = "last"


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something that somebody could change."""

    words: str
    apply: Callable[[Snapshot], Snapshot]
    #: Of those alike, which differ in how much, only the first that helps is said.
    kind: str = ""


@dataclass(frozen=True)
class Case:
    """A gang that waits, and what was planned."""

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
        """What the plan says of it."""
        return self.plan.verdicts[self.key]

    @property
    def queue(self) -> Queue:
        """Its queue, as if written where nobody wrote it."""
        return self.snapshot.queues.get(self.gang.queue) or Queue(name=self.gang.queue)

    @cached_property
    def wanted(self) -> Counter[Shape]:
        """The members it lacks, by shape."""
        with closing(Session(Accounting(self.snapshot), self.policy)) as session:
            state = session.accounting.state(self.key)
            needed = needed_pods(session, state) if state is not None else []
        return Counter(pod.shape for pod in needed or self.gang.waiting[:1])

    @property
    def needs(self) -> Resources:
        """What those members ask for."""
        return total(s.requests * count for s, count in self.wanted.items()).without(PODS)

    @property
    def uses(self) -> Resources:
        """What its queue uses, what may start by the plan included."""
        figures = self.plan.queues.get(self.gang.queue)
        return figures.own.without(PODS) if figures is not None else NOTHING


def others_waiting(case: Case) -> set[PodUid]:
    """Give the pods of all other gangs that wait."""
    gangs = case.snapshot.gangs.values()
    return {pod.uid for gang in gangs if gang.key != case.key for pod in gang.waiting}


def some(names: Sequence[str]) -> str:
    """Name the first two and count the rest."""
    rest = [f"{len(names) - 2} more"] if len(names) > 2 else []
    return ", ".join([*names[:2], *rest]) if rest else " and ".join(names)


def more_of(number: int, noun: str) -> str:
    """Say so many more."""
    return f"{number} more {noun}" + ("" if number == 1 else "s")


def count_pods(number: int) -> str:
    """Say so many pods."""
    return f"{number} pod" + ("" if number == 1 else "s")


#: Sorts behind every name that Kubernetes allows.
_NEW = "~new-{}"


def with_gang(snapshot: Snapshot, gang: Gang) -> Snapshot:
    """Give *snapshot* with another version of a gang it has."""
    fresh = replace(gang, memo=Memo())
    return replace(snapshot, gangs={**snapshot.gangs, gang.key: fresh})


def with_members(snapshot: Snapshot, key: GangKey, more: Iterable[Pod]) -> Snapshot:
    """Give *snapshot* with *more* pods in a gang."""
    gang = snapshot.gangs[key]
    return with_gang(snapshot, replace(gang, pods=(*gang.pods, *more)))


def with_queues(snapshot: Snapshot, queues: Iterable[Queue]) -> Snapshot:
    """Give *snapshot* with other versions of queues, or with new ones."""
    known = {**snapshot.queues, **{queue.name: queue for queue in queues}}
    return replace(snapshot, queues=dict(sorted(known.items())))


def with_shares(snapshot: Snapshot, shares: Iterable[NamespaceShare]) -> Snapshot:
    """Give *snapshot* with other versions of what namespaces have of queues."""
    known = {**snapshot.shares, **{share.name: share for share in shares}}
    return replace(snapshot, shares=dict(sorted(known.items())))


def with_open_nodes(snapshot: Snapshot) -> Snapshot:
    """Give *snapshot* with every node ready and none cordoned."""
    table = snapshot.nodes
    nodes = tuple(node.opened() for node in table.nodes)
    facts = NodeFacts(nodes, table.facts.index)
    return replace(snapshot, nodes=replace(table, facts=facts))


def with_all_nodes(snapshot: Snapshot) -> Snapshot:
    """Give *snapshot* with every node ours."""
    table = snapshot.nodes
    nodes = tuple(replace(node, managed=True) for node in table.nodes)
    return replace(snapshot, nodes=replace(table, facts=NodeFacts(nodes, table.facts.index)))


def with_quota(snapshot: Snapshot, quota: ResourceQuota) -> Snapshot:
    """Give *snapshot* with another version of a quota it has."""
    others = snapshot.quotas[quota.namespace]
    changed = tuple(quota if each.name == quota.name else each for each in others)
    return replace(snapshot, quotas={**snapshot.quotas, quota.namespace: changed})


def with_less_used(snapshot: Snapshot, name: str, amounts: Resources) -> Snapshot:
    """Give *snapshot* with *amounts* more idle on the node *name*."""
    table = snapshot.nodes
    used = table.used.copy()
    used[table.facts.index[name]] -= _row(table, amounts)
    return replace(snapshot, nodes=replace(table, used=used))


def with_capacity(
    snapshot: Snapshot, shapes: Mapping[Shape, int], like: Mapping[Shape, Node]
) -> Snapshot:
    """Give *snapshot* with new nodes for so many pods of each of *shapes*, one for each pod.

    They take after a node that the shape may use; without any such, they have what it selects.
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
    return replace(snapshot, nodes=_enlarged(snapshot.nodes, nodes))


def without_pods(snapshot: Snapshot, gone: Collection[PodUid]) -> Snapshot:
    """Give *snapshot* without those pods and with their room idle."""
    table, gangs = snapshot.nodes, dict(snapshot.gangs)
    used, releasing = table.used.copy(), table.releasing.copy()
    for key, gang in snapshot.gangs.items():
        left = [pod for pod in gang.pods if pod.uid in gone]
        if not left:
            continue
        gangs[key] = replace(
            gang, pods=tuple(pod for pod in gang.pods if pod.uid not in gone), memo=Memo()
        )
        for pod in left:
            row = table.facts.index.get(pod.node)
            if row is not None and pod.status in OCCUPYING_SET:
                amounts = _row(table, pod.requests)
                used[row] -= amounts
                releasing[row] -= np.minimum(releasing[row], amounts)
    table = replace(table, used=used, releasing=releasing)
    return replace(snapshot, gangs=gangs, nodes=table)


def _row(table: NodeTable, amounts: Resources) -> Amounts:
    return np.array([amounts.amount(name) for name in table.dimensions], dtype=np.int64)


def _enlarged(table: NodeTable, more: list[Node]) -> NodeTable:
    every = total(node.allocatable for node in more)
    first = table.dimensions[:3]
    rest = sorted({*table.dimensions[3:], *(name for name in every if name not in first)})
    names = (*first, *rest)
    columns = [names.index(name) for name in table.dimensions]

    def grown(amounts: Amounts) -> Amounts:
        larger = np.zeros((len(table.nodes) + len(more), len(names)), dtype=np.int64)
        larger[: len(table.nodes), columns] = amounts
        return larger

    allocatable = grown(table.allocatable)
    for number, node in enumerate(more, start=len(table.nodes)):
        allocatable[number] = [node.allocatable.amount(name) for name in names]
    nodes = (*table.nodes, *more)
    return replace(
        table,
        facts=NodeFacts(nodes, {node.name: row for row, node in enumerate(nodes)}),
        dimensions=names,
        allocatable=allocatable,
        used=grown(table.used),
        releasing=grown(table.releasing),
    )
