"""One bind call: it comes, is answered, bound or held at once, and gets its outcome in the end."""

from __future__ import annotations

from collections.abc import Iterator

from extender.holds.machine import standing
from extender.holds.machine.assembly import FORWARD, AssemblyState, Hold, HoldState, Waiter
from extender.holds.machine.cause import Cause
from extender.holds.machine.forward import Forward
from extender.holds.machine.gathering import Gathering
from extender.holds.machine.limits import Patience
from extender.holds.machine.messages import (
    Answer,
    Arrived,
    Doubt,
    Facts,
    Free,
    Instruction,
    Keep,
    Park,
    PeerGone,
    ReportPeerClosed,
    Seat,
    Settled,
)
from extender.holds.machine.standing import BindNow, Entry, Present, Refuse, Wait
from extender.holds.machine.table import Table
from extender.model.pod import PodUid
from extender.ports import BindOrder, BindOutcome, BindResult, Whose

#: Who is elsewhere has its room there. Who never passed was not sent by kube-scheduler: nobody may
#: end the ticket of a gang by a call.
_KEEP_ROOM = frozenset({Cause.POD_ELSEWHERE, Cause.NEVER_PASSED})


class Calls:
    """The life of single calls; gangs are the business of `gathering` and `forward`."""

    def __init__(
        self,
        table: Table,
        facts: Facts,
        patience: Patience,
        gathering: Gathering,
        forward: Forward,
    ) -> None:
        self._table = table
        self._facts = facts
        self._patience = patience
        self._gathering = gathering
        self._forward = forward

    # It comes

    def arrived(self, event: Arrived, now: float) -> Iterator[Instruction]:
        """Judge a call; a repeated one takes the place of the older."""
        waiter = Waiter(event.id, event.order.node, now)
        hold = self._table.holds.get(event.order.uid)
        if hold is not None and hold.state is HoldState.COMMITTING:
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

    def _judge(self, event: Arrived, hold: Hold | None, now: float) -> Entry:
        """Add what only the book knows to the judgement of the mirror."""
        if event.order.whose is not Whose.OURS:
            # Not for us to judge, closed or full: of one that is bound or gone the API server says
            # so itself.
            return BindNow()
        if self._table.closed:
            return Refuse(self._table.closed)
        order = event.order
        verdict = standing.judge(order, self._facts)
        if isinstance(verdict, Refuse | Present):
            return verdict
        bound_to = self._table.recent.node_of(order.uid, now)
        if bound_to is not None:
            return Present() if bound_to == order.node else Refuse(Cause.POD_ELSEWHERE)
        if not self._facts.has_passed(order.uid):
            return Refuse(Cause.NEVER_PASSED, self._facts.gang_of(order.uid))
        if hold is None and len(self._table.holds) >= self._table.max_holds:
            return Refuse(Cause.TABLE_FULL)
        if isinstance(verdict, Wait):
            verdict = self._judge_wait(order.uid, verdict, now)
        lacking = self._lacks_room(order, now) if _asks_for_room(verdict) else None
        return Refuse(lacking, self._facts.gang_of(order.uid)) if lacking else verdict

    def _lacks_room(self, order: BindOrder, now: float) -> Cause | None:
        if is_crowded(order, self._table, self._facts, now):
            return Cause.NODE_FULL
        return None if self._facts.may_bind(order.uid, order.node) else Cause.ROOM_PROMISED

    def _judge_wait(self, uid: PodUid, verdict: Wait, now: float) -> Entry:
        gang = verdict.group.key
        assembly = self._table.assemblies.get(gang)
        if assembly is not None and assembly.state in FORWARD:
            if assembly.group.uid != verdict.group.uid:
                if assembly.holds:
                    return Refuse(Cause.GROUP_REPLACED, gang)
            elif assembly.state is AssemblyState.COMMITTING:
                # Perhaps nothing of it gets bound, and then it must not start alone.
                verdict = Wait(verdict.group, verdict.role, follows=True)
            elif assembly.holds or self._facts.seated(gang):
                if self._facts.may_lose_all(gang):
                    return Refuse(Cause.GANG_GRANTED, gang)
                return BindNow(gang, verdict.role)
        if self._table.backoff.lasts(gang, now) and not verdict.follows:
            return Refuse(Cause.BACKING_OFF, gang)
        if self._facts.reserved_node(uid) is None:
            return Refuse(Cause.NO_TICKET, gang)
        return verdict

    def _admit(
        self, event: Arrived, waiter: Waiter, verdict: Entry, now: float
    ) -> Iterator[Instruction]:
        if isinstance(verdict, Refuse):
            yield Answer(waiter.id, verdict.cause.text(verdict.gang), verdict.cause, 0.0)
            if verdict.cause not in _KEEP_ROOM:
                yield Free(event.order.uid)
        elif isinstance(verdict, Present):
            yield Answer(waiter.id, "", Cause.BOUND, 0.0)
        else:
            gang = verdict.gang if isinstance(verdict, BindNow) else verdict.group.key
            hold = Hold(uid=event.order.uid, order=event.order, gang=gang, role=verdict.role)
            self._table.wait(hold, waiter)
            if isinstance(verdict, BindNow):
                yield from self._bind_alone(hold, now)
            else:
                yield from self._gathering.join(hold, verdict.group, now)

    def _supersede(self, hold: Hold, verdict: Entry, now: float) -> Iterator[Instruction]:
        if isinstance(verdict, Refuse):
            yield from self._gathering.leave(hold, verdict.cause, now)
        elif isinstance(verdict, Present):
            yield from self._gathering.leave(hold, Cause.BOUND, now)
        elif isinstance(verdict, BindNow):
            assembly = self._table.assembly_of(hold)
            self._table.drop(hold)
            yield from self._bind_alone(hold, now)
            if assembly is not None:
                self._gathering.dissolve_if_empty(assembly)
        else:
            yield Park(hold.uid, hold.node)

    def _bind_alone(self, hold: Hold, now: float) -> Iterator[Instruction]:
        """Bind at once; kube-scheduler's patience with this call has just begun."""
        assembly = self._table.assemblies.get(hold.gang) if hold.gang else None
        if assembly is not None and assembly.state in FORWARD:
            assembly.holds[hold.uid] = hold
        yield from self._table.commit((hold,), now + self._patience.limits(now).answer_s)

    # It ends

    def settled(self, event: Settled, now: float) -> Iterator[Instruction]:
        """Answer with what became of a binding, and let the gang go on by it."""
        hold = self._table.holds[event.uid]
        assembly = self._table.assembly_of(hold)
        bound = event.outcome.result is BindResult.BOUND
        self._table.move(hold, HoldState.BOUND if bound else HoldState.FAILED)
        self._table.drop(hold)
        if bound:
            self._table.recent.remember(hold.uid, hold.node, now)
        yield from _room_after(hold, event.outcome.result, in_a_gang=assembly is not None)
        yield from self._answer_outcome(hold, event.outcome, now)
        if assembly is not None:
            yield from self._forward.settled(assembly, hold, event.outcome.result, now)

    def _answer_outcome(
        self, hold: Hold, outcome: BindOutcome, now: float
    ) -> Iterator[Instruction]:
        if outcome.result is not BindResult.BOUND:
            yield from self._table.answer(hold, Cause.BIND_FAILED, now, outcome.message)
            return
        # A repeated call may have asked for another node, where the pod is not.
        elsewhere = [waiter for waiter in hold.waiters if waiter.node != hold.node]
        for waiter in elsewhere:
            hold.waiters.remove(waiter)
        yield from self._table.answer(hold, Cause.BOUND, now, "")
        if elsewhere:
            hold.waiters[:], cause = elsewhere, Cause.POD_ELSEWHERE
            yield from self._table.answer(hold, cause, now, cause.text(hold.gang))

    def peer_gone(self, event: PeerGone, now: float) -> Iterator[Instruction]:
        """Let go of a call that nobody waits for; its age may betray a timeout."""
        uid = self._table.calls.get(event.id)
        if uid is None:
            return
        hold = self._table.holds[uid]
        waiter = next(each for each in hold.waiters if each.id == event.id)
        age_s = now - waiter.arrived
        self._patience.peer_closed(age_s, now)
        yield ReportPeerClosed(age_s)
        if hold.state is HoldState.HELD:
            yield from self._gathering.leave(hold, Cause.PEER_GONE, now)
            return
        # What was sent stays sent; only the answer has nowhere to go.
        hold.waiters.remove(waiter)
        del self._table.calls[event.id]
        yield Answer(event.id, Cause.PEER_GONE.text(hold.gang), Cause.PEER_GONE, age_s)


def is_crowded(order: BindOrder, table: Table, facts: Facts, now: float) -> bool:
    """Ask whether we count no room for a pod of ours where we bound somebody a moment ago."""
    if order.whose is not Whose.OURS or not table.recent.is_news_from(order.node, now):
        return False
    return facts.node(order.node) is not None and not facts.has_room(order.uid, order.node)


def _asks_for_room(verdict: Entry) -> bool:
    """Ask whether a call may go where no place of a gang is kept for it."""
    return isinstance(verdict, BindNow) or (isinstance(verdict, Wait) and verdict.follows)


def _room_after(hold: Hold, result: BindResult, *, in_a_gang: bool) -> Iterator[Instruction]:
    """Say what becomes of the room that was kept for a pod whose binding was sent.

    Of an unknown outcome it stays taken until the mirror has shown the truth. A member of a gang
    that failed comes again in a moment, and what it was promised must still be there.
    """
    if result is BindResult.BOUND:
        yield Seat(hold.uid, hold.node)
    elif result is BindResult.FAILED and in_a_gang:
        yield Keep(hold.uid, hold.node)
    elif result is BindResult.UNKNOWN:
        yield Doubt(hold.uid, hold.node)
    else:
        yield Free(hold.uid)
