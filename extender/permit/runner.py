"""Runs the state machine: takes bind calls, carries out instructions, sets timers.

Events go into a mailbox. A thread that finds no other thread at work processes them: one at a time,
in order, and no thread ever waits for another. So an instruction may do what it likes (send,
answer, cause the next event) without a lock that it could wait for. Changes of the cache are
processed by the timer's thread, because the cache may hold a lock while it notifies.
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
    GangEvent,
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
    PartialGangEvictor,
)
from extender.reservations.ledger import Ledger

#: How often it is checked whether the node has capacity by now, and for how long a call may wait.
_CHECK_S = 0.03
_LONGEST_S = 0.25


class _DelayedCall(NamedTuple):
    call: Arrived
    until: float


class BindDelay:
    """Delays calls for a node that seems full; belongs to the event loop."""

    def __init__(
        self,
        is_node_full: Callable[[BindOrder, float], bool],
        admit: Callable[[Arrived], None],
        timer: LoopTimer,
        now: Callable[[], float],
    ) -> None:
        self._is_node_full = is_node_full
        self._admit = admit
        self._timer = timer
        self._now = now
        self._delayed: dict[CallId, _DelayedCall] = {}
        #: At most one check is scheduled at a time, even if all calls were removed meanwhile.
        self._is_check_scheduled = False

    def add(self, call: Arrived) -> None:
        """Admit a call, or let it wait."""
        now = self._now()
        if not self._is_node_full(call.order, now):
            self._admit(call)
            return
        self._delayed[call.id] = _DelayedCall(call, now + _LONGEST_S)
        self._schedule_check()

    def remove(self, call: CallId) -> bool:
        """Remove a call; return whether it waited here."""
        return self._delayed.pop(call, None) is not None

    def clear(self) -> None:
        """Admit every call: each gets the same answer as all others."""
        for each in tuple(self._delayed.values()):
            if self.remove(each.call.id):
                self._admit(each.call)

    def _schedule_check(self) -> None:
        if self._delayed and not self._is_check_scheduled:
            self._is_check_scheduled = True
            self._timer.call_later(_CHECK_S, self._check)

    def _check(self) -> None:
        self._is_check_scheduled, now = False, self._now()
        for each in tuple(self._delayed.values()):
            is_over = now >= each.until or not self._is_node_full(each.call.order, now)
            if is_over and self.remove(each.call.id):  # others may have admitted it meanwhile
                self._admit(each.call)
        self._schedule_check()


log = logging.getLogger(__name__)
#: How long the answer about a deleted pod waits. Our watch may be quicker than kube-scheduler's. If
#: kube-scheduler gets the failed bind before it sees the deletion, a pod that preempted this one
#: misses the released capacity and stays unschedulable (1.33 and later, asynchronous preemption).
_GONE_DELAY_S = 0.3
_NO_OUTCOME = BindOutcome(BindResult.UNKNOWN, "the outcome of the binding is not known")


class Observer(Protocol):
    """Called with what is counted in metrics: `status.notes.BindNotes`."""

    def released(self, cause: str, waited_s: float) -> None:
        """A bind call was answered; *cause* is a word of the closed list."""

    def partial_commit(self, gang: GangKey) -> None:
        """A gang is below minMember after its bindings were sent."""

    def peer_closed(self, age_s: float) -> None:
        """A caller gave up *age_s* after its call."""

    def learnt_timeout(self, seconds: float | None) -> None:
        """kube-scheduler seems to give up sooner than configured; None when it does not."""


class PermitRunner:
    """Where binds wait. Every method may be called from any thread and returns at once."""

    def __init__(
        self,
        machine: StateMachine,
        *,
        binder: Binder,
        groups: GroupReader,
        ledger: Ledger,
        undo: PartialGangEvictor,
        timer: LoopTimer,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._machine = machine
        self._binder = binder
        self._groups = groups
        self._ledger = ledger
        self._timer = timer
        self._now = clock.monotonic
        self._observer = observer
        self._mailbox: deque[Event] = deque()
        #: New members whose event the state machine has not read yet.
        self._joining: set[PodUid] = set()
        self._working = threading.Lock()
        self._ids = count(1)
        self._answers: dict[CallId, TakeAnswer] = {}
        self._bind_delay = BindDelay(machine.is_node_full, self._post, timer, self._now)
        self._timer_at: float | None = None
        self._reported_timeout_s: float | None = None
        self._drained: list[Future[None]] = []
        self._on_partial: Callable[[GangKey], object] = lambda gang: None
        self._handlers: dict[type, Callable[[Any], None]] = {
            MarkWaiting: lambda it: ledger.mark_waiting(it.uid, it.node),
            Verify: self._verify,
            Bind: self._bind,
            MarkBound: lambda it: ledger.mark_bound(it.uid, it.node),
            Release: lambda it: ledger.release(it.uid),
            KeepReserved: lambda it: ledger.keep_reserved(it.uid, it.node),
            MarkUnknown: lambda it: ledger.mark_unknown(it.uid, it.node),
            Answer: self._answer,
            BackOff: self._back_off,
            ReportPartial: self._report_partial,
            EvictPartial: lambda it: undo.evict_all(
                it.gang,
                it.orders,
                leaves=lambda gang: self._post_soon(EvictionStarted(gang)),
                stays=lambda gang: self._post_soon(EvictionRefused(gang)),
            ),
            ReportPeerClosed: lambda it: observer.peer_closed(it.age_s),
        }

    # Called by the hooks

    def bind(self, order: BindOrder, answer: TakeAnswer) -> CallId:
        """Bind when it is time; *answer* is called once, perhaps before this returns."""
        call = CallId(next(self._ids))
        self._answers[call] = answer
        self._bind_delay.add(Arrived(call, order))
        return call

    def peer_gone(self, call: CallId) -> None:
        """Called when the caller of a bind has disconnected."""
        if self._bind_delay.remove(call):
            del self._answers[call]
        elif call in self._answers:
            self._post(PeerGone(call))

    # Called by the cache

    def pod_changed(self, uid: PodUid, gang: GangKey | None) -> None:
        """Called when a pod was changed or deleted, after the cache shows it."""
        news = self._machine.event_for(uid, gang)
        if isinstance(news, Joined):
            # There is one for every pod, so it waits in the mailbox for the next event.
            self._joining.add(uid)
            self._mailbox.append(news)
        elif news is not None or uid in self._joining:
            self._post_soon(PodChanged(uid, gang))

    def sibling_unschedulable(self, uid: PodUid, gang: GangKey) -> None:
        """Called when kube-scheduler refused a pod, after the cache shows its condition."""
        if self._machine.concerns(uid, gang):
            self._post_soon(SiblingUnschedulable(uid, gang))

    def group_changed(self, gang: GangKey, group: PodGroup | None) -> None:
        """Called when a PodGroup was changed or deleted."""
        self._post_about_attempt(GroupChanged(gang, group))

    def node_changed(self, name: str) -> None:
        """Called when a node was changed or deleted, after the cache shows it."""
        if self._machine.waiting_binds:
            self._post_soon(NodeChanged(name))

    def still_incomplete(self, gang: GangKey) -> None:
        """Called when no further member of an arriving gang has come for a while."""
        self._post_about_attempt(StillIncomplete(gang))

    def withdrawn(self, gang: GangKey) -> None:
        """Called when the reservations of a gang were released: it must not start with them."""
        self._post_about_attempt(Withdrawn(gang))

    def _post_about_attempt(self, event: GangEvent) -> None:
        if self._machine.state_of(event.gang) is not None:
            self._post_soon(event)

    def on_partial(self, listener: Callable[[GangKey], object]) -> None:
        """Call *listener* with a gang of which only a part was bound."""
        self._on_partial = listener

    def found_partial(self, gang: GangKey) -> None:
        """Called when a gang is found that was bound in part before this term."""
        self._post_soon(FoundPartial(gang))

    # Called by the process

    def open(self) -> None:
        """Accept binds, because a term has begun."""
        self._post(Opened())

    def lose_lease(self) -> None:
        """Refuse waiting and new binds; what was sent finishes."""
        self._post(Closed(Cause.LEASE_LOST))
        self._bind_delay.clear()

    def shut_down(self) -> Future[None]:
        """Refuse waiting and new binds; the future ends when what was sent has finished."""
        finished: Future[None] = Future()
        finished.set_running_or_notify_cancel()
        self._drained.append(finished)
        self._post(Closed(Cause.SHUT_DOWN))
        self._bind_delay.clear()
        return finished

    # Read by pages and metrics

    @property
    def waiting_binds(self) -> int:
        """Return the number of pods whose bind waits or was sent."""
        return self._machine.waiting_binds

    def why_not_ready(self) -> list[str]:
        """Return why no bind may come in; empty while open."""
        cause = self._machine.closed
        return [f"binds: {cause.text()}"] if cause else []

    # The mailbox

    def _post(self, event: Event) -> None:
        self._mailbox.append(event)
        self._process_mailbox()

    def _post_soon(self, event: Event) -> None:
        self._mailbox.append(event)
        self._timer.call_soon(self._process_mailbox)

    def _process_mailbox(self) -> None:
        # After the lock is released, check again: an event may have arrived in between.
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
        # What was decided before an error has changed the state, and must be carried out.
        wanted: list[Instruction] = []
        try:
            wanted.extend(self._machine.react(event, self._now()))
        except Exception:
            log.exception("permit runner failed", extra={"facts": {"event": repr(event)}})
        for instruction in wanted:
            # One failure must not stop the runner, nor the answers that come after it.
            try:
                self._handlers[type(instruction)](instruction)
            except Exception:
                log.exception("permit runner failed", extra={"facts": {"act": repr(instruction)}})

    def _after_work(self) -> None:
        due = self._machine.due
        if due is not None and (self._timer_at is None or due < self._timer_at):
            self._timer_at = due
            self._timer.call_later(max(0.0, due - self._now()), partial(self._on_timer, due))
        if self._drained and not self._machine.waiting_binds and self._machine.closed:
            while self._drained:
                self._drained.pop().set_result(None)
        learnt_s = self._machine.learned.learnt_timeout_s
        if learnt_s != self._reported_timeout_s:
            self._report_timeout(learnt_s)

    def _report_timeout(self, learnt_s: float | None) -> None:
        self._reported_timeout_s = learnt_s
        if learnt_s is not None:
            message = "kube-scheduler gives up binds sooner than configured"
            log_event(log, logging.WARNING, message, bind_timeout_s=round(learnt_s, 2))
        try:
            self._observer.learnt_timeout(learnt_s)
        except Exception:
            log.exception("permit runner failed")

    def _on_timer(self, due: float) -> None:
        if due != self._timer_at:
            return  # replaced by an earlier timer: this one would start a second series of timers
        self._timer_at = None
        self._post(Tick())

    # Instructions

    def _verify(self, instruction: Verify) -> None:
        try:
            reading = self._groups.read(instruction.group)
        except Exception:
            self._post(VerifyFailed(instruction.gang, instruction.epoch))
            raise
        reading.add_done_callback(partial(self._group_read, instruction))

    def _group_read(self, instruction: Verify, read: Future[PodGroup | None]) -> None:
        error = read.exception()
        if error is None:
            self._post(Verified(instruction.gang, instruction.epoch, read.result()))
            return
        message = "PodGroup could not be read"
        log_event(log, logging.WARNING, message, gang=instruction.gang, why=str(error))
        self._post(VerifyFailed(instruction.gang, instruction.epoch))

    def _bind(self, instruction: Bind) -> None:
        for each in instruction.orders:
            try:
                self._ledger.mark_binding(each.uid, each.node)
            except Exception:
                log.exception("reservation not recorded")  # the binding must be sent in any case
        try:
            self._binder.bind(instruction.orders, self._settle, instruction.until)
        except Exception:
            log.exception("binder failed")
            for each in instruction.orders:
                self._settle(each, _NO_OUTCOME)

    def _settle(self, order: BindOrder, outcome: BindOutcome) -> None:
        self._post(Settled(order.uid, outcome))

    def _answer(self, instruction: Answer) -> None:
        answer = self._answers.pop(instruction.id)
        try:
            self._observer.released(instruction.cause.word, instruction.waited_s)
        finally:
            if instruction.cause is Cause.POD_GONE:
                self._timer.call_later(_GONE_DELAY_S, partial(answer, instruction.error))
            else:
                answer(instruction.error)

    def _back_off(self, instruction: BackOff) -> None:
        message = "gang backs off" if instruction.span_s else "gang may start again"
        log_event(log, logging.INFO, message, gang=instruction.gang, span_s=instruction.span_s)
        self._ledger.back_off(instruction.gang, instruction.span_s)

    def _report_partial(self, instruction: ReportPartial) -> None:
        log_event(log, logging.ERROR, "gang bound only in part", gang=instruction.gang)
        self._on_partial(instruction.gang)
        self._observer.partial_commit(instruction.gang)
