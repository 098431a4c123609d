"""One attempt of a gang to start, the bind calls that wait in it, and how far each may go.

The tables of moves are the whole truth: they are asked before every move, and the diagrams in
docs/holds.md are drawn from them.
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

    NEW = "The call has just come in and its pod passed the entry checks."
    WAITING = "The call waits for the rest of its gang; nothing was sent to the API server."
    BINDING = "The binding was sent, or is about to be; there is no way back."
    BOUND = "The API server has shown the pod on the node; the answer was success."
    FAILED = "The pod is not known to be on the node; the answer was an error."
    RELEASED = "The call was refused before anything was sent; kube-scheduler tries again."


class AttemptState(Enum):
    """How far one attempt of a gang to start is; its value is its sentence in the docs."""

    __hash__ = object.__hash__

    ASSEMBLING = "Members are held, but too few to start; the first arrival set the deadline."
    VERIFYING = "Enough are held; the PodGroup is being read from the API server itself."
    COMMITTING = "The members it needs are being bound; the others wait for what becomes of them."
    DONE = "At least minMember members are bound; the attempt is over."
    PARTIAL = "Too few got bound; while one of them runs, missing ones are bound as they come."
    ABORTED = "All were refused together, and nothing stays bound; the gang may have to back off."
    EMPTY = "Nobody waits or runs any more; the gang starts anew when a member comes."


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
#: Nothing was sent yet: any doubt may still end it.
GATHERING = frozenset({AttemptState.ASSEMBLING, AttemptState.VERIFYING})
#: Bindings were sent: it can only go forward.
FORWARD = frozenset({AttemptState.COMMITTING, AttemptState.PARTIAL})


class ScheduledCounts(NamedTuple):
    """Members on a node; *by_role* only knows the roles that have a minimum."""

    total: int
    by_role: Mapping[str, int]


NOTHING_SCHEDULED = ScheduledCounts(0, {})


class BindCall(msgspec.Struct, frozen=True):
    """A call that gets the answer; *node* is what it asked for."""

    id: CallId
    node: str
    arrived: float


class WaitingBind(msgspec.Struct, kw_only=True):
    """One pod whose bind waits or is under way."""

    uid: PodUid
    #: The newest one when the call was repeated.
    order: BindOrder
    gang: GangKey | None
    role: str
    state: BindState = BindState.NEW
    #: One while HELD; more when a call is repeated while COMMITTING; none when all went away.
    calls: list[BindCall] = msgspec.field(default_factory=list)

    @property
    def node(self) -> str:
        """Where the pod is about to go."""
        return self.order.node


@dataclass(slots=True, kw_only=True)
class GangAttempt:
    """The held members of one PodGroup object (another uid is another assembly)."""

    group: PodGroup
    #: Unique over the life of the book; a new one for every verification.
    epoch: int
    deadline: float
    #: A verification that has not ended by then never will.
    verify_by: float
    #: kube-scheduler's patience with the first arrival ends here, margin taken off.
    give_up: float
    state: AttemptState = AttemptState.ASSEMBLING
    #: What the mirror showed when the live PodGroup was asked for.
    seen: PodGroup | None = None
    #: Members that wait or are being bound.
    binds: dict[PodUid, WaitingBind] = field(default_factory=dict)
    #: How many of those are being bound.
    under_way: int = 0
    #: Members known to exist, held or not, with what kube-scheduler had said of them before.
    siblings: dict[PodUid, str] = field(default_factory=dict)
    #: Members kube-scheduler found no node for since the assembly began.
    stuck: set[PodUid] = field(default_factory=set)
    #: When to look again whether enough members are left; None without doubt.
    unknown_at: float | None = None
    #: When to read the PodGroup again after a failed read; None otherwise.
    reread_at: float | None = None
    #: When to look after a gang bound in part.
    look_at: float = 0.0
    #: Members on a node when the commit began.
    scheduled_before: ScheduledCounts = NOTHING_SCHEDULED
    #: Members bound by this assembly, with their roles.
    bound: dict[PodUid, str] = field(default_factory=dict)
    #: Members whose binding certainly failed.
    failed: set[PodUid] = field(default_factory=set)
    #: Members that may have been bound without our seeing it.
    unknown: set[PodUid] = field(default_factory=set)

    @property
    def key(self) -> GangKey:
        """Return the gang."""
        return self.group.key


_LINES = 64
_GANGS = 1_000
_RECENT_S = 60.0
#: By then every watch has shown a binding.
_NEWS_S = 2.0
_MOST_RECENT = 20_000


class MoveHistory:
    """What happened last to the gangs that were here last, for whoever must find a mistake."""

    def __init__(self) -> None:
        self._lines: FIFOCache[GangKey, deque[str]] = FIFOCache(_GANGS)

    def note(self, gang: GangKey | None, what: str) -> None:
        """Add a line; lone pods have no story."""
        if gang is None:
            return
        lines = self._lines.get(gang)
        if lines is None:
            lines = self._lines[gang] = deque(maxlen=_LINES)
        lines.append(what)

    def of(self, gang: GangKey) -> tuple[str, ...]:
        """Tell the story of a gang, oldest line first."""
        return tuple(self._lines.get(gang, ()))


class RecentEnds:
    """Pods whose bind succeeded, oldest first, until the mirror surely shows them."""

    def __init__(self) -> None:
        self._bound: dict[PodUid, tuple[str, float]] = {}
        #: When somebody was last bound to a node, the longest ago first.
        self._nodes: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._bound)

    def remember(self, uid: PodUid, node: str, now: float) -> None:
        """Keep in mind that the API server has shown *uid* on *node*."""
        self._bound.pop(uid, None)
        self._bound[uid] = (node, now)
        self._nodes.pop(node, None)
        self._nodes[node] = now
        self._forget(now)

    def is_news_from(self, node: str, now: float) -> bool:
        """Return whether somebody was bound to *node* a moment ago, and not everybody may know."""
        return now - self._nodes.get(node, float("-inf")) <= _NEWS_S

    def node_of(self, uid: PodUid, now: float) -> str | None:
        """Return the node *uid* was bound to, None when that was not lately."""
        node, at = self._bound.get(uid, (None, now))
        return node if now - at <= _RECENT_S else None

    def _forget(self, now: float) -> None:
        while now - self._nodes[first := next(iter(self._nodes))] > _NEWS_S:
            del self._nodes[first]
        while self._bound:
            oldest = next(iter(self._bound))
            expired = now - self._bound[oldest][1] > _RECENT_S
            if not expired and len(self._bound) <= _MOST_RECENT:
                return
            del self._bound[oldest]


class Table:
    """Who waits for what. A gang has at most one assembly, a pod at most one hold."""

    def __init__(self, backoff: GangBackoff, max_holds: int, closed: Cause | None) -> None:
        self.max_holds = max_holds
        #: Why nothing may come in; None while we are open.
        self.closed = closed
        self.holds: dict[PodUid, WaitingBind] = {}
        self.assemblies: dict[GangKey, GangAttempt] = {}
        #: To which assembly a pod belongs that may not be held (any more, or yet).
        self.siblings: dict[PodUid, GangKey] = {}
        #: Which pod an unanswered call is about.
        self.calls: dict[CallId, PodUid] = {}
        #: Gangs in part of which it is not known yet whether they can be taken back, and until when
        #: that is waited for.
        self.undecided: dict[GangKey, float] = {}
        #: Gangs that were found in part while they assembled, and until when they are completed,
        #: should that come to nothing.
        self.short_until: dict[GangKey, float] = {}
        self.backoff = backoff
        self.alarms = Alarms()
        self.recent = RecentEnds()
        self.stories = MoveHistory()

    def attempt_of(self, hold: WaitingBind) -> GangAttempt | None:
        """Return the assembly a hold is part of; one that is bound at once may have none."""
        assembly = self.assemblies.get(hold.gang) if hold.gang else None
        return assembly if assembly is not None and hold.uid in assembly.binds else None

    def add(self, assembly: GangAttempt, uid: PodUid, refusal: str = "") -> None:
        """Remember who belongs to an assembly: once a pod is gone, nobody else can tell.

        With it goes what kube-scheduler has said of it so far.
        """
        assembly.siblings.setdefault(uid, refusal)
        self.siblings[uid] = assembly.key

    def remove(self, assembly: GangAttempt, uid: PodUid) -> None:
        """Forget that a pod belongs to an assembly."""
        assembly.siblings.pop(uid, None)
        assembly.stuck.discard(uid)
        self.siblings.pop(uid, None)

    def wait(self, hold: WaitingBind, waiter: BindCall) -> None:
        """Let a call wait for the answer of a hold."""
        hold.calls.append(waiter)
        self.calls[waiter.id] = hold.uid

    def mark_waiting(self, hold: WaitingBind, assembly: GangAttempt) -> Iterator[Instruction]:
        """Hold a new arrival in its assembly."""
        self.holds[hold.uid] = assembly.binds[hold.uid] = hold
        self.add(assembly, hold.uid)
        assembly.stuck.discard(hold.uid)
        self.move(hold, BindState.WAITING)
        yield MarkWaiting(hold.uid, hold.node)

    def commit(self, holds: tuple[WaitingBind, ...], until: float) -> Iterator[Instruction]:
        """Send the bindings of *holds*; from here there is no way back."""
        for hold in holds:
            self.holds[hold.uid] = hold
            self.move(hold, BindState.BINDING)
        yield Bind(tuple(hold.order for hold in holds), until)

    def release(self, hold: WaitingBind, cause: Cause, now: float) -> Iterator[Instruction]:
        """Refuse a hold before anything was sent."""
        self.move(hold, BindState.RELEASED, cause)
        self.drop(hold)
        yield from self.answer(hold, cause, now, cause.text(hold.gang))
        yield Release(hold.uid)

    def release_call(self, hold: WaitingBind, cause: Cause, now: float) -> Iterator[Instruction]:
        """Answer a held call: refused, or bound when the mirror shows it on its node."""
        if cause is not Cause.BOUND:
            yield from self.release(hold, cause, now)
            return
        self.move(hold, BindState.BOUND)
        self.drop(hold)
        # The mirror shows it on its node: nothing of it is in flight any more.
        yield Release(hold.uid)
        yield from self.answer(hold, cause, now, "")

    def end(self, assembly: GangAttempt, cause: Cause, now: float) -> Iterator[Instruction]:
        """Refuse every held call of an attempt together, of which nothing stays bound."""
        self.turn(assembly, AttemptState.ABORTED, cause)
        for hold in tuple(assembly.binds.values()):
            yield from self.release(hold, cause, now)
        if cause in BACKS_OFF:
            yield BackOff(assembly.key, self.backoff.aborted(assembly.key, now))
        elif cause in (Cause.GROUP_GONE, Cause.GROUP_REPLACED):
            self.short_until.pop(assembly.key, None)
            self.backoff.started(assembly.key)

    def drop(self, hold: WaitingBind) -> None:
        """Take a hold off the table; its waiters are still to be answered."""
        assembly = self.attempt_of(hold)
        if assembly is not None:
            del assembly.binds[hold.uid]
        del self.holds[hold.uid]

    def answer(
        self, hold: WaitingBind, cause: Cause, now: float, error: str
    ) -> Iterator[Instruction]:
        """Answer every call that waits for *hold*."""
        for waiter in hold.calls:
            del self.calls[waiter.id]
            yield Answer(waiter.id, error, cause, now - waiter.arrived)
        hold.calls.clear()

    def move(self, hold: WaitingBind, to: BindState, cause: Cause | None = None) -> None:
        """Bring a hold into another state, if the table of moves allows it."""
        if to not in BIND_MOVES[hold.state]:
            raise self._illegal(f"pod {hold.uid}", hold.gang, hold.state.name, to.name)
        assembly = self.attempt_of(hold)
        if assembly is not None:
            is_sent = BindState.BINDING
            assembly.under_way += (to is is_sent) - (hold.state is is_sent)
        hold.state = to
        self.stories.note(hold.gang, _words(to, cause))

    def turn(self, assembly: GangAttempt, to: AttemptState, cause: Cause | None = None) -> None:
        """Bring an assembly into another state, if the table of moves allows it."""
        if to not in ATTEMPT_MOVES[assembly.state]:
            raise self._illegal("the assembly", assembly.key, assembly.state.name, to.name)
        assembly.state = to
        self.stories.note(assembly.key, _words(to, cause))
        if to not in GATHERING:
            for uid in assembly.siblings:
                self.siblings.pop(uid, None)
            assembly.siblings.clear()
        if not ATTEMPT_MOVES[to]:
            del self.assemblies[assembly.key]
            if assembly.key in self.short_until:
                self.alarms.set(0.0, assembly.key)  # at once

    def _illegal(self, what: str, gang: GangKey | None, old: str, new: str) -> IllegalTransition:
        story = "; ".join(self.stories.of(gang)) if gang else ""
        return IllegalTransition(f"{what} of gang {gang} cannot go from {old} to {new} ({story})")


@cache
def _words(to: BindState | AttemptState, cause: Cause | None) -> str:
    return f"{to.name}: {cause.word}" if cause else to.name
