"""preempt: in one queue the less important make room for the more important.

First between gangs, then inside a gang. Nothing starts here: whoever got room promised starts in
a later cycle, when it is really free.
"""

from __future__ import annotations

from collections.abc import Callable

from extender.plan.room.state import GangState
from extender.plan.session import Session
from extender.plan.starvation import starving_gangs
from extender.plan.victims.room_maker import RoomMaker


def preempt(session: Session) -> None:
    """Let starving gangs take the place of others in their queue."""
    for gangs in starving_gangs(session):
        maker = RoomMaker(session, "preempt")
        for gang in gangs:
            maker.make_room(gang, _others_in_queue(gang))
        for gang in gangs:
            maker.make_room_inside(gang)


def _others_in_queue(gang: GangState) -> Callable[[GangState], bool]:
    return lambda other: other.queue is gang.queue and other is not gang
