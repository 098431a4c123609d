"""Frees capacity for a whole gang with as few victims as possible, and keeps other gangs whole.

Evictions happen in *units*: single members that a gang has beyond its minimum, or a whole gang.
Each search is a trial: without a full solution it leaves no trace. No pod is evicted for a gang
that would carry its queue over its deserved share. Such a gang only gets what is left over, so the
freed capacity would go to another gang.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from functools import partial

from extender.model.pod import Pod, Shape
from extender.planner.plugin import Round
from extender.planner.session import Demand, Session
from extender.planner.starvation import gangs_that_may_evict, is_first, without_its_hold
from extender.planner.state import GangState
from extender.planner.victims.candidates import (
    Borrowed,
    RunningPods,
    is_beside,
    is_covered,
    may_lose,
    may_lose_to_share,
)
from extender.planner.victims.choose import search_budgets
from extender.planner.victims.search import Search
from extender.planner.victims.units import Unit, Units

#: Limit of the searches in one cycle and action. So a cycle stays short and does not delay calls
#: of kube-scheduler; a later cycle serves the gangs that get no search now. A failed search saves
#: searches for more of the same, so the first gangs do not block the others. The gangs of one
#: namespace may all want what no victim can free, so the failed searches of one are limited too.
MOST_SEARCHES = 32
MOST_THAT_FAIL = 8
#: Limit of the demands that may not evict, remembered besides failed searches for one queue and
#: priority: every later demand is compared with each, and gangs may differ by very little.
MOST_FAILURES = 64
#: Selects the gangs whose members may be evicted; None means the gang itself.
Pool = Callable[[GangState], bool] | None


class _Outcome(Enum):
    """What came of a search."""

    FAILED = auto()
    #: Free capacity suffices; a later action assigns it.
    FITS = auto()
    FREED = auto()


class VictimFinder:
    """Chooses the victims for gangs, by the rules of one action."""

    def __init__(self, session: Session, action: str, first: Pool = None) -> None:
        self._session = session
        self._capacity = session.capacity
        self._action = action
        self._reserved: list[tuple[GangState, Pod, int]] = []
        #: Selects gangs whose members are evicted before all others, where that suffices.
        self._first = first
        #: Demands without victims: (queue or share in it, priority) -> shapes and numbers of pods.
        self._hopeless: dict[tuple[str, int], list[tuple[Shape, int]]] = {}
        self._searches = 0
        self._budget = session.once(search_budgets)[action]
        #: Failed searches by namespace.
        self._failed = Counter[str]()
        actions = session.policy.actions
        #: A later action of this cycle assigns free capacity; reserving it here keeps it unused.
        self._leaves_free_capacity = "allocate" in actions[actions.index(action) + 1 :]

    @property
    def failures(self) -> int:
        """The number of failed searches that are remembered."""
        return sum(map(len, self._hopeless.values()))

    def free_capacity(self, gang: GangState, pool: Pool) -> None:
        """Evict others until the minimum of *gang* fits, or its members one by one."""
        if self._session.plugins.missing_members(gang):
            self._try(Demand(gang, self._preempting(gang)), pool)
            return
        for pod in _that_may_preempt(self._session.waiting_tasks(gang)):
            if not self._session.may_evict_for(gang) or not self._try(Demand(gang, [pod]), pool):
                return

    def _preempting(self, gang: GangState) -> list[Pod]:
        """Choose members that bring *gang* to its minimum, if needed only those that may preempt.

        A member that must not preempt can wait for free capacity while the others start.
        """
        pods = self._session.needed_pods(gang)
        if all(pod.may_preempt for pod in pods):
            return pods
        waiting = _that_may_preempt(self._session.waiting_tasks(gang))
        preempting = self._session.needed_pods(gang, waiting)
        return preempting if len(preempting) == len(pods) else []

    def free_capacity_inside(self, gang: GangState) -> None:
        """Evict surplus members of *gang* for more important members."""
        if self._session.plugins.missing_members(gang):
            return  # it has no surplus, and free capacity alone does not start it
        for pod in _that_may_preempt(self._session.waiting_tasks(gang)):
            if not self._try(Demand(gang, [pod]), None):
                return

    def _try(self, demand: Demand, pool: Pool) -> bool:
        evicts_others = pool is not None
        if not demand.pods or self._searches == MOST_SEARCHES:
            return False
        if evicts_others and self._is_known_to_fail(demand):
            return False
        namespace = demand.gang.gang.group.namespace
        if self._failed[namespace] == MOST_THAT_FAIL:
            return False
        may_evict = self._may_evict(demand)
        if may_evict:
            outcome = self._search_and_apply(demand, pool)
            if outcome is _Outcome.FREED:
                self._hopeless.clear()
            if outcome is not _Outcome.FAILED:
                return outcome is _Outcome.FREED
            self._failed[namespace] += 1
        if evicts_others and demand.is_uniform:
            failures = self._hopeless.setdefault(self._key(demand), [])
            if may_evict or len(failures) < MOST_FAILURES:
                failures.append((demand.pods[0].shape, len(demand.pods)))
        return False

    def _search_and_apply(self, demand: Demand, pool: Pool) -> _Outcome:
        """Search victims for *demand* and evict them, or reserve free capacity that suffices."""
        self._searches += 1
        with (
            without_its_hold(self._session, demand.gang),
            self._capacity.trial(demand.gang) as trial,
        ):
            victims = self._choose(demand, pool)
            if victims is None:
                return _Outcome.FAILED
            if (
                not victims
                and self._session.blocked_by_terminating(demand.gang, demand.total) is not None
            ):
                return _Outcome.FAILED  # only terminating pods still count against its queue
            free = None
            if not victims and self._leaves_free_capacity:
                free = demand.assign(self._session, only_free=True)
            if free:
                self._reserve(demand, free)
            else:
                self._evict(demand, victims)
            trial.keep()
        self._session.once(RunningPods).preemptors.add(demand.gang.key)
        for unit in victims:
            if unit.gang is not demand.gang:
                self._capacity.undo_placement(unit.gang)
        return _Outcome.FITS if free else _Outcome.FREED

    def _reserve(self, demand: Demand, free: list[tuple[Pod, int]]) -> None:
        """Reserve free capacity that suffices for *demand* until the end of the action.

        Later demands would count on it, and lack it when it is assigned.
        """
        for pod, row in free:
            self._capacity.pipeline(demand.gang, pod, row)
            self._reserved.append((demand.gang, pod, row))

    def release(self) -> None:
        """Release the reserved free capacity to the action that assigns it."""
        for gang, pod, row in reversed(self._reserved):
            self._capacity.unpipeline(gang, pod, row, counts=False)
        self._reserved.clear()

    def _choose(self, demand: Demand, pool: Pool) -> list[Unit] | None:
        """Search the victims, only among the preferred ones if they suffice.

        The preferred ones are searched last, because most searches find no victims at all.
        """
        victims = self._search(demand, pool)
        first = self._first
        if not victims or first is None or pool is None or all(first(u.gang) for u in victims):
            return victims
        preferred = self._search(demand, lambda gang: pool(gang) and first(gang))
        return victims if preferred is None else preferred

    def _search(self, demand: Demand, pool: Pool) -> list[Unit] | None:
        namespace = demand.gang.gang.group.namespace
        work = self._budget.next(namespace)
        units = Units(self._session, self._action, demand, pool)
        found = Search(self._session, self._action, demand, units, work).run()
        self._budget.spend(work, namespace, failed=found is None)
        if work.is_too_much:
            self._session.search_cut_short.add(demand.gang.key)
        return found

    def _may_evict(self, demand: Demand) -> bool:
        """Return whether other pods may be evicted for *demand* at all."""
        if self._action == "preempt":
            return True
        return self._session.plugins.is_preemptive(demand.gang, Shape(requests=demand.total))

    def _evict(self, demand: Demand, units: list[Unit]) -> None:
        for unit in units:
            for one in unit.members:
                self._capacity.evict(one.eviction(self._action, demand.gang))
        for pod, row in demand.assign(self._session) or ():
            self._capacity.pipeline(demand.gang, pod, row)

    def _is_known_to_fail(self, demand: Demand) -> bool:
        """Return whether a smaller demand already had no victims."""
        failures = self._hopeless.get(self._key(demand), ())
        return any(self._needs_more(demand, less, count) for less, count in failures)

    def _needs_more(self, demand: Demand, less: Shape, count: int) -> bool:
        """Return whether *count* pods of *demand* fit only nodes on which one of *less* fits."""
        groups = demand.by_shape.items()
        return sum(len(pods) for shape, pods in groups if self._is_harder(shape, less)) >= count

    def _is_harder(self, shape: Shape, less: Shape) -> bool:
        """Return whether *shape* fits at most where *less* fits; False where a cheap test fails."""
        if shape is less:
            return True
        return (
            less.requests.fits_in(shape.requests)
            and less.selector in ((), shape.selector)
            and less.affinity in (None, shape.affinity)
            and less.host_ports in ((), shape.host_ports)
            and less.tolerations == shape.tolerations
            # A node that kube-scheduler rejected for one may accept the other.
            and less not in self._session.snapshot.rejected_nodes
        )

    def _key(self, demand: Demand) -> tuple[str, int]:
        share = demand.gang.share
        return (share.name if share else demand.gang.queue.name, demand.gang.gang.priority)


def _that_may_preempt(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that may preempt."""
    return [pod for pod in pods if pod.may_preempt]


def preempt(session: Session) -> None:
    """Evict less important gangs of a queue for more important ones.

    First between gangs, then inside a gang. A queue that borrows need not return that first: it
    may replace a borrowing gang by a more important one.
    """
    for state in session.queues.values():
        state.before = state.allocated
    with session.in_round(Round.PREEMPT):
        for gangs in gangs_that_may_evict(session):
            finder = VictimFinder(session, "preempt")
            served = []
            for gang in _in_order(session, gangs):
                finder.free_capacity(gang, partial(is_beside, gang))
                served.append(gang)
            for gang in served:
                finder.free_capacity_inside(gang)
            finder.release()


def reclaim(session: Session) -> None:
    """Evict gangs of queues above their deserved share for queues below theirs.

    Gangs on borrowed capacity go first. A namespace below its guarantee in a queue gets it back
    from the others of that queue too.
    """
    finder = VictimFinder(session, "reclaim", first=Borrowed(session).holds)
    has_shares = bool(session.accounting.shares)
    for gangs in gangs_that_may_evict(session):
        is_overused = session.plugins.is_overused(gangs[0].queue)
        for gang in _in_order(session, gangs):
            if has_shares and is_covered(session, gang):
                finder.free_capacity(gang, partial(may_lose_to_share, gang))
            elif not is_overused:
                finder.free_capacity(gang, partial(may_lose, gang))
    finder.release()


def _in_order(session: Session, gangs: list[GangState]) -> Iterator[GangState]:
    """Yield the gangs of a queue. If the first one starves and gets capacity, yield only that.

    What the others could free would be reserved for it. If it has neither victims nor a
    reservation, it blocks no other gang: it may be one that never starts, whatever others free.
    """
    first, *others = gangs
    waits, had = is_first(session, first), len(first.pipelined)
    yield first
    if not waits or (first.key not in session.holds and len(first.pipelined) == had):
        yield from others
