"""Who sits where: the pods that could be asked to leave, by gang and by node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from extender.model.gang import GangKey
from extender.model.pod import SEATED_SET, Status
from extender.plan.plugins.plugin import Candidate
from extender.plan.session import Key, Session
from extender.plan.state import GangState


class Occupants:
    """An index over everybody on a node, made when the first claim comes up."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_group: dict[tuple[str, int], list[GangKey]] = {}
        self._by_row: dict[int, list[Candidate]] | None = None
        self._orders: dict[GangKey, Key] = {}
        self._members: dict[GangKey, list[Candidate]] = {}
        for key, gang in session.snapshot.gangs.items():
            if gang.seated and gang.queue in session.queues and gang.problem is None:
                self._by_group.setdefault((gang.queue, gang.priority), []).append(key)

    def groups(self) -> Iterator[tuple[GangState, list[GangKey]]]:
        """Give the gangs grouped by queue and priority, each group after one that stands for it."""
        for keys in self._by_group.values():
            yield self.state(keys[0]), keys

    def state(self, key: GangKey) -> GangState:
        """Give the state of a gang that is on nodes."""
        state = self._session.census.state(key)
        if state is None:
            raise KeyError(key)
        return state

    def order(self, gang: GangState) -> Key:
        """Give the place of *gang* among all; whoever is last should leave first."""
        known = self._orders.get(gang.key)
        if known is None:
            session = self._session
            known = (session.queue_key(gang.queue), session.gang_key(gang))
            self._orders[gang.key] = known
        return known

    def of(self, gang: GangState) -> list[Candidate]:
        """List the members of *gang* that are on nodes and stay so far, the last in order first."""
        members = self._members.get(gang.key)
        if members is None:
            members = self._members[gang.key] = self._seated(gang)
        if not gang.evicted:
            return members
        return [one for one in members if one.pod.uid not in gang.evicted]

    def _seated(self, gang: GangState) -> list[Candidate]:
        ledger, spared = self._session.ledger, self._session.snapshot.spared
        pods = [pod for pod in gang.gang.pods if pod.status in SEATED_SET]
        pods.sort(key=self._session.task_key, reverse=True)
        return [
            Candidate(gang, pod, row)
            for pod in pods
            if pod.uid not in spared and (row := ledger.row_of(pod)) >= 0
        ]

    def on(self, row: int, wanted: Callable[[Candidate], bool]) -> list[Candidate]:
        """List who sits on *row* and is *wanted*, by name, those already leaving left out."""
        if self._by_row is None:
            self._by_row = self._index()
        return [
            candidate
            for candidate in self._by_row.get(row, ())
            if candidate.pod.uid not in candidate.gang.evicted and wanted(candidate)
        ]

    def _index(self) -> dict[int, list[Candidate]]:
        by_row: dict[int, list[Candidate]] = {}
        for keys in self._by_group.values():
            for candidate in chain.from_iterable(self.of(self.state(key)) for key in keys):
                by_row.setdefault(candidate.row, []).append(candidate)
        for candidates in by_row.values():
            candidates.sort(key=lambda candidate: candidate.pod.key)
        return by_row


def is_running(candidate: Candidate) -> bool:
    """Ask whether the pod runs; reclaiming spares those that are only bound."""
    return candidate.pod.status is Status.RUNNING
