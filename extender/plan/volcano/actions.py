"""Actions as Volcano does them: one waiting member after the other, node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from extender.model.node import Amounts
from extender.model.pod import Pod, Shape
from extender.plan.actions.backfill import in_order, place
from extender.plan.plugin import Candidate, Claim
from extender.plan.policy.arguments import Arguments
from extender.plan.policy.options import TOPOLOGY_AWARE
from extender.plan.room.state import GangState
from extender.plan.session import Session
from extender.plan.starvation import starving_gangs
from extender.plan.victims.occupants import is_running, may_lose, occupants_of

Wanted = Callable[[Candidate], bool]


def backfill(session: Session) -> None:
    """Place best-effort members whatever their queue may take, and let them keep the place."""
    for gang, pods in in_order(session):
        with session.room.trial(gang) as trial:
            for pod in pods:
                place(session, gang, pod)
            if session.opinions.is_ready(gang):
                gang.commit()
            trial.keep()


def preempt(session: Session) -> None:
    """Let starving gangs take the place of others in their queue, pod by pod."""
    for gangs in starving_gangs(session):
        way = NodeByNode(session)
        for gang in gangs:
            _between_gangs(session, way, gang)
        for gang in gangs:
            _inside_a_gang(session, way, gang)


def reclaim(session: Session) -> None:
    """Let starving gangs take room back from other queues, pod by pod."""
    for gangs in starving_gangs(session):
        if not session.opinions.is_overused(gangs[0].queue):
            way = NodeByNode(session)
            for gang in gangs:
                _reclaim_for(session, way, gang)


class NodeByNode:
    """Tries nodes for one member at a time and evicts there until it fits."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._opinions = session.opinions
        self._room = session.room
        self._occupants = occupants_of(session)
        thorough = Arguments("preempt", session.policy.configurations.get("preempt", {}))
        self._weighs_nodes = thorough.flag(TOPOLOGY_AWARE, default=False)

    def preempt(self, gang: GangState, pod: Pod, wanted: Wanted) -> bool:
        """Make room for *pod* among its own queue; True when it has a node to wait for."""
        if not pod.may_preempt or self._has_a_node_in_mind(pod):
            return False
        rows = self._by_score(pod.shape)
        if self._weighs_nodes:
            return self._preempt_on_best(gang, pod, rows, wanted)
        return any(self._preempt_on(gang, pod, row, wanted) for row in rows)

    def reclaim(self, gang: GangState, pod: Pod, wanted: Wanted) -> bool:
        """Take room for *pod* back from other queues; True when it has a node to wait for."""
        claim = Claim(gang, pod)
        for row in np.flatnonzero(self._session.places.usable(pod.shape)).tolist():
            candidates = self._occupants.on(row, wanted)
            if not candidates:
                continue
            victims = self._opinions.may_leave("reclaim", claim, candidates)
            if not self._suffices(pod, row, victims):
                continue
            with self._room.trial() as trial:
                for victim in self._session.in_victim_order(claim, victims):
                    if self._suffices(pod, row, ()):
                        break
                    self._room.evict(victim.leaving("reclaim", gang))
                self._room.pipeline(gang, pod, row)
                trial.keep()
            return True
        return False

    def _preempt_on(self, gang: GangState, pod: Pod, row: int, wanted: Wanted) -> bool:
        claim = Claim(gang, pod)
        victims = self._opinions.may_leave("preempt", claim, self._occupants.on(row, wanted))
        if not self._suffices(pod, row, victims):
            return False
        with self._room.trial() as trial:
            for victim in self._session.in_victim_order(claim, victims):
                if self._fits(gang, pod, row):
                    break
                self._room.evict(victim.leaving("preempt", gang))
            if not self._fits(gang, pod, row):
                return False
            self._room.pipeline(gang, pod, row)
            trial.keep()
        return True

    def _preempt_on_best(
        self, gang: GangState, pod: Pod, rows: Sequence[int], wanted: Wanted
    ) -> bool:
        """Weigh all nodes: least important victims, then fewest, then the youngest."""
        choices = []
        for row in rows:
            victims = self._fewest_on(gang, pod, row, wanted)
            if victims:
                choices.append((_harm(victims), row, victims))
        if not choices:
            return False
        _, row, victims = min(choices, key=lambda choice: choice[:2])
        for victim in victims:
            self._room.evict(victim.leaving("preempt", gang))
        self._room.pipeline(gang, pod, row)
        return True

    def _fewest_on(self, gang: GangState, pod: Pod, row: int, wanted: Wanted) -> list[Candidate]:
        """Let go until it fits, then give back from the most important while it still fits."""
        claim = Claim(gang, pod)
        allowed = self._opinions.may_leave("preempt", claim, self._occupants.on(row, wanted))
        if not self._suffices(pod, row, allowed):
            return []
        leaving: list[Candidate] = []
        for victim in self._session.in_victim_order(claim, allowed):
            leaving.append(victim)
            if self._fits_without(gang, pod, row, leaving):
                break
        else:
            return []
        for victim in list(reversed(leaving)):
            rest = [one for one in leaving if one is not victim]
            if self._fits_without(gang, pod, row, rest):
                leaving = rest
        return list(reversed(leaving))

    def _fits_without(
        self, gang: GangState, pod: Pod, row: int, leaving: Sequence[Candidate]
    ) -> bool:
        with self._room.trial():
            for victim in leaving:
                self._room.evict(victim.leaving("preempt", gang))
            return self._fits(gang, pod, row)

    def _fits(self, gang: GangState, pod: Pod, row: int) -> bool:
        room = self._room.idle[row] + self._room.surely_coming[row]
        return self._opinions.may_take(gang, pod.shape) and self._fits_into(room, pod)

    def _suffices(self, pod: Pod, row: int, victims: Sequence[Candidate]) -> bool:
        """Ask whether *pod* fits on *row* once *victims* and whoever is leaving are gone."""
        room = self._room.idle[row] + self._room.coming[row]
        for victim in victims:
            room = room + self._room.row(victim.pod.shape)
        return self._fits_into(room, pod)

    def _fits_into(self, room: Amounts, pod: Pod) -> bool:
        need = self._room.need(pod.shape)
        return need is not None and bool((room >= need)[need > 0].all())

    def _by_score(self, shape: Shape) -> list[int]:
        return self._session.places.slots(shape).ranked()

    def _has_a_node_in_mind(self, pod: Pod) -> bool:
        row = self._session.snapshot.nodes.facts.index.get(pod.nominated, -1)
        return row >= 0 and bool(self._session.places.usable(pod.shape)[row])


def _harm(victims: Sequence[Candidate]) -> tuple[int, int, int, float]:
    priorities = [victim.pod.priority for victim in victims]
    highest = max(priorities)
    youngest = min(v.pod.created for v in victims if v.pod.priority == highest)
    return (highest, sum(p + 2**31 for p in priorities), len(victims), -youngest)


def _between_gangs(session: Session, way: NodeByNode, gang: GangState) -> None:
    with session.room.trial(gang) as trial:
        for pod in session.waiting_tasks(gang):
            if not session.is_starving(gang):
                break

            def others(candidate: Candidate, *, empty: bool = session.is_empty(pod.shape)) -> bool:
                same_queue = candidate.gang.queue is gang.queue and candidate.gang is not gang
                return same_queue and _may_be_asked(session, candidate, empty=empty)

            way.preempt(gang, pod, others)
        if session.opinions.is_pipelined(gang):
            trial.keep()


def _inside_a_gang(session: Session, way: NodeByNode, gang: GangState) -> None:
    for pod in session.waiting_tasks(gang):

        def siblings(candidate: Candidate, *, empty: bool = session.is_empty(pod.shape)) -> bool:
            return candidate.gang is gang and _may_be_asked(session, candidate, empty=empty)

        with session.room.trial(gang) as trial:
            if not way.preempt(gang, pod, siblings):
                return
            trial.keep()


def _may_be_asked(session: Session, candidate: Candidate, *, empty: bool) -> bool:
    """Ask whether a pod may be considered; one without requests only displaces its like."""
    return candidate.pod.preemptable and (not empty or session.is_empty(candidate.pod.shape))


def _reclaim_for(session: Session, way: NodeByNode, gang: GangState) -> None:
    def others(candidate: Candidate) -> bool:
        asked = is_running(candidate) and candidate.pod.preemptable
        return asked and may_lose(gang, candidate.gang)

    with session.room.trial(gang) as trial:
        for pod in session.waiting_tasks(gang):
            if not session.is_starving(gang):
                break
            if pod.may_preempt and session.opinions.is_preemptive(gang, pod.shape):
                way.reclaim(gang, pod, others)
        if session.opinions.is_pipelined(gang):
            trial.keep()
