"""What every node has left in kube-scheduler's eyes, as one table that is asked by shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from extender.model.gang import Membership
from extender.model.matching import NodeIndex, accepts
from extender.model.node import UNLIMITED, Mask, Node
from extender.model.pod import Pod, PodUid, Shape
from extender.model.resources import CPU, PODS, Resources


class NodeTable:
    """Nodes by name, and who sits or is expected on each; every pod sits once."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        #: uid -> (node, pod).
        self._placed: dict[PodUid, tuple[str, Pod]] = {}
        self._pods_on: dict[str, dict[PodUid, Pod]] = {}
        #: How many of each priority sit anywhere.
        self._priorities: Counter[int] = Counter()
        self._names: list[str] = []
        self._row: dict[str, int] = {}
        self._column: dict[str, int] = {}
        self._free: npt.NDArray[np.int64] = np.zeros((0, 0), np.int64)
        self._is_stale = True
        #: Which nodes take pods of a shape at all, and what a shape asks for, by column.
        self._accepting: dict[Shape, Mask] = {}
        self._needs: dict[Shape, npt.NDArray[np.int64]] = {}

    def put(self, node: Node) -> None:
        """Take in a node, or what it is now."""
        self.nodes[node.name] = node
        self._is_stale = True

    def drop(self, name: str) -> None:
        """Forget a node; whoever sits there sits nowhere any more as far as we count."""
        self.nodes.pop(name, None)
        self._is_stale = True

    def clear(self) -> None:
        """Forget everything."""
        self.nodes.clear()
        self._placed.clear()
        self._pods_on.clear()
        self._priorities.clear()
        self._is_stale = True

    def add(self, pod: Pod, node: str) -> None:
        """Count *pod* on *node*, and nowhere when that is empty."""
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
        """Count a pod nowhere."""
        before = self._placed.pop(uid, None)
        if before is not None:
            node, pod = before
            del self._pods_on[node][uid]
            self._priorities[pod.priority] -= 1
            self._count(node, pod.shape, +1)

    def pods_on(self, name: str) -> Iterator[Pod]:
        """Give the pods that count on a node, in the order in which they came."""
        return iter(self._pods_on.get(name, {}).values())

    def has_lower_priority(self, priority: int) -> bool:
        """Ask whether anybody of a lower priority sits anywhere."""
        return any(rank < priority for rank, number in self._priorities.items() if number)

    def fits(self, pod: Pod, name: str) -> bool:
        """Ask whether *pod* would find room on a node, its own seat there not counted."""
        self._rebuild(pod.shape)
        row = self._row.get(name)
        if row is None or not self._accepts(pod.shape)[row]:
            return False
        free = self._free[row]
        if self._placed.get(pod.uid, ("",))[0] == name:
            free = free + self._requests(pod.shape)
        return bool((self._need(pod.shape) <= free).all())

    def fits_beside(self, pod: Pod, name: str, leaving: Collection[Pod]) -> bool:
        """Ask the same as if *leaving* had left."""
        self._rebuild(pod.shape, *(each.shape for each in leaving))
        row = self._row.get(name)
        if row is None or not self._accepts(pod.shape)[row]:
            return False
        free = self._free[row].copy()
        for each in leaving:
            free += self._requests(each.shape)
        return bool((self._need(pod.shape) <= free).all())

    def fits_somewhere(self, shape: Shape) -> bool:
        """Ask whether any node has room for one more of a shape."""
        return bool(self._fitting(shape).any())

    def sample(
        self, shape: Shape, start: int, most: int, only: Collection[str] | None = None
    ) -> tuple[list[str], int]:
        """Look from *start* on for *most* nodes with room; give them, and where to go on."""
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
        """Give what of a node's cpu is left."""
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
            # What nobody asks for may be short: kube-scheduler looks at what is asked for alone.
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
        asked = (shape.requests for shape in shapes)
        seated = (pod.requests for _, pod in self._placed.values())
        offered = (node.allocatable for node in self.nodes.values())
        names = {name for amounts in (*asked, *seated, *offered) for name in amounts}
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
    """Give what a node offers; who says nothing of pods takes as many as come."""
    amount = allocatable.get(name)
    if amount is None:
        return UNLIMITED if name == PODS else 0
    return int(amount)


#: So many nodes are tried at most.
_MOST_CANDIDATES = 100


class Vetoes(Protocol):
    """Whom kube-scheduler asks before it makes anybody leave."""

    def preempt(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Keep the nodes whose victims may go."""


class Preemption:
    """Makes less important pods leave, one node's at a time."""

    def __init__(
        self,
        rooms: NodeTable,
        vetoes: Vetoes,
        evict: Callable[[Pod], None],
        is_there: Callable[[Pod], bool],
    ) -> None:
        self._table = rooms
        self._extender = vetoes
        self._evict = evict
        #: Says who is on a node or on the way; who is only nominated has not come yet.
        self._is_placed = is_there

    def preempt(self, pod: Pod, member: Membership) -> str:
        """Let the cheapest node's victims leave and give its name; empty where nobody may go."""
        # Where all are equal, and mostly they are, no node need be looked at.
        if not pod.may_preempt or not self._table.has_lower_priority(pod.priority):
            return ""
        candidates = self._candidates(pod)
        if not candidates:
            return ""
        asked = {name: [each.uid for each in found] for name, found in candidates.items()}
        kept = self._extender.preempt(pod, member, asked)
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
        """Give whom of the less important a node must lose for *pod*; the least important first."""
        lesser = [each for each in self._table.pods_on(name) if each.priority < pod.priority]
        if not lesser or not self._table.fits_beside(pod, name, lesser):
            return []
        victims = list(lesser)
        for each in sorted(lesser, key=lambda it: (-it.priority, it.created, it.uid)):
            rest = [other for other in victims if other.uid != each.uid]
            if self._table.fits_beside(pod, name, rest):
                victims = rest
        return [each for each in victims if self._is_placed(each)]


def _cost(name: str, victims: Sequence[Pod]) -> tuple[int, int, int, str]:
    ranks = [each.priority for each in victims]
    return max(ranks), sum(ranks), len(ranks), name
