"""Who sits where: the pods that could be asked to leave, by gang and by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import chain

from extender.model.budgets import budgets_of
from extender.model.gang import Gang, GangKey
from extender.model.node import Amounts
from extender.model.pod import SCHEDULED_SET, PodUid, Status
from extender.model.queue import share_name
from extender.model.resources import NOTHING, total
from extender.planner.extension_points import Key
from extender.planner.free_capacity import Rows
from extender.planner.plugin import VictimCandidate
from extender.planner.policy import Vector, excess
from extender.planner.session import Session, needed_pods
from extender.planner.state import GangState

_MOST_OF_A_GROUP = 24
#: Queue, priority, and the namespace where that has a share of its own.
Group = tuple[str, int, str]


def running_pods(session: Session) -> RunningPods:
    """Give the index of a session, made when the first action asks for it."""
    known = session.shared.get("occupants")
    if not isinstance(known, RunningPods):
        known = session.shared["occupants"] = RunningPods(session)
    return known


class RunningPods:
    """An index over everybody on a node."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_group: dict[Group, list[GangKey]] = {}
        self._by_row: dict[int, list[VictimCandidate]] | None = None
        self._orders: dict[GangKey, Key] = {}
        self._queue_orders: dict[str, Key] = {}
        self._members: dict[GangKey, list[VictimCandidate]] = {}
        self._rows: dict[GangKey, frozenset[int]] = {}
        #: What pods free that leave together, by who they are.
        self.frees: dict[tuple[PodUid, ...], tuple[Rows, Amounts]] = {}
        #: For whom room was made in this cycle, or held.
        self.claimants: set[GangKey] = set()
        self._sorted: dict[Group, list[GangState]] = {}
        self._leave: dict[GangKey, tuple[bool, bool]] = {}
        self._budgets = budgets_of(session.snapshot)
        self._askable: dict[tuple[GangKey, bool, bool], list[VictimCandidate]] = {}
        shares = session.accounting.shares
        for key, gang in session.snapshot.gangs.items():
            if gang.scheduled and gang.queue in session.queues:
                share = shares and share_name(gang.queue, gang.group.namespace) in shares
                group = (gang.queue, gang.priority, gang.group.namespace if share else "")
                self._by_group.setdefault(group, []).append(key)

    def eviction_order(
        self,
        spares: Callable[[GangState], bool],
        pool: Callable[[GangState], bool],
        helps: Callable[[GangState], bool],
    ) -> Iterator[GangState]:
        """Give the gangs of *pool* that nobody *spares*, whoever should leave first first.

        Gangs of one queue (or of a namespace's share in it) and priority are a group; *spares* is
        asked about one of each, and of each only the first ones are given: more of the same make
        no choice better. Those who help are counted by themselves, so that others do not hide them.
        """
        groups = [
            self._first_ones(group, pool, helps)
            for group, keys in self._by_group.items()
            if not spares(self.state(keys[0]))
        ]
        return merge(*groups, key=self.order, reverse=True)

    def _first_ones(
        self,
        group: Group,
        pool: Callable[[GangState], bool],
        helps: Callable[[GangState], bool],
    ) -> Iterator[GangState]:
        given = Counter[bool]()
        for gang in self._last_first(group):
            kind = helps(gang)
            if given[kind] < _MOST_OF_A_GROUP and pool(gang) and self._can_give(gang):
                given[kind] += 1
                yield gang
            elif given[True] == _MOST_OF_A_GROUP:
                return

    def _can_give(self, gang: GangState) -> bool:
        """Ask whether somebody of *gang* could leave, alone or all together.

        Those who cannot must not take the place of those who can among the first ones.
        """
        if gang.bound_or_done <= 0:
            return False
        alone, together = self._may_leave(gang.gang)
        return together or (alone and gang.bound_or_done > gang.min_member)

    def _may_leave(self, gang: Gang) -> tuple[bool, bool]:
        """Ask whether marks, reprieves and budgets let some of *gang* leave, and whether all."""
        known = self._leave.get(gang.key)
        if known is None:
            snapshot = self._session.snapshot
            if any(pod.uid in snapshot.protected for pod in gang.pods):
                known = self._weigh(gang)
            else:  # almost always, and of everybody who runs while somebody looks for room
                known = gang.memo.recall("leave", lambda: self._weigh(gang), about=snapshot.budgets)
            self._leave[gang.key] = known
        return known

    def _weigh(self, gang: Gang) -> tuple[bool, bool]:
        protected, budgets = self._session.snapshot.protected, self._budgets
        seated = [pod for pod in gang.pods if pod.status in SCHEDULED_SET]
        free = [pod for pod in seated if pod.preemptable and pod.uid not in protected]
        covering = [budgets.covering(pod) for pod in free]
        asked = Counter(chain.from_iterable(covering))
        alone = any(all(budgets[each].allowed > 0 for each in some) for some in covering)
        together = len(free) == len(seated) and all(
            budgets[each].allowed >= count for each, count in asked.items()
        )
        return alone, together

    def _last_first(self, group: Group) -> list[GangState]:
        known = self._sorted.get(group)
        if known is None:
            gangs = self._session.snapshot.gangs
            # Who cannot leave is left out before anybody is put in order: there may be thousands.
            some = (key for key in self._by_group[group] if any(self._may_leave(gangs[key])))
            known = [self.state(key) for key in some]
            known.sort(key=self.order, reverse=True)
            self._sorted[group] = known
        return known

    def state(self, key: GangKey) -> GangState:
        """Give the state of a gang that is on nodes."""
        state = self._session.accounting.state(key)
        if state is None:
            raise KeyError(key)
        return state

    def order(self, gang: GangState) -> Key:
        """Give the place of *gang* among all; whoever is last should leave first."""
        known = self._orders.get(gang.key)
        if known is None:
            queue = gang.queue
            if queue.name not in self._queue_orders:
                self._queue_orders[queue.name] = self._session.queue_key(queue)
            known = (self._queue_orders[queue.name], self._session.gang_key(gang))
            self._orders[gang.key] = known
        return known

    def of(self, gang: GangState) -> list[VictimCandidate]:
        """List the members of *gang* that are on nodes and stay so far, the last in order first."""
        return staying(gang, self._seated(gang))

    def rows_of(self, gang: GangState) -> frozenset[int]:
        """Give the rows on which members of *gang* are."""
        rows = self._rows.get(gang.key)
        if rows is None:
            rows = self._rows[gang.key] = frozenset(one.row for one in self._seated(gang))
        return rows

    def _seated(self, gang: GangState) -> list[VictimCandidate]:
        members = self._members.get(gang.key)
        if members is None:
            members = self._members[gang.key] = self._sort(gang)
        return members

    def _sort(self, gang: GangState) -> list[VictimCandidate]:
        room, protected = self._session.capacity, self._session.snapshot.protected
        pods = [pod for pod in gang.gang.pods if pod.status in SCHEDULED_SET]
        pods.sort(key=self._session.task_key, reverse=True)
        return [
            VictimCandidate(gang, pod, row)
            for pod in pods
            if pod.uid not in protected and (row := room.row_of(pod)) >= 0
        ]

    def evictable(self, gang: GangState, *, bound: bool, empty: bool) -> list[VictimCandidate]:
        """List the members of *gang* that are not exempt and stay so far, the last first.

        *bound* includes those that do not run yet; *empty* wants only those without requests.
        """
        key = (gang.key, bound, empty)
        found = self._askable.get(key)
        if found is None:
            is_best_effort = self._session.is_best_effort
            found = self._askable[key] = [
                one
                for one in self._seated(gang)
                if one.pod.preemptable
                and (bound or is_running(one))
                and (not empty or is_best_effort(one.pod.shape))
            ]
        return staying(gang, found)

    def on(self, row: int, wanted: Callable[[VictimCandidate], bool]) -> list[VictimCandidate]:
        """List who sits on *row* and is *wanted*, by name, those already leaving left out."""
        if self._by_row is None:
            self._by_row = self._index()
        return [
            candidate
            for candidate in self._by_row.get(row, ())
            if candidate.pod.uid not in candidate.gang.evicted and wanted(candidate)
        ]

    def _index(self) -> dict[int, list[VictimCandidate]]:
        by_row: dict[int, list[VictimCandidate]] = {}
        for keys in self._by_group.values():
            for candidate in chain.from_iterable(self.of(self.state(key)) for key in keys):
                by_row.setdefault(candidate.row, []).append(candidate)
        for candidates in by_row.values():
            candidates.sort(key=lambda candidate: candidate.pod.key)
        return by_row


def staying(gang: GangState, members: list[VictimCandidate]) -> list[VictimCandidate]:
    """Leave out the *members* of *gang* that have been asked to leave."""
    if not gang.evicted:
        return members
    return [one for one in members if one.pod.uid not in gang.evicted]


def is_running(candidate: VictimCandidate) -> bool:
    """Ask whether the pod runs; reclaiming spares those that are only bound."""
    return candidate.pod.status is Status.RUNNING


def may_lose(gang: GangState, other: GangState) -> bool:
    """Ask whether *other* may have to give room back to *gang*."""
    return other.queue is not gang.queue and other.queue.queue.reclaimable


def is_beside(gang: GangState, other: GangState) -> bool:
    """Ask whether *other* is another gang of the same queue."""
    return other.queue is gang.queue and other is not gang


def is_covered(session: Session, gang: GangState) -> bool:
    """Ask whether the namespace of *gang* has less than at least, even with all that it lacks."""
    if gang.share is None:
        return False
    needs = total(pod.requests for pod in needed_pods(session, gang) or gang.gang.waiting[:1])
    return bool(session.plugins.within_guarantee(gang, needs))


def may_lose_to_share(gang: GangState, other: GangState) -> bool:
    """Ask whether *other* may have to give room back to *gang*, whose namespace has too little."""
    if other.queue is gang.queue:
        return other.share is not gang.share
    return may_lose(gang, other)


class Borrowed:
    """Tells, for one cycle, which gangs stand on lent room."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_queue: dict[str, list[Gang]] | None = None
        self._known: dict[str, set[GangKey]] = {}

    def holds(self, gang: GangState) -> bool:
        """Ask whether *gang* uses room beyond its queue's due."""
        name = gang.queue.name
        if name not in self._known:
            due = self._session.plugins.deserved(gang.queue)
            self._known[name] = set() if due is None else _beyond(due, self._running(name))
        return gang.key in self._known[name]

    def _running(self, queue: str) -> list[Gang]:
        if self._by_queue is None:
            self._by_queue = {}
            for gang in self._session.snapshot.gangs.values():
                if gang.scheduled:
                    self._by_queue.setdefault(gang.queue, []).append(gang)
        return self._by_queue.get(queue, [])


def _beyond(due: Vector, gangs: list[Gang]) -> set[GangKey]:
    """Name the gangs that the due does not cover, the first in line covered first."""
    covered, beyond = NOTHING, set()
    for gang in sorted(gangs, key=lambda gang: (-gang.priority, gang.group.created, gang.key)):
        after = covered + gang.allocated
        if excess(after, due, gang.allocated):
            beyond.add(gang.key)
        else:
            covered = after
    return beyond
