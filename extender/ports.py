"""The requests to the cluster: small protocols that `kube` and `sim` both implement.

`kube/live.live_cluster` constructs the real implementation of each.

Any thread may call everything here, and nothing here blocks, because the caller may be an event
loop. Outcomes are returned as futures. Those of binds, one for every pod of the cluster, are passed
to a callback.
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
        """Seconds that never step, for deadlines."""


class Whose(Enum):
    """Whose decision a bind carries out."""

    OURS = "ours"  # it needs a term: only the leader may decide
    SCHEDULERS = "kube-scheduler's"  # only passed on, by any replica
    #: kube-scheduler's if the API server shows an exempt pod of ours; otherwise it is refused now.
    UNKNOWN = "unknown"


class BindOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Bind exactly this pod (the API server checks *uid*) to this node."""

    uid: PodUid
    namespace: str
    name: str
    node: str
    whose: Whose = Whose.OURS


class BindResult(Enum):
    """The result of a bind, as far as the API server has shown it."""

    BOUND = "bound"  # the API server has shown the pod on our node
    LOST = "lost"  # it is on another node, gone, being deleted, or another pod by now
    FAILED = "failed"  # certainly not bound; trying again may help
    UNKNOWN = "unknown"  # no answer, and reading the pod back gave none either


class BindOutcome(msgspec.Struct, frozen=True):
    """The result and, unless bound, a sentence without counters for kube-scheduler's event."""

    result: BindResult
    message: str = ""


#: Called with the outcome of an order.
OnOutcome: TypeAlias = Callable[[BindOrder, BindOutcome], None]


class Binder(Protocol):
    """Writes bindings; the orders of one call belong together and are sent in order."""

    def bind(self, orders: Sequence[BindOrder], settle: OnOutcome, until: float) -> None:
        """Send *orders*, with retries, and call *settle* once for each, perhaps before returning.

        *until* is the time (of `Clock.monotonic`) by which the caller needs the outcome. All of it
        may be used: until then, an unknown outcome may still become known.
        """


class GroupReader(Protocol):
    """Reads a PodGroup from the API server, without any cache."""

    def read(self, group: PodGroup) -> Future[PodGroup | None]:
        """Return the live object of the same dialect and key; None when it does not exist.

        The future raises `ApiError` when the API server does not answer.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeOrder:
    """Make kube-scheduler retry an unschedulable pod, on *node* first.

    Without a node an earlier nomination is cleared: while it stands, kube-scheduler keeps the
    capacity of that node from pods of the same or a lower priority.
    """

    uid: PodUid
    namespace: str
    name: str
    gang: GangKey | None = None
    node: str = ""
    #: Replaces the message of the pod's condition PodScheduled, so that kube-scheduler writes it
    #: again; empty to leave it unchanged.
    refusal: str = ""
    #: The nomination is cleared as soon as it is written: released capacity makes kube-scheduler
    #: retry pods that fitted no node.
    briefly: bool = False

    @property
    def nomination(self) -> str:
        """The node that the pod stays nominated to; empty when none."""
        return "" if self.briefly else self.node


class Waker(Protocol):
    """Wakes unschedulable pods; rate-limited, retried, without an outcome."""

    def wake(self, orders: Sequence[WakeOrder]) -> None:
        """Queue *orders*; a later order for the same pod replaces one not yet sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictOrder:
    """Evict exactly this pod (the API server checks *uid*); *why* is written to the pod."""

    uid: PodUid
    namespace: str
    name: str
    why: str = ""


class EvictResult(Enum):
    """The result of an eviction."""

    LEAVING = "leaving"  # the API server has accepted it
    GONE = "gone"  # the pod does not exist any more, or is another one by now
    BLOCKED = "blocked"  # refused, by a PodDisruptionBudget or for another reason
    FAILED = "failed"  # no answer; trying again may help


@dataclass(frozen=True, slots=True)
class EvictOutcome:
    """The result and, unless the pod terminates, a sentence for people."""

    result: EvictResult
    message: str = ""


class Evictor(Protocol):
    """Evicts pods; rate-limited, with a limited number of retries."""

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        """Send *orders* and return one future for each, in order."""


class PartialGangEvictor(Protocol):
    """Evicts the members of a gang that was bound in part; rarely called, never waits."""

    def evict_all(
        self,
        gang: GangKey,
        orders: Sequence[EvictOrder],
        *,
        leaves: Callable[[GangKey], None],
        stays: Callable[[GangKey], None],
    ) -> None:
        """Evict all of them, or none if one would never come again; then call *stays*.

        *leaves* is called before the first request. One pod may still be kept; then *stays*
        follows.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """An object of the API server that an Event or a status is about."""

    kind: str
    name: str
    uid: str
    #: Empty for an object without a namespace.
    namespace: str = ""
    #: The API group of a PodGroup or Queue.
    dialect: str = ""

    @classmethod
    def of_gang(cls, gang: Gang) -> ObjectReference | None:
        """Return the object that people look at: the PodGroup, or a pod where there is none."""
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
        """Return a queue; an implied queue has no uid."""
        return cls(kind="Queue", dialect=VOLCANO, name=queue.name, uid=queue.uid)

    @classmethod
    def of_namespace(cls, namespace: Namespace) -> ObjectReference:
        """Return a namespace, which is in no namespace itself."""
        return cls(kind="Namespace", name=namespace.name, uid=namespace.uid)


class StatusWriter(Protocol):
    """Reads and writes the status of PodGroups and Queues; rate-limited.

    The futures return None when the object is gone or another one by now, or when the status of a
    queue has changed since it was read. They raise `ApiError` when the API server refuses or does
    not answer.
    """

    def read(self, subject: ObjectReference) -> Future[Mapping[str, Any] | None]:
        """Return the status as the API server has it."""

    def write(
        self, subject: ObjectReference, status: Mapping[str, Any]
    ) -> Future[Mapping[str, Any] | None]:
        """Merge *status* into the current status and return the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """An Event to write about *subject*."""

    subject: ObjectReference
    #: One word of a closed list.
    reason: str
    message: str
    #: Whether a person has to act.
    warning: bool = False
    #: Seconds since the epoch.
    at: float = 0.0


class EventWriter(Protocol):
    """Writes Events; repeating an Event of an object raises its count."""

    def write(self, notice: EventRecord) -> None:
        """Queue *notice*; rate-limited, without an outcome."""


class Fencing(Protocol):
    """The fencing token: it is checked where a request is written, not before."""

    def current(self) -> int:
        """Return the number of the current term of this replica; 0 without one."""

    def holds(self, number: int) -> bool:
        """Return whether term *number* is still current; requests of an earlier term are void."""


class AlwaysLeader:
    """The `Fencing` of a single replica: one term without an end."""

    def current(self) -> int:
        """Return the number of the only term."""
        return 1

    def holds(self, number: int) -> bool:
        """Return True."""
        return True


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The leader, and for how long after its last renewal was seen; its times are only shown."""

    #: Empty once it was released.
    holder: str = ""
    duration_s: float = 0.0
    acquired: str = ""
    renewed: str = ""
    #: How often the holder changed.
    transitions: int = 0
    #: A write succeeds only at this version; empty for a Lease that does not exist yet.
    version: str = ""


class Leases(Protocol):
    """One Lease at the API server. These calls block: they belong to a thread of their own."""

    def read(self) -> Lease | None:
        """Return the current Lease, None when it does not exist; raise `ApiError`."""

    def write(self, lease: Lease) -> Lease:
        """Write it and return it as written; raise `ApiError` on a conflict, or in doubt."""


class LabelledPod(msgspec.Struct, frozen=True):
    """A pod with the label of the leader, as it was seen."""

    pod: str
    #: Removing the label succeeds only at this version of the pod.
    version: str


class LabelledPods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods with the label of the leader."""

    is_ours: bool = False
    others: tuple[LabelledPod, ...] = ()


class LeaderLabels(Protocol):
    """The label by which a Service finds the leader. These calls block, like those of `Leases`.

    All raise `ApiError`, or `OutOfTerm` when nothing was sent because the term *number* is over.
    """

    def read(self) -> LabelledPods:
        """Return the pods that have it and belong to our lease."""

    def put_on(self, number: int) -> None:
        """Set it on our own pod."""

    def take_off(self, mark: LabelledPod, number: int) -> None:
        """Remove it from another pod; 409 when that pod has changed since."""

    def withdraw(self, number: int) -> None:
        """Remove it from our own pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """The user of a token, empty when it is not valid, and whether that user may read the page."""

    user: str = ""
    may_read: bool = False


class Reviewer(Protocol):
    """Decides which users may read the operations port. Its call blocks, like those of `Leases`."""

    def review(self, token: str, page: str) -> Reviewed:
        """Review *token*; raise `ApiError` without a decision, and never with the token in it."""


#: The prefix of a note on credentials.
UNPROTECTED = "credentials: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A missing right: the account of the request, and a sentence on how to grant it."""

    account: str
    why: str

    @property
    def problem(self) -> str:
        """Return the sentence for a list of notes."""
        return f"rights: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPorts:
    """One cluster, real or simulated: all requests to it, and its start and stop."""

    binder: Binder
    groups: GroupReader
    waker: Waker
    evictor: Evictor
    undo: PartialGangEvictor
    status: StatusWriter
    events: EventWriter
    #: None where no other replica could lead.
    leases: Leases | None = None
    #: None where no Service selects the leader.
    labels: LeaderLabels | None = None
    #: None where any client of the operations port may read.
    reviewer: Reviewer | None = None
    #: Returns the recently refused requests for which a right is missing.
    refused: Callable[[], Sequence[Refused]] = lambda: ()
    #: Returns how our credentials are exposed to others.
    unprotected: Callable[[], Sequence[str]] = lambda: ()
    #: Starts to pass changes to the cache.
    start: Callable[[], None]
    #: Stops every thread.
    stop: Callable[[], None]
    #: Closes the connections that live in the event loop.
    aclose: Callable[[], Awaitable[object]]

    def notes(self) -> list[str]:
        """Return what should be corrected in the access to the cluster."""
        problems = [each.problem for each in self.refused()]
        return [*problems, *(f"{UNPROTECTED}{each}" for each in self.unprotected())]
