"""The table of promises: what was promised or bound but not yet seen, by uid.

    TICKETED ──▶ PASSED ──▶ HELD ──▶ COMMITTING ──▶ BOUND ──▶ (seen by the watch)
    the plan     filter     bind     its binding    the API
    reserved     answered   waits    is on its      server
    a node       with it             way            confirmed

kube-scheduler knows of a pod from HELD on (it has assumed it), so those count against the room
of a node; what is TICKETED or PASSED it does not know yet, and only we keep it free. A pod may
fall back from PASSED or HELD, because kube-scheduler may give up and start anew; from COMMITTING
there is no way back but `release`. Where nobody knows what became of a binding it is DOUBTED:
kube-scheduler has been told that it failed, so only we keep the room, until the watch shows it. An
ordinary pod that passed filter is promised a place `SOMEWHERE`: it counts in its queue, and on a
node as soon as kube-scheduler has named one.

The table only keeps what it is told: whether a promise may be made is judged by the one ledger
(`promises/ledger`), in the event loop, which alone makes promises. The watch has the last word: a
pod seen on a node, or gone, has no entry any more. So every method may be called from any thread
and holds the lock for microseconds; single facts are read without.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, KeysView, Mapping
from enum import IntEnum
from math import inf
from typing import NamedTuple, TypeVar

from extender.model.gang import GangKey
from extender.model.pod import Pod, PodUid, Shape, Status
from extender.model.resources import NOTHING, Resources

_Key = TypeVar("_Key")
#: In place of a node: kube-scheduler is still choosing one.
ANY_NODE = ""
#: A bind that neither the API server confirmed nor the watch showed by then did not happen, if the
#: watch tells what happens. While its outcome may still come, it is COMMITTING, for as long as
#: kube-scheduler waits.
SETTLED_S = 60.0


class Stage(IntEnum):
    """How far a promise has come."""

    RESERVED = 1
    FILTERED = 2
    WAITING = 3
    BINDING = 4
    UNKNOWN = 5
    BOUND = 6


class Reservation(NamedTuple):
    """One pod's place on one node, *since_monotonic* at this stage."""

    pod: Pod
    gang: GangKey
    node: str
    stage: Stage
    since_monotonic: float
    #: The queue it was promised in.
    queue: str = ""

    @property
    def uid(self) -> PodUid:
        """Give the uid of the pod."""
        return self.pod.uid

    @property
    def shape(self) -> Shape:
        """Give what the pod takes up."""
        return self.pod.shape

    @property
    def is_ours_alone(self) -> bool:
        """Ask whether only we keep its room free: kube-scheduler does not count the pod there."""
        return self.stage <= Stage.FILTERED or self.stage is Stage.UNKNOWN

    @property
    def is_sent(self) -> bool:
        """Ask whether its binding is on its way, or there."""
        return self.stage is Stage.BINDING or self.stage is Stage.BOUND

    @property
    def status(self) -> Status:
        """Give the status in which the plan sees the pod, which may be leaving already."""
        return Status.ALLOCATED if self.stage <= Stage.FILTERED else Status.BINDING

    def is_beside(self, other: Reservation) -> bool:
        """Ask whether it takes the same room as *other* in the eyes of plan and kube-scheduler."""
        return (
            self.node == other.node
            and self.pod.shape is other.pod.shape
            and self.gang == other.gang
            and self.status is other.status
            and self.is_ours_alone is other.is_ours_alone
            and other.stage is not Stage.BOUND
        )


class TableChanges(NamedTuple):
    """The promises at one moment, and how they differ from those of the turn before."""

    #: Gangs whose promises changed.
    touched: set[GangKey]
    #: (node, shape, +1 or -1) for every promise made and every one kept or withdrawn.
    steps: list[tuple[str, Shape, int]]
    reservations: dict[GangKey, dict[PodUid, Reservation]]
    #: How many seconds each gang must still wait.
    backoff: dict[GangKey, float]


_NOBODY: dict[PodUid, Reservation] = {}


class ReservationTable:
    """All promises, and the gangs that must not be tried for a while."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        seen: Callable[[PodUid], Pod | None],
        freed: Callable[[], None],
        changed: Callable[[str], None] = lambda node: None,
        shown_until: Callable[[], float] = lambda: inf,
    ) -> None:
        self._monotonic = monotonic
        #: Tells up to which moment the watch has shown what became of pods.
        self._shown_until = shown_until
        #: The pod as the watch last showed it.
        self._seen = seen
        #: Told when room came free or a gang's backoff changed.
        self._freed = freed
        #: Told, afterwards, the name of a node on which promises changed.
        self._changed = changed
        #: While it is held no promise is made, kept or withdrawn: for reading facts that belong
        #: together, with the methods that take no lock, in microseconds.
        self.still = threading.Lock()
        self._by_uid: dict[PodUid, Reservation] = {}
        self._by_gang: dict[GangKey, dict[PodUid, Reservation]] = {}
        self._by_node: dict[str, dict[PodUid, Reservation]] = {}
        self._promised = NodeCounts()
        self._committed = NodeCounts()
        #: How many are bound and not yet seen, by gang, and by gang and role.
        self._bound: dict[GangKey, int] = {}
        self._bound_roles: dict[tuple[GangKey, str], int] = {}
        #: By queue and namespace, what was promised since the last turn.
        self._spent: dict[tuple[str, str], Resources] = {}
        self._backoff: dict[GangKey, float] = {}
        self._touched: set[GangKey] = set()
        self._steps: list[tuple[str, Shape, int]] = []

    def of(self, uid: PodUid) -> Reservation | None:
        """Give the promise to a pod."""
        return self._by_uid.get(uid)

    def of_gang(self, key: GangKey) -> tuple[Reservation, ...]:
        """Give the promises to a gang."""
        return tuple(self._by_gang.get(key, {}).values())

    def gangs(self) -> tuple[GangKey, ...]:
        """Name the gangs to which something is promised."""
        return tuple(self._by_gang)

    def on_node(self, node: str) -> tuple[Reservation, ...]:
        """Give the promises on *node*, as of now: the watch ends some at any moment."""
        return tuple(self._by_node.get(node, _NOBODY).values())

    def count_on(self, node: str) -> int:
        """Count the promises on *node*."""
        return len(self._by_node.get(node, _NOBODY))

    def __len__(self) -> int:
        return len(self._by_uid)

    def reserved_on(self, node: str) -> Resources:
        """Add up what is kept free on *node* for pods kube-scheduler has not placed yet."""
        return self._promised.on(node)

    def reserved_nodes(self) -> KeysView[str]:
        """Name the nodes on which room is kept free."""
        return self._promised.nodes()

    def committed_on(self, node: str) -> Resources:
        """Add up the pods kube-scheduler counts on *node* though the watch does not show them."""
        return self._committed.on(node)

    def committed_nodes(self) -> KeysView[str]:
        """Name the nodes that have such pods."""
        return self._committed.nodes()

    def bound_in(self, key: GangKey) -> int:
        """Count the members of a gang that are bound and not yet seen so."""
        return self._bound.get(key, 0)

    def bound_in_role(self, key: GangKey, role: str) -> int:
        """Count those of one role whom `bound_in` counts."""
        return self._bound_roles.get((key, role), 0)

    def reserve(
        self,
        pod: Pod,
        gang: GangKey,
        node: str,
        now: float,
        *,
        stage: Stage = Stage.RESERVED,
        queue: str = "",
    ) -> bool:
        """Keep room for *pod* on *node*; False when it needs none, or is further on already.

        What is promised anew counts as spent by *queue* until a turn has shown it.
        """
        with self.still:
            known = self._by_uid.get(pod.uid)
            if not self._needs_a_place(pod.uid) or (known and known.stage > stage):
                return False
            self._put(Reservation(pod, gang, node, stage, now, queue), known)
            if known is None:
                place = (queue, pod.namespace)
                self._spent[place] = self._spent.get(place, NOTHING) + pod.requests
            return True

    def mark_spent(self) -> Mapping[tuple[str, str], Resources]:
        """Give what was promised since the last turn, by queue and namespace."""
        with self.still:
            return dict(self._spent)

    def trade(self, one: PodUid, other: PodUid) -> bool:
        """Let two tickets change places; False when either has moved on."""
        with self.still:
            ours, theirs = self._by_uid.get(one), self._by_uid.get(other)
            if (
                not (ours and theirs)
                or theirs.stage > Stage.RESERVED
                or ours.stage > Stage.FILTERED
            ):
                return False
            self._put(ours._replace(node=theirs.node), ours)
            self._put(theirs._replace(node=ours.node), theirs)
            return True

    def move(self, uid: PodUid, node: str) -> bool:
        """Give a pod another node; False when it has none, or its binding is on its way."""
        with self.still:
            known = self._by_uid.get(uid)
            if known is None or known.stage >= Stage.BINDING:
                return False
            self._put(known._replace(node=node), known)
            return True

    def advance(
        self, uid: PodUid, stage: Stage, node: str | None = None, pod: Pod | None = None
    ) -> bool:
        """Note how far a pod has come, on *node* if kube-scheduler chose another one.

        *pod* is how kube-scheduler showed it last, with what it had said of it until then.
        """
        with self.still:
            known = self._by_uid.get(uid)
            if known is None or (known.is_sent and stage < known.stage):
                return False
            node, pod = node or known.node, pod or known.pod
            since = known.since_monotonic if known.stage is stage else self._monotonic()
            new = Reservation(pod, known.gang, node, stage, since, known.queue)
            if new != known:
                self._put(new, known)
            return True

    def revert(self, uid: PodUid, node: str) -> bool:
        """Make a ticket again of the room of a pod whose binding failed; False when it has none."""
        with self.still:
            known = self._by_uid.get(uid)
            if known is None:
                return False
            self._step_back(known, node)
            return True

    def _step_back(self, known: Reservation, node: str) -> None:
        new = known._replace(node=node, stage=Stage.RESERVED)
        self._put(new._replace(since_monotonic=self._monotonic()), known)

    def take_over(self, placeholder: PodUid, pod: Pod) -> bool:
        """Let *pod* have the place of a *placeholder*; False when it is gone or not needed.

        A placeholder has the shape of those it is kept for, so nothing is counted anew.
        """
        with self.still:
            known = self._by_uid.get(placeholder)
            if known is None or pod.uid in self._by_uid or not self._needs_a_place(pod.uid):
                return False
            members = self._by_gang[known.gang]
            new = known._replace(pod=pod, since_monotonic=self._monotonic())
            self._by_uid[pod.uid] = members[pod.uid] = self._by_node[new.node][pod.uid] = new
            for places in (self._by_uid, members, self._by_node[new.node]):
                del places[placeholder]
            self._touched.add(known.gang)
            return True

    def release(self, uid: PodUid) -> bool:
        """Give a pod's room back; False when it had none."""
        with self.still:
            known = self._drop(uid)
        if known is not None:
            self._freed()
        return known is not None

    def expire(self, key: GangKey) -> int:
        """Give back the room of a gang that kube-scheduler does not count on yet."""
        with self.still:
            unused = [each for each in self.of_gang(key) if each.stage <= Stage.FILTERED]
            for each in unused:
                self._drop(each.uid)
        if unused:
            self._freed()
        return len(unused)

    def release_all(self) -> None:
        """Give back all room that kube-scheduler does not count on yet."""
        for key in tuple(self._by_gang):
            self.expire(key)

    def pod_scheduled(self, uid: PodUid) -> None:
        """Hear from the watch that a pod is on a node, or will never be."""
        if uid in self._by_uid:
            with self.still:
                self._drop(uid)

    def pod_deleting(self, uid: PodUid) -> None:
        """Hear that a pod is being deleted or left its gang; a waiting bind is told elsewhere."""
        if uid in self._by_uid:
            with self.still:  # or its binding could be sent between the look and the end
                known = self._by_uid.get(uid)
                if known is not None and known.stage <= Stage.FILTERED:
                    self._drop(uid)

    def pod_unschedulable(self, uid: PodUid, refusal: str) -> None:
        """Hear that kube-scheduler found no node for a pod that filter had let pass.

        Not when it has come further since, or when *refusal* was its word before it passed.
        """
        with self.still:
            known = self._by_uid.get(uid)
            if known is None or known.stage is not Stage.FILTERED or known.pod.refusal == refusal:
                return
            is_over = known.node == ANY_NODE
            if is_over:
                self._drop(uid)
            else:
                self._step_back(known, known.node)
        if is_over:
            self._freed()

    def drop_unsettled(self, each: Reservation, now: float) -> bool:
        """Drop a bind that never came to be: sent long ago, and the pod is on no node."""
        # Whose watch is silent has not been told that it is not there.
        age = min(now, self._shown_until()) - each.since_monotonic
        if each.stage < Stage.UNKNOWN or age <= SETTLED_S:
            return False
        # Confirmed, but the pod is unknown: it came and went without our seeing it.
        if each.stage is Stage.BOUND and self._seen(each.uid) is not None:
            return False
        return self.release(each.uid)

    def back_off(self, key: GangKey, span_s: float) -> None:
        """Do not try a gang again for *span_s*."""
        with self.still:
            self._backoff[key] = self._monotonic() + span_s
            self._touched.add(key)
        self._freed()

    def backs_off_for(self, key: GangKey) -> float:
        """Tell how long a gang must wait before it is tried again; 0 when it may now."""
        until = self._backoff.get(key)
        return max(0.0, until - self._monotonic()) if until is not None else 0.0

    def is_backoff_over(self) -> bool:
        """Ask whether a gang may be tried again that no turn has shown as such yet."""
        now = self._monotonic()
        return any(until <= now for until in tuple(self._backoff.values()))

    def drain(self, also: Iterable[GangKey] = ()) -> TableChanges:
        """Give what changed since the last turn, and the promises of those gangs and of *also*."""
        with self.still:
            now = self._monotonic()
            for key in [key for key, until in self._backoff.items() if until <= now]:
                del self._backoff[key]
                self._touched.add(key)
            # How long a gang must still wait is told in wall time, which may step: always anew.
            touched, self._touched = self._touched | self._backoff.keys(), set()
            steps, self._steps = self._steps, []
            self._spent = {}
            wanted = self._by_gang.keys() & touched.union(also)
            promises = {key: dict(self._by_gang[key]) for key in wanted}
            backoff = {key: until - now for key, until in self._backoff.items()}
            return TableChanges(touched, steps, promises, backoff)

    def changes(self) -> TableChanges:
        """Give what changed and no more: what was spent since the last turn counts still."""
        with self.still:
            touched, self._touched = self._touched, set()
            steps, self._steps = self._steps, []
            return TableChanges(touched, steps, {}, {})

    def _needs_a_place(self, uid: PodUid) -> bool:
        seen = self._seen(uid)
        return seen is None or (not seen.node and seen.status is Status.PENDING)

    def _put(self, new: Reservation, old: Reservation | None) -> None:
        if old is not None and new.is_beside(old):
            # The same room, counted the same way: nobody but the hooks has to know.
            self._by_uid[new.uid] = self._by_gang[new.gang][new.uid] = new
            self._by_node[new.node][new.uid] = new
        else:
            # The new place is counted before the old one is given up: a reader in between sees
            # too little room, never too much.
            self._count(new, 1)
            if old is not None:
                self._count(old, -1)
                self._leave(old)
            self._by_uid[new.uid] = new
            self._by_gang.setdefault(new.gang, {})[new.uid] = new
            self._by_node.setdefault(new.node, {})[new.uid] = new
            self._touched.add(new.gang)
        if new.stage is Stage.BOUND:
            _step(self._bound, new.gang, 1)
            _step(self._bound_roles, (new.gang, new.pod.role), 1)

    def _drop(self, uid: PodUid) -> Reservation | None:
        old = self._by_uid.pop(uid, None)
        if old is not None:
            self._count(old, -1)
            self._leave(old)
        return old

    def _count(self, each: Reservation, step: int) -> None:
        if each.node == ANY_NODE:
            return
        tally = self._promised if each.is_ours_alone else self._committed
        tally.count(each.node, each.pod.shape.requests, step)
        self._steps.append((each.node, each.pod.shape, step))
        self._changed(each.node)

    def _leave(self, old: Reservation) -> None:
        members = self._by_gang[old.gang]
        del members[old.uid]
        if not members:
            del self._by_gang[old.gang]
        beside = self._by_node[old.node]
        del beside[old.uid]
        if not beside:
            del self._by_node[old.node]
        self._touched.add(old.gang)
        if old.stage is Stage.BOUND:
            _step(self._bound, old.gang, -1)
            _step(self._bound_roles, (old.gang, old.pod.role), -1)


def _step(counts: dict[_Key, int], key: _Key, by: int) -> None:
    """Count up or down; what comes to nothing is forgotten."""
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


class NodeCounts:
    """Sums of resources by node, replaced as whole values so that they are read without a lock."""

    def __init__(self) -> None:
        self._sums: dict[str, Resources] = {}
        self._counts: dict[str, int] = {}

    def on(self, node: str) -> Resources:
        """Give the sum on *node*."""
        return self._sums.get(node, NOTHING)

    def nodes(self) -> KeysView[str]:
        """Name the nodes with a sum, as a live view."""
        return self._sums.keys()

    def count(self, node: str, amounts: Resources, step: int) -> None:
        """Count *amounts* on *node* (*step* is 1) or no more (-1)."""
        number = self._counts.get(node, 0) + step
        if not number:
            del self._counts[node], self._sums[node]
            return
        self._counts[node] = number
        self._sums[node] = self.on(node) + amounts if step > 0 else self.on(node) - amounts
