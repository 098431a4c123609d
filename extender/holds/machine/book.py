"""Which binds wait for which gang: the one door of the machine, which every event goes through."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from extender.holds.machine import quorum
from extender.holds.machine.assembly import GATHERING, AssemblyState, Hold, HoldState
from extender.holds.machine.calls import Calls, is_crowded
from extender.holds.machine.cause import Cause
from extender.holds.machine.forward import Forward
from extender.holds.machine.gathering import Gathering
from extender.holds.machine.limits import Backoff, Limits, Patience
from extender.holds.machine.messages import (
    Arrived,
    Closed,
    Event,
    Facts,
    FoundShort,
    GroupChanged,
    Instruction,
    Joined,
    LeavesAgain,
    NodeChanged,
    Opened,
    PeerGone,
    PodChanged,
    Settled,
    SiblingUnschedulable,
    StaysInPart,
    StillIncomplete,
    Tick,
    Verified,
    VerifyFailed,
    Withdrawn,
)
from extender.holds.machine.standing import crowded_out, objection
from extender.holds.machine.table import Table
from extender.model.gang import GangKey
from extender.model.pod import PodUid, Status
from extender.ports import BindOrder


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
        self._facts = facts
        self._table = Table(Backoff(limits, chance), limits.max_holds, closed)
        self._gathering = Gathering(self._table, facts, self.patience)
        self._forward = Forward(self._table, facts, self.patience)
        calls = Calls(self._table, facts, self.patience, self._gathering, self._forward)
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
            FoundShort: self._forward.found_short,
            LeavesAgain: self._forward.leaves_again,
            StaysInPart: self._stays_in_part,
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
    def holds(self) -> int:
        """Count the pods whose bind waits or is under way."""
        return len(self._table.holds)

    def is_crowded(self, order: BindOrder, now: float) -> bool:
        """Ask whether we count no room where we bound somebody a moment ago; safe as well."""
        return is_crowded(order, self._table, self._facts, now)

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

    # The cluster changes

    def _joined(self, event: Joined, now: float) -> Iterable[Instruction]:
        assembly = self._table.assemblies.get(event.gang)
        if assembly is not None and assembly.state is not AssemblyState.COMMITTING:
            self._table.enrol(assembly, event.uid)
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
                self._forward.look_again(left)
        assembly = self._table.assemblies.get(event.gang) if event.gang else None
        if assembly is None or assembly.state is AssemblyState.COMMITTING:
            return
        self._table.enrol(assembly, event.uid)
        if assembly.state in GATHERING:
            yield from self._gathering.member_changed(assembly, event.uid, now)
        else:
            self._forward.look_again(assembly)

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
            yield from self._table.end(assembly, Cause.INCOMPLETE, now)

    def _withdrawn(self, event: Withdrawn, now: float) -> Iterator[Instruction]:
        assembly = self._table.assemblies.get(event.gang)
        if assembly is not None and assembly.state in GATHERING:
            yield from self._table.end(assembly, Cause.NO_TICKET, now)

    def _stays_in_part(self, event: StaysInPart, now: float) -> Iterator[Instruction]:
        yield from self._forward.stays_in_part(event, now)
        assembly = self._table.assemblies.get(event.gang)
        if assembly is not None:
            yield from self._gathering.weigh(assembly, now)

    def _object(self, hold: Hold, now: float) -> Iterator[Instruction]:
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
