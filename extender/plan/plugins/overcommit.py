"""overcommit: only so many gangs are let in as the cluster could hold, and a bit more."""

from __future__ import annotations

from extender.model.gang import Phase
from extender.model.reason import Problem, Reason
from extender.model.resources import NOTHING, write_amount
from extender.plan.arithmetic import Vector, excess
from extender.plan.census import awaited, without_gated
from extender.plan.plugin import Plugin, View, Vote
from extender.plan.room.state import GangState

_USUAL = 1.2


class Overcommit(Plugin):
    """Compares what was promised at the door with what is idle, times a factor."""

    known = ("overcommit-factor",)

    def configure(self) -> None:
        """Read how much more may be let in than is idle."""
        factor = self.arguments.number("overcommit-factor", _USUAL)
        self._factor = factor if factor >= 1 else _USUAL

    def open(self, session: View) -> None:
        """Add up what is idle and what was promised."""
        super().open(session)
        table = session.snapshot.nodes
        used = table.used[session.census.ready_nodes].sum(axis=0).tolist()
        self._idle: Vector = {
            name: session.total[name] * self._factor - amount
            for name, amount in zip(table.dimensions, used, strict=True)
        }
        self._promised = NOTHING
        doubts, lately = session.rules.promises_fade, session.snapshot.let_in_lately
        for key, gang in session.snapshot.gangs.items():
            least = gang.group.min_resources
            if least is None or gang.queue not in session.queues:
                continue
            inqueue = gang.group.phase is Phase.INQUEUE
            said = without_gated(gang, least) if inqueue else awaited(gang)
            is_doubted = doubts and key not in lately
            self._promised += said - said.beyond(gang.pending) if is_doubted else said

    def enqueueable(self, gang: GangState) -> Vote | Problem:
        """Permit a gang whose minimum fits beside what was promised already."""
        least = gang.gang.group.min_resources
        if least is None:
            return Vote.PERMIT
        short = excess(self._promised + least, self._idle, least)
        if not short:
            return Vote.PERMIT
        name = short[0]
        idle = write_amount(name, max(0, int(self._idle.get(name, 0))))
        promised = write_amount(name, self._promised.amount(name))
        message = (
            f"asks for {write_amount(name, least[name])} {name}; {idle} idle with overcommit,"
            f" {promised} of it promised to gangs let in before"
        )
        return Problem(Reason.NOT_ENQUEUED, message)

    def enqueued(self, gang: GangState) -> None:
        """Remember what *gang* was promised."""
        least = gang.gang.group.min_resources
        if least is not None:
            self._promised += without_gated(gang.gang, least)
