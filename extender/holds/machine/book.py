"""Which binds wait for which gang.

Rule 1: every rule about releasing or refusing a bind lives here and in the pure files beside it.
Rule 2: no threads, no clock, no I/O, no chance. The book is told what happened, reads the
mirror, and answers with instructions; `barrier` carries them out.

Theory. The held calls of one PodGroup object form an *assembly*. When seated and held members
together reach minMember, the PodGroup is read from the API server itself (VERIFYING); when the
answer comes, every held member is judged anew, and only then are all bindings sent. Until that
moment any doubt ends the wait and nothing has happened; after it, the gang can only go forward.
Whatever comes back late carries the *epoch* it was asked in and is ignored if that has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from extender.holds.machine import entry, invariants, quorum
from extender.holds.machine.alarms import Alarms
from extender.holds.machine.assembly import Hold, Waiter
from extender.holds.machine.backoff import Backoff
from extender.holds.machine.cause import Cause
from extender.holds.machine.ending import Ending
from extender.holds.machine.entry import BindNow, Entry, Present, Refuse, Wait
from extender.holds.machine.events import (
    Arrived,
    Closed,
    Event,
    GroupChanged,
    Joined,
    NodeChanged,
    Opened,
    PeerGone,
    PodChanged,
    Settled,
    SiblingUnschedulable,
    StillIncomplete,
    Tick,
    Verified,
    VerifyFailed,
)
from extender.holds.machine.facts import Facts
from extender.holds.machine.forward import Forward
from extender.holds.machine.gathering import Gathering
from extender.holds.machine.instructions import (
    Answer,
    Free,
    Instruction,
    Keep,
    Park,
    ReportPeerClosed,
    Seat,
)
from extender.holds.machine.limits import Limits
from extender.holds.machine.patience import Patience
from extender.holds.machine.recent import Recent
from extender.holds.machine.standing import crowded_out, objection
from extender.holds.machine.states import FORWARD, GATHERING, AssemblyState, HoldState
from extender.holds.machine.story import Line
from extender.holds.machine.table import Table
from extender.model.gang import GangKey
from extender.model.pod import PodUid, Status
from extender.ports import BindOutcome, BindResult


class Book:
    """The state machine of all holds; *chance* gives numbers from 0 to 1 for jitter."""

    def __init__(
        self,
        facts: Facts,
        limits: Limits | None = None,
        *,
        chance: Callable[[], float],
        closed: Cause | None = None,
    ) -> None:
        limits = limits or Limits()
        self.patience = Patience(limits)
        #: Why nothing may come in; None while we are open.
        self.closed = closed
        self._facts = facts
        self._table = Table()
        self._max_holds = limits.max_holds
        self._backoff = Backoff(limits, chance)
        self._alarms = Alarms()
        self._ending = Ending(self._table, self._backoff)
        self._gathering = Gathering(self._table, facts, self.patience, self._alarms, self._ending)
        self._forward = Forward(
            self._table, facts, self.patience, self._backoff, self._alarms, self._ending
        )
        self._recent = Recent()
        self._reactions: dict[type, Callable[[Any, float], Iterable[Instruction]]] = {
            Arrived: self._arrived,
            PeerGone: self._peer_gone,
            Joined: self._joined,
            PodChanged: self._pod_changed,
            SiblingUnschedulable: self._sibling_unschedulable,
            GroupChanged: self._group_changed,
            NodeChanged: self._node_changed,
            StillIncomplete: self._still_incomplete,
            Verified: self._verified,
            VerifyFailed: self._verify_failed,
            Settled: self._settled,
            Tick: self._tick,
            Opened: self._opened,
            Closed: self._closed,
        }

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Take note of *event* and give what is to be done, in order; *now* is monotonic."""
        return list(self.react(event, now))

    def react(self, event: Event, now: float) -> Iterable[Instruction]:
        """Do the same step by step; to be read to the end before anything is done."""
        return self._reactions[type(event)](event, now)

    @property
    def due(self) -> float | None:
        """When the next `Tick` is wanted."""
        return self._alarms.due

    @property
    def holds(self) -> int:
        """Count the pods whose bind waits or is under way."""
        return len(self._table.holds)

    def state_of(self, gang: GangKey) -> AssemblyState | None:
        """Give how far the gang's attempt is, None without any; safe from any thread."""
        assembly = self._table.assemblies.get(gang)
        return assembly.state if assembly else None

    def news_of(self, uid: PodUid, gang: GangKey | None) -> Joined | PodChanged | None:
        """Say what a change of this pod means here, None for nothing; safe from any thread."""
        if not self.concerns(uid, gang):
            return None
        if gang is not None and self._is_newcomer(uid, gang):
            return Joined(uid, gang)
        return PodChanged(uid, gang)

    def concerns(self, uid: PodUid, gang: GangKey | None) -> bool:
        """Ask whether a change of this pod can matter here; safe from any thread.

        What was sent stays sent, so the gangs that gather and those who wait in them count, and
        those that were bound in part.
        """
        hold = self._table.holds.get(uid)
        if uid in self._table.siblings or (hold and hold.state is not HoldState.COMMITTING):
            return True
        assembly = self._table.assemblies.get(gang) if gang else None
        return assembly is not None and assembly.state is not AssemblyState.COMMITTING

    def _is_newcomer(self, uid: PodUid, gang: GangKey) -> bool:
        """Ask whether all there is to know of a pod is that it joined *gang*."""
        table, pod = self._table, self._facts.pod(uid)
        if pod is None or uid in table.holds or table.siblings.get(uid, gang) != gang:
            return False
        return pod.status is Status.PENDING and not pod.gated and not pod.refusal

    def story(self, gang: GangKey) -> tuple[Line, ...]:
        """Tell what happened to a gang here, oldest first."""
        return self._table.stories.of(gang)

    def validate(self) -> None:
        """Assert everything that must always be true (tests run with it on)."""
        invariants.check(self._table, self._max_holds)

    # A call arrives

    def _arrived(self, event: Arrived, now: float) -> Iterator[Instruction]:
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
        if self.closed:
            return Refuse(self.closed)
        order = event.order
        verdict = entry.judge(order, self._facts)
        if isinstance(verdict, Refuse | Present):
            return verdict
        bound_to = self._recent.node_of(order.uid, now)
        if bound_to is not None:
            return Present() if bound_to == order.node else Refuse(Cause.POD_ELSEWHERE)
        if hold is None and len(self._table.holds) >= self._max_holds:
            return Refuse(Cause.TABLE_FULL)
        return self._judge_wait(order.uid, verdict, now) if isinstance(verdict, Wait) else verdict

    def _judge_wait(self, uid: PodUid, verdict: Wait, now: float) -> Entry:
        gang = verdict.group.key
        assembly = self._table.assemblies.get(gang)
        if assembly is not None and assembly.state in FORWARD:
            if assembly.group.uid != verdict.group.uid:
                if assembly.holds:
                    return Refuse(Cause.GROUP_REPLACED, gang)
            elif assembly.holds or self._facts.seated(gang):
                return BindNow(gang, verdict.role)
        if self._backoff.lasts(gang, now):
            return Refuse(Cause.BACKING_OFF, gang)
        if self._facts.reserved_node(uid) is None:
            return Refuse(Cause.NO_TICKET, gang)
        return verdict

    def _admit(
        self, event: Arrived, waiter: Waiter, verdict: Entry, now: float
    ) -> Iterator[Instruction]:
        if isinstance(verdict, Refuse):
            yield Answer(waiter.id, verdict.cause.text(verdict.gang), verdict.cause, 0.0)
            if verdict.cause is not Cause.POD_ELSEWHERE:
                yield Free(event.order.uid)
        elif isinstance(verdict, Present):
            yield Answer(waiter.id, "", Cause.BOUND, 0.0)
        else:
            gang = verdict.gang if isinstance(verdict, BindNow) else verdict.group.key
            hold = Hold(order=event.order, gang=gang, role=verdict.role)
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
                self._gathering.dissolve_if_empty(assembly, now)
        else:
            yield Park(hold.uid, hold.node)

    def _bind_alone(self, hold: Hold, now: float) -> Iterator[Instruction]:
        assembly = self._table.assemblies.get(hold.gang) if hold.gang else None
        if assembly is not None and assembly.state in FORWARD:
            assembly.holds[hold.uid] = hold
        yield from self._table.commit((hold,), now)

    # A call ends

    def _settled(self, event: Settled, now: float) -> Iterator[Instruction]:
        hold = self._table.holds[event.uid]
        assembly = self._table.assembly_of(hold)
        bound = event.outcome.result is BindResult.BOUND
        self._table.move(hold, HoldState.BOUND if bound else HoldState.FAILED, now)
        self._table.drop(hold)
        if bound:
            self._recent.remember(hold.uid, hold.node, now)
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
        elsewhere = [waiter for waiter in hold.waiters if waiter.node != hold.node]
        if not elsewhere:
            yield from self._table.answer(hold, Cause.BOUND, now, "")
            return
        # A repeated call has asked for another node, where the pod is not.
        hold.waiters[:] = [waiter for waiter in hold.waiters if waiter.node == hold.node]
        yield from self._table.answer(hold, Cause.BOUND, now, "")
        hold.waiters[:] = elsewhere
        cause = Cause.POD_ELSEWHERE
        yield from self._table.answer(hold, cause, now, cause.text(hold.gang))

    def _peer_gone(self, event: PeerGone, now: float) -> Iterator[Instruction]:
        uid = self._table.calls.get(event.id)
        if uid is None:
            return
        hold = self._table.holds[uid]
        waiter = next(each for each in hold.waiters if each.id == event.id)
        age_s = now - waiter.arrived
        self.patience.peer_closed(age_s, now)
        yield ReportPeerClosed(age_s)
        if hold.state is HoldState.HELD:
            yield from self._gathering.leave(hold, Cause.PEER_GONE, now)
            return
        # What was sent stays sent; only the answer has nowhere to go.
        hold.waiters.remove(waiter)
        del self._table.calls[event.id]
        yield Answer(event.id, Cause.PEER_GONE.text(hold.gang), Cause.PEER_GONE, age_s)

    # The cluster changes

    def _joined(self, event: Joined, now: float) -> Iterable[Instruction]:
        assembly = self._table.assemblies.get(event.gang)
        if assembly is not None and assembly.state is not AssemblyState.COMMITTING:
            self._table.enrol(assembly, ((event.uid, ""),))
        return ()

    def _pod_changed(self, event: PodChanged, now: float) -> Iterator[Instruction]:
        hold = self._table.holds.get(event.uid)
        if hold is not None and hold.state is HoldState.HELD:
            yield from self._object(hold, now)
        former = self._table.siblings.get(event.uid)
        if former is not None and former != event.gang:
            left = self._table.assemblies[former]
            self._table.expel(left, event.uid)
            if left.state in GATHERING:
                self._gathering.doubt(left, now)
            else:
                self._forward.look_again(left, now)
        assembly = self._table.assemblies.get(event.gang) if event.gang else None
        if assembly is None or assembly.state is AssemblyState.COMMITTING:
            return
        self._table.enrol(assembly, ((event.uid, ""),))
        if assembly.state in GATHERING:
            yield from self._gathering.member_changed(assembly, event.uid, now)
        else:
            self._forward.look_again(assembly, now)

    def _sibling_unschedulable(
        self, event: SiblingUnschedulable, now: float
    ) -> Iterator[Instruction]:
        assembly = self._table.assemblies.get(event.gang)
        if assembly is None or assembly.state not in GATHERING or event.uid in assembly.holds:
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
        for hold in tuple(crowded_out(self._held_for(event.name), self._facts)):
            yield from self._gathering.leave(hold, Cause.NODE_FULL, now)

    def _held_for(self, node: str) -> list[Hold]:
        holds = self._table.holds.values()
        return [hold for hold in holds if hold.node == node and hold.state is HoldState.HELD]

    def _still_incomplete(self, event: StillIncomplete, now: float) -> Iterator[Instruction]:
        """Give the room back of a gang that was let in before all of it existed."""
        assembly = self._table.assemblies.get(event.gang)
        if assembly is None or assembly.state is not AssemblyState.ASSEMBLING:
            return
        if not quorum.is_within_reach(assembly, self._facts):
            yield from self._ending.end(assembly, Cause.INCOMPLETE, now)

    def _object(self, hold: Hold, now: float) -> Iterator[Instruction]:
        cause = objection(hold, self._facts)
        if cause is not None:
            yield from self._gathering.leave(hold, cause, now)

    # What was asked comes back, time passes, doors open and close

    def _verified(self, event: Verified, now: float) -> Iterator[Instruction]:
        assembly = self._gathering.in_epoch(event.gang, event.epoch)
        if assembly is not None:
            yield from self._gathering.verified(assembly, event.group, now)

    def _verify_failed(self, event: VerifyFailed, now: float) -> Iterator[Instruction]:
        assembly = self._gathering.in_epoch(event.gang, event.epoch)
        if assembly is not None:
            yield from self._gathering.verify_failed(assembly, now)

    def _tick(self, event: Tick, now: float) -> Iterator[Instruction]:
        for gang in self._alarms.ring(now):
            assembly = self._table.assemblies.get(gang)
            if assembly is None:
                continue
            side = self._gathering if assembly.state in GATHERING else self._forward
            yield from side.time_passed(assembly, now)

    def _opened(self, event: Opened, now: float) -> Iterable[Instruction]:
        self.closed = None
        return ()

    def _closed(self, event: Closed, now: float) -> Iterator[Instruction]:
        self.closed = event.cause
        for assembly in tuple(self._table.assemblies.values()):
            if assembly.state in GATHERING:
                yield from self._ending.end(assembly, event.cause, now)


def _room_after(hold: Hold, result: BindResult, *, in_a_gang: bool) -> Iterator[Instruction]:
    """Say what becomes of the room that was kept for a pod whose binding was sent.

    Of an unknown outcome it stays taken until the mirror has shown the truth. A member of a gang
    that failed comes again in a moment, and what it was promised must still be there.
    """
    if result is BindResult.BOUND:
        yield Seat(hold.uid, hold.node)
    elif result is BindResult.FAILED and in_a_gang:
        yield Keep(hold.uid, hold.node)
    elif result is not BindResult.UNKNOWN:
        yield Free(hold.uid)
