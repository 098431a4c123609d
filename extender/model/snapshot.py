"""The cluster at one moment, as the plan sees it."""

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
    """What we hear of it; only the first two may have room."""

    HEARD = "heard"  # it has asked us since we lead
    EXPECTED = "expected"  # it has looked at pods of that name, and not asked us since we lead
    UNHEARD = "not heard yet"  # no trace of anybody who serves that name
    SILENT = "silent"  # pods wait for it, it was called, and nobody came
    ELSEWHERE = "elsewhere"  # it lives, and another extender answers it


_SERVED = frozenset({Liveness.HEARD, Liveness.EXPECTED})


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerStatus:
    """One scheduler name at one moment."""

    name: str
    liveness: Liveness
    #: When it last asked us, in seconds since the epoch; 0 when it has not since we lead.
    called_at: float = 0.0
    #: Since when we have listened in vain, in the same seconds.
    quiet_since: float = 0.0
    #: It gave a sign of life since we lead, and if it did not ask us, we have waited for a rival.
    is_alive: bool = True
    #: Another extender that wakes pods of that name, by its own account; empty without.
    rival: str = ""

    @property
    def may_reserve(self) -> bool:
        """Ask whether room for its pods may be kept: somebody will come for it."""
        return self.liveness in _SERVED

    @property
    def may_claim(self) -> bool:
        """Ask whether others may have to leave, or be kept out, for its pods.

        Traces from before we led are not enough: by them alone nobody knows that it still runs.
        """
        return self.liveness in _SERVED and self.is_alive

    def _of_rival(self) -> str:
        if not self.rival:
            return ""
        return (
            f"another extender ({self.rival}) acts on pods of scheduler name {self.name} beside"
            " us; end one of the two, or let one stand by (--lease)"
        )

    def words(self, now: float) -> str:
        """Say what we hear of it, in a few words."""
        if not self.called_at:
            return self.liveness.value
        return f"{self.liveness.value}, asked {span(now - self.called_at)} ago"

    def complaint(self, now: float) -> str:
        """Say what is wrong and what to look at, at *now*; empty when nothing is."""
        if self.liveness is Liveness.UNHEARD:
            return f"no kube-scheduler has asked for pods of scheduler name {self.name} yet"
        if self.liveness is Liveness.ELSEWHERE:
            who = f" ({self.rival})" if self.rival else ""
            return (
                f"kube-scheduler asks another extender{who} for pods of scheduler name {self.name},"
                " not us; end one of the two, or let one stand by (--lease)"
            )
        if self.liveness is not Liveness.SILENT:
            return self._of_rival()
        how_long = f"for {span(now - self.quiet_since)}"
        if not self.called_at:
            how_long = f"since we began to listen {span(now - self.quiet_since)} ago"
        return (
            f"no kube-scheduler has asked for pods of scheduler name {self.name} {how_long}: is it"
            " running, and does a profile serve that name?"
        )


def span(seconds: float) -> str:
    """Write a span of time coarsely, so that a sentence with it does not change all the time."""
    if seconds < 120:
        return f"{max(0, int(seconds)) // 10 * 10} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """How many of the pods it selects may still be evicted."""

    namespace: str
    name: str
    #: What the labels of its pods must be, all of it; nothing at all selects every pod.
    selector: tuple[Requirement, ...] = ()
    allowed: int = 0
    #: How many must be up (minAvailable), where that is a number above 0.
    least: int | None = None
    #: The same as a part of all, such as `50%`; empty when it is none.
    part: str = ""
    #: Names of pods whose disruption is already counted.
    disrupted: frozenset[str] = frozenset()
    #: What of it is more than we read (a phrase), mostly empty.
    excess: str = ""


class OverLimit(NamedTuple):
    """An object that is larger than we read, and in what."""

    namespace: str
    #: `Pod`, `PodGroup` or `PodDisruptionBudget`.
    kind: str
    name: str
    #: More than so many of something (a phrase).
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceQuota:
    """How much the pods of a namespace may ask for together, in the words of quotas."""

    namespace: str
    name: str
    #: As the API server enforces it: amounts of `requests.cpu`, `limits.cpu` and the like are
    #: counted as those of `cpu` are.
    hard: Resources = NOTHING
    used: Resources = NOTHING
    #: It is for some of the pods alone: of a priority class, without requests and so on.
    is_scoped: bool = False
    #: What the namespace weighs beside others, where namespaces have an order.
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """Immutable, and shares with its predecessor whatever did not change."""

    generation: int
    #: Seconds since the epoch when it was taken; the plan has no clock of its own.
    now: float
    nodes: NodeTable
    #: Sorted by key.
    gangs: Mapping[GangKey, Gang] = field(default_factory=dict)
    #: Sorted by name.
    queues: Mapping[str, Queue] = field(default_factory=dict)
    #: What namespaces may have of single queues; sorted by name. Mostly empty.
    shares: Mapping[str, NamespaceShare] = field(default_factory=dict)
    #: Those somebody told us of, sorted by name.
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    #: The priority classes there are, by name.
    classes: frozenset[str] = frozenset()
    #: The priority of those who name no class.
    usual_priority: int = 0
    #: PodGroups in namespaces that are exempt, sorted; the same value while they are the same.
    exempt_groups: tuple[GangKey, ...] = ()
    #: Objects larger than we read, sorted; the same value while they are the same.
    too_large: tuple[OverLimit, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    #: By namespace, each sorted by name.
    quotas: Mapping[str, tuple[ResourceQuota, ...]] = field(default_factory=dict)
    #: Gangs that were let into their queue a moment ago, whose pods may still be on their way.
    recently_admitted: frozenset[GangKey] = frozenset()
    #: Gangs that were begun to be bound and have too few members: they go before everybody.
    partial_gangs: frozenset[GangKey] = frozenset()
    #: Pods that must not be asked to leave now, and why (a phrase for people): a budget forbade
    #: it, or their gang has only just started.
    protected: Mapping[PodUid, str] = field(default_factory=dict)
    #: Pods that should have left long ago and did not; their room is not on its way.
    stuck: frozenset[PodUid] = frozenset()
    #: What we hear of kube-scheduler by scheduler name; who is not named here will come.
    schedulers: Mapping[str, SchedulerStatus] = field(default_factory=dict)
    #: Nodes on which kube-scheduler would not have pods of a shape a moment ago.
    rejected_nodes: Mapping[Shape, frozenset[str]] = field(default_factory=dict)
