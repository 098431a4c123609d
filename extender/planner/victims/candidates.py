"""An index of the running pods that could be evicted, by gang and by node."""

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
from extender.planner.session import Session
from extender.planner.state import GangState

_MOST_OF_A_GROUP = 24
#: Queue, priority, and the namespace where that has a share of its own.
Group = tuple[str, int, str]


class RunningPods:
    """An index over all pods on nodes, built once a cycle by the first action that needs it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_group: dict[Group, list[GangKey]] = {}
        self._by_row: dict[int, list[VictimCandidate]] | None = None
        self._orders: dict[GangKey, Key] = {}
        self._queue_orders: dict[str, Key] = {}
        self._members: dict[GangKey, list[VictimCandidate]] = {}
        self._rows: dict[GangKey, frozenset[int]] = {}
        #: What sets of pods free together, by their uids.
        self.frees: dict[tuple[PodUid, ...], tuple[Rows, Amounts]] = {}
        #: Gangs for which this cycle evicted pods or reserved free capacity.
        self.preemptors: set[GangKey] = set()
        self._sorted: dict[Group, list[GangState]] = {}
        self._may_lose: dict[GangKey, tuple[bool, bool]] = {}
        self._budgets = budgets_of(session.snapshot)
        self._evictable: dict[tuple[GangKey, bool, bool], list[VictimCandidate]] = {}
        shares = session.accounting.shares
        for key, gang in session.snapshot.gangs.items():
            if gang.scheduled and gang.queue in session.queues:
                share = shares and share_name(gang.queue, gang.group.namespace) in shares
                group = (gang.queue, gang.priority, gang.group.namespace if share else "")
                self._by_group.setdefault(group, []).append(key)

    def eviction_order(
        self,
        protects: Callable[[GangState], bool],
        pool: Callable[[GangState], bool],
        helps: Callable[[GangState], bool],
    ) -> Iterator[GangState]:
        """Yield the gangs of *pool* without protection, in the order of eviction.

        Gangs of one queue (or of a namespace's share in it) and priority form a group. *protects*
        is called with one gang of each group. Only the first gangs of each group are yielded: more
        of the same do not make the choice better. Gangs that help are counted separately, so that
        others do not displace them.
        """
        groups = [
            self._first_of(group, pool, helps)
            for group, keys in self._by_group.items()
            if not protects(self.state(keys[0]))
        ]
        return merge(*groups, key=self.order, reverse=True)

    def _first_of(
        self,
        group: Group,
        pool: Callable[[GangState], bool],
        helps: Callable[[GangState], bool],
    ) -> Iterator[GangState]:
        yielded = Counter[bool]()
        for gang in self._last_first(group):
            kind = helps(gang)
            if yielded[kind] < _MOST_OF_A_GROUP and pool(gang) and self._has_victims(gang):
                yielded[kind] += 1
                yield gang
            elif yielded[True] == _MOST_OF_A_GROUP:
                return

    def _has_victims(self, gang: GangState) -> bool:
        """Return whether members of *gang* could be evicted, alone or all together.

        Gangs without victims must not displace others among the first of a group.
        """
        if gang.bound_or_done <= 0:
            return False
        alone, together = self._may_evict(gang.gang)
        return together or (alone and gang.bound_or_done > gang.min_member)

    def _may_evict(self, gang: Gang) -> tuple[bool, bool]:
        """Return whether some, and whether all, of *gang* may be evicted."""
        known = self._may_lose.get(gang.key)
        if known is None:
            snapshot = self._session.snapshot
            if any(pod.uid in snapshot.protected for pod in gang.pods):
                known = self._check(gang)
            else:  # almost always, and for every running gang in a cycle with a search
                known = gang.memo.recall("evict", lambda: self._check(gang), about=snapshot.budgets)
            self._may_lose[gang.key] = known
        return known

    def _check(self, gang: Gang) -> tuple[bool, bool]:
        protected, budgets = self._session.snapshot.protected, self._budgets
        scheduled = [pod for pod in gang.pods if pod.status in SCHEDULED_SET]
        evictable = [pod for pod in scheduled if pod.preemptable and pod.uid not in protected]
        covering = [budgets.covering(pod) for pod in evictable]
        needed = Counter(chain.from_iterable(covering))
        alone = any(all(budgets[each].allowed > 0 for each in some) for some in covering)
        together = len(evictable) == len(scheduled) and all(
            budgets[each].allowed >= count for each, count in needed.items()
        )
        return alone, together

    def _last_first(self, group: Group) -> list[GangState]:
        known = self._sorted.get(group)
        if known is None:
            gangs = self._session.snapshot.gangs
            # Filter before sorting: there may be thousands of gangs.
            some = (key for key in self._by_group[group] if any(self._may_evict(gangs[key])))
            known = [self.state(key) for key in some]
            known.sort(key=self.order, reverse=True)
            self._sorted[group] = known
        return known

    def state(self, key: GangKey) -> GangState:
        """Return the state of a gang that is on nodes."""
        state = self._session.accounting.state(key)
        if state is None:
            raise KeyError(key)
        return state

    def order(self, gang: GangState) -> Key:
        """Return the sort key of *gang* among all; the last gang is evicted first."""
        known = self._orders.get(gang.key)
        if known is None:
            queue = gang.queue
            if queue.name not in self._queue_orders:
                self._queue_orders[queue.name] = self._session.queue_key(queue)
            known = (self._queue_orders[queue.name], self._session.gang_key(gang))
            self._orders[gang.key] = known
        return known

    def of(self, gang: GangState) -> list[VictimCandidate]:
        """Return the members of *gang* on nodes that are not evicted yet, the last first."""
        return staying(gang, self._scheduled(gang))

    def rows_of(self, gang: GangState) -> frozenset[int]:
        """Return the rows of the nodes of *gang*."""
        rows = self._rows.get(gang.key)
        if rows is None:
            rows = self._rows[gang.key] = frozenset(one.row for one in self._scheduled(gang))
        return rows

    def _scheduled(self, gang: GangState) -> list[VictimCandidate]:
        members = self._members.get(gang.key)
        if members is None:
            members = self._members[gang.key] = self._sort(gang)
        return members

    def _sort(self, gang: GangState) -> list[VictimCandidate]:
        capacity, protected = self._session.capacity, self._session.snapshot.protected
        pods = [pod for pod in gang.gang.pods if pod.status in SCHEDULED_SET]
        pods.sort(key=self._session.task_key, reverse=True)
        return [
            VictimCandidate(gang, pod, row)
            for pod in pods
            if pod.uid not in protected and (row := capacity.row_of(pod)) >= 0
        ]

    def evictable(self, gang: GangState, *, bound: bool, empty: bool) -> list[VictimCandidate]:
        """Return the preemptable members of *gang* that are not evicted yet, the last first.

        *bound* includes members that do not run yet; *empty* restricts to those without requests.
        """
        key = (gang.key, bound, empty)
        found = self._evictable.get(key)
        if found is None:
            is_best_effort = self._session.is_best_effort
            found = self._evictable[key] = [
                one
                for one in self._scheduled(gang)
                if one.pod.preemptable
                and (bound or is_running(one))
                and (not empty or is_best_effort(one.pod.shape))
            ]
        return staying(gang, found)

    def on(self, row: int, wanted: Callable[[VictimCandidate], bool]) -> list[VictimCandidate]:
        """Return the *wanted* pods on *row* that are not evicted yet, by name."""
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
    """Return the *members* of *gang* that are not evicted yet."""
    if not gang.evicted:
        return members
    return [one for one in members if one.pod.uid not in gang.evicted]


def is_running(candidate: VictimCandidate) -> bool:
    """Return whether the pod runs; reclaim does not evict pods that are only bound."""
    return candidate.pod.status is Status.RUNNING


def may_lose(gang: GangState, other: GangState) -> bool:
    """Return whether reclaim for *gang* may evict *other*."""
    return other.queue is not gang.queue and other.queue.queue.reclaimable


def is_beside(gang: GangState, other: GangState) -> bool:
    """Return whether *other* is another gang of the same queue."""
    return other.queue is gang.queue and other is not gang


def is_covered(session: Session, gang: GangState) -> bool:
    """Return whether the namespace of *gang* stays within its guarantee with all that it needs."""
    if gang.share is None:
        return False
    needs = total(pod.requests for pod in session.needed_pods(gang) or gang.gang.waiting[:1])
    return bool(session.plugins.within_guarantee(gang, needs))


def may_lose_to_share(gang: GangState, other: GangState) -> bool:
    """Return whether *other* may lose members to *gang*, whose namespace is below its guarantee."""
    if other.queue is gang.queue:
        return other.share is not gang.share
    return may_lose(gang, other)


class Borrowed:
    """Finds, for one cycle, the gangs that use borrowed capacity."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_queue: dict[str, list[Gang]] | None = None
        self._known: dict[str, set[GangKey]] = {}

    def holds(self, gang: GangState) -> bool:
        """Return whether *gang* uses capacity beyond the deserved share of its queue."""
        name = gang.queue.name
        if name not in self._known:
            deserved = self._session.plugins.deserved(gang.queue)
            known = set() if deserved is None else _beyond(deserved, self._running(name))
            self._known[name] = known
        return gang.key in self._known[name]

    def _running(self, queue: str) -> list[Gang]:
        if self._by_queue is None:
            self._by_queue = {}
            for gang in self._session.snapshot.gangs.values():
                if gang.scheduled:
                    self._by_queue.setdefault(gang.queue, []).append(gang)
        return self._by_queue.get(queue, [])


def _beyond(deserved: Vector, gangs: list[Gang]) -> set[GangKey]:
    """Return the gangs that the deserved share does not cover, counting in order."""
    covered, beyond = NOTHING, set()
    for gang in sorted(gangs, key=lambda gang: (-gang.priority, gang.group.created, gang.key)):
        after = covered + gang.allocated
        if excess(after, deserved, gang.allocated):
            beyond.add(gang.key)
        else:
            covered = after
    return beyond
