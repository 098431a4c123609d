"""preempt and reclaim: others make room for gangs that starve.

Nothing starts here: whoever got room promised starts in a later cycle, when it is really free.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from extender.plan.plugin import Round
from extender.plan.room.state import GangState
from extender.plan.session import Session
from extender.plan.starvation import is_first, starving_gangs
from extender.plan.victims.lent import Lent
from extender.plan.victims.occupants import is_beside, is_covered, may_lose, may_lose_to_share
from extender.plan.victims.room_maker import RoomMaker


def preempt(session: Session) -> None:
    """Let the less important of a queue make room for the more important.

    First between gangs, then inside a gang. A queue that has borrowed need not give that back
    first: it may replace some of it by something more important.
    """
    session.round = Round.SWAPS
    for state in session.queues.values():
        state.before = state.allocated
    for gangs in starving_gangs(session):
        maker = RoomMaker(session, "preempt")
        asked = []
        for gang in _in_turn(session, gangs):
            maker.make_room(gang, partial(is_beside, gang))
            asked.append(gang)
        for gang in asked:
            maker.make_room_inside(gang)
        maker.let_go()
    session.round = Round.CLAIMS


def reclaim(session: Session) -> None:
    """Let queues that use more than their due give room back to queues that have less.

    What was lent to them goes back first. A namespace that has less of a queue than at least gets
    it back from the others of that queue too.
    """
    maker = RoomMaker(session, "reclaim", first=Lent(session).holds)
    has_shares = bool(session.census.shares)
    for gangs in starving_gangs(session):
        is_overused = session.opinions.is_overused(gangs[0].queue)
        for gang in _in_turn(session, gangs):
            if has_shares and is_covered(session, gang):
                maker.make_room(gang, partial(may_lose_to_share, gang))
            elif not is_overused:
                maker.make_room(gang, partial(may_lose, gang))
    maker.let_go()


def _in_turn(session: Session, gangs: list[GangState]) -> Iterator[GangState]:
    """Give one gang of a queue after the other; nobody behind one that waited long and gets room.

    What the others could free would be kept for it. If nobody can leave for it and no room is kept,
    it is in nobody's way: it may be one that never starts, whatever others free.
    """
    first, *others = gangs
    waits, had = is_first(session, first), len(first.pipelined)
    yield first
    if not waits or (first.key not in session.fenced and len(first.pipelined) == had):
        yield from others
