"""Nodes, and the table of all of them with their room as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from extender.model.memo import Memo
from extender.model.pod import NO_LABELS
from extender.model.ports import Ports
from extender.model.resources import Resources

Amounts: TypeAlias = npt.NDArray[np.int64]
#: A yes or no for every row.
Mask: TypeAlias = npt.NDArray[np.bool_]

#: What a node offers of a resource it does not limit (only ever `pods`).
UNLIMITED = 2**60

#: How taints begin that Kubernetes sets by itself: not-ready, unreachable, unschedulable.
_CONDITION = "node.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's objection to pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node, as far as placing a pod is concerned."""

    name: str
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    #: Has a label of `--node-selector`, or nobody asks for one; no pod of ours goes to the others.
    ours: bool = True

    @property
    def is_shut(self) -> bool:
        """Ask whether it takes nobody until it is mended or opened again."""
        return self.unschedulable or not self.ready

    def opened(self) -> Node:
        """Give it as it would be, ready and not cordoned.

        The taints go that Kubernetes itself puts on a node in such a state.
        """
        if not self.is_shut:
            return self
        taints = tuple(taint for taint in self.taints if not taint.key.startswith(_CONDITION))
        return replace(self, ready=True, unschedulable=False, taints=taints)


@dataclass(frozen=True, slots=True, eq=False)
class NodeFacts:
    """What is true of the nodes themselves, shared by snapshots until a node changes.

    Sorted by name. *memo* is a place for answers that depend on nothing else, such as which
    nodes a shape may use at all; it lives and dies with these facts.
    """

    nodes: tuple[Node, ...]
    index: Mapping[str, int]
    memo: Memo = field(default_factory=Memo)


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """All nodes with their room: one row per node of *facts*, one column per resource.

    *used* counts every pod on the node, or about to be there (ALLOCATED, BINDING), releasing
    ones too; *releasing* counts those again that are on their way out. Idle room is
    `allocatable - used`; it may be negative.
    """

    facts: NodeFacts
    #: Column names; cpu, memory and pods come first, the rest is sorted.
    dimensions: tuple[str, ...]
    allocatable: Amounts
    used: Amounts
    releasing: Amounts
    #: Host ports in use, by node name; nodes without any are absent.
    ports: Mapping[str, Ports] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Give the nodes in row order."""
        return self.facts.nodes
