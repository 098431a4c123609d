"""The doors to the outside: small protocols that `kube` and `sim` both implement.

Everything here may be called from any thread; nothing here blocks, because whoever asks may
stand in an event loop. Outcomes come back as futures; those of binds, of which there is one for
every pod of the cluster, are told to a callback.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

import msgspec

from extender.model.gang import VOLCANO, Gang, GangKey, PodGroup
from extender.model.pod import PodUid
from extender.model.queue import Namespace, Queue


class Clock(Protocol):
    """Time, real or virtual."""

    def now(self) -> float:
        """Seconds since the epoch, to compare with what the API server wrote."""

    def monotonic(self) -> float:
        """Seconds that never jump, for deadlines."""


class Whose(Enum):
    """Whose decision a bind carries out."""

    OURS = "ours"  # it needs a term: only whoever leads may decide
    SCHEDULERS = "kube-scheduler's"  # we only pass it on, whoever we are
    #: kube-scheduler's if the API server shows an exempt pod of ours; else nobody's just now.
    UNKNOWN = "unknown"


class BindOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Bind this very pod (the API server checks *uid*) to this node."""

    uid: PodUid
    namespace: str
    name: str
    node: str
    whose: Whose = Whose.OURS


class BindResult(Enum):
    """What became of a bind, as far as the API server has shown it."""

    BOUND = "bound"  # the API server has shown the pod on our node
    LOST = "lost"  # it is on another node, gone, being deleted, or another pod by now
    FAILED = "failed"  # certainly not bound; trying again may help
    UNKNOWN = "unknown"  # no answer, and reading the pod back gave none either


class BindOutcome(msgspec.Struct, frozen=True):
    """The result and, unless bound, a sentence without counters for kube-scheduler's event."""

    result: BindResult
    message: str = ""


#: Hears what became of an order.
OnOutcome: TypeAlias = Callable[[BindOrder, BindOutcome], None]


class Binder(Protocol):
    """Writes bindings; the orders of one call belong together and go out one after the other."""

    def bind(self, orders: Sequence[BindOrder], settle: OnOutcome, until: float) -> None:
        """Send *orders* and settle each once, perhaps before this returns; retries are ours.

        *until* is the moment (of `Clock.monotonic`) by which whoever waits must hear. It is there
        to be used up: as long as it has not come, an outcome may still become known.
        """


class GroupReader(Protocol):
    """Reads a PodGroup from the API server itself, past every cache."""

    def read(self, group: PodGroup) -> Future[PodGroup | None]:
        """Return the live object of the same dialect and key; None when it does not exist.

        The future raises `ApiError` when the API server cannot be asked.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeOrder:
    """Make kube-scheduler look at a parked pod again, at *node* first.

    Without a node an earlier nomination is taken back: as long as it stands, kube-scheduler keeps
    that node's room from pods that are no more important.
    """

    uid: PodUid
    namespace: str
    name: str
    gang: GangKey | None = None
    node: str = ""
    #: In place of what kube-scheduler last said of the pod (its condition PodScheduled), so that
    #: it says it again; empty to leave that as it is.
    refusal: str = ""
    #: The nomination is taken back as soon as it stands: room that is given back makes
    #: kube-scheduler look at pods for which it found none.
    briefly: bool = False

    @property
    def nomination(self) -> str:
        """The node that the pod stays nominated to; empty when none."""
        return "" if self.briefly else self.node


class Waker(Protocol):
    """Wakes parked pods; rate-limited, retried, fire and forget."""

    def wake(self, orders: Sequence[WakeOrder]) -> None:
        """Queue *orders*; a later order for the same pod replaces one not yet sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictOrder:
    """Ask this very pod (the API server checks *uid*) to leave; *why* is told on the pod."""

    uid: PodUid
    namespace: str
    name: str
    why: str = ""


class EvictResult(Enum):
    """What became of an eviction."""

    LEAVING = "leaving"  # the API server has accepted it
    GONE = "gone"  # the pod is not there any more, or is another one by now
    BLOCKED = "blocked"  # a PodDisruptionBudget, or the API server for another reason, says no
    FAILED = "failed"  # no answer; trying again may help


@dataclass(frozen=True, slots=True)
class EvictOutcome:
    """The result and, unless the pod leaves, a sentence for people."""

    result: EvictResult
    message: str = ""


class Evictor(Protocol):
    """Asks pods to leave; rate-limited, retried within reason."""

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        """Send *orders* and give one future for each, in order."""


class PartialBindRollback(Protocol):
    """Makes what was bound in part leave again; rarely asked, never waits."""

    def evict_all(
        self,
        gang: GangKey,
        orders: Sequence[EvictOrder],
        *,
        leaves: Callable[[GangKey], None],
        stays: Callable[[GangKey], None],
    ) -> None:
        """Ask all of them to leave, or none when one would never come again; then it *stays*.

        That it *leaves* is told before anybody is asked; one of them may yet be kept, and it stays.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """An object of the API server that we speak about: a PodGroup, Queue, Pod or Namespace."""

    kind: str
    name: str
    uid: str
    #: Empty for what belongs to no namespace.
    namespace: str = ""
    #: The API group of a PodGroup or Queue.
    dialect: str = ""

    @classmethod
    def of_gang(cls, gang: Gang) -> ObjectReference | None:
        """Return the object people look at: its PodGroup, or a pod where there is none."""
        group = gang.group
        if group.dialect and group.uid:
            return cls(
                kind="PodGroup",
                dialect=group.dialect,
                namespace=group.namespace,
                name=group.name,
                uid=group.uid,
            )
        for pod in gang.pods:
            return cls(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)
        return None

    @classmethod
    def of_queue(cls, queue: Queue) -> ObjectReference:
        """Return a queue; those that only we imagine have no uid."""
        return cls(kind="Queue", dialect=VOLCANO, name=queue.name, uid=queue.uid)

    @classmethod
    def of_namespace(cls, namespace: Namespace) -> ObjectReference:
        """Return a namespace; it belongs to none itself."""
        return cls(kind="Namespace", name=namespace.name, uid=namespace.uid)


class StatusWriter(Protocol):
    """Reads and writes the status of PodGroups and Queues; rate-limited.

    The futures give None when the object is gone or another one by now, or when the state of a
    queue was to be written and somebody wrote to it since it was read; they raise `ApiError` when
    the API server refuses or cannot be asked.
    """

    def read(self, subject: ObjectReference) -> Future[Mapping[str, Any] | None]:
        """Return the status as the API server has it."""

    def write(
        self, subject: ObjectReference, status: Mapping[str, Any]
    ) -> Future[Mapping[str, Any] | None]:
        """Merge *status* into what is there and give the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """Something worth telling whoever looks at *subject*."""

    subject: ObjectReference
    #: One word of a closed list.
    reason: str
    message: str
    #: A person has to do something about it.
    warning: bool = False
    #: Seconds since the epoch.
    at: float = 0.0


class EventWriter(Protocol):
    """Writes Events; the same word about the same object raises a count, not a stream."""

    def write(self, notice: EventRecord) -> None:
        """Queue *notice*; rate-limited, fire and forget."""


class Fencing(Protocol):
    """Says whether we may act on the cluster; asked where a request is written, not before."""

    def current(self) -> int:
        """Number the term that is ours now; 0 while none is."""

    def holds(self, number: int) -> bool:
        """Return whether the term *number* is still ours: what was ordered in another is void."""


class AlwaysLeader:
    """The `Mandate` of whoever is alone: one term without an end."""

    def current(self) -> int:
        """Number the only term."""
        return 1

    def holds(self, number: int) -> bool:
        """Say yes."""
        return True


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads, and for how long after others saw it change; all times in it are only told."""

    #: Empty once it was given back.
    holder: str = ""
    duration_s: float = 0.0
    acquired: str = ""
    renewed: str = ""
    #: How often it went from one holder to another.
    transitions: int = 0
    #: Writing succeeds only if nobody has written since; empty for one that does not exist yet.
    version: str = ""


class Leases(Protocol):
    """One Lease at the API server. These calls wait: they belong to a thread of their own."""

    def read(self) -> Lease | None:
        """Return it as it is now, None when it does not exist; raises `ApiError`."""

    def write(self, lease: Lease) -> Lease:
        """Write it and give it as written; `ApiError` when somebody else did, or in doubt."""


class LabelledPod(msgspec.Struct, frozen=True):
    """A pod that carries the label of the leader, as it was seen."""

    pod: str
    #: Taking it off succeeds only if nobody has written to the pod since.
    version: str


class LabelledPods(msgspec.Struct, frozen=True, kw_only=True):
    """Who carries the label of the leader."""

    is_ours: bool = False
    others: tuple[LabelledPod, ...] = ()


class LeaderLabels(Protocol):
    """The label by which a Service finds the leader. These calls wait, like those of `Leases`.

    All raise `ApiError`; `OutOfTerm`, when nothing was sent because the term *number* is over.
    """

    def read(self) -> LabelledPods:
        """Return the pods that carry it and follow no other lease than ours."""

    def put_on(self, number: int) -> None:
        """Put it on our own pod."""

    def take_off(self, mark: LabelledPod, number: int) -> None:
        """Take it off another; 409 when somebody has written to that pod since."""

    def withdraw(self, number: int) -> None:
        """Take it off our own pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """Whose token it is, empty when nobody's, and whether that one may read the page."""

    user: str = ""
    may_read: bool = False


class Reviewer(Protocol):
    """Says who may read on the operations port. Its call waits, like those of `Leases`."""

    def review(self, token: str, page: str) -> Reviewed:
        """Raises `ApiError` when nobody says; no word of *token* is in it."""


#: How a note on credentials begins.
UNPROTECTED = "credentials: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A right that we lack: as whom we asked, and a sentence with the mend."""

    account: str
    why: str

    @property
    def problem(self) -> str:
        """Say it among other notes."""
        return f"rights: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPorts:
    """One cluster, real or simulated: how it is heard and acted upon."""

    binder: Binder
    groups: GroupReader
    waker: Waker
    evictor: Evictor
    undo: PartialBindRollback
    status: StatusWriter
    events: EventWriter
    #: None where nobody else could lead.
    leases: Leases | None = None
    #: None where no Service follows the leader.
    labels: LeaderLabels | None = None
    #: None where whoever reaches the operations port may read.
    reviewer: Reviewer | None = None
    #: Says what we were refused lately for want of a right.
    refused: Callable[[], Sequence[Refused]] = lambda: ()
    #: Says how our credentials are open to others.
    unprotected: Callable[[], Sequence[str]] = lambda: ()
    #: Begins to tell the cache what changes.
    start: Callable[[], None]
    #: Ends every thread.
    stop: Callable[[], None]
    #: Breaks the connections that live in the event loop.
    aclose: Callable[[], Awaitable[object]]

    def notes(self) -> list[str]:
        """Return what should be mended in how we reach it."""
        problems = [each.problem for each in self.refused()]
        return [*problems, *(f"{UNPROTECTED}{each}" for each in self.unprotected())]
