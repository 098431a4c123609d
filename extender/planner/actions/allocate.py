"""allocate: place waiting gangs in free capacity, each as a whole or not at all.

The search for a gang ends when its minimum has nodes: then the gang may start. If part of the
capacity is still being released, the gang keeps its reservation but does not start. Otherwise the
search leaves nothing behind. Members beyond the minimum are placed one at a time, so that gangs
grow in step with their shares.
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
from extender.planner.session import Session
from extender.planner.starvation import (
    hold_for_starving,
    may_be_preferred,
    starving_longest,
    without_its_hold,
)
from extender.planner.state import GangState, QueueUsage


def gang_order(session: Session, gangs: Iterable[GangState]) -> GangOrder | NamespaceOrder:
    """Return *gangs* in order, by namespace first where a plugin orders namespaces."""
    if session.plugins.order_namespaces:
        return NamespaceOrder(session, gangs)
    return GangOrder(session, gangs, queues_interact=session.queues_interact)


class GangOrder:
    """Queues in order, and the gangs of each in order, computed again at every step."""

    def __init__(
        self, session: Session, gangs: Iterable[GangState], *, queues_interact: bool
    ) -> None:
        """With *queues_interact*, what one queue is given may change the order of others."""
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
        """Yield gangs one by one; the next is chosen only when it is requested."""
        while self._queues:
            key, queue = heappop(self._queues)
            gangs = self._gangs[queue.name]
            if not gangs:
                continue
            if self._queues_interact:
                now = self._session.queue_key(queue)
                if now != key:
                    # Other queues moved it down since it was pushed: choose the first again.
                    heappush(self._queues, (now, queue))
                    continue
            yield heappop(gangs)[1]
            heappush(self._queues, (self._session.queue_key(queue), queue))

    def push(self, gang: GangState) -> None:
        """Put *gang* back to be placed again."""
        heappush(self._gangs[gang.queue.name], (self._session.gang_key(gang), gang))

    def drop(self, queue: QueueUsage) -> list[GangState]:
        """Remove the remaining gangs of *queue* and return them."""
        dropped = [gang for _, gang in self._gangs.get(queue.name, ())]
        self._gangs[queue.name] = []
        return dropped

    @property
    def is_over(self) -> bool:
        """Return whether no gang is left."""
        return not any(self._gangs.values())


class NamespaceOrder:
    """Namespaces in order first, as in Volcano until 1.7; the order within each is as usual."""

    def __init__(self, session: Session, gangs: Iterable[GangState]) -> None:
        self._session = session
        here: dict[str, list[GangState]] = {}
        for gang in gangs:
            here.setdefault(gang.gang.group.namespace, []).append(gang)
        # What one namespace is given changes the order of the queues of all.
        self._orders = {
            name: GangOrder(session, gangs, queues_interact=True) for name, gangs in here.items()
        }

    def __iter__(self) -> Iterator[GangState]:
        """Yield gangs one by one; the next is chosen only when it is requested."""
        waiting = {name: iter(order) for name, order in self._orders.items()}
        keys = {name: self._session.namespace_key(name) for name in waiting}
        while keys:
            first = min(keys, key=keys.__getitem__)
            gang = next(waiting[first], None)
            if gang is None:
                del keys[first]
                continue
            yield gang
            keys[first] = self._session.namespace_key(first)

    def push(self, gang: GangState) -> None:
        """Put *gang* back to be placed again."""
        self._orders[gang.gang.group.namespace].push(gang)

    def drop(self, queue: QueueUsage) -> list[GangState]:
        """Remove the remaining gangs of *queue* and return them."""
        return [gang for order in self._orders.values() for gang in order.drop(queue)]

    @property
    def is_over(self) -> bool:
        """Return whether no gang is left."""
        return all(order.is_over for order in self._orders.values())


#: The verdict adds the figures.
QUEUE_HAS_ENOUGH = Problem(Reason.QUEUE_OVER_DESERVED, "")


def allocate(session: Session) -> None:
    """Place gangs in free capacity: first within the deserved amounts, then in what is left."""
    _complete_partial(session)
    rounds = (Round.DESERVED, Round.OVERSHOOT) if session.rules.may_overshoot else (Round.DESERVED,)
    for current in rounds:
        with session.in_round(current):
            gangs = _prepare(session, session.accounting.contenders.values())
            waiting = _place_starving(session, gangs)
            _place_in_order(session, [gang for gang in gangs if gang.queue.name not in waiting])


def _complete_partial(session: Session) -> None:
    """Place partial gangs first: up to their minimum, and up to the ceilings.

    Neither their order nor the deserved amount of their queue keeps them waiting. What they use is
    of no use without the rest, and they did not cause the interruption.
    """
    if not session.snapshot.partial_gangs or not session.rules.partial_gangs_are_first:
        return
    contenders = session.accounting.contenders
    partial = [contenders[key] for key in session.snapshot.partial_gangs if key in contenders]
    for gang in partial:
        gang.enqueue()
    with session.in_round(Round.BORROW):
        for gang in sorted(_prepare(session, partial), key=session.gang_key):
            if session.plugins.missing_members(gang):
                _try(session, gang, is_last=False)


def borrow(session: Session) -> None:
    """Place gangs above deserved amounts, in what is left after all other actions.

    Only deserved amounts kept these gangs from starting, so up to the ceilings they lack
    nothing but capacity.
    """
    borrowers = _borrowers(session)
    if not borrowers:
        return
    with session.in_round(Round.BORROW):
        _place_in_order(session, _prepare(session, borrowers))
    for gang in borrowers:
        if not gang.committed:
            # No pod is evicted for it, whatever else it lacks; the verdict says so.
            gang.blocked = gang.blocked or QUEUE_HAS_ENOUGH


def _borrowers(session: Session) -> list[GangState]:
    """Return the gangs that only deserved amounts keep from starting and that could find slots.

    The check is cheap: in a full cluster no gang is tried again.
    """
    free, nodes = session.capacity.free, session.nodes
    ranks = free.argsort(axis=0)
    ranked = np.take_along_axis(free, ranks, axis=0)

    @cache
    def slots(shape: Shape) -> int:
        """Count its slots, looking only at nodes with enough of its scarcest resource."""
        need = session.capacity.need(shape)
        if need is None:
            return 0
        requested = need.nonzero()[0].tolist()
        firsts = [int(ranked[:, each].searchsorted(need[each])) for each in requested]
        first = max(firsts, default=0)
        if first == len(free):
            return 0
        rows = ranks[first:, requested[firsts.index(first)]] if first else slice(None)
        return int(nodes.count(free, shape, rows).sum())

    def has_slots(gang: GangState) -> bool:
        shapes = {run[0].shape for run in session.waiting_runs(gang)}
        return sum(map(slots, shapes)) >= max(1, session.plugins.missing_members(gang))

    contenders = session.accounting.contenders.values()
    return [gang for gang in contenders if _may_borrow(gang) and has_slots(gang)]


def _may_borrow(gang: GangState) -> bool:
    """Return whether only the deserved amount of its queue kept *gang* from starting."""
    problem = gang.blocked
    if problem is None or problem.reason is not Reason.QUEUE_OVER_DESERVED:
        return False
    return not gang.evicted  # it does not borrow at once what it has just released


def _prepare(session: Session, gangs: Iterable[GangState]) -> list[GangState]:
    """Split the waiting members of *gangs* into runs, or record why a gang cannot be placed.

    Return the gangs with runs.
    """
    prepared = []
    for gang in gangs:
        if "enqueue" not in session.policy.actions:
            gang.enqueue()
        placed = len(gang.placed) + len(gang.pipelined)
        if gang.is_pending or placed == len(gang.gang.waiting):
            continue
        problem = session.plugins.invalid_reason(gang)
        if problem is not None:
            gang.blocked = problem
            continue
        gang.runs = _needing_nodes(gang, session.waiting_runs(gang))
        if gang.runs:
            prepared.append(gang)
    return prepared


def _place_starving(session: Session, gangs: list[GangState]) -> set[str]:
    """Place the gangs that have waited longest first, or reserve capacity for them.

    Capacity is reserved against all queues only for a gang within its queue's deserved amount. A
    gang that would exceed it is placed in the usual order; until then no gang of its own queue may
    go before it. The names of such queues are returned. Only gangs served here count towards the
    number of reservations.
    """
    waiting: set[str] = set()
    served = set(session.holds)
    for gang in starving_longest(session, gangs):
        if len(served | {gang.key}) > session.policy.starvation.gangs:
            continue
        demand = session.demand(gang)
        if not demand.pods:
            continue
        preferred = may_be_preferred(session, demand)
        with without_its_hold(session, gang):
            started = preferred and _try(session, gang, is_last=False)
        gang.runs = _needing_nodes(gang, session.waiting_runs(gang))
        if started or gang.pipelined or gang.key in session.holds:
            served.add(gang.key)
            continue
        if session.blocked_by_terminating(gang, demand.total) is not None:
            continue  # capacity would not help it before terminating pods of its queue are gone
        entitled = session.plugins.is_entitled(gang, demand.total)
        if preferred or (session.round is Round.OVERSHOOT and entitled):
            if hold_for_starving(session, demand):
                served.add(gang.key)
        elif entitled:
            waiting.add(gang.queue.name)
            served.add(gang.key)
    return waiting


def _needing_nodes(gang: GangState, runs: list[list[Pod]]) -> list[list[Pod]]:
    """Leave members that count without a node to backfill."""
    return [run for run in runs if run[0] not in gang.best_effort] if gang.best_effort else runs


def _place_in_order(session: Session, gangs: Iterable[GangState]) -> None:
    order = gang_order(session, [gang for gang in gangs if _may_be_placed(session, gang)])
    for gang in order:
        if session.plugins.is_overused(gang.queue) and not _within_guarantee(session, gang):
            for each in (gang, *order.drop(gang.queue)):
                if _within_guarantee(session, each):
                    order.push(each)
                else:
                    each.blocked = each.blocked or QUEUE_HAS_ENOUGH
            continue
        is_last = order.is_over and session.plugins.limit_every_task
        if _try(session, gang, is_last=is_last) and gang.runs:
            order.push(gang)


def _within_guarantee(session: Session, gang: GangState) -> bool:
    """Return whether its namespace is below its guarantee, whatever the others in the queue use."""
    return bool(session.plugins.within_guarantee(gang, gang.runs[0][0].requests))


def _may_be_placed(session: Session, gang: GangState) -> bool:
    """Return whether *gang* lacks nodes, holds no reservation and waits for no release."""
    waits = (
        gang.pipelined
        and session.rules.reserved_gangs_wait
        and session.plugins.missing_members(gang)
    )
    return bool(gang.runs) and not waits and gang.key not in session.holds


def _try(session: Session, gang: GangState, *, is_last: bool) -> bool:
    """Try to place *gang*; return whether it may start, or grow."""
    gang.blocked = None
    missing = session.plugins.missing_members(gang)
    allowed = session.plugins.allowed_pods(gang, gang.runs[0][0].shape)
    if _refuse_early(session, gang, missing, allowed):
        return False
    runs, problem = list(gang.runs), None
    with session.capacity.trial(gang) as trial:
        _place(session, gang, allowed, is_last=is_last)
        if session.plugins.is_ready(gang):
            problem = session.blocked_by_terminating(gang)
            if problem is None:
                gang.commit()
                trial.keep()
                return True
        elif session.plugins.is_pipelined(gang):
            trial.keep()
    if problem is not None and is_last:
        gang.runs = runs  # all at once is not possible; one by one some may start
        return _try(session, gang, is_last=False)
    gang.blocked = problem or gang.blocked
    return False


def _refuse_early(session: Session, gang: GangState, missing: int, allowed: int | Problem) -> bool:
    """Refuse a gang of identical members that cannot place its minimum; a cheap check.

    Return whether it was refused, and record the limit of its queue as the reason.
    """
    if missing <= 1 or len(gang.runs) > 1 or not session.plugins.checks_pipelining:
        return False  # without such a plugin a gang keeps a partial reservation until the end
    if isinstance(allowed, Problem):
        gang.blocked = allowed
        return True
    if allowed < missing:
        gang.blocked = QUEUE_HAS_ENOUGH
        return True
    ranking = session.nodes.ranking(gang.runs[0][0].shape)
    return ranking.free < missing and not session.capacity.anything_releasing


def _place(
    session: Session, gang: GangState, first_allowed: int | Problem, *, is_last: bool
) -> None:
    """Place members, in task order, until the gang is ready or cannot become ready."""
    runs, allowed = gang.runs, first_allowed
    failed_roles: set[str] = set()
    while runs:
        run = runs.pop(0)
        if isinstance(allowed, Problem):
            gang.blocked = allowed
        elif not run[0].role or run[0].role not in failed_roles:
            is_growing = is_last and session.plugins.is_ready(gang)
            wanted = len(run) if is_growing else max(1, session.plugins.missing_members(gang))
            count = _place_run(session, gang, run[: min(wanted, allowed)])
            if count < len(run) and count:
                runs.insert(0, run[count:])
            if count and session.plugins.is_ready(gang) and not is_last:
                break
            if not count:
                failed_roles.add(run[0].role)
                if not _may_continue(gang, failed_roles):
                    break
        if runs:
            allowed = session.plugins.allowed_pods(gang, runs[0][0].shape)


def _place_run(session: Session, gang: GangState, pods: list[Pod]) -> int:
    """Place *pods* of one shape in free rows, as many as are found at once, or pipeline one."""
    ranking = session.nodes.ranking(pods[0].shape)
    nominated = session.snapshot.nodes.facts.index.get(pods[0].nominated, -1)
    if nominated >= 0 and ranking.fits(nominated):
        session.capacity.place(gang, pods[:1], [nominated])
        return 1
    rows = ranking.best(len(pods))
    if rows:
        session.capacity.place(gang, pods[: len(rows)], rows)
        return len(rows)
    row = nominated if nominated >= 0 and ranking.fits(nominated, releasing=True) else None
    row = ranking.best_releasing() if row is None else row
    if row is None:
        return 0
    session.capacity.pipeline(gang, pods[0], row)
    return 1


def _may_continue(gang: GangState, failed_roles: set[str]) -> bool:
    """Return whether the gang can become ready although members of *failed_roles* found no node."""
    if gang.min_member >= len(gang.gang.pods):
        return False
    if any(gang.gang.group.min_by_role.values()) and not gang.role_minima:
        left = sum(pod.role not in failed_roles for pod in gang.gang.waiting) - len(gang.placed)
        return gang.ready + left >= gang.min_member
    have = gang.ready_by_role
    return all(have.get(role, 0) >= gang.role_minima.get(role, 0) for role in failed_roles)
