"""Making room for a whole gang with as few victims as possible, and no gang torn.

Who leaves are *units*: single members a gang has beyond its minimum, or a whole gang. All of it
is a trial: no full solution, no trace. Nobody has to leave for a gang that would carry its queue
over its due: such a gang only gets what is left over, so the room would go to somebody else.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.model.pod import Shape
from extender.plan.ledger import Departure
from extender.plan.occupants import Occupants
from extender.plan.search import Search
from extender.plan.session import Session
from extender.plan.starvation import without_its_fence
from extender.plan.state import GangState
from extender.plan.units import Unit, Units
from extender.plan.wish import Wish, needed_pods

#: Searches per action and cycle. Victims need seconds to leave, so whoever is not served now is
#: served by a later cycle in time, and filter calls beside us are not kept waiting.
MOST_SEARCHES = 16

#: Whose members may be asked; None means those of the gang itself.
Pool = Callable[[GangState], bool] | None


class RoomMaker:
    """Decides who leaves for a gang, by the rules of one action."""

    def __init__(self, session: Session, occupants: Occupants, action: str) -> None:
        self._session = session
        self._ledger = session.ledger
        self._occupants = occupants
        self._action = action
        #: The smallest number of pods for which nobody could leave, by who asked.
        self._hopeless: dict[tuple[str, int, Shape], int] = {}
        self._searches = 0

    def make_room(self, gang: GangState, pool: Pool) -> None:
        """Let others leave until the minimum of *gang* fits, or its members one by one."""
        if self._session.lacking(gang):
            self._try(Wish(gang, needed_pods(self._session, gang)), pool)
            return
        for pod in self._session.waiting_tasks(gang):
            if not self._session.is_starving(gang) or not self._try(Wish(gang, [pod]), pool):
                return

    def make_room_inside(self, gang: GangState) -> None:
        """Let surplus members of *gang* make room for members that matter more."""
        if self._session.lacking(gang):
            return  # it has no surplus, and idle room alone does not start it
        for pod in self._session.waiting_tasks(gang):
            if not self._try(Wish(gang, [pod]), None):
                return

    def _try(self, wish: Wish, pool: Pool) -> bool:
        is_asking_others = pool is not None
        if not self._may_ask(wish) or (is_asking_others and self._is_known_to_fail(wish)):
            return False
        if self._searches >= MOST_SEARCHES:
            return False
        self._searches += 1
        with (
            without_its_fence(self._session, wish.gang),
            self._ledger.trial(wish.gang) as trial,
        ):
            units = self._search(wish, pool)
            if units is not None:
                self._carry_out(wish, units)
                trial.keep()
                self._hopeless.clear()
                return True
        if is_asking_others and wish.is_uniform:
            self._hopeless[self._key(wish)] = len(wish.pods)
        return False

    def _search(self, wish: Wish, pool: Pool) -> list[Unit] | None:
        units = Units(self._session, self._occupants, self._action, wish, pool)
        return Search(self._session, self._action, wish, units).run()

    def _may_ask(self, wish: Wish) -> bool:
        """Ask whether *wish* may make others leave at all."""
        if not wish.pods or not all(pod.may_preempt for pod in wish.pods):
            return False
        if self._action == "preempt":
            return True
        return self._session.is_preemptive(wish.gang, Shape(requests=wish.total))

    def _carry_out(self, wish: Wish, units: list[Unit]) -> None:
        for unit in units:
            for one in unit.members:
                self._ledger.evict(Departure(one.gang, one.pod, one.row, self._action, wish.gang))
        for pod, row in wish.assign(self._session) or ():
            self._ledger.pipeline(wish.gang, pod, row)

    def _is_known_to_fail(self, wish: Wish) -> bool:
        return len(wish.pods) >= self._hopeless.get(self._key(wish), 2**31)

    def _key(self, wish: Wish) -> tuple[str, int, Shape]:
        return (wish.gang.queue.name, wish.gang.gang.priority, wish.pods[0].shape)
