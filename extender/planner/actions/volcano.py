"""The actions as Volcano does them: one waiting member after the other, node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from extender.model.node import Amounts
from extender.model.pod import Pod
from extender.planner.actions.backfill import place, release_best_effort
from extender.planner.plugin import Preemptor, VictimCandidate
from extender.planner.session import Session
from extender.planner.starvation import gangs_that_may_evict
from extender.planner.state import GangState
from extender.planner.victims.candidates import RunningPods, is_beside, is_running, may_lose

VictimFilter = Callable[[VictimCandidate], bool]


def backfill(session: Session) -> None:
    """Place best-effort members without regard to their queue's limits, and keep them placed."""
    for gang, pods in release_best_effort(session):
        with session.capacity.trial(gang) as trial:
            for pod in pods:
                if not session.plugins.exceeds_share(gang, pod.requests):
                    place(session, gang, pod)
            if session.plugins.is_ready(gang):
                gang.commit()
            trial.keep()


def preempt(session: Session) -> None:
    """Evict pods of the same queue for starving gangs, member by member."""
    for gangs in gangs_that_may_evict(session):
        search = NodeByNode(session)
        for gang in gangs:
            _while_starving(session, gang, partial(search.preempt, gang, partial(is_beside, gang)))
        for gang in gangs:
            _within_gang(session, search, gang)


def reclaim(session: Session) -> None:
    """Reclaim capacity from other queues for starving gangs, member by member."""
    for gangs in gangs_that_may_evict(session):
        if not session.plugins.is_overused(gangs[0].queue):
            search = NodeByNode(session)
            for gang in gangs:
                _while_starving(session, gang, partial(search.reclaim, gang))


def _while_starving(session: Session, gang: GangState, find: Callable[[Pod], object]) -> None:
    """Find victims for one member after the other; keep them if *gang* could then start."""
    with session.capacity.trial(gang) as trial:
        for pod in session.waiting_tasks(gang):
            if not session.may_evict_for(gang):
                break
            find(pod)
        if session.plugins.is_pipelined(gang):
            trial.keep()


def _within_gang(session: Session, search: NodeByNode, gang: GangState) -> None:
    for pod in session.waiting_tasks(gang):
        with session.capacity.trial(gang) as trial:
            if not search.preempt(gang, lambda other: other is gang, pod):
                return
            trial.keep()


class NodeByNode:
    """Tries nodes for one member at a time and evicts there until it fits."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._plugins = session.plugins
        self._capacity = session.capacity
        self._running = session.once(RunningPods)

    def preempt(self, gang: GangState, pool: Callable[[GangState], bool], pod: Pod) -> bool:
        """Find victims for *pod* among the gangs of *pool*; return whether it got a node."""
        if not pod.may_preempt or self._is_nominated(pod):
            return False
        is_best_effort = self._session.is_best_effort
        empty = is_best_effort(pod.shape)

        def is_candidate(one: VictimCandidate) -> bool:
            # A preemptor without requests only evicts pods without requests.
            return (
                pool(one.gang)
                and one.pod.preemptable
                and (not empty or is_best_effort(one.pod.shape))
            )

        preemptor = Preemptor(gang, pod)
        rows = self._session.nodes.ranking(pod.shape).ranked()
        if self._session.policy.weighs_nodes:
            return self._preempt_on_best(preemptor, rows, is_candidate)
        return any(
            self._evict_on("preempt", preemptor, row, self._running.on(row, is_candidate))
            for row in rows
        )

    def reclaim(self, gang: GangState, pod: Pod) -> bool:
        """Reclaim capacity for *pod* from other queues; return whether it got a node."""
        if not pod.may_preempt or not self._plugins.is_preemptive(gang, pod.shape):
            return False

        def is_candidate(one: VictimCandidate) -> bool:
            return is_running(one) and one.pod.preemptable and may_lose(gang, one.gang)

        preemptor = Preemptor(gang, pod)
        for row in np.flatnonzero(self._session.nodes.usable(pod.shape)).tolist():
            candidates = self._running.on(row, is_candidate)
            if candidates and self._evict_on("reclaim", preemptor, row, candidates):
                return True
        return False

    def _evict_on(
        self, action: str, preemptor: Preemptor, row: int, candidates: Sequence[VictimCandidate]
    ) -> bool:
        """Evict *candidates*, one after the other, until the pod fits on *row*."""
        victims = self._plugins.allowed_victims(action, preemptor, candidates)
        if not self._suffices(preemptor, row, victims):
            return False
        # Only preemption respects the limits of its queue, and relies on sure releases alone.
        fits = self._fits if action == "preempt" else self._suffices
        with self._capacity.trial() as trial:
            for victim in self._session.in_victim_order(preemptor, victims):
                if fits(preemptor, row):
                    break
                self._capacity.evict(victim.eviction(action, preemptor.gang))
            if not fits(preemptor, row):
                return False
            self._capacity.pipeline(preemptor.gang, preemptor.pod, row)
            trial.keep()
        return True

    def _preempt_on_best(
        self, preemptor: Preemptor, rows: Sequence[int], accepts: VictimFilter
    ) -> bool:
        """Compare all nodes: lowest victim priority, then fewest victims, then the youngest."""
        choices = []
        for row in rows:
            victims = self._fewest_on(preemptor, row, accepts)
            if victims:
                choices.append((_harm(victims), row, victims))
        if not choices:
            return False
        _, row, victims = min(choices, key=lambda choice: choice[:2])
        for victim in victims:
            self._capacity.evict(victim.eviction("preempt", preemptor.gang))
        self._capacity.pipeline(preemptor.gang, preemptor.pod, row)
        return True

    def _fewest_on(
        self, preemptor: Preemptor, row: int, accepts: VictimFilter
    ) -> list[VictimCandidate]:
        """Evict until the pod fits, then spare the most important victims while it still fits."""
        allowed = self._plugins.allowed_victims(
            "preempt", preemptor, self._running.on(row, accepts)
        )
        if not self._suffices(preemptor, row, allowed):
            return []
        victims: list[VictimCandidate] = []
        for victim in self._session.in_victim_order(preemptor, allowed):
            victims.append(victim)
            if self._fits_without(preemptor, row, victims):
                break
        else:
            return []
        for victim in list(reversed(victims)):
            rest = [one for one in victims if one is not victim]
            if self._fits_without(preemptor, row, rest):
                victims = rest
        return list(reversed(victims))

    def _fits_without(
        self, preemptor: Preemptor, row: int, victims: Sequence[VictimCandidate]
    ) -> bool:
        with self._capacity.trial():
            for victim in victims:
                self._capacity.evict(victim.eviction("preempt", preemptor.gang))
            return self._fits(preemptor, row)

    def _fits(self, preemptor: Preemptor, row: int) -> bool:
        free = self._capacity.free[row] + self._capacity.surely_releasing[row]
        may_take = self._plugins.may_allocate(preemptor.gang, preemptor.pod.shape)
        return may_take and self._fits_into(free, preemptor.pod)

    def _suffices(
        self, preemptor: Preemptor, row: int, victims: Sequence[VictimCandidate] = ()
    ) -> bool:
        """Return whether it fits on *row* once *victims* and terminating pods are gone."""
        free = self._capacity.free[row] + self._capacity.releasing[row]
        for victim in victims:
            free = free + self._capacity.row(victim.pod.shape)
        return self._fits_into(free, preemptor.pod)

    def _fits_into(self, free: Amounts, pod: Pod) -> bool:
        need = self._capacity.need(pod.shape)
        return need is not None and bool((free >= need)[need > 0].all())

    def _is_nominated(self, pod: Pod) -> bool:
        row = self._session.snapshot.nodes.facts.index.get(pod.nominated, -1)
        return row >= 0 and bool(self._session.nodes.usable(pod.shape)[row])


def _harm(victims: Sequence[VictimCandidate]) -> tuple[int, int, int, float]:
    priorities = [victim.pod.rank for victim in victims]
    highest = max(priorities)
    youngest = min(v.pod.created for v in victims if v.pod.rank == highest)
    return (highest, sum(p + 2**31 for p in priorities), len(victims), -youngest)
