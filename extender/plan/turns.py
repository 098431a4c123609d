"""Whose turn is it: queues in order, and in each queue gangs in order, asked anew every time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from extender.plan.opinions import Key
from extender.plan.room.state import GangState, QueueUse
from extender.plan.session import Session


class Turns:
    """A queue of queues of gangs; whoever had a turn and wants another comes back."""

    def __init__(self, session: Session, gangs: Iterable[GangState]) -> None:
        self._session = session
        self._gangs: dict[str, list[tuple[Key, GangState]]] = {}
        self._queues: list[tuple[Key, QueueUse]] = []
        for gang in gangs:
            if gang.queue.name not in self._gangs:
                self._gangs[gang.queue.name] = []
                heappush(self._queues, (session.queue_key(gang.queue), gang.queue))
            self.come_back(gang)

    def __iter__(self) -> Iterator[GangState]:
        """Give gangs one by one; the next is chosen only when it is asked for."""
        while self._queues:
            key, queue = heappop(self._queues)
            gangs = self._gangs[queue.name]
            if not gangs:
                continue
            if self._session.queues_interact:
                now = self._session.queue_key(queue)
                if now != key:
                    # Others moved it down since it was put here: ask again who is first.
                    heappush(self._queues, (now, queue))
                    continue
            yield heappop(gangs)[1]
            heappush(self._queues, (self._session.queue_key(queue), queue))

    def come_back(self, gang: GangState) -> None:
        """Put *gang* in line for another turn."""
        heappush(self._gangs[gang.queue.name], (self._session.gang_key(gang), gang))

    def drop(self, queue: QueueUse) -> list[GangState]:
        """Take the rest of *queue* out of the line."""
        dropped = [gang for _, gang in self._gangs[queue.name]]
        self._gangs[queue.name] = []
        return dropped

    @property
    def is_over(self) -> bool:
        """Ask whether nobody is left in line."""
        return not any(self._gangs.values())
