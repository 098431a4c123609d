"""Actions as Volcano does them: one waiting member after the other, node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from extender.model.node import Amounts
from extender.model.pod import Pod
from extender.planner.actions.backfill import in_order, place
from extender.planner.plugin import Preemptor, VictimCandidate
from extender.planner.session import Session
from extender.planner.starvation import starving_gangs
from extender.planner.state import GangState
from extender.planner.victims.candidates import is_beside, is_running, may_lose, running_pods

VictimFilter = Callable[[VictimCandidate], bool]


def backfill(session: Session) -> None:
    """Place best-effort members whatever their queue may take, and let them keep the place."""
    for gang, pods in in_order(session):
        with session.capacity.trial(gang) as trial:
            for pod in pods:
                if not session.opinions.exceeds_share(gang, pod.requests):
                    place(session, gang, pod)
            if session.opinions.is_ready(gang):
                gang.commit()
            trial.keep()


def preempt(session: Session) -> None:
    """Let starving gangs take the place of others in their queue, pod by pod."""
    for gangs in starving_gangs(session):
        way = NodeByNode(session)
        for gang in gangs:
            _while_starving(session, gang, partial(way.preempt, gang, partial(is_beside, gang)))
        for gang in gangs:
            _inside_a_gang(session, way, gang)


def reclaim(session: Session) -> None:
    """Let starving gangs take room back from other queues, pod by pod."""
    for gangs in starving_gangs(session):
        if not session.opinions.is_overused(gangs[0].queue):
            way = NodeByNode(session)
            for gang in gangs:
                _while_starving(session, gang, partial(way.reclaim, gang))


def _while_starving(session: Session, gang: GangState, ask: Callable[[Pod], object]) -> None:
    """Ask others to leave for one member after the other; kept if *gang* could then start."""
    with session.capacity.trial(gang) as trial:
        for pod in session.waiting_tasks(gang):
            if not session.is_starving(gang):
                break
            ask(pod)
        if session.opinions.is_pipelined(gang):
            trial.keep()


def _inside_a_gang(session: Session, way: NodeByNode, gang: GangState) -> None:
    for pod in session.waiting_tasks(gang):
        with session.capacity.trial(gang) as trial:
            if not way.preempt(gang, lambda other: other is gang, pod):
                return
            trial.keep()


class NodeByNode:
    """Tries nodes for one member at a time and evicts there until it fits."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._opinions = session.opinions
        self._room = session.capacity
        self._occupants = running_pods(session)

    def preempt(self, gang: GangState, pool: Callable[[GangState], bool], pod: Pod) -> bool:
        """Make room for *pod* among the gangs of *pool*; True when it has a node to wait for."""
        if not pod.may_preempt or self._has_a_node_in_mind(pod):
            return False
        is_empty = self._session.is_empty
        empty = is_empty(pod.shape)

        def wanted(one: VictimCandidate) -> bool:
            # A claimant without requests only displaces its like.
            return pool(one.gang) and one.pod.preemptable and (not empty or is_empty(one.pod.shape))

        claim = Preemptor(gang, pod)
        rows = self._session.places.ranking(pod.shape).ranked()
        if self._session.policy.weighs_nodes:
            return self._preempt_on_best(claim, rows, wanted)
        return any(
            self._take_over("preempt", claim, row, self._occupants.on(row, wanted)) for row in rows
        )

    def reclaim(self, gang: GangState, pod: Pod) -> bool:
        """Take room for *pod* back from other queues; True when it has a node to wait for."""
        if not pod.may_preempt or not self._opinions.is_preemptive(gang, pod.shape):
            return False

        def wanted(one: VictimCandidate) -> bool:
            return is_running(one) and one.pod.preemptable and may_lose(gang, one.gang)

        claim = Preemptor(gang, pod)
        for row in np.flatnonzero(self._session.places.usable(pod.shape)).tolist():
            candidates = self._occupants.on(row, wanted)
            if candidates and self._take_over("reclaim", claim, row, candidates):
                return True
        return False

    def _take_over(
        self, action: str, claim: Preemptor, row: int, candidates: Sequence[VictimCandidate]
    ) -> bool:
        """Ask *candidates* to leave, one after the other, until there is room on *row*."""
        victims = self._opinions.allowed_victims(action, claim, candidates)
        if not self._suffices(claim, row, victims):
            return False
        # Only who preempts is held to the limits of its queue, and to what surely comes.
        is_enough = self._fits if action == "preempt" else self._suffices
        with self._room.trial() as trial:
            for victim in self._session.in_victim_order(claim, victims):
                if is_enough(claim, row):
                    break
                self._room.evict(victim.leaving(action, claim.gang))
            if not is_enough(claim, row):
                return False
            self._room.pipeline(claim.gang, claim.pod, row)
            trial.keep()
        return True

    def _preempt_on_best(self, claim: Preemptor, rows: Sequence[int], wanted: VictimFilter) -> bool:
        """Weigh all nodes: least important victims, then fewest, then the youngest."""
        choices = []
        for row in rows:
            victims = self._fewest_on(claim, row, wanted)
            if victims:
                choices.append((_harm(victims), row, victims))
        if not choices:
            return False
        _, row, victims = min(choices, key=lambda choice: choice[:2])
        for victim in victims:
            self._room.evict(victim.leaving("preempt", claim.gang))
        self._room.pipeline(claim.gang, claim.pod, row)
        return True

    def _fewest_on(self, claim: Preemptor, row: int, wanted: VictimFilter) -> list[VictimCandidate]:
        """Let go until it fits, then give back from the most important while it still fits."""
        allowed = self._opinions.allowed_victims("preempt", claim, self._occupants.on(row, wanted))
        if not self._suffices(claim, row, allowed):
            return []
        leaving: list[VictimCandidate] = []
        for victim in self._session.in_victim_order(claim, allowed):
            leaving.append(victim)
            if self._fits_without(claim, row, leaving):
                break
        else:
            return []
        for victim in list(reversed(leaving)):
            rest = [one for one in leaving if one is not victim]
            if self._fits_without(claim, row, rest):
                leaving = rest
        return list(reversed(leaving))

    def _fits_without(self, claim: Preemptor, row: int, leaving: Sequence[VictimCandidate]) -> bool:
        with self._room.trial():
            for victim in leaving:
                self._room.evict(victim.leaving("preempt", claim.gang))
            return self._fits(claim, row)

    def _fits(self, claim: Preemptor, row: int) -> bool:
        room = self._room.idle[row] + self._room.surely_releasing[row]
        may_take = self._opinions.may_allocate(claim.gang, claim.pod.shape)
        return may_take and self._fits_into(room, claim.pod)

    def _suffices(
        self, claim: Preemptor, row: int, victims: Sequence[VictimCandidate] = ()
    ) -> bool:
        """Ask whether it fits on *row* once *victims* and whoever is leaving are gone."""
        room = self._room.idle[row] + self._room.coming[row]
        for victim in victims:
            room = room + self._room.row(victim.pod.shape)
        return self._fits_into(room, claim.pod)

    def _fits_into(self, room: Amounts, pod: Pod) -> bool:
        need = self._room.need(pod.shape)
        return need is not None and bool((room >= need)[need > 0].all())

    def _has_a_node_in_mind(self, pod: Pod) -> bool:
        row = self._session.snapshot.nodes.facts.index.get(pod.nominated, -1)
        return row >= 0 and bool(self._session.places.usable(pod.shape)[row])


def _harm(victims: Sequence[VictimCandidate]) -> tuple[int, int, int, float]:
    priorities = [victim.pod.rank for victim in victims]
    highest = max(priorities)
    youngest = min(v.pod.created for v in victims if v.pod.rank == highest)
    return (highest, sum(p + 2**31 for p in priorities), len(victims), -youngest)
