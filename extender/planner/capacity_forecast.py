"""When those who run will be gone, by what is written on their pods alone.

Nothing here was learnt: every replica, and every replay, says the same. Two questions, each
answered on the safe side. How long can somebody stay *at most*? Only a deadline answers that,
because the kubelet keeps it. How long will somebody stay *at least*? Only their own word answers
that, and whoever gave none, or has outrun it, may be gone at any moment; a deadline forbids nobody
to end before it.

Whoever is ended before long anyway (`Starvation.backfill_s`) is looked through: they may use room
that is kept, and neither drive it elsewhere nor put off the moment at which it is needed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from extender.model.gang import Gang
from extender.model.node import Amounts
from extender.model.pod import ALLOCATED_SET, Pod, Shape
from extender.planner.node_ranking import pods_that_fit
from extender.planner.session import Demand, Session


def most_s(pods: Iterable[Pod]) -> float:
    """Say how long *pods* can run at most once they have nodes; endless where nobody ends one."""
    return max((pod.most_s for pod in pods), default=inf)


def stays_until(gang: Gang, now: float) -> float:
    """Say until when *gang*, which is on nodes, stays by its own word; *now* without a good one."""
    began, said_s = gang.memo.recall("word", lambda: _word(gang))
    return max(now, min(now, began) + said_s)


def _word(gang: Gang) -> tuple[float, float]:
    """Give since when, and how long, *gang* says that it runs: the soonest of all there is."""
    there = [pod for pod in gang.pods if pod.status in ALLOCATED_SET]
    whole_s = gang.group.lasts_s
    if not there or not all(whole_s or pod.lasts_s for pod in there):
        return 0.0, 0.0
    said = (each for pod in there for each in (whole_s, pod.lasts_s, pod.deadline_s) if each)
    # Nobody began before it was created.
    return min(pod.began or pod.created for pod in there), min(said)


class OccupiedUntil(NamedTuple):
    """What is used on every node by those who do not leave by themselves, and by the brief."""

    stays: Amounts
    brief: Amounts


def seats(session: Session) -> OccupiedUntil:
    """Count it, once for a session: whatever is on nodes and in no gang of ours stays."""
    known = session.shared.get("seats")
    if not isinstance(known, OccupiedUntil):
        known = session.shared["seats"] = _counted(session)
    return known


def _counted(session: Session) -> OccupiedUntil:
    index, brief_s = session.snapshot.nodes.facts.index, session.policy.starvation.backfill_s
    all_of: dict[Shape, list[int]] = {}
    brief_of: dict[Shape, list[int]] = {}
    for gang in session.snapshot.gangs.values():
        for pod in gang.pods if len(gang.waiting) < len(gang.pods) else ():
            # Those on their way there, too. Who leaves is waited for elsewhere, or never goes.
            if pod.status in ALLOCATED_SET and pod.node in index:
                all_of.setdefault(pod.shape, []).append(index[pod.node])
                if pod.most_s <= brief_s:
                    brief_of.setdefault(pod.shape, []).append(index[pod.node])
    stays = session.snapshot.nodes.used.copy()
    brief = np.zeros_like(stays)
    for shape, rows in all_of.items():
        np.subtract.at(stays, rows, session.capacity.row(shape))
    for shape, rows in brief_of.items():
        np.add.at(brief, rows, session.capacity.row(shape))
    return OccupiedUntil(np.maximum(stays, 0), brief)


class CapacityForecast:
    """Which room there will be, as far as those who use it gave their word to stay."""

    def __init__(self, session: Session) -> None:
        self._session = session
        table = session.snapshot.nodes
        #: If everybody left who may, those on their way out included.
        self._most = table.allocatable - np.maximum(seats(session).stays - table.releasing, 0)
        seated = sorted(self._seated(), key=lambda each: each[0])
        #: Until when each of them stays, the first to leave first.
        self._until = [until for until, _, _ in seated]
        shapes = dict.fromkeys(shape for _, _, shape in seated)
        numbers = {shape: number for number, shape in enumerate(shapes)}
        lines = np.array([session.capacity.row(shape) for shape in shapes], dtype=np.float64)
        self._lines: npt.NDArray[np.float64] = lines.reshape(len(shapes), self._most.shape[1])
        self._which = np.array([numbers[shape] for _, _, shape in seated], dtype=np.intp)
        self._where = np.array([row for _, row, _ in seated], dtype=np.intp)

    def _seated(self) -> Iterable[tuple[float, int, Shape]]:
        """Give until when, where and in what shape those sit who gave a word that still holds."""
        snapshot, brief_s = self._session.snapshot, self._session.policy.starvation.backfill_s
        asked_to_leave = {each.pod.uid for each in self._session.capacity.departures}
        index, now = snapshot.nodes.facts.index, snapshot.now
        for gang in snapshot.gangs.values():
            until = stays_until(gang, now) if gang.on_nodes else now
            for pod in gang.pods if until > now else ():
                is_there = pod.status in ALLOCATED_SET and pod.node in index
                if is_there and pod.most_s > brief_s and pod.uid not in asked_to_leave:
                    yield until, index[pod.node], pod.shape

    def earliest(self, demand: Demand) -> float:
        """Say before when no room can be there for *demand*; now, where nobody can tell.

        Whoever may be gone at any moment is taken to be gone, and shapes are asked for one by one
        as if each had all the room: it may be later than that, but not sooner.
        """
        now = self._session.snapshot.now
        if any(shape.host_ports for shape in demand.by_shape):
            return now  # when a port becomes free is not counted
        gone = bisect_left(range(len(self._until) + 1), True, key=lambda n: self._fits(demand, n))
        return self._until[gone - 1] if 0 < gone <= len(self._until) else now

    def _fits(self, demand: Demand, gone: int) -> bool:
        """Ask whether *demand* could have room when the first so many are gone."""
        room, places = self._room(gone), self._session.places
        for shape, pods in demand.by_shape.items():
            need = self._session.capacity.need(shape)
            if need is None:
                return False
            if pods_that_fit(room, need)[places.usable_at_all(shape)].sum() < len(pods):
                return False
        return True

    def _room(self, gone: int) -> Amounts:
        where, lines = self._where[gone:], self._lines[self._which[gone:]]
        width = self._most.shape[1]
        cells = (where[:, None] * width + np.arange(width)).ravel()
        # Floats are exact up to eight million gigabytes on a node, and ten times as fast here.
        used = np.bincount(cells, weights=lines.ravel(), minlength=self._most.size)
        room: Amounts = self._most - used.astype(np.int64).reshape(self._most.shape)
        return room
