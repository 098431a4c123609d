"""The cluster at one moment, as the plan sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.model.caller import Caller
from extender.model.gang import Gang, GangKey
from extender.model.node import NodeTable
from extender.model.pod import PodUid, Requirement, Shape
from extender.model.queue import Namespace, Queue, Share
from extender.model.resources import NOTHING, Resources


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


class Excess(NamedTuple):
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
    shares: Mapping[str, Share] = field(default_factory=dict)
    #: Those somebody told us of, sorted by name.
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    #: The priority classes there are, by name.
    classes: frozenset[str] = frozenset()
    #: The priority of those who name no class.
    usual_priority: int = 0
    #: PodGroups in namespaces that are exempt, sorted; the same value while they are the same.
    exempt_groups: tuple[GangKey, ...] = ()
    #: Objects larger than we read, sorted; the same value while they are the same.
    too_large: tuple[Excess, ...] = ()
    budgets: tuple[DisruptionBudget, ...] = ()
    #: By namespace, each sorted by name.
    quotas: Mapping[str, tuple[ResourceQuota, ...]] = field(default_factory=dict)
    #: Gangs that were let into their queue a moment ago, whose pods may still be on their way.
    let_in_lately: frozenset[GangKey] = frozenset()
    #: Gangs that were begun to be bound and have too few members: they go before everybody.
    cut_short: frozenset[GangKey] = frozenset()
    #: Pods that must not be asked to leave now, and why (a phrase for people): a budget forbade
    #: it, or their gang has only just started.
    protected: Mapping[PodUid, str] = field(default_factory=dict)
    #: Pods that should have left long ago and did not; their room is not on its way.
    stuck: frozenset[PodUid] = frozenset()
    #: What we hear of kube-scheduler by scheduler name; who is not named here will come.
    callers: Mapping[str, Caller] = field(default_factory=dict)
    #: Nodes on which kube-scheduler would not have pods of a shape a moment ago.
    misfits: Mapping[Shape, frozenset[str]] = field(default_factory=dict)
