"""The free capacity of every node in kube-scheduler's view, as one table by pod shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from extender.model.gang import Membership
from extender.model.matching import NodeIndex, accepts
from extender.model.node import UNLIMITED, Mask, Node
from extender.model.pod import Pod, PodUid, Shape
from extender.model.resources import CPU, PODS, Resources


class NodeTable:
    """Nodes by name, and the pods that count on each; each pod counts once."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        #: uid -> (node, pod).
        self._placed: dict[PodUid, tuple[str, Pod]] = {}
        self._pods_on: dict[str, dict[PodUid, Pod]] = {}
        #: The number of counted pods by priority.
        self._priorities: Counter[int] = Counter()
        self._names: list[str] = []
        self._row: dict[str, int] = {}
        self._column: dict[str, int] = {}
        self._free: npt.NDArray[np.int64] = np.zeros((0, 0), np.int64)
        self._is_stale = True
        #: Which nodes accept pods of a shape, and what a shape requests, by column.
        self._accepting: dict[Shape, Mask] = {}
        self._needs: dict[Shape, npt.NDArray[np.int64]] = {}

    def put(self, node: Node) -> None:
        """Add or replace a node."""
        self.nodes[node.name] = node
        self._is_stale = True

    def drop(self, name: str) -> None:
        """Remove a node; the pods on it no longer use capacity."""
        self.nodes.pop(name, None)
        self._is_stale = True

    def clear(self) -> None:
        """Remove everything."""
        self.nodes.clear()
        self._placed.clear()
        self._pods_on.clear()
        self._priorities.clear()
        self._is_stale = True

    def add(self, pod: Pod, node: str) -> None:
        """Count *pod* on *node*, or nowhere when *node* is empty."""
        before = self._placed.get(pod.uid)
        if before is not None:
            is_alike = before[1].shape is pod.shape and before[1].priority == pod.priority
            if before[0] == node and is_alike:
                self._placed[pod.uid] = (node, pod)
                self._pods_on[node][pod.uid] = pod
                return
            self.remove(pod.uid)
        if node:
            self._placed[pod.uid] = (node, pod)
            self._pods_on.setdefault(node, {})[pod.uid] = pod
            self._priorities[pod.priority] += 1
            self._count(node, pod.shape, -1)

    def remove(self, uid: PodUid) -> None:
        """Stop counting a pod."""
        before = self._placed.pop(uid, None)
        if before is not None:
            node, pod = before
            del self._pods_on[node][uid]
            self._priorities[pod.priority] -= 1
            self._count(node, pod.shape, +1)

    def pods_on(self, name: str) -> Iterator[Pod]:
        """Return the pods that count on a node, in the order in which they were added."""
        return iter(self._pods_on.get(name, {}).values())

    def has_lower_priority(self, priority: int) -> bool:
        """Return whether a pod of a lower priority counts on any node."""
        return any(each < priority for each, number in self._priorities.items() if number)

    def fits(self, pod: Pod, name: str) -> bool:
        """Return whether *pod* fits a node, not counting the pod itself there."""
        self._rebuild(pod.shape)
        row = self._row.get(name)
        if row is None or not self._accepts(pod.shape)[row]:
            return False
        free = self._free[row]
        if self._placed.get(pod.uid, ("",))[0] == name:
            free = free + self._requests(pod.shape)
        return bool((self._need(pod.shape) <= free).all())

    def fits_without(self, pod: Pod, name: str, leaving: Collection[Pod]) -> bool:
        """Return whether *pod* fits a node without the pods *leaving*."""
        self._rebuild(pod.shape, *(each.shape for each in leaving))
        row = self._row.get(name)
        if row is None or not self._accepts(pod.shape)[row]:
            return False
        free = self._free[row].copy()
        for each in leaving:
            free += self._requests(each.shape)
        return bool((self._need(pod.shape) <= free).all())

    def fits_somewhere(self, shape: Shape) -> bool:
        """Return whether one more pod of a shape fits any node."""
        return bool(self._fitting(shape).any())

    def sample(
        self, shape: Shape, start: int, most: int, only: Collection[str] | None = None
    ) -> tuple[list[str], int]:
        """Return up to *most* nodes that fit, from *start* on, and where to continue."""
        fitting = self._fitting(shape)
        total = len(self._names)
        if not total:
            return [], 0
        if only is not None:
            fitting = fitting & np.array([name in only for name in self._names])
        start %= total
        rows = np.flatnonzero(fitting)
        behind = rows.searchsorted(start)
        chosen = np.concatenate((rows[behind:], rows[:behind]))[:most].tolist()
        looked = (chosen[-1] - start) % total + 1 if len(chosen) == most else total
        return [self._names[row] for row in chosen], start + looked

    def free_cpu(self, name: str) -> int:
        """Return the free cpu of a node."""
        self._rebuild()
        return int(self._free[self._row[name], self._column[CPU]])

    def _fitting(self, shape: Shape) -> Mask:
        self._rebuild(shape)
        if not self._names:
            return np.zeros(0, np.bool_)
        fitting: Mask = np.logical_and.reduce(self._need(shape) <= self._free, axis=1)
        return fitting & self._accepts(shape)

    def _accepts(self, shape: Shape) -> Mask:
        found = self._accepting.get(shape)
        if found is None:
            nodes = [self.nodes[name] for name in self._names]
            found = np.array([accepts(node, shape) for node in nodes], np.bool_)
            if shape.selector or shape.affinity is not None:
                found = found & NodeIndex(nodes).selected(shape)
            self._accepting[shape] = found
        return found

    def _need(self, shape: Shape) -> npt.NDArray[np.int64]:
        need = self._needs.get(shape)
        if need is None:
            # kube-scheduler checks only the requested resources: the others may be overcommitted.
            need = np.full(len(self._column), -UNLIMITED, np.int64)
            for name, amount in shape.requests.items():
                if amount > 0:
                    need[self._column[name]] = amount
            self._needs[shape] = need
        return need

    def _requests(self, shape: Shape) -> npt.NDArray[np.int64]:
        return np.maximum(self._need(shape), 0)

    def _count(self, node: str, shape: Shape, step: int) -> None:
        row = self._row.get(node)
        if self._is_stale or row is None:
            return
        for name, amount in shape.requests.items():
            column = self._column.get(name)
            if column is None:
                self._is_stale = True
                return
            self._free[row, column] += step * amount

    def _rebuild(self, *shapes: Shape) -> None:
        column = self._column
        is_known = all(name in column for shape in shapes for name in shape.requests)
        if not self._is_stale and is_known:
            return
        self._is_stale = False
        self._accepting.clear()
        self._needs.clear()
        requested = (shape.requests for shape in shapes)
        used = (pod.requests for _, pod in self._placed.values())
        allocatable = (node.allocatable for node in self.nodes.values())
        names = {name for amounts in (*requested, *used, *allocatable) for name in amounts}
        self._column = {name: place for place, name in enumerate(sorted({*names, CPU}))}
        self._names = sorted(self.nodes)
        self._row = {name: row for row, name in enumerate(self._names)}
        self._free = np.array(
            [self._free_on(self.nodes[name]) for name in self._names], np.int64
        ).reshape(len(self._names), len(self._column))

    def _free_on(self, node: Node) -> list[int]:
        used: dict[str, int] = {}
        for pod in self._pods_on.get(node.name, {}).values():
            pod.requests.add_to(used)
        return [_allocatable(node.allocatable, name) - used.get(name, 0) for name in self._column]


def _allocatable(allocatable: Resources | Mapping[str, int], name: str) -> int:
    """Return what is allocatable; a node that states no number of pods is unlimited."""
    amount = allocatable.get(name)
    if amount is None:
        return UNLIMITED if name == PODS else 0
    return int(amount)


#: Returns the nodes whose victims may be evicted.
PreemptHook: TypeAlias = Callable[
    [Pod, Membership, Mapping[str, Sequence[str]]], Mapping[str, Sequence[str]]
]
#: The largest number of candidate nodes.
_MOST_CANDIDATES = 100


class Preemption:
    """Evict pods of a lower priority, on one node at a time."""

    def __init__(
        self,
        table: NodeTable,
        hook: PreemptHook,
        evict: Callable[[Pod], None],
        is_placed: Callable[[Pod], bool],
    ) -> None:
        self._table = table
        self._hook = hook
        self._evict = evict
        #: Returns whether a pod is bound or assumed; a pod that is only nominated is no victim.
        self._is_placed = is_placed

    def preempt(self, pod: Pod, member: Membership) -> str:
        """Evict the victims of the cheapest node and return its name; empty when there is none."""
        # Mostly all priorities are equal: then no node needs a check.
        if not pod.may_preempt or not self._table.has_lower_priority(pod.priority):
            return ""
        candidates = self._candidates(pod)
        if not candidates:
            return ""
        offered = {name: [each.uid for each in found] for name, found in candidates.items()}
        kept = self._hook(pod, member, offered)
        allowed = {
            name: [each for each in candidates[name] if each.uid in uids]
            for name, uids in kept.items()
        }
        if not allowed:
            return ""
        name = min(allowed, key=lambda each: _cost(each, allowed[each]))
        for victim in allowed[name]:
            self._evict(victim)
        return name

    def _candidates(self, pod: Pod) -> dict[str, list[Pod]]:
        found: dict[str, list[Pod]] = {}
        for name in sorted(self._table.nodes):
            victims = self._victims(pod, name)
            if victims:
                found[name] = victims
            if len(found) >= _MOST_CANDIDATES:
                break
        return found

    def _victims(self, pod: Pod, name: str) -> list[Pod]:
        """Return the pods of a lower priority that must leave a node for *pod*.

        As few as possible, and those of the lowest priority first.
        """
        lower = [each for each in self._table.pods_on(name) if each.priority < pod.priority]
        if not lower or not self._table.fits_without(pod, name, lower):
            return []
        victims = list(lower)
        for each in sorted(lower, key=lambda it: (-it.priority, it.created, it.uid)):
            rest = [other for other in victims if other.uid != each.uid]
            if self._table.fits_without(pod, name, rest):
                victims = rest
        return [each for each in victims if self._is_placed(each)]


def _cost(name: str, victims: Sequence[Pod]) -> tuple[int, int, int, str]:
    priorities = [each.priority for each in victims]
    return max(priorities), sum(priorities), len(priorities), name
