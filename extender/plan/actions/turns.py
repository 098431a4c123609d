"""Whose turn it is to be given room: queues in order, in each its gangs, asked anew every time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from extender.plan.opinions import Key
from extender.plan.room.state import GangState, QueueUse
from extender.plan.session import Session


def turns_of(session: Session, gangs: Iterable[GangState]) -> Turns | NamespaceTurns:
    """Put *gangs* in line, by namespace first where a plugin orders those."""
    if session.opinions.order_namespaces:
        return NamespaceTurns(session, gangs)
    return Turns(session, gangs, queues_interact=session.queues_interact)


class Turns:
    """Whose turn it is: queues in order, in each its gangs in order, asked anew every time."""

    def __init__(
        self, session: Session, gangs: Iterable[GangState], *, queues_interact: bool
    ) -> None:
        """With *queues_interact*, a queue's place may change by what others get."""
        self._session = session
        self._queues_interact = queues_interact
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
            if self._queues_interact:
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
        dropped = [gang for _, gang in self._gangs.get(queue.name, ())]
        self._gangs[queue.name] = []
        return dropped

    @property
    def is_over(self) -> bool:
        """Ask whether nobody is left in line."""
        return not any(self._gangs.values())


class NamespaceTurns:
    """Namespaces in order first, as Volcano had it until 1.7; in each, turns as ever."""

    def __init__(self, session: Session, gangs: Iterable[GangState]) -> None:
        self._session = session
        here: dict[str, list[GangState]] = {}
        for gang in gangs:
            here.setdefault(gang.gang.group.namespace, []).append(gang)
        # What one namespace is given moves the queues of all.
        self._turns = {
            name: Turns(session, gangs, queues_interact=True) for name, gangs in here.items()
        }

    def __iter__(self) -> Iterator[GangState]:
        """Give gangs one by one; the next is chosen only when it is asked for."""
        waiting = {name: iter(turns) for name, turns in self._turns.items()}
        places = {name: self._session.namespace_key(name) for name in waiting}
        while places:
            first = min(places, key=places.__getitem__)
            gang = next(waiting[first], None)
            if gang is None:
                del places[first]
                continue
            yield gang
            places[first] = self._session.namespace_key(first)

    def come_back(self, gang: GangState) -> None:
        """Put *gang* in line for another turn."""
        self._turns[gang.gang.group.namespace].come_back(gang)

    def drop(self, queue: QueueUse) -> list[GangState]:
        """Take the rest of *queue* out of the line."""
        return [gang for turns in self._turns.values() for gang in turns.drop(queue)]

    @property
    def is_over(self) -> bool:
        """Ask whether nobody is left in line."""
        return all(turns.is_over for turns in self._turns.values())
