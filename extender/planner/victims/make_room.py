"""Making room for a whole gang with as few victims as possible, and no gang torn.

Who leaves are *units*: single members a gang has beyond its minimum, or a whole gang. All of it
is a trial: no full solution, no trace. Nobody has to leave for a gang that would carry its queue
over its due: such a gang only gets what is left over, so the room would go to somebody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from extender.model.pod import Pod, Shape
from extender.planner.free_capacity import undo_placement
from extender.planner.plugin import Round
from extender.planner.session import Demand, Session, needed_pods
from extender.planner.starvation import is_first, starving_gangs, without_its_reservation
from extender.planner.state import GangState
from extender.planner.victims.candidates import (
    Borrowed,
    is_beside,
    is_covered,
    may_lose,
    may_lose_to_share,
    running_pods,
)
from extender.planner.victims.choose import workload_of
from extender.planner.victims.search import Search
from extender.planner.victims.units import Unit, Units

#: So many searches are made in one cycle and action: a cycle stays short, kube-scheduler's calls
#: beside it are not kept waiting, and whoever is not served now is served by a later one. Searches
#: that fail spare those for more of the same, so the first ones do not block the others; and one
#: namespace, whose gangs may all want what nobody can give, has no more than some that fail.
MOST_SEARCHES = 32
MOST_THAT_FAIL = 8
#: Besides searches that failed, so many of those that may not ask are remembered for a queue and
#: priority: each is compared with whoever asks after it, and gangs may differ by very little.
MOST_FAILURES = 64
#: Whose members may be asked; None means those of the gang itself.
Pool = Callable[[GangState], bool] | None


class VictimFinder:
    """Decides who leaves for a gang, by the rules of one action."""

    def __init__(self, session: Session, action: str, first: Pool = None) -> None:
        self._session = session
        self._room = session.capacity
        self._action = action
        self._held: list[tuple[GangState, Pod, int]] = []
        #: Who leaves before all others, where that is enough.
        self._first = first
        #: For whom nobody could leave: (queue or share in it, priority) -> the pods, how many.
        self._hopeless: dict[tuple[str, int], list[tuple[Shape, int]]] = {}
        self._searches = 0
        self._workload = workload_of(session, action)
        #: How many of them were in vain, by namespace.
        self._in_vain = Counter[str]()
        actions = session.policy.actions
        #: Idle room is handed out later in this cycle; promising it here would keep it idle.
        self._leaves_idle_room = "allocate" in actions[actions.index(action) + 1 :]

    def make_room(self, gang: GangState, pool: Pool) -> None:
        """Let others leave until the minimum of *gang* fits, or its members one by one."""
        if self._session.plugins.missing_members(gang):
            self._try(Demand(gang, self._askers(gang)), pool)
            return
        for pod in _asking(self._session.waiting_tasks(gang)):
            if not self._session.is_starving(gang) or not self._try(Demand(gang, [pod]), pool):
                return

    def _askers(self, gang: GangState) -> list[Pod]:
        """Choose the members that bring *gang* to its minimum, if need be only those that may ask.

        One that must not make others leave can wait for idle room while its siblings start.
        """
        pods = needed_pods(self._session, gang)
        if all(pod.may_preempt for pod in pods):
            return pods
        asking = needed_pods(self._session, gang, _asking(self._session.waiting_tasks(gang)))
        return asking if len(asking) == len(pods) else []

    def make_room_inside(self, gang: GangState) -> None:
        """Let surplus members of *gang* make room for members that matter more."""
        if self._session.plugins.missing_members(gang):
            return  # it has no surplus, and idle room alone does not start it
        for pod in _asking(self._session.waiting_tasks(gang)):
            if not self._try(Demand(gang, [pod]), None):
                return

    def _try(self, demand: Demand, pool: Pool) -> bool:
        is_asking_others = pool is not None
        if not demand.pods or self._searches == MOST_SEARCHES:
            return False
        if is_asking_others and self._is_known_to_fail(demand):
            return False
        namespace = demand.gang.gang.group.namespace
        if self._in_vain[namespace] == MOST_THAT_FAIL:
            return False
        may_ask = self._may_ask(demand)
        if may_ask:
            outcome = self._succeeds(demand, pool)
            if outcome:
                self._hopeless.clear()
            if outcome is not False:
                return outcome is True
            self._in_vain[namespace] += 1
        if is_asking_others and demand.is_uniform:
            failures = self._hopeless.setdefault(self._key(demand), [])
            if may_ask or len(failures) < MOST_FAILURES:
                failures.append((demand.pods[0].shape, len(demand.pods)))
        return False

    def _succeeds(self, demand: Demand, pool: Pool) -> bool | None:
        """Make room for *demand*; None when idle room will do and is handed out after this."""
        self._searches += 1
        with (
            without_its_reservation(self._session, demand.gang),
            self._room.trial(demand.gang) as trial,
        ):
            leaving = self._leaving(demand, pool)
            if leaving is None:
                return False
            if (
                not leaving
                and self._session.blocked_by_terminating(demand.gang, demand.total) is not None
            ):
                return False  # room is there; only pods on their way out keep its queue from it
            idle = None
            if not leaving and self._leaves_idle_room:
                idle = demand.assign(self._session, only_free=True)
            if idle:
                self._hold(demand, idle)
            else:
                self._carry_out(demand, leaving)
            trial.keep()
        running_pods(self._session).claimants.add(demand.gang.key)
        for unit in leaving:
            if unit.gang is not demand.gang:
                undo_placement(self._room, unit.gang)
        return None if idle else True

    def _hold(self, demand: Demand, idle: list[tuple[Pod, int]]) -> None:
        """Keep the idle room that will do for *demand* from those who ask after it.

        They would have others leave for room that is not there when it is handed out.
        """
        for pod, row in idle:
            self._room.pipeline(demand.gang, pod, row)
            self._held.append((demand.gang, pod, row))

    def release(self) -> None:
        """Leave the room that was held to whoever hands it out."""
        for gang, pod, row in reversed(self._held):
            self._room.unpipeline(gang, pod, row, counts=False)
        self._held.clear()

    def _leaving(self, demand: Demand, pool: Pool) -> list[Unit] | None:
        """Search who must leave; only those who should be the first, if they are enough.

        They are searched for last, because most searches find nobody at all.
        """
        leaving = self._search(demand, pool)
        first = self._first
        if not leaving or first is None or pool is None or all(first(u.gang) for u in leaving):
            return leaving
        preferred = self._search(demand, lambda gang: pool(gang) and first(gang))
        return leaving if preferred is None else preferred

    def _search(self, demand: Demand, pool: Pool) -> list[Unit] | None:
        namespace = demand.gang.gang.group.namespace
        work = self._workload.next(namespace)
        units = Units(self._session, self._action, demand, pool)
        found = Search(self._session, self._action, demand, units, work).run()
        self._workload.book(work, namespace, in_vain=found is None)
        if work.is_too_much:
            self._session.search_cut_short.add(demand.gang.key)
        return found

    def _may_ask(self, demand: Demand) -> bool:
        """Ask whether *demand* may make others leave at all."""
        if self._action == "preempt":
            return True
        return self._session.plugins.is_preemptive(demand.gang, Shape(requests=demand.total))

    def _carry_out(self, demand: Demand, units: list[Unit]) -> None:
        for unit in units:
            for one in unit.members:
                self._room.evict(one.eviction(self._action, demand.gang))
        for pod, row in demand.assign(self._session) or ():
            self._room.pipeline(demand.gang, pod, row)

    def _is_known_to_fail(self, demand: Demand) -> bool:
        """Ask whether nobody could leave for less than this already."""
        failures = self._hopeless.get(self._key(demand), ())
        return any(self._asks_for_more(demand, less, count) for less, count in failures)

    def _asks_for_more(self, demand: Demand, less: Shape, count: int) -> bool:
        """Ask whether so many pods of *demand* fit no node on which one of *less* does not fit."""
        groups = demand.by_shape.items()
        return sum(len(pods) for shape, pods in groups if self._is_harder(shape, less)) >= count

    def _is_harder(self, shape: Shape, less: Shape) -> bool:
        """Ask whether *shape* fits at most where *less* fits; seen cheaply, No where it is not."""
        if shape is less:
            return True
        return (
            less.requests.fits_in(shape.requests)
            and less.selector in ((), shape.selector)
            and less.affinity in (None, shape.affinity)
            and less.host_ports in ((), shape.host_ports)
            and less.tolerations == shape.tolerations
            # Where kube-scheduler would not have one it may have the other.
            and less not in self._session.snapshot.rejected_nodes
        )

    def _key(self, demand: Demand) -> tuple[str, int]:
        share = demand.gang.share
        return (share.name if share else demand.gang.queue.name, demand.gang.gang.priority)


def _asking(pods: Iterable[Pod]) -> list[Pod]:
    """Leave out pods that must not make others leave."""
    return [pod for pod in pods if pod.may_preempt]


def preempt(session: Session) -> None:
    """Let the less important of a queue make room for the more important.

    First between gangs, then inside a gang. A queue that has borrowed need not give that back
    first: it may replace some of it by something more important.
    """
    session.round = Round.PREEMPT
    for state in session.queues.values():
        state.before = state.allocated
    for gangs in starving_gangs(session):
        maker = VictimFinder(session, "preempt")
        asked = []
        for gang in _in_turn(session, gangs):
            maker.make_room(gang, partial(is_beside, gang))
            asked.append(gang)
        for gang in asked:
            maker.make_room_inside(gang)
        maker.release()
    session.round = Round.DEFAULT


def reclaim(session: Session) -> None:
    """Let queues that use more than their due give room back to queues that have less.

    What was lent to them goes back first. A namespace that has less of a queue than at least gets
    it back from the others of that queue too.
    """
    maker = VictimFinder(session, "reclaim", first=Borrowed(session).holds)
    has_shares = bool(session.accounting.shares)
    for gangs in starving_gangs(session):
        is_overused = session.plugins.is_overused(gangs[0].queue)
        for gang in _in_turn(session, gangs):
            if has_shares and is_covered(session, gang):
                maker.make_room(gang, partial(may_lose_to_share, gang))
            elif not is_overused:
                maker.make_room(gang, partial(may_lose, gang))
    maker.release()


def _in_turn(session: Session, gangs: list[GangState]) -> Iterator[GangState]:
    """Give one gang of a queue after the other; nobody behind one that waited long and gets room.

    What the others could free would be kept for it. If nobody can leave for it and no room is kept,
    it is in nobody's way: it may be one that never starts, whatever others free.
    """
    first, *others = gangs
    waits, had = is_first(session, first), len(first.pipelined)
    yield first
    if not waits or (first.key not in session.reservations and len(first.pipelined) == had):
        yield from others
