"""allocate: give waiting gangs idle room, each whole or not at all.

A gang's turn ends when its minimum has nodes: then it may start. If part of the room is still
being released, it keeps what it found but does not start. If neither, it leaves no trace. Members
beyond the minimum come one per turn, so that gangs grow in step with their shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from heapq import heappop, heappush

import numpy as np

from extender.model.pod import Pod, Shape
from extender.model.reason import Problem, Reason
from extender.planner.extension_points import Key
from extender.planner.plugin import Round
from extender.planner.session import Demand, Session, needed_pods
from extender.planner.starvation import (
    may_be_preferred,
    reserve_for_starving,
    starving_longest,
    without_its_reservation,
)
from extender.planner.state import GangState, QueueUsage


def gang_order(session: Session, gangs: Iterable[GangState]) -> GangOrder | NamespaceOrder:
    """Put *gangs* in line, by namespace first where a plugin orders those."""
    if session.opinions.order_namespaces:
        return NamespaceOrder(session, gangs)
    return GangOrder(session, gangs, queues_interact=session.queues_interact)


class GangOrder:
    """Whose turn it is: queues in order, in each its gangs in order, asked anew every time."""

    def __init__(
        self, session: Session, gangs: Iterable[GangState], *, queues_interact: bool
    ) -> None:
        """With *queues_interact*, a queue's place may change by what others get."""
        self._session = session
        self._queues_interact = queues_interact
        self._gangs: dict[str, list[tuple[Key, GangState]]] = {}
        self._queues: list[tuple[Key, QueueUsage]] = []
        for gang in gangs:
            if gang.queue.name not in self._gangs:
                self._gangs[gang.queue.name] = []
                heappush(self._queues, (session.queue_key(gang.queue), gang.queue))
            self.push(gang)

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

    def push(self, gang: GangState) -> None:
        """Put *gang* in line for another turn."""
        heappush(self._gangs[gang.queue.name], (self._session.gang_key(gang), gang))

    def drop(self, queue: QueueUsage) -> list[GangState]:
        """Take the rest of *queue* out of the line."""
        dropped = [gang for _, gang in self._gangs.get(queue.name, ())]
        self._gangs[queue.name] = []
        return dropped

    @property
    def is_over(self) -> bool:
        """Ask whether nobody is left in line."""
        return not any(self._gangs.values())


class NamespaceOrder:
    """Namespaces in order first, as Volcano had it until 1.7; in each, turns as ever."""

    def __init__(self, session: Session, gangs: Iterable[GangState]) -> None:
        self._session = session
        here: dict[str, list[GangState]] = {}
        for gang in gangs:
            here.setdefault(gang.gang.group.namespace, []).append(gang)
        # What one namespace is given moves the queues of all.
        self._turns = {
            name: GangOrder(session, gangs, queues_interact=True) for name, gangs in here.items()
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

    def push(self, gang: GangState) -> None:
        """Put *gang* in line for another turn."""
        self._turns[gang.gang.group.namespace].push(gang)

    def drop(self, queue: QueueUsage) -> list[GangState]:
        """Take the rest of *queue* out of the line."""
        return [gang for turns in self._turns.values() for gang in turns.drop(queue)]

    @property
    def is_over(self) -> bool:
        """Ask whether nobody is left in line."""
        return all(turns.is_over for turns in self._turns.values())


#: The verdict adds the figures.
QUEUE_HAS_ENOUGH = Problem(Reason.QUEUE_OVER_DESERVED, "")


def allocate(session: Session) -> None:
    """Hand out idle room: first to everybody within their due, then what is left."""
    _complete_cut_short(session)
    rounds = (Round.DESERVED, Round.OVERSHOOT) if session.rules.may_overshoot else (Round.DESERVED,)
    for session.round in rounds:
        contenders = _contenders(session, session.accounting.contenders.values())
        held = _serve_starving(session, contenders)
        _hand_out(session, [gang for gang in contenders if gang.queue.name not in held])
    session.round = Round.DEFAULT


def _complete_cut_short(session: Session) -> None:
    """Let gangs go first that were begun to be bound: up to their minimum, and to the ceilings.

    Neither the order nor the due of their queue keeps them waiting: what they have is of no use
    without the rest, and it was not they who stopped.
    """
    if not session.snapshot.partial_gangs or not session.rules.partial_gangs_are_first:
        return
    contenders = session.accounting.contenders
    cut_short = [contenders[key] for key in session.snapshot.partial_gangs if key in contenders]
    for gang in cut_short:
        gang.enqueue()
    session.round = Round.BORROW
    for gang in sorted(_contenders(session, cut_short), key=session.gang_key):
        if session.opinions.missing_members(gang):
            _take_turn(session, gang, alone=False)


def borrow(session: Session) -> None:
    """Hand out what is left after all claims: above dues, to whoever can use it.

    Only dues kept these gangs from starting, so up to the ceilings room is all they need.
    """
    kept_by_due = _borrowers(session)
    if not kept_by_due:
        return
    session.round = Round.BORROW
    _hand_out(session, _contenders(session, kept_by_due))
    session.round = Round.DEFAULT
    for gang in kept_by_due:
        if not gang.committed:
            # Nobody has to leave for it, whatever else it lacks: that is for people to know.
            gang.blocked = gang.blocked or QUEUE_HAS_ENOUGH


def _borrowers(session: Session) -> list[GangState]:
    """List the gangs that only dues keep from starting, and for whose members there are places.

    Seen cheaply: in a full cluster nobody is tried again.
    """
    idle, places = session.capacity.idle, session.places
    ranks = idle.argsort(axis=0)
    ranked = np.take_along_axis(idle, ranks, axis=0)

    @cache
    def slots(shape: Shape) -> int:
        """Count its places, looking only at nodes that have enough of what it finds least of."""
        need = session.capacity.need(shape)
        if need is None:
            return 0
        asked = need.nonzero()[0].tolist()
        firsts = [int(ranked[:, each].searchsorted(need[each])) for each in asked]
        first = max(firsts, default=0)
        if first == len(idle):
            return 0
        rows = ranks[first:, asked[firsts.index(first)]] if first else slice(None)
        return int(places.count(idle, shape, rows).sum())

    def has_places(gang: GangState) -> bool:
        shapes = {run[0].shape for run in session.waiting_runs(gang)}
        return sum(map(slots, shapes)) >= max(1, session.opinions.missing_members(gang))

    contenders = session.accounting.contenders.values()
    return [gang for gang in contenders if _may_borrow(gang) and has_places(gang)]


def _may_borrow(gang: GangState) -> bool:
    """Ask whether only its queue's due kept *gang* from starting."""
    problem = gang.blocked
    if problem is None or problem.reason is not Reason.QUEUE_OVER_DESERVED:
        return False
    return not gang.evicted  # what it gives back is not lent to it again in the same breath


def _contenders(session: Session, gangs: Iterable[GangState]) -> list[GangState]:
    contenders = []
    for gang in gangs:
        if "enqueue" not in session.policy.actions:
            gang.enqueue()
        given = len(gang.placed) + len(gang.pipelined)
        if gang.is_pending or given == len(gang.gang.waiting):
            continue
        problem = session.opinions.invalid_reason(gang)
        if problem is not None:
            gang.blocked = problem
            continue
        gang.runs = _worth_a_node(gang, session.waiting_runs(gang))
        if gang.runs:
            contenders.append(gang)
    return contenders


def _serve_starving(session: Session, contenders: list[GangState]) -> set[str]:
    """Let the gangs that waited longest go first, or keep room for them.

    Room is kept against everybody only for a gang within its queue's due. One that would exceed
    it gets its turn with the rest; until then nobody of its own queue may pass it, and the names
    of such queues are given back. Only who is served counts towards how many there may be.
    """
    held: set[str] = set()
    served = set(session.fenced)
    for gang in starving_longest(session, contenders):
        if len(served | {gang.key}) > session.policy.starvation.gangs:
            continue
        demand = Demand(gang, needed_pods(session, gang))
        if not demand.pods:
            continue
        preferred = may_be_preferred(session, demand)
        with without_its_reservation(session, gang):
            started = preferred and _take_turn(session, gang, alone=False)
        gang.runs = _worth_a_node(gang, session.waiting_runs(gang))
        if started or gang.pipelined or gang.key in session.fenced:
            served.add(gang.key)
            continue
        if session.occupied(gang, demand.total) is not None:
            continue  # no room would help it before its own queue's pods are gone
        entitled = session.opinions.is_entitled(gang, demand.total)
        if preferred or (session.round is Round.OVERSHOOT and entitled):
            if reserve_for_starving(session, demand):
                served.add(gang.key)
        elif entitled:
            held.add(gang.queue.name)
            served.add(gang.key)
    return held


def _worth_a_node(gang: GangState, runs: list[list[Pod]]) -> list[list[Pod]]:
    """Leave members that count without a node to backfill."""
    return [run for run in runs if run[0] not in gang.empty] if gang.empty else runs


def _hand_out(session: Session, contenders: Iterable[GangState]) -> None:
    turns = gang_order(session, [gang for gang in contenders if _may_have_a_turn(session, gang)])
    for gang in turns:
        if session.opinions.is_overused(gang.queue) and not _is_covered(session, gang):
            for each in (gang, *turns.drop(gang.queue)):
                if _is_covered(session, each):
                    turns.push(each)
                else:
                    each.blocked = each.blocked or QUEUE_HAS_ENOUGH
            continue
        alone = turns.is_over and session.opinions.limit_every_task
        if _take_turn(session, gang, alone=alone) and gang.runs:
            turns.push(gang)


def _is_covered(session: Session, gang: GangState) -> bool:
    """Ask whether its namespace has less of the queue than at least, whatever the others use."""
    return bool(session.opinions.within_guarantee(gang, gang.runs[0][0].requests))


def _may_have_a_turn(session: Session, gang: GangState) -> bool:
    """Leave out who has everything, waits for room already, or has room kept for it."""
    waits = (
        gang.pipelined
        and session.rules.reserved_gangs_wait
        and session.opinions.missing_members(gang)
    )
    return bool(gang.runs) and not waits and gang.key not in session.fenced


def _take_turn(session: Session, gang: GangState, *, alone: bool) -> bool:
    """Try *gang*; True when it may start (or grow)."""
    gang.blocked = None
    lacking = session.opinions.missing_members(gang)
    allowed = session.opinions.allowed_pods(gang, gang.runs[0][0].shape)
    if _is_hopeless(session, gang, lacking, allowed):
        return False
    runs, occupied = list(gang.runs), None
    with session.capacity.trial(gang) as trial:
        _place(session, gang, allowed, alone=alone)
        if session.opinions.is_ready(gang):
            occupied = session.occupied(gang)
            if occupied is None:
                gang.commit()
                trial.keep()
                return True
        elif session.opinions.is_pipelined(gang):
            trial.keep()
    if occupied is not None and alone:
        gang.runs = runs  # not all at once, then; one by one some may start
        return _take_turn(session, gang, alone=False)
    gang.blocked = occupied or gang.blocked
    return False


def _is_hopeless(session: Session, gang: GangState, lacking: int, allowed: int | Problem) -> bool:
    """See cheaply that a gang of identical members cannot find room for its minimum."""
    if lacking <= 1 or len(gang.runs) > 1 or not session.opinions.checks_pipelining:
        return False  # where nobody minds, a gang keeps even a part of its room until the end
    if isinstance(allowed, Problem):
        gang.blocked = allowed
        return True
    if allowed < lacking:
        gang.blocked = QUEUE_HAS_ENOUGH
        return True
    slots = session.places.ranking(gang.runs[0][0].shape)
    return slots.free < lacking and not session.capacity.anything_coming


def _place(session: Session, gang: GangState, first_allowed: int | Problem, *, alone: bool) -> None:
    """Give members nodes, in task order, until the gang is ready or cannot become it."""
    runs, allowed = gang.runs, first_allowed
    failed_roles: set[str] = set()
    while runs:
        run = runs.pop(0)
        if isinstance(allowed, Problem):
            gang.blocked = allowed
        elif not run[0].role or run[0].role not in failed_roles:
            is_growing = alone and session.opinions.is_ready(gang)
            wanted = len(run) if is_growing else max(1, session.opinions.missing_members(gang))
            count = _give_nodes(session, gang, run[: min(wanted, allowed)])
            if count < len(run) and count:
                runs.insert(0, run[count:])
            if count and session.opinions.is_ready(gang) and not alone:
                break
            if not count:
                failed_roles.add(run[0].role)
                if not _may_go_on(gang, failed_roles):
                    break
        if runs:
            allowed = session.opinions.allowed_pods(gang, runs[0][0].shape)


def _give_nodes(session: Session, gang: GangState, pods: list[Pod]) -> int:
    """Give *pods* of one shape idle rows, as many as are found at once, or pipeline one of them."""
    slots = session.places.ranking(pods[0].shape)
    nominated = session.snapshot.nodes.facts.index.get(pods[0].nominated, -1)
    if nominated >= 0 and slots.fits(nominated):
        session.capacity.place(gang, pods[:1], [nominated])
        return 1
    rows = slots.best(len(pods))
    if rows:
        session.capacity.place(gang, pods[: len(rows)], rows)
        return len(rows)
    row = nominated if nominated >= 0 and slots.fits(nominated, coming=True) else None
    row = slots.best_releasing() if row is None else row
    if row is None:
        return 0
    session.capacity.pipeline(gang, pods[0], row)
    return 1


def _may_go_on(gang: GangState, failed_roles: set[str]) -> bool:
    """Ask whether the gang can still become ready after members of *failed_roles* found no node."""
    if gang.min_member >= len(gang.gang.pods):
        return False
    if any(gang.gang.group.min_by_role.values()) and not gang.role_minima:
        left = sum(pod.role not in failed_roles for pod in gang.gang.waiting) - len(gang.placed)
        return gang.ready + left >= gang.min_member
    have = gang.ready_by_role
    return all(have.get(role, 0) >= gang.role_minima.get(role, 0) for role in failed_roles)
