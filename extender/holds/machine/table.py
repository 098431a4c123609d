"""All holds and assemblies, and the only hands that move them from state to state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from extender.errors import IllegalTransition
from extender.holds.machine.assembly import Assembly, Hold, Waiter
from extender.holds.machine.cause import Cause
from extender.holds.machine.events import CallId
from extender.holds.machine.instructions import Answer, Bind, Free, Instruction, Park
from extender.holds.machine.states import (
    ASSEMBLY_MOVES,
    GATHERING,
    HOLD_MOVES,
    AssemblyState,
    HoldState,
)
from extender.holds.machine.story import Stories
from extender.model.gang import GangKey
from extender.model.pod import PodUid


class Table:
    """Who waits for what. A gang has at most one assembly, a pod at most one hold."""

    def __init__(self) -> None:
        self.holds: dict[PodUid, Hold] = {}
        self.assemblies: dict[GangKey, Assembly] = {}
        #: To which assembly a pod belongs that may not be held (any more, or yet).
        self.siblings: dict[PodUid, GangKey] = {}
        #: Which pod an unanswered call is about.
        self.calls: dict[CallId, PodUid] = {}
        self.stories = Stories()

    def assembly_of(self, hold: Hold) -> Assembly | None:
        """Give the assembly a hold is part of; one that is bound at once may have none."""
        assembly = self.assemblies.get(hold.gang) if hold.gang else None
        return assembly if assembly is not None and hold.uid in assembly.holds else None

    def enrol(self, assembly: Assembly, pods: Iterable[tuple[PodUid, str]]) -> None:
        """Remember who belongs to an assembly: once a pod is gone, nobody else can tell.

        With each goes what kube-scheduler has said of it so far.
        """
        for uid, refusal in pods:
            assembly.siblings.setdefault(uid, refusal)
            self.siblings[uid] = assembly.key

    def expel(self, assembly: Assembly, uid: PodUid) -> None:
        """Forget that a pod belongs to an assembly."""
        assembly.siblings.pop(uid, None)
        assembly.stuck.discard(uid)
        self.siblings.pop(uid, None)

    def wait(self, hold: Hold, waiter: Waiter) -> None:
        """Let a call wait for the answer of a hold."""
        hold.waiters.append(waiter)
        self.calls[waiter.id] = hold.uid

    def park(self, hold: Hold, assembly: Assembly, now: float) -> Iterator[Instruction]:
        """Hold a new arrival in its assembly."""
        self.holds[hold.uid] = assembly.holds[hold.uid] = hold
        self.enrol(assembly, ((hold.uid, ""),))
        assembly.stuck.discard(hold.uid)
        self.move(hold, HoldState.HELD, now)
        yield Park(hold.uid, hold.node)

    def commit(self, holds: tuple[Hold, ...], now: float) -> Iterator[Instruction]:
        """Send the bindings of *holds*; from here there is no way back."""
        for hold in holds:
            self.holds[hold.uid] = hold
            self.move(hold, HoldState.COMMITTING, now)
        yield Bind(tuple(hold.order for hold in holds))

    def release(self, hold: Hold, cause: Cause, now: float) -> Iterator[Instruction]:
        """Refuse a hold before anything was sent."""
        self.move(hold, HoldState.RELEASED, now, cause)
        self.drop(hold)
        yield from self.answer(hold, cause, now, cause.text(hold.gang))
        yield Free(hold.uid)

    def drop(self, hold: Hold) -> None:
        """Take a hold off the table; its waiters are still to be answered."""
        assembly = self.assembly_of(hold)
        if assembly is not None:
            del assembly.holds[hold.uid]
        del self.holds[hold.uid]

    def answer(self, hold: Hold, cause: Cause, now: float, error: str) -> Iterator[Instruction]:
        """Answer every call that waits for *hold*."""
        for waiter in hold.waiters:
            del self.calls[waiter.id]
            yield Answer(waiter.id, error, cause, now - waiter.arrived)
        hold.waiters.clear()

    def move(self, hold: Hold, to: HoldState, now: float, cause: Cause | None = None) -> None:
        """Bring a hold into another state, if the table of moves allows it."""
        if to not in HOLD_MOVES[hold.state]:
            raise self._illegal(f"pod {hold.uid}", hold.gang, hold.state.name, to.name)
        hold.state = to
        self.stories.note(hold.gang, now, _words(to, cause), hold.uid)

    def turn(
        self, assembly: Assembly, to: AssemblyState, now: float, cause: Cause | None = None
    ) -> None:
        """Bring an assembly into another state, if the table of moves allows it."""
        if to not in ASSEMBLY_MOVES[assembly.state]:
            raise self._illegal("the assembly", assembly.key, assembly.state.name, to.name)
        assembly.state = to
        self.stories.note(assembly.key, now, _words(to, cause))
        if to not in GATHERING:
            self._dismiss(assembly)
        if not ASSEMBLY_MOVES[to]:
            del self.assemblies[assembly.key]

    def _dismiss(self, assembly: Assembly) -> None:
        for uid in assembly.siblings:
            self.siblings.pop(uid, None)
        assembly.siblings.clear()

    def _illegal(self, what: str, gang: GangKey | None, old: str, new: str) -> IllegalTransition:
        story = "; ".join(line.what for line in self.stories.of(gang)) if gang else ""
        return IllegalTransition(f"{what} of gang {gang} cannot go from {old} to {new} ({story})")


@cache
def _words(to: HoldState | AssemblyState, cause: Cause | None) -> str:
    return f"{to.name}: {cause.value}" if cause else to.name
