"""When running pods will be gone, by what is written on the pods alone.

Nothing here is learnt: every replica, and every replay, computes the same. There are two questions,
each answered on the safe side. How long can a pod run *at most*? Only a deadline answers that,
because the kubelet enforces it. How long will a pod run *at least*? Only the duration that its
owner states answers that. A gang that states none, or has exceeded it, may end at any moment; a
deadline does not keep a pod from ending before it.

Pods that end soon in any case (`Starvation.backfill_s`) are ignored: they may use reserved
capacity. They neither move a reservation to other nodes nor delay the moment at which it is needed.
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
    """Return how long *pods* can run at most once they have nodes; infinite without a deadline."""
    return max((pod.most_s for pod in pods), default=inf)


def stays_until(gang: Gang, now: float) -> float:
    """Return until when a running *gang* stays by its stated duration; *now* if unknown."""
    began, stated_s = gang.memo.recall("stated duration", lambda: _stated(gang))
    return max(now, min(now, began) + stated_s)


def _stated(gang: Gang) -> tuple[float, float]:
    """Return since when, and how long, *gang* runs by its own statements: the shortest of them."""
    there = [pod for pod in gang.pods if pod.status in ALLOCATED_SET]
    whole_s = gang.group.lasts_s
    if not there or not all(whole_s or pod.lasts_s for pod in there):
        return 0.0, 0.0
    stated = (each for pod in there for each in (whole_s, pod.lasts_s, pod.deadline_s) if each)
    # A pod cannot begin before its creation.
    return min(pod.began or pod.created for pod in there), min(stated)


class OccupiedUntil(NamedTuple):
    """What pods that do not end soon use on every node, and what those that do use."""

    stays: Amounts
    brief: Amounts


def occupied_until(session: Session) -> OccupiedUntil:
    """Compute it; pods outside our gangs count as staying."""
    index, brief_s = session.snapshot.nodes.facts.index, session.policy.starvation.backfill_s
    all_of: dict[Shape, list[int]] = {}
    brief_of: dict[Shape, list[int]] = {}
    for gang in session.snapshot.gangs.values():
        for pod in gang.pods if len(gang.waiting) < len(gang.pods) else ():
            # Includes pods on their way there. Terminating pods are waited for elsewhere, or never
            # end.
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
    """The capacity there will be, as far as running gangs state how long they stay."""

    def __init__(self, session: Session) -> None:
        self._session = session
        table = session.snapshot.nodes
        #: Free if all gangs ended that could, including terminating pods.
        self._most = table.allocatable - np.maximum(
            session.once(occupied_until).stays - table.releasing, 0
        )
        staying = sorted(self._staying(), key=lambda each: each[0])
        #: Until when each of them stays, in ascending order.
        self._until = [until for until, _, _ in staying]
        shapes = dict.fromkeys(shape for _, _, shape in staying)
        numbers = {shape: number for number, shape in enumerate(shapes)}
        lines = np.array([session.capacity.row(shape) for shape in shapes], dtype=np.float64)
        self._lines: npt.NDArray[np.float64] = lines.reshape(len(shapes), self._most.shape[1])
        self._which = np.array([numbers[shape] for _, _, shape in staying], dtype=np.intp)
        self._rows = np.array([row for _, row, _ in staying], dtype=np.intp)

    def _staying(self) -> Iterable[tuple[float, int, Shape]]:
        """Yield end, row and shape of the pods whose stated duration has not passed."""
        snapshot, brief_s = self._session.snapshot, self._session.policy.starvation.backfill_s
        evicted = {each.pod.uid for each in self._session.capacity.evictions}
        index, now = snapshot.nodes.facts.index, snapshot.now
        for gang in snapshot.gangs.values():
            until = stays_until(gang, now) if gang.on_nodes else now
            for pod in gang.pods if until > now else ():
                is_there = pod.status in ALLOCATED_SET and pod.node in index
                if is_there and pod.most_s > brief_s and pod.uid not in evicted:
                    yield until, index[pod.node], pod.shape

    def earliest(self, demand: Demand) -> float:
        """Return before when *demand* cannot find capacity; now, where that is unknown.

        Pods that may end at any moment count as gone, and each shape is checked alone, as if it had
        all the capacity. So the true moment may be later, but not sooner.
        """
        now = self._session.snapshot.now
        if any(shape.host_ports for shape in demand.by_shape):
            return now  # when a port becomes free is not counted
        gone = bisect_left(range(len(self._until) + 1), True, key=lambda n: self._fits(demand, n))
        return self._until[gone - 1] if 0 < gone <= len(self._until) else now

    def _fits(self, demand: Demand, gone: int) -> bool:
        """Return whether *demand* could find capacity when the first *gone* pods are gone."""
        free, nodes = self._free(gone), self._session.nodes
        for shape, pods in demand.by_shape.items():
            need = self._session.capacity.need(shape)
            if need is None:
                return False
            if pods_that_fit(free, need)[nodes.usable_at_all(shape)].sum() < len(pods):
                return False
        return True

    def _free(self, gone: int) -> Amounts:
        rows, lines = self._rows[gone:], self._lines[self._which[gone:]]
        width = self._most.shape[1]
        cells = (rows[:, None] * width + np.arange(width)).ravel()
        # Floats are exact up to eight million gigabytes on a node, and ten times as fast here.
        used = np.bincount(cells, weights=lines.ravel(), minlength=self._most.size)
        free: Amounts = self._most - used.astype(np.int64).reshape(self._most.shape)
        return free
