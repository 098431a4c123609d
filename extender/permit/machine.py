"""Which binds wait for which gang: the one door of the machine, which every event goes through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from extender.model.gang import GangKey
from extender.model.pod import PodUid, Status
from extender.permit import checks
from extender.permit.assembling import Assembling
from extender.permit.checks import BindNow, Entry, Present, Refuse, Wait, displaced, objection
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
    FORWARD,
    GATHERING,
    AttemptState,
    BindCall,
    BindState,
    Table,
    WaitingBind,
)
from extender.permit.timeouts import GangBackoff, LearnedTimeout, Timeouts
from extender.ports import BindOrder, BindOutcome, BindResult, Whose

#: Who is elsewhere has its room there. Who never passed was not sent by kube-scheduler: nobody may
#: end the ticket of a gang by a call.
_KEEP_ROOM = frozenset({Cause.POD_ELSEWHERE, Cause.NOT_FILTERED})


class BindCalls:
    """The life of single calls; gangs are the business of `gathering` and `forward`."""

    def __init__(
        self,
        table: Table,
        facts: Facts,
        patience: LearnedTimeout,
        gathering: Assembling,
        forward: Committing,
    ) -> None:
        self._table = table
        self._facts = facts
        self._patience = patience
        self._gathering = gathering
        self._forward = forward

    # It comes

    def arrived(self, event: Arrived, now: float) -> Iterator[Instruction]:
        """Judge a call; a repeated one takes the place of the older."""
        waiter = BindCall(event.id, event.order.node, now)
        hold = self._table.holds.get(event.order.uid)
        if hold is not None and hold.state is BindState.BINDING:
            self._table.wait(hold, waiter)
            return
        verdict = self._judge(event, hold, now)
        if hold is None:
            yield from self._admit(event, waiter, verdict, now)
            return
        # kube-scheduler gave up the old call without our noticing: the new one takes its place.
        yield from self._table.answer(hold, Cause.SUPERSEDED, now, Cause.SUPERSEDED.text(hold.gang))
        self._table.wait(hold, waiter)
        hold.order = event.order
        yield from self._supersede(hold, verdict, now)

    def _judge(self, event: Arrived, hold: WaitingBind | None, now: float) -> Entry:
        """Add what only the book knows to the judgement of the mirror."""
        if event.order.whose is not Whose.OURS:
            # Not for us to judge, closed or full: of one that is bound or gone the API server says
            # so itself.
            return BindNow()
        if self._table.closed:
            return Refuse(self._table.closed)
        order = event.order
        verdict = checks.judge(order, self._facts)
        if isinstance(verdict, Refuse | Present):
            return verdict
        bound_to = self._table.recent.node_of(order.uid, now)
        if bound_to is not None:
            return Present() if bound_to == order.node else Refuse(Cause.POD_ELSEWHERE)
        if not self._facts.has_passed(order.uid):
            return Refuse(Cause.NOT_FILTERED, self._facts.gang_of(order.uid))
        if hold is None and len(self._table.holds) >= self._table.max_holds:
            return Refuse(Cause.TABLE_FULL)
        if isinstance(verdict, Wait):
            verdict = self._judge_wait(order.uid, verdict, now)
        lacking = self._lacks_room(order, now) if _asks_for_room(verdict) else None
        return Refuse(lacking, self._facts.gang_of(order.uid)) if lacking else verdict

    def _lacks_room(self, order: BindOrder, now: float) -> Cause | None:
        if is_crowded(order, self._table, self._facts, now):
            return Cause.NODE_FULL
        return None if self._facts.may_bind(order.uid, order.node) else Cause.CAPACITY_RESERVED

    def _judge_wait(self, uid: PodUid, verdict: Wait, now: float) -> Entry:
        gang = verdict.group.key
        assembly = self._table.assemblies.get(gang)
        if assembly is not None and assembly.state in FORWARD:
            if assembly.group.uid != verdict.group.uid:
                if assembly.binds:
                    return Refuse(Cause.GROUP_REPLACED, gang)
            elif assembly.state is AttemptState.COMMITTING:
                # Perhaps nothing of it gets bound, and then it must not start alone.
                verdict = Wait(verdict.group, verdict.role, follows=True)
            elif assembly.binds or self._facts.seated(gang):
                if self._facts.may_lose_all(gang):
                    return Refuse(Cause.GANG_PREEMPTED, gang)
                return BindNow(gang, verdict.role)
        if self._table.backoff.lasts(gang, now) and not verdict.follows:
            return Refuse(Cause.BACKING_OFF, gang)
        if self._facts.reserved_node(uid) is None:
            return Refuse(Cause.NO_RESERVATION, gang)
        return verdict

    def _admit(
        self, event: Arrived, waiter: BindCall, verdict: Entry, now: float
    ) -> Iterator[Instruction]:
        if isinstance(verdict, Refuse):
            yield Answer(waiter.id, verdict.cause.text(verdict.gang), verdict.cause, 0.0)
            if verdict.cause not in _KEEP_ROOM:
                yield Release(event.order.uid)
        elif isinstance(verdict, Present):
            yield Answer(waiter.id, "", Cause.BOUND, 0.0)
        else:
            gang = verdict.gang if isinstance(verdict, BindNow) else verdict.group.key
            hold = WaitingBind(uid=event.order.uid, order=event.order, gang=gang, role=verdict.role)
            self._table.wait(hold, waiter)
            if isinstance(verdict, BindNow):
                yield from self._bind_alone(hold, now)
            else:
                yield from self._gathering.join(hold, verdict.group, now)

    def _supersede(self, hold: WaitingBind, verdict: Entry, now: float) -> Iterator[Instruction]:
        if isinstance(verdict, Refuse):
            yield from self._gathering.leave(hold, verdict.cause, now)
        elif isinstance(verdict, Present):
            yield from self._gathering.leave(hold, Cause.BOUND, now)
        elif isinstance(verdict, BindNow):
            assembly = self._table.attempt_of(hold)
            self._table.drop(hold)
            yield from self._bind_alone(hold, now)
            if assembly is not None:
                self._gathering.dissolve_if_empty(assembly)
        else:
            yield MarkWaiting(hold.uid, hold.node)

    def _bind_alone(self, hold: WaitingBind, now: float) -> Iterator[Instruction]:
        """Bind at once; kube-scheduler's patience with this call has just begun."""
        assembly = self._table.assemblies.get(hold.gang) if hold.gang else None
        if assembly is not None and assembly.state in FORWARD:
            assembly.binds[hold.uid] = hold
        yield from self._table.commit((hold,), now + self._patience.limits(now).answer_s)

    # It ends

    def settled(self, event: Settled, now: float) -> Iterator[Instruction]:
        """Answer with what became of a binding, and let the gang go on by it."""
        hold = self._table.holds[event.uid]
        assembly = self._table.attempt_of(hold)
        bound = event.outcome.result is BindResult.BOUND
        self._table.move(hold, BindState.BOUND if bound else BindState.FAILED)
        self._table.drop(hold)
        if bound:
            self._table.recent.remember(hold.uid, hold.node, now)
        yield from _room_after(hold, event.outcome.result, in_a_gang=assembly is not None)
        yield from self._answer_outcome(hold, event.outcome, now)
        if assembly is not None:
            yield from self._forward.settled(assembly, hold, event.outcome.result, now)

    def _answer_outcome(
        self, hold: WaitingBind, outcome: BindOutcome, now: float
    ) -> Iterator[Instruction]:
        if outcome.result is not BindResult.BOUND:
            yield from self._table.answer(hold, Cause.BIND_FAILED, now, outcome.message)
            return
        # A repeated call may have asked for another node, where the pod is not.
        elsewhere = [waiter for waiter in hold.calls if waiter.node != hold.node]
        for waiter in elsewhere:
            hold.calls.remove(waiter)
        yield from self._table.answer(hold, Cause.BOUND, now, "")
        if elsewhere:
            hold.calls[:], cause = elsewhere, Cause.POD_ELSEWHERE
            yield from self._table.answer(hold, cause, now, cause.text(hold.gang))

    def peer_gone(self, event: PeerGone, now: float) -> Iterator[Instruction]:
        """Let go of a call that nobody waits for; its age may betray a timeout."""
        uid = self._table.calls.get(event.id)
        if uid is None:
            return
        hold = self._table.holds[uid]
        waiter = next(each for each in hold.calls if each.id == event.id)
        age_s = now - waiter.arrived
        self._patience.peer_closed(age_s, now)
        yield ReportPeerClosed(age_s)
        if hold.state is BindState.WAITING:
            yield from self._gathering.leave(hold, Cause.PEER_GONE, now)
            return
        # What was sent stays sent; only the answer has nowhere to go.
        hold.calls.remove(waiter)
        del self._table.calls[event.id]
        yield Answer(event.id, Cause.PEER_GONE.text(hold.gang), Cause.PEER_GONE, age_s)


def is_crowded(order: BindOrder, table: Table, facts: Facts, now: float) -> bool:
    """Return whether we count no room for a pod of ours where we bound somebody a moment ago."""
    if order.whose is not Whose.OURS or not table.recent.is_news_from(order.node, now):
        return False
    return facts.node(order.node) is not None and not facts.has_room(order.uid, order.node)


def _asks_for_room(verdict: Entry) -> bool:
    """Return whether a call may go where no place of a gang is kept for it."""
    return isinstance(verdict, BindNow) or (isinstance(verdict, Wait) and verdict.follows)


def _room_after(hold: WaitingBind, result: BindResult, *, in_a_gang: bool) -> Iterator[Instruction]:
    """Return what becomes of the room that was kept for a pod whose binding was sent.

    Of an unknown outcome it stays taken until the mirror has shown the truth. A member of a gang
    that failed comes again in a moment, and what it was promised must still be there.
    """
    if result is BindResult.BOUND:
        yield MarkBound(hold.uid, hold.node)
    elif result is BindResult.FAILED and in_a_gang:
        yield KeepReserved(hold.uid, hold.node)
    elif result is BindResult.UNKNOWN:
        yield MarkUnknown(hold.uid, hold.node)
    else:
        yield Release(hold.uid)


class StateMachine:
    """The state machine of all holds; *chance* gives numbers from 0 to 1 for jitter."""

    def __init__(
        self,
        facts: Facts,
        limits: Timeouts | None = None,
        *,
        chance: Callable[[], float],
        closed: Cause | None = None,
    ) -> None:
        limits = limits or Timeouts()
        self.patience = LearnedTimeout(limits)
        self._facts = facts
        self._table = Table(GangBackoff(limits, chance), limits.max_waiting_binds, closed)
        self._gathering = Assembling(self._table, facts, self.patience)
        self._forward = Committing(self._table, facts, self.patience)
        calls = BindCalls(self._table, facts, self.patience, self._gathering, self._forward)
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
            FoundPartial: self._forward.found_partial,
            EvictionStarted: self._forward.eviction_started,
            EvictionRefused: self._stays_in_part,
            Verified: self._gathering.verified,
            VerifyFailed: self._gathering.verify_failed,
            Settled: calls.settled,
            Tick: self._tick,
            Opened: self._opened,
            Closed: self._closed,
        }

    def react(self, event: Event, now: float) -> Iterable[Instruction]:
        """Take note of *event* and give what is to be done, in order; *now* is monotonic.

        It happens step by step, and is to be read to the end before anything is done.
        """
        return self._reactions[type(event)](event, now)

    @property
    def due(self) -> float | None:
        """When the next `Tick` is wanted."""
        wanted = (self._table.alarms.due, self.patience.believed_until)
        return min((each for each in wanted if each is not None), default=None)

    @property
    def closed(self) -> Cause | None:
        """Why nothing may come in; None while we are open."""
        return self._table.closed

    @property
    def waiting_binds(self) -> int:
        """Count the pods whose bind waits or is under way."""
        return len(self._table.holds)

    def is_crowded(self, order: BindOrder, now: float) -> bool:
        """Return whether we count no room where we bound somebody a moment ago; safe as well."""
        return is_crowded(order, self._table, self._facts, now)

    def state_of(self, gang: GangKey) -> AttemptState | None:
        """Return how far the gang's attempt is, None without any; safe from any thread."""
        assembly = self._table.assemblies.get(gang)
        return assembly.state if assembly else None

    def news_of(self, uid: PodUid, gang: GangKey | None) -> Joined | PodChanged | None:
        """Return what a change of this pod means here, None for nothing; safe from any thread."""
        if not self.concerns(uid, gang):
            return None
        if gang is not None and self._is_newcomer(uid, gang):
            return Joined(uid, gang)
        return PodChanged(uid, gang)

    def concerns(self, uid: PodUid, gang: GangKey | None) -> bool:
        """Return whether a change of this pod can matter here; safe from any thread.

        What was sent stays sent, so the gangs that gather and those who wait in them count, and
        those that were bound in part.
        """
        hold = self._table.holds.get(uid)
        if uid in self._table.siblings or (hold and hold.state is not BindState.BINDING):
            return True
        assembly = self._table.assemblies.get(gang) if gang else None
        return assembly is not None and assembly.state is not AttemptState.COMMITTING

    def _is_newcomer(self, uid: PodUid, gang: GangKey) -> bool:
        """Return whether all there is to know of a pod is that it joined *gang*."""
        table, pod = self._table, self._facts.pod(uid)
        if pod is None or uid in table.holds or table.siblings.get(uid, gang) != gang:
            return False
        return pod.status is Status.PENDING and not pod.gated and not pod.refusal

    # The cluster changes

    def _joined(self, event: Joined, now: float) -> Iterable[Instruction]:
        assembly = self._table.assemblies.get(event.gang)
        if assembly is not None and assembly.state is not AttemptState.COMMITTING:
            self._table.add(assembly, event.uid)
        return ()

    def _pod_changed(self, event: PodChanged, now: float) -> Iterator[Instruction]:
        hold = self._table.holds.get(event.uid)
        if hold is not None and hold.state is BindState.WAITING:
            yield from self._object(hold, now)
        former = self._table.siblings.get(event.uid)
        if former is not None and former != event.gang:
            left = self._table.assemblies[former]
            self._table.remove(left, event.uid)
            if left.state in GATHERING:
                self._gathering.mark_unknown(left, now)
            else:
                self._forward.look_again(left)
        assembly = self._table.assemblies.get(event.gang) if event.gang else None
        if assembly is None or assembly.state is AttemptState.COMMITTING:
            return
        self._table.add(assembly, event.uid)
        if assembly.state in GATHERING:
            yield from self._gathering.member_changed(assembly, event.uid, now)
        else:
            self._forward.look_again(assembly)

    def _sibling_unschedulable(
        self, event: SiblingUnschedulable, now: float
    ) -> Iterator[Instruction]:
        assembly = self._table.assemblies.get(event.gang)
        if assembly is None or assembly.state not in GATHERING or event.uid in assembly.binds:
            return
        pod = self._facts.pod(event.uid)
        if pod is not None:
            yield from self._gathering.member_refused(assembly, pod, now)

    def _group_changed(self, event: GroupChanged, now: float) -> Iterator[Instruction]:
        assembly = self._table.assemblies.get(event.gang)
        if assembly is not None:
            yield from self._gathering.group_changed(assembly, event.group, now)

    def _node_changed(self, event: NodeChanged, now: float) -> Iterator[Instruction]:
        for hold in self._held_for(event.name):
            yield from self._object(hold, now)
        for hold in tuple(displaced(self._held_for(event.name), self._facts)):
            yield from self._gathering.leave(hold, Cause.NODE_FULL, now)

    def _held_for(self, node: str) -> list[WaitingBind]:
        holds = self._table.holds.values()
        return [hold for hold in holds if hold.node == node and hold.state is BindState.WAITING]

    def _still_incomplete(self, event: StillIncomplete, now: float) -> Iterator[Instruction]:
        """Return the room back of a gang that was let in before all of it existed."""
        assembly = self._table.assemblies.get(event.gang)
        if assembly is None or assembly.state is not AttemptState.ASSEMBLING:
            return
        if not checks.is_within_reach(assembly, self._facts):
            yield from self._table.end(assembly, Cause.INCOMPLETE, now)

    def _withdrawn(self, event: Withdrawn, now: float) -> Iterator[Instruction]:
        assembly = self._table.assemblies.get(event.gang)
        if assembly is not None and assembly.state in GATHERING:
            yield from self._table.end(assembly, Cause.NO_RESERVATION, now)

    def _stays_in_part(self, event: EvictionRefused, now: float) -> Iterator[Instruction]:
        yield from self._forward.eviction_refused(event, now)
        assembly = self._table.assemblies.get(event.gang)
        if assembly is not None:
            yield from self._gathering.evaluate(assembly, now)

    def _object(self, hold: WaitingBind, now: float) -> Iterator[Instruction]:
        cause = objection(hold, self._facts)
        if cause is not None:
            yield from self._gathering.leave(hold, cause, now)

    # Time passes, doors open and close

    def _tick(self, event: Tick, now: float) -> Iterator[Instruction]:
        self.patience.limits(now)  # what was learnt is forgotten in time, though no bind comes
        for gang in self._table.alarms.ring(now):
            assembly = self._table.assemblies.get(gang)
            if assembly is None:
                self._forward.attempt_ended(gang, now)
                continue
            side = self._gathering if assembly.state in GATHERING else self._forward
            yield from side.time_passed(assembly, now)

    def _opened(self, event: Opened, now: float) -> Iterable[Instruction]:
        self._table.closed = None
        return ()

    def _closed(self, event: Closed, now: float) -> Iterator[Instruction]:
        self._table.closed = event.cause
        self._table.short_until.clear()
        for assembly in tuple(self._table.assemblies.values()):
            if assembly.state in GATHERING:
                yield from self._table.end(assembly, event.cause, now)
            else:
                yield from self._forward.close(assembly, event.cause, now)
        # Nobody who does not lead says what is wrong with kube-scheduler: he would not hear of it
        # when it is mended.
        self.patience.forget()
