"""Nodes, and the table of all nodes with their capacity and usage as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from extender.model.memo import Memo
from extender.model.pod import NO_LABELS, HostPort
from extender.model.resources import Resources

#: The wildcard address: every address of a node.
ANY = "0.0.0.0"  # noqa: S104 (nothing listens here)
#: The key of "any single address".
_SINGLE = None
#: Protocol, port, address.
PortKey = tuple[str, int, str | None]


class HostPorts:
    """The host ports in use on one node, with their counts; immutable."""

    __slots__ = ("_counts",)

    def __init__(
        self, ports: Iterable[HostPort] = (), *, counts: Mapping[PortKey, int] | None = None
    ) -> None:
        """With *counts* by key, *ports* is not read."""
        self._counts = _counted({}, ports, 1) if counts is None else counts

    @property
    def counts(self) -> Mapping[PortKey, int]:
        """The number of uses of each key."""
        return self._counts

    def plus(self, ports: Iterable[HostPort]) -> HostPorts:
        """Return these and *ports*."""
        return HostPorts(counts=_counted(self._counts, ports, 1))

    def minus(self, ports: Iterable[HostPort]) -> HostPorts:
        """Return these without *ports*."""
        return HostPorts(counts=_counted(self._counts, ports, -1))

    def conflicts(self, ports: Iterable[HostPort]) -> bool:
        """Return whether one of *ports* conflicts with these."""
        counts = self._counts
        return any(key in counts for key in conflicting_keys(ports))

    def __iter__(self) -> Iterator[PortKey]:
        """Yield the keys in use."""
        return iter(self._counts)

    def __bool__(self) -> bool:
        """Return whether any port is in use."""
        return bool(self._counts)

    def __eq__(self, other: object) -> bool:
        """Compare the keys and their counts."""
        return isinstance(other, HostPorts) and self._counts == other._counts

    def __repr__(self) -> str:
        """Return the counts for debugging."""
        return f"Ports({dict(self._counts)})"


def keys_of(port: HostPort) -> tuple[PortKey, ...]:
    """Return the keys under which a used port is counted."""
    own = (port.protocol, port.port, port.ip)
    return (own,) if port.ip == ANY else (own, (port.protocol, port.port, _SINGLE))


def conflicting_keys(ports: Iterable[HostPort]) -> Iterator[PortKey]:
    """Yield the keys whose use conflicts with *ports*.

    For each port: the same port on the wildcard address, and on its own address. For a port on the
    wildcard address: the same port on any single address.
    """
    for port in ports:
        yield port.protocol, port.port, ANY
        yield port.protocol, port.port, _SINGLE if port.ip == ANY else port.ip


def _counted(
    before: Mapping[PortKey, int], ports: Iterable[HostPort], step: int
) -> dict[PortKey, int]:
    counts = dict(before)
    for port in ports:
        for key in keys_of(port):
            count = counts.get(key, 0) + step
            if count > 0:
                counts[key] = count
            else:
                counts.pop(key, None)
    return counts


Amounts: TypeAlias = npt.NDArray[np.int64]
#: A boolean for every row.
Mask: TypeAlias = npt.NDArray[np.bool_]
#: The allocatable amount of a resource that a node does not limit (only ever `pods`).
UNLIMITED = 2**60
#: Prefix of the taints that Kubernetes sets by itself: not-ready, unreachable, unschedulable.
_CONDITION = "node.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The parts of a node that decide where a pod may run."""

    name: str
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    #: Has a label of `--node-selector`, or the flag is not set; other nodes are never used.
    managed: bool = True

    @property
    def is_closed(self) -> bool:
        """Return whether the node is cordoned or not ready."""
        return self.unschedulable or not self.ready

    def opened(self) -> Node:
        """Return the node as if it were ready and not cordoned.

        This drops the taints that Kubernetes sets on a node in such a state.
        """
        if not self.is_closed:
            return self
        taints = tuple(taint for taint in self.taints if not taint.key.startswith(_CONDITION))
        return replace(self, ready=True, unschedulable=False, taints=taints)


@dataclass(frozen=True, eq=False)
class NodeFacts:
    """All nodes without their usage, shared by snapshots until a node changes.

    Sorted by name. *memo* caches results that depend on nothing else, such as the nodes that a
    shape may use at all.
    """

    nodes: tuple[Node, ...]
    index: Mapping[str, int]
    memo: Memo = field(default_factory=Memo)

    @cached_property
    def ready(self) -> Mask:
        """Return the mask of managed nodes that are ready: only those have capacity."""
        return np.array([node.ready and node.managed for node in self.nodes], dtype=bool)

    @cached_property
    def cordoned(self) -> Mask:
        """Return the mask of cordoned nodes."""
        return np.array([node.unschedulable for node in self.nodes], dtype=bool)

    @cached_property
    def unmanaged(self) -> Mask:
        """Return the mask of nodes that are not managed."""
        return np.array([not node.managed for node in self.nodes], dtype=bool)

    @cached_property
    def opened(self) -> NodeFacts:
        """Return the same nodes as if all of them were open."""
        return NodeFacts(tuple(node.opened() for node in self.nodes), self.index)


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """All nodes with their usage: one row per node of *facts*, one column per resource.

    *used* counts every pod that is on the node or has a reservation on it (ALLOCATED, BINDING),
    releasing pods included. *releasing* counts the releasing pods again. Free capacity is
    `allocatable - used`; it may be negative.
    """

    facts: NodeFacts
    #: Column names; cpu, memory and pods come first, the rest is sorted.
    dimensions: tuple[str, ...]
    allocatable: Amounts
    used: Amounts
    releasing: Amounts
    #: Host ports in use, by node name; nodes without any are absent.
    ports: Mapping[str, HostPorts] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes in row order."""
        return self.facts.nodes

    def resources(self, amounts: Amounts) -> Resources:
        """Return *amounts*, one for each column, by name."""
        return Resources(zip(self.dimensions, amounts.tolist(), strict=True))
