"""One attempt of a gang to start, the bind calls that wait in it, and how far each may go.

The tables of moves are complete: they are checked before every move, and the diagrams in
docs/internals/permit.md are drawn from them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import NamedTuple

import msgspec
from cachetools import FIFOCache

from extender.errors import IllegalTransition
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.permit.messages import (
    BACKS_OFF,
    Answer,
    BackOff,
    Bind,
    CallId,
    Cause,
    Instruction,
    MarkWaiting,
    Release,
)
from extender.permit.timeouts import Alarms, GangBackoff
from extender.ports import BindOrder


class BindState(Enum):
    """How far one bind call is; its value is its sentence in the docs."""

    __hash__ = object.__hash__  # as with `Status`

    NEW = "The call has just come in, and its pod has passed the entry checks."
    WAITING = "The bind waits for the rest of its gang; nothing was sent to the API server."
    BINDING = "The binding was sent, or is about to be; there is no way back."
    BOUND = "The API server has shown the pod on the node; the answer was success."
    FAILED = "The pod is not known to be on the node; the answer was an error."
    RELEASED = "The call was refused before anything was sent; kube-scheduler tries again."


class AttemptState(Enum):
    """How far one attempt of a gang to start is; its value is its sentence in the docs."""

    __hash__ = object.__hash__

    ASSEMBLING = "Members wait, but too few to start; the first arrival set the deadline."
    VERIFYING = "Enough members wait; the PodGroup is being read from the API server itself."
    COMMITTING = "The members it needs are being bound; the others wait for the outcome."
    DONE = "At least minMember members are bound; the attempt is over."
    PARTIAL = "Too few are bound; while one of them runs, missing ones are bound as they come."
    ABORTED = "All were refused together, and nothing stays bound; the gang may have to back off."
    EMPTY = "No member waits or runs any more; the gang starts anew when a member comes."


BIND_MOVES: Mapping[BindState, frozenset[BindState]] = {
    BindState.NEW: frozenset({BindState.WAITING, BindState.BINDING}),
    BindState.WAITING: frozenset({BindState.BINDING, BindState.RELEASED, BindState.BOUND}),
    BindState.BINDING: frozenset({BindState.BOUND, BindState.FAILED}),
    BindState.BOUND: frozenset(),
    BindState.FAILED: frozenset(),
    BindState.RELEASED: frozenset(),
}
ATTEMPT_MOVES: Mapping[AttemptState, frozenset[AttemptState]] = {
    AttemptState.ASSEMBLING: frozenset(
        {
            AttemptState.VERIFYING,
            AttemptState.ABORTED,
            AttemptState.EMPTY,
        }
    ),
    AttemptState.VERIFYING: frozenset(
        {
            AttemptState.ASSEMBLING,
            AttemptState.COMMITTING,
            AttemptState.ABORTED,
            AttemptState.EMPTY,
        }
    ),
    AttemptState.COMMITTING: frozenset(
        {AttemptState.DONE, AttemptState.PARTIAL, AttemptState.ABORTED}
    ),
    AttemptState.PARTIAL: frozenset({AttemptState.DONE, AttemptState.ABORTED, AttemptState.EMPTY}),
    AttemptState.DONE: frozenset(),
    AttemptState.ABORTED: frozenset(),
    AttemptState.EMPTY: frozenset(),
}
#: Nothing was sent yet: the attempt may still be ended.
BEFORE_COMMIT = frozenset({AttemptState.ASSEMBLING, AttemptState.VERIFYING})
#: Bindings were sent: the attempt cannot be undone.
AFTER_COMMIT = frozenset({AttemptState.COMMITTING, AttemptState.PARTIAL})


class ScheduledCounts(NamedTuple):
    """Members on a node; *by_role* only has the roles with a minimum."""

    total: int
    by_role: Mapping[str, int]


NOTHING_SCHEDULED = ScheduledCounts(0, {})


class OpenCall(msgspec.Struct, frozen=True):
    """A call that gets the answer; *node* is what it requested."""

    id: CallId
    node: str
    arrived: float


class WaitingBind(msgspec.Struct, kw_only=True):
    """One pod whose bind waits or was sent."""

    uid: PodUid
    #: The newest one if the call was repeated.
    order: BindOrder
    gang: GangKey | None
    role: str
    state: BindState = BindState.NEW
    #: One while WAITING; more if a call is repeated while BINDING; none if all callers are gone.
    calls: list[OpenCall] = msgspec.field(default_factory=list)

    @property
    def node(self) -> str:
        """Return the node that the pod is to be bound to."""
        return self.order.node


@dataclass(slots=True, kw_only=True)
class GangAttempt:
    """The waiting members of one PodGroup object (another uid is another attempt)."""

    group: PodGroup
    #: Unique while the process runs; a new one for every verification.
    epoch: int
    deadline: float
    #: A verification that has not ended by then has failed.
    verify_by: float
    #: The timeout of kube-scheduler for the first arrival, less the margin.
    give_up: float
    state: AttemptState = AttemptState.ASSEMBLING
    #: The PodGroup in the cache when the live one was requested.
    seen: PodGroup | None = None
    #: Members that wait or whose binding was sent.
    binds: dict[PodUid, WaitingBind] = field(default_factory=dict)
    #: The number of those whose binding was sent.
    under_way: int = 0
    #: Existing members, waiting or not, each with its condition before the attempt.
    siblings: dict[PodUid, str] = field(default_factory=dict)
    #: Members that fit no node since the attempt began.
    stuck: set[PodUid] = field(default_factory=set)
    #: When to check whether enough members are left; None if no member was lost.
    recount_at: float | None = None
    #: When to read the PodGroup again after a failed read; None otherwise.
    reread_at: float | None = None
    #: When to check a partial gang again.
    check_at: float = 0.0
    #: Members on a node when the commit began.
    scheduled_before: ScheduledCounts = NOTHING_SCHEDULED
    #: Members bound in this attempt, with their roles.
    bound: dict[PodUid, str] = field(default_factory=dict)
    #: Members whose binding certainly failed.
    failed: set[PodUid] = field(default_factory=set)
    #: Members that may be bound though this was not seen.
    unknown: set[PodUid] = field(default_factory=set)

    @property
    def key(self) -> GangKey:
        """Return the key of the gang."""
        return self.group.key


_MOST_LINES = 64
_MOST_GANGS = 1_000
_RECENT_S = 60.0
#: By then every watch has shown a binding.
_SETTLE_S = 2.0
_MOST_RECENT = 20_000


class MoveHistory:
    """The last moves of the most recent gangs, to find errors."""

    def __init__(self, most_gangs: int = _MOST_GANGS) -> None:
        self._lines: FIFOCache[GangKey, deque[str]] = FIFOCache(most_gangs)

    def note(self, gang: GangKey | None, what: str) -> None:
        """Add a line; single pods have no history."""
        if gang is None:
            return
        lines = self._lines.get(gang)
        if lines is None:
            lines = self._lines[gang] = deque(maxlen=_MOST_LINES)
        lines.append(what)

    def of(self, gang: GangKey) -> tuple[str, ...]:
        """Return the moves of a gang, oldest first."""
        return tuple(self._lines.get(gang, ()))


class RecentEnds:
    """Pods whose bind succeeded, oldest first, until the watch surely shows them."""

    def __init__(self, most: int = _MOST_RECENT) -> None:
        self._most = most
        self._bound: dict[PodUid, tuple[str, float]] = {}
        #: When a pod was last bound to each node, oldest first.
        self._nodes: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._bound)

    def remember(self, uid: PodUid, node: str, now: float) -> None:
        """Remember that the API server has shown *uid* on *node*."""
        self._bound.pop(uid, None)
        self._bound[uid] = (node, now)
        self._nodes.pop(node, None)
        self._nodes[node] = now
        self._forget(now)

    def bound_recently(self, node: str, now: float) -> bool:
        """Return whether a pod was bound to *node* so recently that a watch may not show it."""
        return now - self._nodes.get(node, float("-inf")) <= _SETTLE_S

    def node_of(self, uid: PodUid, now: float) -> str | None:
        """Return the node *uid* was recently bound to; None otherwise."""
        node, at = self._bound.get(uid, (None, now))
        return node if now - at <= _RECENT_S else None

    def _forget(self, now: float) -> None:
        while now - self._nodes[first := next(iter(self._nodes))] > _SETTLE_S:
            del self._nodes[first]
        while self._bound:
            oldest = next(iter(self._bound))
            expired = now - self._bound[oldest][1] > _RECENT_S
            if not expired and len(self._bound) <= self._most:
                return
            del self._bound[oldest]


class Table:
    """All waiting binds and attempts; a gang has at most one attempt, a pod at most one bind."""

    def __init__(self, backoff: GangBackoff, max_binds: int, closed: Cause | None) -> None:
        self.max_binds = max_binds
        #: Why no bind may come in; None while open.
        self.closed = closed
        self.binds: dict[PodUid, WaitingBind] = {}
        self.attempts: dict[GangKey, GangAttempt] = {}
        #: The attempt of each pod that may have no waiting bind (any more, or yet).
        self.siblings: dict[PodUid, GangKey] = {}
        #: The pod of each unanswered call.
        self.calls: dict[CallId, PodUid] = {}
        #: Partial gangs whose eviction is requested but not certain, and until when that is
        #: awaited.
        self.undecided: dict[GangKey, float] = {}
        #: Gangs that were found partial while they assembled, and until when they are completed if
        #: the attempt fails.
        self.partial_until: dict[GangKey, float] = {}
        self.backoff = backoff
        self.alarms = Alarms()
        self.recent = RecentEnds()
        self.history = MoveHistory()

    def attempt_of(self, bind: WaitingBind) -> GangAttempt | None:
        """Return the attempt that a bind is part of; one that is sent at once may have none."""
        attempt = self.attempts.get(bind.gang) if bind.gang else None
        return attempt if attempt is not None and bind.uid in attempt.binds else None

    def add(self, attempt: GangAttempt, uid: PodUid, refusal: str = "") -> None:
        """Record a member of an attempt: once the pod is gone, no other record of it exists.

        *refusal* is the condition that kube-scheduler has written so far.
        """
        attempt.siblings.setdefault(uid, refusal)
        self.siblings[uid] = attempt.key

    def remove(self, attempt: GangAttempt, uid: PodUid) -> None:
        """Forget a member of an attempt."""
        attempt.siblings.pop(uid, None)
        attempt.stuck.discard(uid)
        self.siblings.pop(uid, None)

    def wait(self, bind: WaitingBind, call: OpenCall) -> None:
        """Let a call wait for the answer of a bind."""
        bind.calls.append(call)
        self.calls[call.id] = bind.uid

    def mark_waiting(self, bind: WaitingBind, attempt: GangAttempt) -> Iterator[Instruction]:
        """Let a new arrival wait in its attempt."""
        self.binds[bind.uid] = attempt.binds[bind.uid] = bind
        self.add(attempt, bind.uid)
        attempt.stuck.discard(bind.uid)
        self.move_bind(bind, BindState.WAITING)
        yield MarkWaiting(bind.uid, bind.node)

    def commit(self, binds: tuple[WaitingBind, ...], until: float) -> Iterator[Instruction]:
        """Send the bindings of *binds*; from here there is no way back."""
        for bind in binds:
            self.binds[bind.uid] = bind
            self.move_bind(bind, BindState.BINDING)
        yield Bind(tuple(bind.order for bind in binds), until)

    def release(self, bind: WaitingBind, cause: Cause, now: float) -> Iterator[Instruction]:
        """Refuse a bind before anything was sent."""
        self.move_bind(bind, BindState.RELEASED, cause)
        self.drop(bind)
        yield from self.answer(bind, cause, now, cause.text(bind.gang))
        yield Release(bind.uid)

    def end_bind(self, bind: WaitingBind, cause: Cause, now: float) -> Iterator[Instruction]:
        """Answer a waiting bind: refused, or bound if the cache shows the pod on its node."""
        if cause is not Cause.BOUND:
            yield from self.release(bind, cause, now)
            return
        self.move_bind(bind, BindState.BOUND)
        self.drop(bind)
        # The cache shows the pod on its node: it needs no reservation any more.
        yield Release(bind.uid)
        yield from self.answer(bind, cause, now, "")

    def end(self, attempt: GangAttempt, cause: Cause, now: float) -> Iterator[Instruction]:
        """Refuse all waiting binds of an attempt of which no member stays bound."""
        self.move_attempt(attempt, AttemptState.ABORTED, cause)
        for bind in tuple(attempt.binds.values()):
            yield from self.release(bind, cause, now)
        if cause in BACKS_OFF:
            yield BackOff(attempt.key, self.backoff.aborted(attempt.key, now))
        elif cause in (Cause.GROUP_GONE, Cause.GROUP_REPLACED):
            self.partial_until.pop(attempt.key, None)
            self.backoff.reset(attempt.key)

    def drop(self, bind: WaitingBind) -> None:
        """Remove a bind; its calls are still to be answered."""
        attempt = self.attempt_of(bind)
        if attempt is not None:
            del attempt.binds[bind.uid]
        del self.binds[bind.uid]

    def answer(
        self, bind: WaitingBind, cause: Cause, now: float, error: str
    ) -> Iterator[Instruction]:
        """Answer every call that waits for *bind*."""
        for call in bind.calls:
            del self.calls[call.id]
            yield Answer(call.id, error, cause, now - call.arrived)
        bind.calls.clear()

    def move_bind(self, bind: WaitingBind, to: BindState, cause: Cause | None = None) -> None:
        """Move a bind to another state, if the table of moves allows it."""
        if to not in BIND_MOVES[bind.state]:
            raise self._illegal(f"pod {bind.uid}", bind.gang, bind.state.name, to.name)
        attempt = self.attempt_of(bind)
        if attempt is not None:
            is_sent = BindState.BINDING
            attempt.under_way += (to is is_sent) - (bind.state is is_sent)
        bind.state = to
        self.history.note(bind.gang, _line(to, cause))

    def move_attempt(
        self, attempt: GangAttempt, to: AttemptState, cause: Cause | None = None
    ) -> None:
        """Move an attempt to another state, if the table of moves allows it."""
        if to not in ATTEMPT_MOVES[attempt.state]:
            raise self._illegal("the attempt", attempt.key, attempt.state.name, to.name)
        attempt.state = to
        self.history.note(attempt.key, _line(to, cause))
        if to not in BEFORE_COMMIT:
            for uid in attempt.siblings:
                self.siblings.pop(uid, None)
            attempt.siblings.clear()
        if not ATTEMPT_MOVES[to]:
            del self.attempts[attempt.key]
            if attempt.key in self.partial_until:
                self.alarms.set(0.0, attempt.key)  # at once

    def _illegal(self, what: str, gang: GangKey | None, old: str, new: str) -> IllegalTransition:
        history = "; ".join(self.history.of(gang)) if gang else ""
        return IllegalTransition(f"{what} of gang {gang} cannot go from {old} to {new} ({history})")


@cache
def _line(to: BindState | AttemptState, cause: Cause | None) -> str:
    return f"{to.name}: {cause.word}" if cause else to.name
