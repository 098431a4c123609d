"""What the doctor checks. What could not be read is None or empty, and in `not_checked`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

from extender.settings import Settings
from extender.web.documents import Finding

Document: TypeAlias = dict[str, Any]


class NotChecked(NamedTuple):
    """A thing that was not checked, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """A KubeSchedulerConfiguration and the settings of the extender that it names."""

    where: str
    document: Document
    settings: Settings = field(default_factory=Settings)
    #: No extender was found: *settings* are the defaults.
    is_assumed: bool = False

    @classmethod
    def of(cls, where: str, document: Document, settings: Settings | None) -> SchedulerConfig:
        """Return a configuration; *settings* are None where no extender was found."""
        if settings is None:
            return cls(where=where, document=document, is_assumed=True)
        return cls(where=where, document=document, settings=settings)


class RunningScheduler(NamedTuple):
    """A kube-scheduler and the feature gates on its command line."""

    where: str
    gates: Mapping[str, bool]


class Replica(NamedTuple):
    """A pod of an extender; ready means that its cache is synced."""

    name: str
    is_ready: bool
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderDeployment:
    """A Deployment of the extender: its specification and its pods."""

    namespace: str
    name: str
    #: None when the extender refuses the arguments; *problem* says why.
    settings: Settings | None
    problem: str = ""
    replicas: int = 1
    account: str = "default"
    scheduler_name: str = "default-scheduler"
    priority_class: str = ""
    #: Whether the pod has a kube-scheduler too.
    is_pair: bool = False
    pods: tuple[Replica, ...] | None = None

    @property
    def where(self) -> str:
        """Return its name as kubectl writes it."""
        return f"deployment/{self.name} in {self.namespace}"

    @property
    def user(self) -> str:
        """Return the user name of its service account."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"


class LeaseFacts(NamedTuple):
    """A Lease; times are in seconds since the epoch."""

    namespace: str
    name: str
    exists: bool
    holder: str = ""
    renewed: float = 0.0
    duration_s: float = 15.0


class ServiceFacts(NamedTuple):
    """A Service of the extender and its selector."""

    where: str
    selector: Mapping[str, str]


class CrdFacts(NamedTuple):
    """A CustomResourceDefinition of PodGroups or Queues."""

    group: str
    plural: str
    #: Served versions.
    versions: tuple[str, ...]
    #: The fields of spec in the version that is read; None if unknown fields are preserved.
    fields: frozenset[str] | None
    #: Whether status is a subresource.
    has_status: bool = True

    @property
    def name(self) -> str:
        """Return the name of the CustomResourceDefinition."""
        return f"{self.plural}.{self.group}"


class MissingPermission(NamedTuple):
    """A permission that a service account of the extender lacks."""

    user: str
    verb: str
    #: Such as `podgroups.scheduling.volcano.sh/status`.
    resource: str
    #: Where it is needed; empty for everywhere.
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The time here, and by how many seconds other clocks are ahead of it, at least."""

    here: float
    api_server_s: float | None = None
    extender_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFiles:
    """The certificate of the hooks of a Deployment, and the CA of its clients; PEM."""

    where: str
    certificate: bytes = b""
    client_ca: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerFiles:
    """The TLS files of an entry of a configuration; None where they cannot be read here."""

    where: str
    server_name: str
    ca: bytes | None = None
    certificate: bytes | None = None
    client_names: tuple[str, ...] = ()


class Readiness(NamedTuple):
    """The answer of the leader's `/readyz`."""

    where: str
    is_ready: bool
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """All facts that the checks read."""

    clocks: Clocks
    #: Whether a cluster was read.
    is_cluster: bool = False
    #: How the credentials of this user are unprotected, each with the remedy.
    unprotected: tuple[str, ...] = ()
    configurations: tuple[SchedulerConfig, ...] = ()
    schedulers: tuple[RunningScheduler, ...] = ()
    installed: tuple[ExtenderDeployment, ...] | None = None
    leases: tuple[LeaseFacts, ...] = ()
    services: tuple[ServiceFacts, ...] = ()
    kinds: tuple[CrdFacts, ...] | None = None
    missing_permissions: tuple[MissingPermission, ...] = ()
    #: Feature gates of the API server that are on.
    server_gates: frozenset[str] = frozenset()
    admission_policies: frozenset[str] | None = None
    hooks: tuple[HookFiles, ...] = ()
    callers: tuple[CallerFiles, ...] = ()
    readiness: Readiness | None = None
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()


class Severity(StrEnum):
    """Whether a problem changes the exit code."""

    PROBLEM = "problem"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Check:
    """A known misconfiguration; the manual lists all of them."""

    #: One word that never changes: scripts search for it.
    name: str
    #: What fails, and when.
    meaning: str
    #: The general remedy; a problem has the exact line or command.
    mend: str
    severity: Severity = Severity.PROBLEM

    def at(self, where: str, seen: str, mend: str = "") -> Problem:
        """Return the problem of this check at *where*."""
        return Problem(self, where, seen, mend or self.mend)


@dataclass(frozen=True, slots=True)
class Problem:
    """A misconfiguration that was found."""

    check: Check
    #: The object or the file, and the place in it.
    where: str
    #: What was found there.
    seen: str
    #: The exact line or command.
    mend: str
