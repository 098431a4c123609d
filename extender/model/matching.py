"""Matching pods and nodes by labels, fields and taints, as kube-scheduler does."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from extender.model.node import Mask, Node, NodeFacts, Taint
from extender.model.pod import NodeTerm, Requirement, Shape, Toleration

#: The taints that the API server adds a moment after the node's status changes.
_NOT_READY = Taint("node.kubernetes.io/not-ready")
CORDONED = Taint("node.kubernetes.io/unschedulable")


def accepts(node: Node, shape: Shape) -> bool:
    """Return whether *node* is ready and accepts pods of *shape*, however full it is."""
    return (node.ready or tolerates(shape, _NOT_READY)) and is_schedulable_for(node, shape)


def is_schedulable_for(node: Node, shape: Shape) -> bool:
    """Return whether *node* is managed, and no cordon or taint excludes pods of *shape*."""
    if not node.managed:
        return False
    if node.unschedulable and not tolerates(shape, CORDONED):
        return False
    return all(tolerates(shape, taint) for taint in node.taints if is_hard(taint))


def is_hard(taint: Taint) -> bool:
    """Return whether *taint* excludes pods that do not tolerate it."""
    return taint.effect in ("NoSchedule", "NoExecute")


def tolerates(shape: Shape, taint: Taint) -> bool:
    """Return whether a pod of *shape* tolerates *taint*."""
    return any(_tolerates(toleration, taint) for toleration in shape.tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def meets_requirement(need: Requirement, value: str | None) -> bool:
    """Return whether *value*, None where there is none, meets *need*."""
    if need.operator == "DoesNotExist":
        return value is None
    if need.operator == "NotIn":
        return value is None or value not in need.values
    if value is None:
        return False
    if need.operator == "In":
        return value in need.values
    return need.operator == "Exists" or _compares(need, value)


def _compares(need: Requirement, value: str) -> bool:
    """Compare as whole numbers for Gt and Lt; anything else never holds."""
    try:
        have, limit = int(value), int(need.values[0])
    except (ValueError, IndexError):
        return False
    return have > limit if need.operator == "Gt" else need.operator == "Lt" and have < limit


_Codes = npt.NDArray[np.int32]


def index_of(facts: NodeFacts) -> NodeIndex:
    """Return the index of some nodes; the same one until a node changes."""
    return facts.memo.recall("index", lambda: NodeIndex(facts.nodes))


class NodeIndex:
    """Answers with a mask over all nodes, in the order in which they were given."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._columns: dict[str, _Column] = {}
        self._without_label = _column([None] * len(nodes))

    def selected(self, shape: Shape) -> Mask:
        """Mark the nodes that meet the selector and the required affinity of *shape*."""
        marks = np.ones(len(self._nodes), dtype=bool)
        for key, value in shape.selector:
            marks &= self._labelled(key).has(value)
        return marks if shape.affinity is None else marks & self._any(shape.affinity)

    def matching(self, term: NodeTerm) -> Mask:
        """Mark the nodes that meet a node selector term; an empty term matches nothing."""
        marks = np.full(len(self._nodes), bool(term.labels or term.fields))
        for need in term.labels:
            marks &= self._labelled(need.key).meets(need)
        for need in term.fields:
            marks &= self._names.meets(need)
        return marks

    def tainted(self, matches: Callable[[Taint], bool]) -> Mask:
        """Mark the nodes with a taint for which *matches* returns true."""
        marks: Mask = self.count_taints(matches) > 0
        return marks

    def count_taints(self, matches: Callable[[Taint], bool]) -> npt.NDArray[np.int64]:
        """Count the taints of every node for which *matches* returns true."""
        groups, codes = self._taints
        answers = {taint: matches(taint) for taints in groups for taint in taints}
        counts = [sum(answers[taint] for taint in taints) for taints in groups]
        found: npt.NDArray[np.int64] = np.array(counts, dtype=np.int64)[codes]
        return found

    def _any(self, terms: Sequence[NodeTerm]) -> Mask:
        marks = np.zeros(len(self._nodes), dtype=bool)
        for term in terms:
            marks |= self.matching(term)
        return marks

    def _labelled(self, key: str) -> _Column:
        if key not in self._keys:
            return self._without_label
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = _column([node.labels.get(key) for node in self._nodes])
        return column

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(key for node in self._nodes for key in node.labels)

    @cached_property
    def _names(self) -> _Column:
        return _column([node.name for node in self._nodes])

    @cached_property
    def _taints(self) -> tuple[list[tuple[Taint, ...]], _Codes]:
        groups = {taints: number for number, taints in enumerate({n.taints for n in self._nodes})}
        codes = np.array([groups[node.taints] for node in self._nodes], dtype=np.int32)
        return list(groups), codes


class _Column:
    """The values of one label: a code for each node, 0 for nodes without the label."""

    def __init__(self, values: dict[str, int], codes: _Codes) -> None:
        self._values = values
        self._codes = codes

    def has(self, value: str) -> Mask:
        """Mark the nodes with this value."""
        marks: Mask = self._codes == self._values.get(value, -1)
        return marks

    def meets(self, need: Requirement) -> Mask:
        """Mark the nodes whose value, or lack of one, meets *need*."""
        if need.operator == "In":
            return self._is_one_of(need.values)
        if need.operator == "NotIn":
            return ~self._is_one_of(need.values)
        if need.operator in ("Exists", "DoesNotExist"):
            marks: Mask = (self._codes != 0) == (need.operator == "Exists")
            return marks
        return self._compares(need)

    def _is_one_of(self, values: Sequence[str]) -> Mask:
        wanted = [code for value in values if (code := self._values.get(value))]
        if len(wanted) < 2:
            marks: Mask = self._codes == (wanted[0] if wanted else -1)
            return marks
        table = np.zeros(len(self._values) + 1, dtype=bool)
        table[wanted] = True
        return table[self._codes]

    def _compares(self, need: Requirement) -> Mask:
        """Compare as whole numbers for Gt and Lt; anything else never holds."""
        numbers, ranks = self._ranked
        limit = _whole(need.values[0]) if need.values else None
        if limit is None or need.operator not in ("Gt", "Lt"):
            return np.zeros(len(self._codes), dtype=bool)
        if need.operator == "Gt":
            marks: Mask = ranks >= bisect_right(numbers, limit)
        else:
            marks = (ranks >= 0) & (ranks < bisect_left(numbers, limit))
        return marks

    @cached_property
    def _ranked(self) -> tuple[list[int], _Codes]:
        """Return the numbers among the values in order, and the rank of each node's, else -1."""
        whole = {code: _whole(value) for value, code in self._values.items()}
        numbers = sorted({number for number in whole.values() if number is not None})
        rank_of = {number: rank for rank, number in enumerate(numbers)}
        ranks = np.full(len(self._values) + 1, -1, dtype=np.int32)
        for code, number in whole.items():
            if number is not None:
                ranks[code] = rank_of[number]
        return numbers, ranks[self._codes]


def _column(values: Sequence[str | None]) -> _Column:
    codes: dict[str, int] = {}
    numbers = [0 if value is None else codes.setdefault(value, len(codes) + 1) for value in values]
    return _Column(codes, np.array(numbers, dtype=np.int32))


def _whole(value: str) -> int | None:
    try:
        return int(value)
    except ValueError:
        return None
