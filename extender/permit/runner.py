"""The hands of the book: takes bind calls, carries out its instructions, keeps the time.

Events go into a mailbox, and whoever finds nobody at work works it off: one thread at a time,
in order, and nobody ever waits for anybody. So an instruction may do what it likes (send,
answer, call somebody who brings the next event) without a lock that
could be waited for. What the mirror tells is worked off by the timer's thread, because the
mirror may be holding a lock of its own while it tells.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Protocol

from extender.clock import LoopTimer
from extender.logs import event as log_event
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PodUid
from extender.permit.machine import StateMachine
from extender.permit.messages import (
    Answer,
    Arrived,
    BackOff,
    Bind,
    CallId,
    Cause,
    Closed,
    Event,
    EvictionRefused,
    EvictionStarted,
    EvictPartial,
    FoundPartial,
    GroupChanged,
    Instruction,
    Joined,
    KeepReserved,
    MarkBound,
    MarkUnknown,
    MarkWaiting,
    NodeChanged,
    Opened,
    PeerGone,
    PodChanged,
    Release,
    ReportPartial,
    ReportPeerClosed,
    Settled,
    SiblingUnschedulable,
    StillIncomplete,
    TakeAnswer,
    Tick,
    Verified,
    Verify,
    VerifyFailed,
    Withdrawn,
)
from extender.ports import (
    Binder,
    BindOrder,
    BindOutcome,
    BindResult,
    Clock,
    GroupReader,
    PartialBindRollback,
)
from extender.reservations.ledger import Ledger

#: How often it is looked whether the counts agree by now, and how long they may differ.
_LOOK_S = 0.03
_LONGEST_S = 0.25


class _Caller(NamedTuple):
    call: Arrived
    until: float


class BindDelay:
    """Belongs to the event loop."""

    def __init__(
        self,
        is_crowded: Callable[[Arrived], bool],
        let_in: Callable[[Arrived], None],
        timer: LoopTimer,
        now: Callable[[], float],
    ) -> None:
        self._is_crowded = is_crowded
        self._let_in = let_in
        self._timer = timer
        self._now = now
        self._callers: dict[CallId, _Caller] = {}
        #: There is one look to come at a time, also when everybody has left meanwhile.
        self._will_look = False

    def add(self, call: Arrived) -> None:
        """Let a call in, or let it wait."""
        if not self._is_crowded(call):
            self._let_in(call)
            return
        self._callers[call.id] = _Caller(call, self._now() + _LONGEST_S)
        self._look_later()

    def remove(self, call: CallId) -> bool:
        """Return whether a call waits here, which it does no longer."""
        return self._callers.pop(call, None) is not None

    def clear(self) -> None:
        """Let everybody in: it is said to them what is said to all."""
        for each in tuple(self._callers.values()):
            if self.remove(each.call.id):
                self._let_in(each.call)

    def _look_later(self) -> None:
        if self._callers and not self._will_look:
            self._will_look = True
            self._timer.call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._will_look, now = False, self._now()
        for each in tuple(self._callers.values()):
            is_over = now >= each.until or not self._is_crowded(each.call)
            if is_over and self.remove(each.call.id):  # others may have let it in meanwhile
                self._let_in(each.call)
        self._look_later()


log = logging.getLogger(__name__)
#: How long the answer about a deleted pod waits. Our watch may be quicker than kube-scheduler's; if
#: it hears of the failed bind before it sees the deletion, a pod that preempted this one misses
#: the moment its room became free, and sleeps on (1.33 and later, with asynchronous preemption).
_BREATH_S = 0.3
_NO_OUTCOME = BindOutcome(BindResult.UNKNOWN, "the outcome of the binding is not known")


class Observer(Protocol):
    """Hears what is worth counting."""

    def released(self, cause: str, waited_s: float) -> None:
        """A bind call was answered; *cause* is a word of the closed list."""

    def partial_commit(self, gang: GangKey) -> None:
        """A gang ended short of minMember after its bindings were sent."""

    def peer_closed(self, age_s: float) -> None:
        """A caller gave up *age_s* after its call."""

    def learnt_timeout(self, seconds: float | None) -> None:
        """kube-scheduler seems to give up sooner than configured; None when it does not."""


class PermitRunner:
    """Where binds wait. Every method may be called from any thread and returns at once."""

    def __init__(
        self,
        book: StateMachine,
        *,
        binder: Binder,
        groups: GroupReader,
        inflight: Ledger,
        undo: PartialBindRollback,
        timer: LoopTimer,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._book = book
        self._binder = binder
        self._groups = groups
        self._inflight = inflight
        self._timer = timer
        self._now = clock.monotonic
        self._observer = observer
        self._mailbox: deque[Event] = deque()
        #: New members of which the book has not read yet.
        self._joining: set[PodUid] = set()
        self._working = threading.Lock()
        self._ids = count(1)
        self._answers: dict[CallId, TakeAnswer] = {}
        self._doorstep = BindDelay(self._is_crowded, self._tell, timer, self._now)
        self._rings_at: float | None = None
        self._told_timeout_s: float | None = None
        self._empty: list[Future[None]] = []
        self._acts: dict[type, Callable[[Any], None]] = {
            MarkWaiting: lambda order: inflight.mark_waiting(order.uid, order.node),
            Verify: self._verify,
            Bind: self._bind,
            MarkBound: lambda order: inflight.mark_bound(order.uid, order.node),
            Release: lambda order: inflight.release(order.uid),
            KeepReserved: lambda order: inflight.keep_reserved(order.uid, order.node),
            MarkUnknown: lambda order: inflight.mark_unknown(order.uid, order.node),
            Answer: self._answer,
            BackOff: self._back_off,
            ReportPartial: self._report_partial,
            EvictPartial: lambda order: undo.evict_all(
                order.gang, order.orders, leaves=self._leaves_again, stays=self._stays_in_part
            ),
            ReportPeerClosed: lambda order: observer.peer_closed(order.age_s),
        }

    # Asked by the hooks

    def bind(self, order: BindOrder, answer: TakeAnswer) -> CallId:
        """Bind when it is time; *answer* is called once, perhaps before this returns."""
        call = CallId(next(self._ids))
        self._answers[call] = answer
        self._doorstep.add(Arrived(call, order))
        return call

    def _is_crowded(self, call: Arrived) -> bool:
        return self._book.is_crowded(call.order, self._now())

    def peer_gone(self, call: CallId) -> None:
        """Record that nobody waits for this answer any more."""
        if self._doorstep.remove(call):
            del self._answers[call]
        elif call in self._answers:
            self._tell(PeerGone(call))

    # Told by the mirror

    def pod_changed(self, uid: PodUid, gang: GangKey | None) -> None:
        """Record that a pod was changed or deleted, after the mirror shows it."""
        news = self._book.news_of(uid, gang)
        if isinstance(news, Joined):
            # There is one for every pod: the next letter takes it along, nobody is woken for it.
            self._joining.add(uid)
            self._mailbox.append(news)
        elif news is not None or uid in self._joining:
            self._tell_soon(PodChanged(uid, gang))

    def sibling_unschedulable(self, uid: PodUid, gang: GangKey) -> None:
        """Record that kube-scheduler refused a pod, after the mirror shows its words."""
        if self._book.concerns(uid, gang):
            self._tell_soon(SiblingUnschedulable(uid, gang))

    def group_changed(self, gang: GangKey, group: PodGroup | None) -> None:
        """Record that a PodGroup was changed or deleted."""
        if self._book.state_of(gang) is not None:
            self._tell_soon(GroupChanged(gang, group))

    def node_changed(self, name: str) -> None:
        """Record that a node was changed or deleted, after the mirror shows it."""
        if self._book.waiting_binds:
            self._tell_soon(NodeChanged(name))

    def still_incomplete(self, gang: GangKey) -> None:
        """Record that no further member of an arriving gang has come for a while."""
        if self._book.state_of(gang) is not None:
            self._tell_soon(StillIncomplete(gang))

    def withdrawn(self, gang: GangKey) -> None:
        """Record that a gang must not start with what it was promised."""
        if self._book.state_of(gang) is not None:
            self._tell_soon(Withdrawn(gang))

    def found_partial(self, gang: GangKey) -> None:
        """Record that a gang stands in part since before our term."""
        self._tell_soon(FoundPartial(gang))

    # Told by whoever runs us

    def open(self) -> None:
        """Let binds in: we lead."""
        self._tell(Opened())

    def lose_lease(self) -> None:
        """Refuse what waits and whatever comes; what was sent finishes."""
        self._tell(Closed(Cause.LEASE_LOST))
        self._doorstep.clear()

    def shut_down(self) -> Future[None]:
        """Refuse what waits and whatever comes; done when what was sent has finished."""
        finished: Future[None] = Future()
        finished.set_running_or_notify_cancel()
        self._empty.append(finished)
        self._tell(Closed(Cause.SHUT_DOWN))
        self._doorstep.clear()
        return finished

    # Asked by people

    @property
    def waiting_binds(self) -> int:
        """Count the pods whose bind waits or is under way."""
        return self._book.waiting_binds

    def readiness(self) -> list[str]:
        """Return why no bind may come in, if so."""
        cause = self._book.closed
        return [f"binds: {cause.text()}"] if cause else []

    # The mailbox

    def _tell(self, event: Event) -> None:
        self._mailbox.append(event)
        self._work_off()

    def _tell_soon(self, event: Event) -> None:
        self._mailbox.append(event)
        self._timer.call_soon(self._work_off)

    def _work_off(self) -> None:
        # After giving up the turn, look again: a letter may have come in between.
        while self._mailbox and self._working.acquire(blocking=False):
            try:
                while self._mailbox:
                    self._react(self._mailbox.popleft())
                self._after_work()
            finally:
                self._working.release()

    def _react(self, event: Event) -> None:
        if isinstance(event, Joined):
            self._joining.discard(event.uid)
        # What was decided before a stumble has happened in the book, and must be carried out.
        wanted: list[Instruction] = []
        try:
            wanted.extend(self._book.react(event, self._now()))
        except Exception:
            log.exception("barrier failed", extra={"facts": {"event": repr(event)}})
        for instruction in wanted:
            # One failure must not take the barrier down, nor the answers that stand behind it.
            try:
                self._acts[type(instruction)](instruction)
            except Exception:
                log.exception("barrier failed", extra={"facts": {"act": repr(instruction)}})

    def _after_work(self) -> None:
        due = self._book.due
        if due is not None and (self._rings_at is None or due < self._rings_at):
            self._rings_at = due
            self._timer.call_later(max(0.0, due - self._now()), partial(self._ring, due))
        if self._empty and not self._book.waiting_binds and self._book.closed:
            while self._empty:
                self._empty.pop().set_result(None)
        learnt_s = self._book.patience.learnt_timeout_s
        if learnt_s != self._told_timeout_s:
            self._tell_timeout(learnt_s)

    def _tell_timeout(self, learnt_s: float | None) -> None:
        self._told_timeout_s = learnt_s
        if learnt_s is not None:
            sentence = "kube-scheduler gives up binds sooner than configured"
            log_event(log, logging.WARNING, sentence, bind_timeout_s=round(learnt_s, 2))
        try:
            self._observer.learnt_timeout(learnt_s)
        except Exception:
            log.exception("barrier failed")

    def _ring(self, due: float) -> None:
        if due != self._rings_at:
            return  # an earlier one was set meanwhile: this one would begin a second row of rings
        self._rings_at = None
        self._tell(Tick())

    # Instructions

    def _verify(self, order: Verify) -> None:
        try:
            reading = self._groups.read(order.group)
        except Exception:
            self._tell(VerifyFailed(order.gang, order.epoch))
            raise
        reading.add_done_callback(partial(self._judge, order))

    def _judge(self, order: Verify, read: Future[PodGroup | None]) -> None:
        error = read.exception()
        if error is None:
            self._tell(Verified(order.gang, order.epoch, read.result()))
            return
        log_event(log, logging.WARNING, "PodGroup unread", gang=order.gang, why=str(error))
        self._tell(VerifyFailed(order.gang, order.epoch))

    def _bind(self, order: Bind) -> None:
        for each in order.orders:
            try:
                self._inflight.mark_binding(each.uid, each.node)
            except Exception:
                log.exception("room unnoted")  # sent it must be, for the book and its siblings
        try:
            self._binder.bind(order.orders, self._settle, order.until)
        except Exception:
            log.exception("binder failed")
            for each in order.orders:
                self._settle(each, _NO_OUTCOME)

    def _settle(self, order: BindOrder, outcome: BindOutcome) -> None:
        self._tell(Settled(order.uid, outcome))

    def _answer(self, order: Answer) -> None:
        answer = self._answers.pop(order.id)
        try:
            self._observer.released(order.cause.word, order.waited_s)
        finally:
            if order.cause is Cause.POD_GONE:
                self._timer.call_later(_BREATH_S, partial(answer, order.error))
            else:
                answer(order.error)

    def _back_off(self, order: BackOff) -> None:
        said = "gang backs off" if order.span_s else "gang need not back off any more"
        log_event(log, logging.INFO, said, gang=order.gang, span_s=order.span_s)
        self._inflight.back_off(order.gang, order.span_s)

    def _leaves_again(self, gang: GangKey) -> None:
        """Hear, in any thread, that a gang that was to be taken back is asked to leave."""
        self._tell_soon(EvictionStarted(gang))

    def _stays_in_part(self, gang: GangKey) -> None:
        """Hear, in any thread, that nobody of a gang left that was to be taken back."""
        self._tell_soon(EvictionRefused(gang))

    def _report_partial(self, order: ReportPartial) -> None:
        log_event(log, logging.ERROR, "gang bound only in part", gang=order.gang)
        self._observer.partial_commit(order.gang)
