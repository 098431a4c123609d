"""The cluster at one moment: the input of the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from extender.model.gang import Gang, GangKey
from extender.model.node import NodeTable
from extender.model.pod import PodUid, Requirement, Shape
from extender.model.queue import Namespace, NamespaceShare, Queue
from extender.model.resources import NOTHING, Resources


class Liveness(Enum):
    """The liveness of a scheduler; capacity is reserved for the first two only."""

    HEARD = "heard"  # it has called this extender since it leads
    EXPECTED = "expected"  # it has tried pods of that name, but not called since this one leads
    UNHEARD = "not heard yet"  # no sign of a scheduler with that name
    SILENT = "silent"  # pods wait for it and were woken, and no call came
    ELSEWHERE = "elsewhere"  # it is alive and calls another extender


_SERVED = frozenset({Liveness.HEARD, Liveness.EXPECTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStatus:
    """The state of one scheduler name at one moment."""

    name: str
    liveness: Liveness
    #: Time of its last call in seconds since the epoch; 0 without one since this extender leads.
    called_at: float = 0.0
    #: Since when no call has come, in seconds since the epoch.
    quiet_since: float = 0.0
    #: It showed activity since this extender leads. Without a call, the time in which another
    #: extender would show itself has passed too.
    is_alive: bool = True
    #: The identity of another extender that wakes pods of that name; empty without one.
    rival: str = ""

    @property
    def may_reserve(self) -> bool:
        """Return whether capacity may be reserved for its pods: a call for them will come."""
        return self.liveness in _SERVED

    @property
    def may_claim(self) -> bool:
        """Return whether other pods may be evicted or kept waiting for its pods.

        Activity from before this extender led is not enough: it does not prove that it still runs.
        """
        return self.liveness in _SERVED and self.is_alive

    def _of_rival(self) -> str:
        if not self.rival:
            return ""
        return (
            f"another extender ({self.rival}) also acts on pods of scheduler name {self.name};"
            " stop one of the two, or run one as standby (--lease)"
        )

    def message(self, now: float) -> str:
        """Return its liveness as a phrase."""
        if not self.called_at:
            return self.liveness.value
        return f"{self.liveness.value}, called {span(now - self.called_at)} ago"

    def problem(self, now: float) -> str:
        """Return what is wrong at *now* and what to check; empty when nothing is."""
        if self.liveness is Liveness.UNHEARD:
            return f"no kube-scheduler has called for pods of scheduler name {self.name} yet"
        if self.liveness is Liveness.ELSEWHERE:
            rival = f" ({self.rival})" if self.rival else ""
            return (
                f"kube-scheduler calls another extender{rival} for pods of scheduler name"
                f" {self.name}, not this one; stop one of the two, or run one as standby (--lease)"
            )
        if self.liveness is not Liveness.SILENT:
            return self._of_rival()
        how_long = f"for {span(now - self.quiet_since)}"
        if not self.called_at:
            how_long = f"since this extender began to listen {span(now - self.quiet_since)} ago"
        return (
            f"no kube-scheduler has called for pods of scheduler name {self.name} {how_long}: is it"
            " running, and does a profile have that name?"
        )


def span(seconds: float) -> str:
    """Format a duration coarsely, so that messages with it change rarely."""
    if seconds < 120:
        return f"{max(0, int(seconds)) // 10 * 10} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """A PodDisruptionBudget and how many of its pods may still be evicted."""

    namespace: str
    name: str
    #: The labels of its pods must meet all of these; an empty selector selects every pod.
    selector: tuple[Requirement, ...] = ()
    allowed: int = 0
    #: minAvailable, where that is a number above 0.
    least: int | None = None
    #: minAvailable, where that is a percentage such as `50%`; else empty.
    part: str = ""
    #: Names of pods whose disruption is already counted.
    disrupted: frozenset[str] = frozenset()
    #: The part of it that exceeds what this extender reads (a phrase), mostly empty.
    excess: str = ""


class OverLimit(NamedTuple):
    """An object that exceeds what this extender reads."""

    namespace: str
    #: `Pod`, `PodGroup` or `PodDisruptionBudget`.
    kind: str
    name: str
    #: What exceeds which limit (a phrase).
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    """A ResourceQuota: what the pods of a namespace may request together."""

    namespace: str
    name: str
    #: As the API server enforces it; amounts of `requests.cpu`, `limits.cpu` and the like have the
    #: unit of `cpu`.
    hard: Resources = NOTHING
    used: Resources = NOTHING
    #: It applies to some of the pods only: those of a priority class, without requests and so on.
    is_scoped: bool = False
    #: The weight of the namespace, where namespaces have an order.
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """The immutable state of the cluster; shares unchanged parts with its predecessor."""

    generation: int
    #: Seconds since the epoch when it was taken; the planner has no clock of its own.
    now: float
    nodes: NodeTable
    #: Sorted by key.
    gangs: Mapping[GangKey, Gang] = field(default_factory=dict)
    #: Sorted by name.
    queues: Mapping[str, Queue] = field(default_factory=dict)
    #: Limits and guarantees of namespaces in single queues, sorted by name. Mostly empty.
    shares: Mapping[str, NamespaceShare] = field(default_factory=dict)
    #: The known namespaces, sorted by name.
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    #: The names of the priority classes.
    classes: frozenset[str] = frozenset()
    #: The priority of pods that name no class.
    usual_priority: int = 0
    #: PodGroups in exempt namespaces, sorted; the same object while they do not change.
    exempt_groups: tuple[GangKey, ...] = ()
    #: Objects that exceed what is read, sorted; the same object while they do not change.
    too_large: tuple[OverLimit, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    #: By namespace, each sorted by name.
    quotas: Mapping[str, tuple[ResourceQuota, ...]] = field(default_factory=dict)
    #: Gangs that were enqueued a moment ago and whose pods may not exist yet.
    recently_admitted: frozenset[GangKey] = frozenset()
    #: Gangs whose binding began and that have too few members: they go before all others.
    partial_gangs: frozenset[GangKey] = frozenset()
    #: Pods that must not be evicted now, with the cause (a phrase): a budget refused it, or their
    #: gang has only just started.
    protected: Mapping[PodUid, str] = field(default_factory=dict)
    #: Pods that are overdue to terminate; their capacity does not count as releasing.
    stuck: frozenset[PodUid] = frozenset()
    #: The status of each scheduler name; a name that is absent counts as alive.
    schedulers: Mapping[str, SchedulerStatus] = field(default_factory=dict)
    #: Nodes that kube-scheduler rejected for pods of a shape a moment ago.
    rejected_nodes: Mapping[Shape, frozenset[str]] = field(default_factory=dict)
