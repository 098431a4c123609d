"""Units of eviction that keep gangs whole: surplus members one by one, or whole gangs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from extender.model.node import Amounts
from extender.model.pod import SCHEDULED_SET, Pod, PodUid, Shape, Status
from extender.planner.free_capacity import PlannedEviction, Rows
from extender.planner.node_ranking import pods_that_fit
from extender.planner.plugin import VictimCandidate
from extender.planner.session import Demand, Session
from extender.planner.state import GangState
from extender.planner.victims.candidates import RunningPods, staying

#: More gangs than this do not make the choice noticeably better.
_MOST_GANGS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Pods that are evicted together."""

    members: tuple[VictimCandidate, ...]
    #: The rank of their gang among the candidates; the lowest is evicted first.
    rank: int
    #: No member of the gang remains on a node after the eviction.
    is_whole: bool = False

    @property
    def gang(self) -> GangState:
        """The gang that loses them."""
        return self.members[0].gang


def by_gang(units: Iterable[Unit]) -> dict[str, list[Unit]]:
    """Group *units* by the gang that loses them."""
    groups: dict[str, list[Unit]] = {}
    for unit in units:
        groups.setdefault(unit.gang.key, []).append(unit)
    return groups


def bound_by_role(gang: GangState) -> Counter[str]:
    """Count the members of each role without reservations, if *gang* has minima for roles."""
    if not gang.role_minima:
        return Counter()
    if gang.evicted:
        return _bound(gang.gang.pods, gang.evicted)
    return gang.gang.memo.recall("bound by role", lambda: _bound(gang.gang.pods, ()))


def _bound(pods: Iterable[Pod], gone: Container[PodUid]) -> Counter[str]:
    counted = SCHEDULED_SET | {Status.SUCCEEDED}
    return Counter(pod.role for pod in pods if pod.status in counted and pod.uid not in gone)


def _has_minimum(gang: GangState) -> bool:
    """Return whether *gang* has its minimum on nodes without what this cycle gave it."""
    have = bound_by_role(gang)
    return gang.bound_or_done >= gang.min_member and all(
        have[role] >= least for role, least in gang.role_minima.items()
    )


class Units:
    """The units that may be evicted for a demand, in the current state of the trial."""

    def __init__(
        self,
        session: Session,
        action: str,
        demand: Demand,
        pool: Callable[[GangState], bool] | None,
    ) -> None:
        self._session = session
        self._running = session.once(RunningPods)
        self._action = action
        self._demand = demand
        self._ranks: dict[str, int] = {}
        self._singles: dict[PodUid, Unit] = {}
        self._wholes: dict[tuple[str, int], Unit] = {}
        self._freed: dict[Unit, tuple[Rows, Amounts]] = {}
        self._members = self._find(pool)

    def __bool__(self) -> bool:
        return bool(self._members)

    @property
    def gangs(self) -> list[GangState]:
        """Return the gangs that may lose members, the least important first."""
        return [members[0].gang for members in self._members.values()]

    def all_members(self) -> Iterator[Unit]:
        """Yield all members that may be evicted, each gang as one unit."""
        for key, members in self._members.items():
            known = self._wholes.get((key, 0))
            if known is None or len(known.members) < len(members):
                known = Unit(tuple(members), self._ranks[key])
            yield known

    def single(self, one: VictimCandidate) -> Unit:
        """Return the unit of one surplus member."""
        known = self._singles.get(one.pod.uid)
        if known is None:
            known = self._singles[one.pod.uid] = Unit((one,), self._ranks[one.gang.key])
        return known

    def frees(self, unit: Unit) -> tuple[Rows, Amounts]:
        """Return what evicting *unit* frees: rows, and the amounts for each."""
        freed = self._freed.get(unit)
        if freed is None:
            freed = self._freed[unit] = self._frees(unit)
        return freed

    def _frees(self, unit: Unit) -> tuple[Rows, Amounts]:
        # The same gang is examined for many demands.
        known = self._running.frees
        key = tuple([one.pod.uid for one in unit.members])
        if key not in known:
            known[key] = self.added_up(unit.members)
        return known[key]

    def added_up(self, members: Sequence[VictimCandidate]) -> tuple[Rows, Amounts]:
        """Return what *members* free together, with sorted rows."""
        capacity = self._session.capacity
        if len(members) == 1:
            row = np.array([members[0].row], dtype=np.intp)
            return row, capacity.row(members[0].pod.shape)[None]
        alike: dict[Shape, list[int]] = {}
        for one in members:
            alike.setdefault(one.pod.shape, []).append(one.row)
        rows = np.unique(np.concatenate([np.array(each, dtype=np.intp) for each in alike.values()]))
        amounts = np.zeros((len(rows), capacity.row(members[0].pod.shape).size), dtype=np.int64)
        for shape, each in alike.items():
            there = np.bincount(np.searchsorted(rows, each), minlength=len(rows))
            amounts += there[:, None] * capacity.row(shape)
        return rows, amounts

    def surplus(self, gang: GangState) -> list[VictimCandidate]:
        """Return the members of which *gang* can lose some, the least important first."""
        if self._is_busy(gang) or gang.bound_or_done <= gang.min_member:
            return []
        have, minima = bound_by_role(gang), gang.role_minima
        return [
            one
            for one in self._remaining(gang)
            if not minima or have[one.pod.role] > minima.get(one.pod.role, 0)
        ]

    def whole(self, gang: GangState) -> Unit | None:
        """Return the remaining members of *gang* as a unit, if all of them may be evicted."""
        left = self._remaining(gang)
        present = gang.gang.on_nodes - len(gang.evicted)
        is_own = gang is self._demand.gang
        if is_own or self._is_busy(gang) or not left or len(left) < present:
            return None
        key = (gang.key, len(gang.evicted))
        known = self._wholes.get(key)
        if known is None:
            known = Unit(tuple(left), self._ranks[gang.key], is_whole=True)
            self._wholes[key] = known
        return known

    def rest(self, whole: Unit, gone: Container[PodUid]) -> Unit | None:
        """Return the unit of a *whole* gang without the members that are *gone* since."""
        left: list[VictimCandidate] = []
        removed: list[VictimCandidate] = []
        for one in whole.members:
            (removed if one.pod.uid in gone else left).append(one)
        if not left:
            return None
        rows, amounts = self.frees(whole)
        amounts = amounts.copy()
        for one in removed:
            amounts[np.searchsorted(rows, one.row)] -= self._session.capacity.row(one.pod.shape)
        stays = amounts.any(axis=1)
        known = Unit(tuple(left), whole.rank, is_whole=True)
        self._freed[known] = (rows[stays], amounts[stays])
        self._wholes[whole.gang.key, len(whole.gang.evicted)] = known
        return known

    def all(self) -> Iterator[Unit]:
        """Yield every unit, the least important gangs first."""
        for gang in self.gangs:
            yield from map(self.single, self.surplus(gang))
            whole = self.whole(gang)
            if whole is not None:
                yield whole

    def may_go(self, units: Sequence[Unit]) -> bool:
        """Return whether the plugins now allow to evict all of *units*."""
        members = [one for unit in units for one in unit.members]
        claim, opinions = self._demand.preemptor, self._session.plugins
        with self._without_new_placements(members):
            allowed = opinions.allowed_victims(self._action, claim, members) if members else ()
        if len(allowed) < len(members):
            return False
        return self._action != "reclaim" or not self._would_come_back(members)

    def _would_come_back(self, members: Sequence[VictimCandidate]) -> bool:
        """Return whether a victim could start again at once, within its deserved share.

        A queue may lose so much that it ends below its deserved share. If what it lost fits into
        the share again, its gangs would start again and be evicted again, for ever.
        """
        session, capacity = self._session, self._session.capacity
        with capacity.trial():
            for one in members:
                capacity.evict(one.eviction(self._action, self._demand.gang))
            evicted = [each for each in capacity.evictions if each.beneficiary is self._demand.gang]
            own = self._demand.gang.queue
            with self._without_new_placements(evicted):
                return any(
                    session.fits_deserved(gang, only_limits=gang.queue is own)
                    for gang in {each.gang.key: each.gang for each in evicted}.values()
                )

    def _without_new_placements(
        self, victims: Iterable[VictimCandidate | PlannedEviction]
    ) -> AbstractContextManager[None]:
        """Do not count what this cycle placed for gangs of *victims*: they lose that too."""
        gangs = {one.gang.key: one.gang for one in victims if one.gang is not self._demand.gang}
        return self._session.capacity.uncounted(gangs.values())

    def _is_busy(self, gang: GangState) -> bool:
        """Return whether *gang* needs what this cycle gave it, or has victims in this cycle.

        Such a gang loses no members.
        """
        if gang is self._demand.gang or not (gang.placed or gang.pipelined):
            return False
        return gang.key in self._running.preemptors or not _has_minimum(gang)

    def _remaining(self, gang: GangState) -> list[VictimCandidate]:
        return staying(gang, self._members[gang.key])

    def _find(self, pool: Callable[[GangState], bool] | None) -> dict[str, list[VictimCandidate]]:
        """Return the members that may be evicted, by gang, the first victims first."""
        found: dict[str, list[VictimCandidate]] = {}
        # A demand without requests only evicts pods without requests.
        empty = self._session.is_best_effort(self._demand.pods[0].shape)
        others = 0
        for rank, gang in enumerate(self._in_order(pool)):
            # Plugins are called when a victim is chosen: calling them for all members takes longer.
            members = self._running.evictable(gang, bound=self._action == "preempt", empty=empty)
            helps = pool is None or self._helps(gang)
            if members and (helps or others < _MOST_GANGS):
                self._ranks[gang.key] = rank
                found[gang.key] = members
                others += not helps
            if len(found) - others == _MOST_GANGS:
                break
        return found

    def _helps(self, gang: GangState) -> bool:
        """Return whether a member of *gang* is on a node that the demand could use."""
        return self._rows is None or not self._rows.isdisjoint(self._running.rows_of(gang))

    def _gives(self, gang: GangState) -> bool:
        """Return whether evicting members of *gang* gains anything: nodes, or its full queue."""
        is_own = gang.queue is self._demand.gang.queue
        return (is_own and not self._is_allowed) or self._helps(gang)

    @cached_property
    def _is_allowed(self) -> bool:
        return self._demand.is_allowed(self._session)

    @cached_property
    def _rows(self) -> frozenset[int] | None:
        """The rows that a pod of the demand fits when they are empty; None for all."""
        session = self._session
        whole = session.snapshot.nodes.allocatable
        mask = np.zeros(len(whole), dtype=bool)
        for shape in self._demand.by_shape:
            need = session.capacity.need(shape)
            if need is not None:
                mask |= session.nodes.usable(shape) & (pods_that_fit(whole, need) > 0)
        return None if mask.all() else frozenset(np.flatnonzero(mask).tolist())

    def _in_order(self, pool: Callable[[GangState], bool] | None) -> Iterable[GangState]:
        if pool is None:
            return [self._demand.gang]
        claim, own = self._demand.preemptor, self._demand.gang.queue

        def is_protected(gang: GangState) -> bool:
            return self._session.plugins.protect(self._action, claim, gang)

        def is_eligible(gang: GangState) -> bool:
            return pool(gang) and self._gives(gang)

        gangs = self._running.eviction_order(is_protected, is_eligible, self._helps)
        if not self._session.plugins.prefer_relatives:
            return gangs
        return sorted(gangs, key=lambda g: self._session.plugins.victim_queue_order(g.queue, own))
