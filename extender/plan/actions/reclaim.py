"""reclaim: queues that use more than their due give room back to queues that have less."""

from __future__ import annotations

from functools import partial

from extender.plan.session import Session
from extender.plan.starvation import starving_gangs
from extender.plan.victims.occupants import may_lose
from extender.plan.victims.room_maker import RoomMaker


def reclaim(session: Session) -> None:
    """Let starving gangs take room back from other queues."""
    maker = RoomMaker(session, "reclaim")
    for gangs in starving_gangs(session):
        if not session.opinions.is_overused(gangs[0].queue):
            for gang in gangs:
                maker.make_room(gang, partial(may_lose, gang))
