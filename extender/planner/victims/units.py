"""Who can leave without tearing a gang: surplus members one by one, or gangs whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from extender.model.node import Amounts
from extender.model.pod import SCHEDULED_SET, Pod, PodUid, Shape, Status
from extender.planner.free_capacity import PlannedEviction, Rows, uncounted
from extender.planner.node_ranking import pods_that_fit
from extender.planner.plugin import VictimCandidate
from extender.planner.session import Demand, Session
from extender.planner.state import GangState
from extender.planner.victims.candidates import running_pods, staying

#: Looking at more gangs than this does not make the choice noticeably better.
_MOST_GANGS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Pods that leave together."""

    members: tuple[VictimCandidate, ...]
    #: Their place among those who might leave; the first should go first.
    rank: int
    #: Nothing of the gang is left on nodes when they are gone.
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
    """Count the members of each role that depend on no promise, if *gang* needs any role."""
    if not gang.role_minima:
        return Counter()
    if gang.evicted:
        return _firm(gang.gang.pods, gang.evicted)
    return gang.gang.memo.recall("firm by role", lambda: _firm(gang.gang.pods, ()))


def _firm(pods: Iterable[Pod], gone: Container[PodUid]) -> Counter[str]:
    firm = SCHEDULED_SET | {Status.SUCCEEDED}
    return Counter(pod.role for pod in pods if pod.status in firm and pod.uid not in gone)


def _stands(gang: GangState) -> bool:
    """Ask whether *gang* has its minimum on nodes, whatever this cycle gave it."""
    have = bound_by_role(gang)
    return gang.bound_or_done >= gang.min_member and all(
        have[role] >= least for role, least in gang.role_minima.items()
    )


class Units:
    """The units that may be asked to leave for a demand, as things stand in the trial."""

    def __init__(
        self,
        session: Session,
        action: str,
        demand: Demand,
        pool: Callable[[GangState], bool] | None,
    ) -> None:
        self._session = session
        self._occupants = running_pods(session)
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
        """List the gangs that may lose members, the least important first."""
        return [members[0].gang for members in self._members.values()]

    def all_members(self) -> Iterator[Unit]:
        """Give all members that may be asked, each gang as one unit."""
        for key, members in self._members.items():
            known = self._wholes.get((key, 0))
            if known is None or len(known.members) < len(members):
                known = Unit(tuple(members), self._ranks[key])
            yield known

    def single(self, one: VictimCandidate) -> Unit:
        """Give the unit of one surplus member."""
        known = self._singles.get(one.pod.uid)
        if known is None:
            known = self._singles[one.pod.uid] = Unit((one,), self._ranks[one.gang.key])
        return known

    def frees(self, unit: Unit) -> tuple[Rows, Amounts]:
        """Give what *unit* frees by leaving: rows, and a line of amounts for each."""
        freed = self._freed.get(unit)
        if freed is None:
            freed = self._freed[unit] = self._frees(unit)
        return freed

    def _frees(self, unit: Unit) -> tuple[Rows, Amounts]:
        # The same gang is weighed for one claim after the other.
        known = self._occupants.frees
        key = tuple([one.pod.uid for one in unit.members])
        if key not in known:
            known[key] = self.added_up(unit.members)
        return known[key]

    def added_up(self, members: Sequence[VictimCandidate]) -> tuple[Rows, Amounts]:
        """Give what *members* free together, with sorted rows."""
        room = self._session.capacity
        if len(members) == 1:
            return np.array([members[0].row], dtype=np.intp), room.row(members[0].pod.shape)[None]
        alike: dict[Shape, list[int]] = {}
        for one in members:
            alike.setdefault(one.pod.shape, []).append(one.row)
        rows = np.unique(np.concatenate([np.array(each, dtype=np.intp) for each in alike.values()]))
        amounts = np.zeros((len(rows), room.row(members[0].pod.shape).size), dtype=np.int64)
        for shape, each in alike.items():
            there = np.bincount(np.searchsorted(rows, each), minlength=len(rows))
            amounts += there[:, None] * room.row(shape)
        return rows, amounts

    def surplus(self, gang: GangState) -> list[VictimCandidate]:
        """List the members of which *gang* can lose some, the least important first."""
        if self._is_busy(gang) or gang.bound_or_done <= gang.min_member:
            return []
        have, minima = bound_by_role(gang), gang.role_minima
        return [
            one
            for one in self._left(gang)
            if not minima or have[one.pod.role] > minima.get(one.pod.role, 0)
        ]

    def whole(self, gang: GangState) -> Unit | None:
        """Give all that is left of *gang*, if all of it may leave."""
        left = self._left(gang)
        present = gang.gang.on_nodes - len(gang.evicted)
        is_ours = gang is self._demand.gang
        if is_ours or self._is_busy(gang) or not left or len(left) < present:
            return None
        key = (gang.key, len(gang.evicted))
        known = self._wholes.get(key)
        if known is None:
            known = Unit(tuple(left), self._ranks[gang.key], is_whole=True)
            self._wholes[key] = known
        return known

    def rest(self, whole: Unit, gone: Container[PodUid]) -> Unit | None:
        """Give what is left of a *whole* gang without those who are *gone* since."""
        left: list[VictimCandidate] = []
        left_out: list[VictimCandidate] = []
        for one in whole.members:
            (left_out if one.pod.uid in gone else left).append(one)
        if not left:
            return None
        rows, amounts = self.frees(whole)
        amounts = amounts.copy()
        for one in left_out:
            amounts[np.searchsorted(rows, one.row)] -= self._session.capacity.row(one.pod.shape)
        stays = amounts.any(axis=1)
        known = Unit(tuple(left), whole.rank, is_whole=True)
        self._freed[known] = (rows[stays], amounts[stays])
        self._wholes[whole.gang.key, len(whole.gang.evicted)] = known
        return known

    def all(self) -> Iterator[Unit]:
        """Give every unit there is, the least important gangs first."""
        for gang in self.gangs:
            yield from map(self.single, self.surplus(gang))
            whole = self.whole(gang)
            if whole is not None:
                yield whole

    def may_go(self, units: Sequence[Unit]) -> bool:
        """Ask the plugins, as things stand now, whether all of *units* may leave."""
        members = [one for unit in units for one in unit.members]
        claim, opinions = self._demand.preemptor, self._session.plugins
        with self._without_gifts(members):
            leaving = opinions.allowed_victims(self._action, claim, members) if members else ()
        if len(leaving) < len(members):
            return False
        return self._action != "reclaim" or not self._would_come_back(members)

    def _would_come_back(self, members: Sequence[VictimCandidate]) -> bool:
        """Ask whether somebody who left for the demand could start again at once, within its due.

        A queue may have to give so much that it ends below its due. If what it gave fits into
        that again, it would take the room back, and be asked for it again, for ever.
        """
        session, room = self._session, self._session.capacity
        with room.trial():
            for one in members:
                room.evict(one.eviction(self._action, self._demand.gang))
            left = [each for each in room.evictions if each.beneficiary is self._demand.gang]
            ours = self._demand.gang.queue
            with self._without_gifts(left):
                return any(
                    session.fits_deserved(gang, only_limits=gang.queue is ours)
                    for gang in {d.gang.key: d.gang for d in left}.values()
                )

    def _without_gifts(
        self, leaving: Iterable[VictimCandidate | PlannedEviction]
    ) -> AbstractContextManager[None]:
        """Count as it will be: who loses members loses what this cycle gave it, too."""
        gangs = {one.gang.key: one.gang for one in leaving if one.gang is not self._demand.gang}
        return uncounted(gangs.values())

    def _is_busy(self, gang: GangState) -> bool:
        """Ask whether this cycle has given *gang* what it needs to stand, or others leave for it.

        Then it takes nothing away.
        """
        if gang is self._demand.gang or not (gang.placed or gang.pipelined):
            return False
        return gang.key in self._occupants.claimants or not _stands(gang)

    def _left(self, gang: GangState) -> list[VictimCandidate]:
        return staying(gang, self._members[gang.key])

    def _find(self, pool: Callable[[GangState], bool] | None) -> dict[str, list[VictimCandidate]]:
        """List who might be asked, by gang, the first to go first."""
        found: dict[str, list[VictimCandidate]] = {}
        # A claimant without requests displaces only its like.
        empty = self._session.is_best_effort(self._demand.pods[0].shape)
        others = 0
        for rank, gang in enumerate(self._in_order(pool)):
            # What plugins say of each is asked when somebody is chosen: asking all takes longer.
            members = self._occupants.evictable(gang, bound=self._action == "preempt", empty=empty)
            helps = pool is None or self._helps(gang)
            if members and (helps or others < _MOST_GANGS):
                self._ranks[gang.key] = rank
                found[gang.key] = members
                others += not helps
            if len(found) - others == _MOST_GANGS:
                break
        return found

    def _helps(self, gang: GangState) -> bool:
        """Ask whether somebody of *gang* is where the demand could go."""
        return self._rows is None or not self._rows.isdisjoint(self._occupants.rows_of(gang))

    def _gives(self, gang: GangState) -> bool:
        """Ask whether anything is gained if somebody of *gang* leaves: its queue may be full."""
        is_ours = gang.queue is self._demand.gang.queue
        return (is_ours and not self._is_allowed) or self._helps(gang)

    @cached_property
    def _is_allowed(self) -> bool:
        return self._demand.is_allowed(self._session)

    @cached_property
    def _rows(self) -> frozenset[int] | None:
        """Give the rows on which a pod of the demand could be, were they empty; None for all."""
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
        claim, ours = self._demand.preemptor, self._demand.gang.queue

        def is_spared(gang: GangState) -> bool:
            return self._session.plugins.protect(self._action, claim, gang)

        def is_asked(gang: GangState) -> bool:
            return pool(gang) and self._gives(gang)

        gangs = self._occupants.eviction_order(is_spared, is_asked, self._helps)
        if not self._session.plugins.prefer_relatives:
            return gangs
        return sorted(gangs, key=lambda g: self._session.plugins.victim_queue_order(g.queue, ours))
