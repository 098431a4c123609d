"""How an attempt ends for everybody: together, with the same words, and perhaps a pause."""

from __future__ import annotations

from collections.abc import Iterator

from extender.holds.machine.assembly import Assembly
from extender.holds.machine.backoff import Backoff
from extender.holds.machine.cause import BACKS_OFF, Cause
from extender.holds.machine.instructions import BackOff, Instruction
from extender.holds.machine.states import AssemblyState
from extender.holds.machine.table import Table


class Ending:
    """Ends assemblies of which nothing stays bound."""

    def __init__(self, table: Table, backoff: Backoff) -> None:
        self._table = table
        self._backoff = backoff

    def end(self, assembly: Assembly, cause: Cause, now: float) -> Iterator[Instruction]:
        """Refuse every held call together."""
        self._table.turn(assembly, AssemblyState.ABORTED, now, cause)
        for hold in tuple(assembly.holds.values()):
            yield from self._table.release(hold, cause, now)
        if cause in BACKS_OFF:
            yield BackOff(assembly.key, self._backoff.aborted(assembly.key, now))
        elif cause in (Cause.GROUP_GONE, Cause.GROUP_REPLACED):
            self._backoff.started(assembly.key)
