"""The state machine of waiting binds: every event enters here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from extender.model.gang import GangKey
from extender.model.pod import PodUid, Status
from extender.permit import checks
from extender.permit.assembling import Assembling
from extender.permit.checks import BindNow, Entry, Present, Refuse, Wait, cause_to_refuse, displaced
from extender.permit.committing import Committing
from extender.permit.messages import (
    Answer,
    Arrived,
    Cause,
    Closed,
    Event,
    EvictionRefused,
    EvictionStarted,
    Facts,
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
    ReportPeerClosed,
    Settled,
    SiblingUnschedulable,
    StillIncomplete,
    Tick,
    Verified,
    VerifyFailed,
    Withdrawn,
)
from extender.permit.states import (
    AFTER_COMMIT,
    BEFORE_COMMIT,
    AttemptState,
    BindState,
    OpenCall,
    Table,
    WaitingBind,
)
from extender.permit.timeouts import GangBackoff, LearnedTimeout, Timeouts
from extender.ports import BindOrder, BindOutcome, BindResult, Whose

#: A pod elsewhere has its capacity there. A pod that filter never admitted was not sent by
#: kube-scheduler: no call may end the reservations of a gang.
_KEEP_RESERVATION = frozenset({Cause.POD_ELSEWHERE, Cause.NOT_FILTERED})


class BindCalls:
    """The life of single calls; `assembling` and `committing` decide about gangs."""

    def __init__(
        self,
        table: Table,
        facts: Facts,
        learned: LearnedTimeout,
        assembling: Assembling,
        committing: Committing,
    ) -> None:
        self._table = table
        self._facts = facts
        self._learned = learned
        self._assembling = assembling
        self._committing = committing

    # Arrival

    def arrived(self, event: Arrived, now: float) -> Iterator[Instruction]:
        """Check a call; a repeated one replaces the older."""
        call = OpenCall(event.id, event.order.node, now)
        bind = self._table.binds.get(event.order.uid)
        if bind is not None and bind.state is BindState.BINDING:
            self._table.wait(bind, call)
            return
        entry = self._judge(event, bind, now)
        if bind is None:
            yield from self._admit(event, call, entry, now)
            return
        # kube-scheduler gave up the old call, and its end was not noticed: the new one replaces it.
        yield from self._table.answer(bind, Cause.SUPERSEDED, now, Cause.SUPERSEDED.text(bind.gang))
        self._table.wait(bind, call)
        bind.order = event.order
        yield from self._supersede(bind, entry, now)

    def _judge(self, event: Arrived, bind: WaitingBind | None, now: float) -> Entry:
        """Add what only the state machine knows to the check of the facts."""
        if event.order.whose is not Whose.OURS:
            # Not for us to decide, even if closed or full; the API server itself refuses a pod that
            # is bound or gone.
            return BindNow()
        if self._table.closed:
            return Refuse(self._table.closed)
        order = event.order
        entry = checks.judge(order, self._facts)
        if isinstance(entry, Refuse | Present):
            return entry
        bound_to = self._table.recent.node_of(order.uid, now)
        if bound_to is not None:
            return Present() if bound_to == order.node else Refuse(Cause.POD_ELSEWHERE)
        if not self._facts.has_passed(order.uid):
            return Refuse(Cause.NOT_FILTERED, self._facts.gang_of(order.uid))
        if bind is None and len(self._table.binds) >= self._table.max_binds:
            return Refuse(Cause.TABLE_FULL)
        if isinstance(entry, Wait):
            entry = self._judge_wait(order.uid, entry, now)
        cause = self._refuse_capacity(order, now) if _needs_capacity(entry) else None
        return Refuse(cause, self._facts.gang_of(order.uid)) if cause else entry

    def _refuse_capacity(self, order: BindOrder, now: float) -> Cause | None:
        if self.is_node_full(order, now):
            return Cause.NODE_FULL
        return None if self._facts.may_bind(order.uid, order.node) else Cause.CAPACITY_RESERVED

    def is_node_full(self, order: BindOrder, now: float) -> bool:
        """Return whether a pod of ours finds no capacity on a node that was bound to a moment ago.

        Any thread may ask.
        """
        facts = self._facts
        if order.whose is not Whose.OURS or not self._table.recent.bound_recently(order.node, now):
            return False
        return facts.node(order.node) is not None and not facts.has_capacity(order.uid, order.node)

    def _judge_wait(self, uid: PodUid, entry: Wait, now: float) -> Entry:
        gang = entry.group.key
        attempt = self._table.attempts.get(gang)
        if attempt is not None and attempt.state in AFTER_COMMIT:
            if attempt.group.uid != entry.group.uid:
                if attempt.binds:
                    return Refuse(Cause.GROUP_REPLACED, gang)
            elif attempt.state is AttemptState.COMMITTING:
                # Perhaps no member of it gets bound, and then this one must not start alone.
                entry = Wait(entry.group, entry.role, follows=True)
            elif attempt.binds or self._facts.scheduled(gang):
                if self._facts.may_lose_all(gang):
                    return Refuse(Cause.GANG_PREEMPTED, gang)
                return BindNow(gang, entry.role)
        if self._table.backoff.is_active(gang, now) and not entry.follows:
            return Refuse(Cause.BACKING_OFF, gang)
        if self._facts.reserved_node(uid) is None:
            return Refuse(Cause.NO_RESERVATION, gang)
        return entry

    def _admit(
        self, event: Arrived, call: OpenCall, entry: Entry, now: float
    ) -> Iterator[Instruction]:
        if isinstance(entry, Refuse):
            yield Answer(call.id, entry.cause.text(entry.gang), entry.cause, 0.0)
            if entry.cause not in _KEEP_RESERVATION:
                yield Release(event.order.uid)
        elif isinstance(entry, Present):
            yield Answer(call.id, "", Cause.BOUND, 0.0)
        else:
            gang = entry.gang if isinstance(entry, BindNow) else entry.group.key
            bind = WaitingBind(uid=event.order.uid, order=event.order, gang=gang, role=entry.role)
            self._table.wait(bind, call)
            if isinstance(entry, BindNow):
                yield from self._bind_alone(bind, now)
            else:
                yield from self._assembling.join(bind, entry.group, now)

    def _supersede(self, bind: WaitingBind, entry: Entry, now: float) -> Iterator[Instruction]:
        if isinstance(entry, Refuse):
            yield from self._assembling.release_member(bind, entry.cause, now)
        elif isinstance(entry, Present):
            yield from self._assembling.release_member(bind, Cause.BOUND, now)
        elif isinstance(entry, BindNow):
            attempt = self._table.attempt_of(bind)
            self._table.drop(bind)
            yield from self._bind_alone(bind, now)
            if attempt is not None:
                self._assembling.dissolve_if_empty(attempt)
        else:
            yield MarkWaiting(bind.uid, bind.node)

    def _bind_alone(self, bind: WaitingBind, now: float) -> Iterator[Instruction]:
        """Bind at once; the timeout of kube-scheduler for this call has just begun."""
        attempt = self._table.attempts.get(bind.gang) if bind.gang else None
        if attempt is not None and attempt.state in AFTER_COMMIT:
            attempt.binds[bind.uid] = bind
        yield from self._table.commit((bind,), now + self._learned.current.answer_s)

    # End

    def settled(self, event: Settled, now: float) -> Iterator[Instruction]:
        """Answer with the outcome of a binding, and continue with its gang."""
        bind = self._table.binds[event.uid]
        attempt = self._table.attempt_of(bind)
        bound = event.outcome.result is BindResult.BOUND
        self._table.move_bind(bind, BindState.BOUND if bound else BindState.FAILED)
        self._table.drop(bind)
        if bound:
            self._table.recent.remember(bind.uid, bind.node, now)
        yield from _after_bind(bind, event.outcome.result, in_a_gang=attempt is not None)
        yield from self._answer_outcome(bind, event.outcome, now)
        if attempt is not None:
            yield from self._committing.settled(attempt, bind, event.outcome.result, now)

    def _answer_outcome(
        self, bind: WaitingBind, outcome: BindOutcome, now: float
    ) -> Iterator[Instruction]:
        if outcome.result is not BindResult.BOUND:
            yield from self._table.answer(bind, Cause.BIND_FAILED, now, outcome.message)
            return
        # A repeated call may have requested another node, where the pod is not.
        other_nodes = [call for call in bind.calls if call.node != bind.node]
        for call in other_nodes:
            bind.calls.remove(call)
        yield from self._table.answer(bind, Cause.BOUND, now, "")
        if other_nodes:
            bind.calls[:], cause = other_nodes, Cause.POD_ELSEWHERE
            yield from self._table.answer(bind, cause, now, cause.text(bind.gang))

    def peer_gone(self, event: PeerGone, now: float) -> Iterator[Instruction]:
        """Drop a call whose caller disconnected; its age may reveal a timeout."""
        uid = self._table.calls.get(event.id)
        if uid is None:
            return
        bind = self._table.binds[uid]
        call = next(each for each in bind.calls if each.id == event.id)
        age_s = now - call.arrived
        self._learned.peer_closed(age_s, now)
        yield ReportPeerClosed(age_s)
        if bind.state is BindState.WAITING:
            yield from self._assembling.release_member(bind, Cause.PEER_GONE, now)
            return
        # What was sent stays sent; only the answer has no receiver.
        bind.calls.remove(call)
        del self._table.calls[event.id]
        yield Answer(event.id, Cause.PEER_GONE.text(bind.gang), Cause.PEER_GONE, age_s)


def _needs_capacity(entry: Entry) -> bool:
    """Return whether a call may use capacity that is not reserved for its gang."""
    return isinstance(entry, BindNow) or (isinstance(entry, Wait) and entry.follows)


def _after_bind(bind: WaitingBind, result: BindResult, *, in_a_gang: bool) -> Iterator[Instruction]:
    """Yield what becomes of the reservation of a pod whose binding was sent.

    With an unknown outcome it stays until the watch has shown the truth. A member whose binding
    failed comes again in a moment and must find its reservation.
    """
    if result is BindResult.BOUND:
        yield MarkBound(bind.uid, bind.node)
    elif result is BindResult.FAILED and in_a_gang:
        yield KeepReserved(bind.uid, bind.node)
    elif result is BindResult.UNKNOWN:
        yield MarkUnknown(bind.uid, bind.node)
    else:
        yield Release(bind.uid)


class StateMachine:
    """The state machine of all waiting binds; *chance* returns numbers from 0 to 1 for jitter."""

    def __init__(
        self,
        facts: Facts,
        timeouts: Timeouts | None = None,
        *,
        chance: Callable[[], float],
        closed: Cause | None = None,
    ) -> None:
        timeouts = timeouts or Timeouts()
        self.learned = LearnedTimeout(timeouts)
        self._facts = facts
        self._table = Table(GangBackoff(timeouts, chance), timeouts.max_waiting_binds, closed)
        self._assembling = Assembling(self._table, facts, self.learned)
        self._committing = Committing(self._table, facts, self.learned)
        calls = BindCalls(self._table, facts, self.learned, self._assembling, self._committing)
        self.is_node_full = calls.is_node_full
        self._reactions: dict[type, Callable[[Any, float], Iterable[Instruction]]] = {
            Arrived: calls.arrived,
            PeerGone: calls.peer_gone,
            Joined: self._joined,
            PodChanged: self._pod_changed,
            SiblingUnschedulable: self._sibling_unschedulable,
            GroupChanged: self._group_changed,
            NodeChanged: self._node_changed,
            StillIncomplete: self._still_incomplete,
            Withdrawn: self._withdrawn,
            FoundPartial: self._committing.found_partial,
            EvictionStarted: self._committing.eviction_started,
            EvictionRefused: self._eviction_refused,
            Verified: self._assembling.verified,
            VerifyFailed: self._assembling.verify_failed,
            Settled: calls.settled,
            Tick: self._tick,
            Opened: self._opened,
            Closed: self._closed,
        }

    def react(self, event: Event, now: float) -> Iterable[Instruction]:
        """Apply *event* and return what is to be done, in order; *now* is monotonic.

        The steps are lazy: the caller must read all of them before it carries out any.
        """
        self.learned.expire(now)
        return self._reactions[type(event)](event, now)

    @property
    def table(self) -> Table:
        """The waiting binds and attempts; only reactions change them."""
        return self._table

    @property
    def due(self) -> float | None:
        """Return when the next `Tick` is needed."""
        wanted = (self._table.alarms.due, self.learned.learnt_until)
        return min((each for each in wanted if each is not None), default=None)

    @property
    def closed(self) -> Cause | None:
        """Return why no bind may come in; None while open."""
        return self._table.closed

    @property
    def waiting_binds(self) -> int:
        """Return the number of pods whose bind waits or was sent."""
        return len(self._table.binds)

    def state_of(self, gang: GangKey) -> AttemptState | None:
        """Return the state of the gang's attempt, None without any; safe from any thread."""
        attempt = self._table.attempts.get(gang)
        return attempt.state if attempt else None

    def event_for(self, uid: PodUid, gang: GangKey | None) -> Joined | PodChanged | None:
        """Return the event for a change of this pod, None without any; safe from any thread."""
        if not self.concerns(uid, gang):
            return None
        if gang is not None and self._is_newcomer(uid, gang):
            return Joined(uid, gang)
        return PodChanged(uid, gang)

    def concerns(self, uid: PodUid, gang: GangKey | None) -> bool:
        """Return whether a change of this pod can matter here; safe from any thread.

        What was sent stays sent. So gangs that assemble and their waiting binds matter, and partial
        gangs.
        """
        bind = self._table.binds.get(uid)
        if uid in self._table.siblings or (bind and bind.state is not BindState.BINDING):
            return True
        attempt = self._table.attempts.get(gang) if gang else None
        return attempt is not None and attempt.state is not AttemptState.COMMITTING

    def _is_newcomer(self, uid: PodUid, gang: GangKey) -> bool:
        """Return whether the only news of a pod is that it joined *gang*."""
        table, pod = self._table, self._facts.pod(uid)
        if pod is None or uid in table.binds or table.siblings.get(uid, gang) != gang:
            return False
        return pod.status is Status.PENDING and not pod.gated and not pod.refusal

    # Changes of the cluster

    def _joined(self, event: Joined, now: float) -> Iterable[Instruction]:
        attempt = self._table.attempts.get(event.gang)
        if attempt is not None and attempt.state is not AttemptState.COMMITTING:
            self._table.add(attempt, event.uid)
        return ()

    def _pod_changed(self, event: PodChanged, now: float) -> Iterator[Instruction]:
        bind = self._table.binds.get(event.uid)
        if bind is not None and bind.state is BindState.WAITING:
            yield from self._refuse_if_unfit(bind, now)
        former = self._table.siblings.get(event.uid)
        if former is not None and former != event.gang:
            left = self._table.attempts[former]
            self._table.remove(left, event.uid)
            if left.state in BEFORE_COMMIT:
                self._assembling.start_grace_period(left, now)
            else:
                self._committing.check_again(left)
        attempt = self._table.attempts.get(event.gang) if event.gang else None
        if attempt is None or attempt.state is AttemptState.COMMITTING:
            return
        self._table.add(attempt, event.uid)
        if attempt.state in BEFORE_COMMIT:
            yield from self._assembling.member_changed(attempt, event.uid, now)
        else:
            self._committing.check_again(attempt)

    def _sibling_unschedulable(
        self, event: SiblingUnschedulable, now: float
    ) -> Iterator[Instruction]:
        attempt = self._table.attempts.get(event.gang)
        if attempt is None or attempt.state not in BEFORE_COMMIT or event.uid in attempt.binds:
            return
        pod = self._facts.pod(event.uid)
        if pod is not None:
            yield from self._assembling.member_refused(attempt, pod, now)

    def _group_changed(self, event: GroupChanged, now: float) -> Iterator[Instruction]:
        attempt = self._table.attempts.get(event.gang)
        if attempt is not None:
            yield from self._assembling.group_changed(attempt, event.group, now)

    def _node_changed(self, event: NodeChanged, now: float) -> Iterator[Instruction]:
        for bind in self._held_for(event.name):
            yield from self._refuse_if_unfit(bind, now)
        for bind in tuple(displaced(self._held_for(event.name), self._facts)):
            yield from self._assembling.release_member(bind, Cause.NODE_FULL, now)

    def _held_for(self, node: str) -> list[WaitingBind]:
        binds = self._table.binds.values()
        return [bind for bind in binds if bind.node == node and bind.state is BindState.WAITING]

    def _still_incomplete(self, event: StillIncomplete, now: float) -> Iterator[Instruction]:
        """Release the reservations of a gang that was admitted before all of it existed."""
        attempt = self._table.attempts.get(event.gang)
        if attempt is None or attempt.state is not AttemptState.ASSEMBLING:
            return
        if not checks.is_within_reach(attempt, self._facts):
            yield from self._table.end(attempt, Cause.INCOMPLETE, now)

    def _withdrawn(self, event: Withdrawn, now: float) -> Iterator[Instruction]:
        attempt = self._table.attempts.get(event.gang)
        if attempt is not None and attempt.state in BEFORE_COMMIT:
            yield from self._table.end(attempt, Cause.NO_RESERVATION, now)

    def _eviction_refused(self, event: EvictionRefused, now: float) -> Iterator[Instruction]:
        yield from self._committing.eviction_refused(event, now)
        attempt = self._table.attempts.get(event.gang)
        if attempt is not None:
            yield from self._assembling.evaluate(attempt, now)

    def _refuse_if_unfit(self, bind: WaitingBind, now: float) -> Iterator[Instruction]:
        cause = cause_to_refuse(bind, self._facts)
        if cause is not None:
            yield from self._assembling.release_member(bind, cause, now)

    # Time, open and close

    def _tick(self, event: Tick, now: float) -> Iterator[Instruction]:
        for gang in self._table.alarms.pop_due(now):
            attempt = self._table.attempts.get(gang)
            if attempt is None:
                self._committing.attempt_ended(gang, now)
                continue
            side = self._assembling if attempt.state in BEFORE_COMMIT else self._committing
            yield from side.time_passed(attempt, now)

    def _opened(self, event: Opened, now: float) -> Iterable[Instruction]:
        self._table.closed = None
        return ()

    def _closed(self, event: Closed, now: float) -> Iterator[Instruction]:
        self._table.closed = event.cause
        self._table.partial_until.clear()
        for attempt in tuple(self._table.attempts.values()):
            if attempt.state in BEFORE_COMMIT:
                yield from self._table.end(attempt, event.cause, now)
            else:
                yield from self._committing.close(attempt, event.cause, now)
        # A replica that does not lead forgets the learnt timeout: it would not notice when the
        # configuration of kube-scheduler is corrected.
        self.learned.forget()
