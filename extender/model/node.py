"""Nodes, and the table of all of them with their room as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from extender.model.memo import Memo
from extender.model.pod import NO_LABELS, HostPort
from extender.model.resources import Resources

#: Kubernetes' word for every address of a node.
ANY = "0.0.0.0"  # noqa: S104 (nothing listens here)
#: Stands for the single addresses together, whichever they are.
_SINGLE = None
#: Protocol, port, address.
PortKey = tuple[str, int, str | None]


class HostPorts:
    """The host ports taken in one place, as often as they are; never changes."""

    __slots__ = ("_counts",)

    def __init__(self, ports: Iterable[HostPort] = ()) -> None:
        self._counts: Mapping[PortKey, int] = _counted({}, ports, 1)

    @classmethod
    def counted(cls, counts: Mapping[PortKey, int]) -> HostPorts:
        """Give the ports that are taken so often."""
        return _holding(dict(counts))

    @property
    def counts(self) -> Mapping[PortKey, int]:
        """Say how often each key is taken."""
        return self._counts

    def plus(self, ports: Iterable[HostPort]) -> HostPorts:
        """Give these and *ports*."""
        return _holding(_counted(self._counts, ports, 1))

    def minus(self, ports: Iterable[HostPort]) -> HostPorts:
        """Give these without *ports*."""
        return _holding(_counted(self._counts, ports, -1))

    def conflicts(self, ports: Iterable[HostPort]) -> bool:
        """Ask whether one of *ports* cannot be where these are."""
        counts = self._counts
        return any(key in counts for key in conflicting_keys(ports))

    def __iter__(self) -> Iterator[PortKey]:
        """Give the keys under which these are in the way of others."""
        return iter(self._counts)

    def __bool__(self) -> bool:
        """Ask whether any is taken."""
        return bool(self._counts)

    def __eq__(self, other: object) -> bool:
        """Compare what is taken, and how often."""
        return isinstance(other, HostPorts) and self._counts == other._counts

    def __repr__(self) -> str:
        """Show the counts."""
        return f"Ports({dict(self._counts)})"


def keys_of(port: HostPort) -> tuple[PortKey, ...]:
    """Give the keys under which a port that is taken is noted."""
    own = (port.protocol, port.port, port.ip)
    return (own,) if port.ip == ANY else (own, (port.protocol, port.port, _SINGLE))


def conflicting_keys(ports: Iterable[HostPort]) -> Iterator[PortKey]:
    """Give the keys of what would be in the way of *ports*.

    That is, for each: the same port on every address, and on its own or, if it wants every
    address, on any.
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


def _holding(counts: Mapping[PortKey, int]) -> HostPorts:
    made = HostPorts()
    made._counts = counts
    return made


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
    managed: bool = True

    @property
    def is_closed(self) -> bool:
        """Ask whether it takes nobody until it is mended or opened again."""
        return self.unschedulable or not self.ready

    def opened(self) -> Node:
        """Give it as it would be, ready and not cordoned.

        The taints go that Kubernetes itself puts on a node in such a state.
        """
        if not self.is_closed:
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
    ports: Mapping[str, HostPorts] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Give the nodes in row order."""
        return self.facts.nodes
