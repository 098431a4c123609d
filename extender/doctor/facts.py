"""What was looked at. Whatever could not be is None or empty, and said in `Seen.unseen`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from extender.settings import Settings

Document: TypeAlias = dict[str, Any]


class NotChecked(NamedTuple):
    """Something that was not looked at, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """A KubeSchedulerConfiguration and the extender that it should fit."""

    where: str
    document: Document
    settings: Settings = field(default_factory=Settings)
    #: Nobody could be asked: *settings* are the usual ones.
    is_assumed: bool = False


class RunningScheduler(NamedTuple):
    """A kube-scheduler and the feature gates of its command line."""

    where: str
    gates: Mapping[str, bool]


class Replica(NamedTuple):
    """A pod of an extender; ready means warm."""

    name: str
    is_ready: bool
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderDeployment:
    """A Deployment of ours, as it is written and as it runs."""

    namespace: str
    name: str
    #: None when the arguments are such that it will not start; *problem* says why.
    settings: Settings | None
    problem: str = ""
    replicas: int = 1
    account: str = "default"
    scheduler_name: str = "default-scheduler"
    priority_class: str = ""
    #: Whether a kube-scheduler is in the same pod.
    is_pair: bool = False
    pods: tuple[Replica, ...] | None = None

    @property
    def where(self) -> str:
        """Name it as kubectl does."""
        return f"deployment/{self.name} in {self.namespace}"

    @property
    def user(self) -> str:
        """Name the account that it acts as."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"


class LeaseFacts(NamedTuple):
    """A Lease; the times are seconds since 1970."""

    namespace: str
    name: str
    exists: bool
    holder: str = ""
    renewed: float = 0.0
    duration_s: float = 15.0


class ServiceFacts(NamedTuple):
    """A Service of ours and the pods that it leads to."""

    where: str
    selector: Mapping[str, str]


class CrdFacts(NamedTuple):
    """One kind of PodGroup or Queue of which there is a CustomResourceDefinition."""

    group: str
    plural: str
    #: Served versions.
    versions: tuple[str, ...]
    #: The fields of spec in the version we read; None where unknown ones are kept.
    fields: frozenset[str] | None
    #: Whether status is written by itself.
    has_status: bool = True

    @property
    def name(self) -> str:
        """Name it as its CustomResourceDefinition is."""
        return f"{self.plural}.{self.group}"


class MissingPermission(NamedTuple):
    """A right that an account of ours lacks."""

    user: str
    verb: str
    #: As `podgroups.scheduling.volcano.sh/status`.
    resource: str
    #: Where it is needed; empty for everywhere.
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """What time it is here, and how many seconds others are ahead of that, as far as is certain."""

    here: float
    api_server_s: float | None = None
    extender_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFiles:
    """What the hooks of a Deployment show, and whom they believe; PEM."""

    where: str
    certificate: bytes = b""
    client_ca: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerFiles:
    """What an entry of a configuration shows and believes; None is what is not to be read here."""

    where: str
    server_name: str
    ca: bytes | None = None
    certificate: bytes | None = None
    client_names: tuple[str, ...] = ()


class Readiness(NamedTuple):
    """What `/readyz` of the extender that leads says."""

    where: str
    is_ready: bool
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FindingFacts:
    """One thing that the extender itself finds senseless."""

    kind: str
    name: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """All of it, from one look."""

    clocks: Clocks
    #: Whether anybody looked into a cluster.
    is_cluster: bool = False
    #: How the credentials of whoever looks are open to others, each with the mend.
    unprotected: tuple[str, ...] = ()
    configurations: tuple[SchedulerConfig, ...] = ()
    schedulers: tuple[RunningScheduler, ...] = ()
    installed: tuple[ExtenderDeployment, ...] | None = None
    leases: tuple[LeaseFacts, ...] = ()
    services: tuple[ServiceFacts, ...] = ()
    kinds: tuple[CrdFacts, ...] | None = None
    lacking: tuple[MissingPermission, ...] = ()
    #: Feature gates of the API server that are on.
    server_gates: frozenset[str] = frozenset()
    admission_policies: frozenset[str] | None = None
    hooks: tuple[HookFiles, ...] = ()
    callers: tuple[CallerFiles, ...] = ()
    said: Readiness | None = None
    findings: tuple[FindingFacts, ...] = ()
    unseen: tuple[NotChecked, ...] = ()


class Severity(StrEnum):
    """Whether the exit code says so."""

    TRAP = "trap"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Check:
    """One that we know; the manual prints it."""

    #: One word, the same for ever: scripts look for it.
    name: str
    #: What it means: what goes wrong, and when.
    meaning: str
    #: What to do, in general; whoever is caught is told the exact line or command.
    mend: str
    severity: Severity = Severity.TRAP

    def at(self, where: str, seen: str, mend: str = "") -> Problem:
        """Say that somebody stepped into it."""
        return Problem(self, where, seen, mend or self.mend)


@dataclass(frozen=True, slots=True)
class Problem:
    """A trap that is set."""

    trap: Check
    #: The object or the file, and the place in it.
    where: str
    #: What is written there, or what was heard.
    seen: str
    #: The exact line or command.
    mend: str
