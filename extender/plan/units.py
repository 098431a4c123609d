"""Who can leave without tearing a gang: surplus members one by one, or gangs whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from extender.model.pod import ALLOCATED_SET
from extender.plan.ledger import Departure
from extender.plan.occupants import Occupants, is_running
from extender.plan.plugins.plugin import Candidate
from extender.plan.session import Key, Session
from extender.plan.state import GangState
from extender.plan.wish import Wish

#: Looking at more gangs than this does not make the choice noticeably better.
_MOST_GANGS = 128


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that leave together."""

    members: tuple[Candidate, ...]
    #: Their place among those who might leave; the first should go first.
    rank: int
    #: Nothing of the gang is left on nodes when they are gone.
    is_whole: bool = False

    @property
    def gang(self) -> GangState:
        """The gang that loses them."""
        return self.members[0].gang


class Units:
    """The units that may be asked to leave for a wish, as things stand in the ledger."""

    def __init__(
        self,
        session: Session,
        occupants: Occupants,
        action: str,
        wish: Wish,
        pool: Callable[[GangState], bool] | None,
    ) -> None:
        self._session = session
        self._occupants = occupants
        self._action = action
        self._wish = wish
        self._ranks: dict[str, int] = {}
        self._members = self._find(pool)

    def __bool__(self) -> bool:
        return bool(self._members)

    @property
    def gangs(self) -> list[GangState]:
        """List the gangs that may lose members, the least important first."""
        return [members[0].gang for members in self._members.values()]

    @property
    def everybody(self) -> list[Candidate]:
        """List all members that may be asked."""
        return [one for members in self._members.values() for one in members]

    def single(self, one: Candidate) -> Unit:
        """Make a unit of one surplus member."""
        return Unit((one,), self._ranks[one.gang.key])

    def surplus(self, gang: GangState) -> list[Candidate]:
        """List the members of which *gang* can lose some, the least important first."""
        if self._is_busy(gang) or gang.firm <= gang.min_member:
            return []
        have = gang.ready_by_role
        return [
            one
            for one in self._left(gang)
            if have.get(one.pod.role, 0) > gang.role_minimums.get(one.pod.role, 0)
            or not gang.role_minimums
        ]

    def whole(self, gang: GangState) -> Unit | None:
        """Give all that is left of *gang*, if all of it may leave."""
        left = self._left(gang)
        by_status = gang.gang.by_status
        present = sum(len(by_status.get(status, ())) for status in ALLOCATED_SET)
        is_ours = gang is self._wish.gang
        if is_ours or self._is_busy(gang) or not left or len(left) < present - len(gang.evicted):
            return None
        return Unit(tuple(left), self._ranks[gang.key], is_whole=True)

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
        if len(self._spared(members)) < len(members):
            return False
        return self._action != "reclaim" or not self._would_come_back(members)

    def _would_come_back(self, members: Sequence[Candidate]) -> bool:
        """Ask whether somebody who left for the wish could start again at once, within its due.

        A queue may have to give so much that it ends below its due. If what it gave fits into
        that again, it would take the room back, and be asked for it again, for ever.
        """
        session, ledger = self._session, self._session.ledger
        with ledger.trial():
            for one in members:
                departure = Departure(one.gang, one.pod, one.row, self._action, self._wish.gang)
                ledger.evict(departure)
            left = [each for each in ledger.departures if each.beneficiary is self._wish.gang]
            return any(
                session.fits_due(gang) for gang in {d.gang.key: d.gang for d in left}.values()
            )

    def _is_busy(self, gang: GangState) -> bool:
        """Ask whether this cycle has given *gang* something; then it takes nothing away."""
        return gang is not self._wish.gang and bool(gang.placed or gang.pipelined)

    def _left(self, gang: GangState) -> list[Candidate]:
        return [one for one in self._members[gang.key] if one.pod.uid not in gang.evicted]

    def _find(self, pool: Callable[[GangState], bool] | None) -> dict[str, list[Candidate]]:
        gangs = self._in_pool(pool) if pool is not None else [self._wish.gang]
        gangs.sort(key=self._occupants.order, reverse=True)
        gangs.sort(key=self._nearness)
        found: dict[str, list[Candidate]] = {}
        for rank, gang in enumerate(gangs):
            members = self._spared(self._askable(gang))
            if members:
                self._ranks[gang.key] = rank
                found[gang.key] = members
            if len(found) == _MOST_GANGS:
                break
        return found

    def _in_pool(self, pool: Callable[[GangState], bool]) -> list[GangState]:
        claim = self._wish.claim
        return [
            gang
            for standing, keys in self._occupants.groups()
            if not self._session.protects(self._action, claim, standing)
            for gang in map(self._occupants.state, keys)
            if pool(gang)
        ]

    def _nearness(self, gang: GangState) -> Key:
        ours = self._wish.gang.queue
        return self._session.victim_queue_key(gang.queue, ours) if gang.queue is not ours else ()

    def _askable(self, gang: GangState) -> list[Candidate]:
        """List members that are not exempt; a claimant without requests displaces only its like."""
        is_empty = self._session.is_empty
        return [
            one
            for one in self._occupants.of(gang)
            if one.pod.preemptable
            and (self._action == "preempt" or is_running(one))
            and (not is_empty(self._wish.pods[0].shape) or is_empty(one.pod.shape))
        ]

    def _spared(self, members: Sequence[Candidate]) -> list[Candidate]:
        if not members:
            return []
        return self._session.spared(self._action, self._wish.claim, members)
