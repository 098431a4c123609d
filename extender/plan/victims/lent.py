"""What queues have borrowed: reclaim takes it back before anything else.

Nothing is marked or stored: the most important gangs of a queue, and of those the oldest, stand on
its due as far as that reaches, and all its others on lent room. So the answer survives restarts,
is the same for everybody who asks, and whoever borrowed last gives back first. It also changes
with the due: when a queue's due grows, what was lent to it becomes its own.
"""

from __future__ import annotations

from extender.model.gang import Gang, GangKey
from extender.model.resources import NOTHING
from extender.plan.arithmetic import Vector, excess
from extender.plan.room.state import GangState
from extender.plan.session import Session


class Lent:
    """Tells, for one cycle, which gangs stand on lent room."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_queue: dict[str, list[Gang]] | None = None
        self._known: dict[str, set[GangKey]] = {}

    def holds(self, gang: GangState) -> bool:
        """Ask whether *gang* uses room beyond its queue's due."""
        name = gang.queue.name
        if name not in self._known:
            due = self._session.opinions.deserved(gang.queue)
            self._known[name] = set() if due is None else _beyond(due, self._running(name))
        return gang.key in self._known[name]

    def _running(self, queue: str) -> list[Gang]:
        if self._by_queue is None:
            self._by_queue = {}
            for gang in self._session.snapshot.gangs.values():
                if gang.seated:
                    self._by_queue.setdefault(gang.queue, []).append(gang)
        return self._by_queue.get(queue, [])


def _beyond(due: Vector, gangs: list[Gang]) -> set[GangKey]:
    """Name the gangs that the due does not cover, the first in line covered first."""
    covered, beyond = NOTHING, set()
    for gang in sorted(gangs, key=lambda gang: (-gang.priority, gang.group.created, gang.key)):
        after = covered + gang.allocated
        if excess(after, due, gang.allocated):
            beyond.add(gang.key)
        else:
            covered = after
    return beyond
