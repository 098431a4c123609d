"""Room that is kept for a gang may be used until it could be needed, by those who are gone by then.

Rule 1: gone for sure. Their pods have deadlines, which the kubelet keeps; a duration that somebody
declares for himself lets nobody in.
Rule 2: needed when those whom the gang waits for said that they end (`Outlook`). Where nobody can
tell, nobody is let in. Whoever was let in before does not count, so a chain of them is judged by
the same moment, one like the other.
Rule 3: if those who gave their word lied, the gang waits longer by `Starvation.backfill_s` at most,
because nobody is let in who could stay longer.
Rule 4: nobody gets in the way otherwise: with them the gang has the same claim to its room, and the
same right to start, as without.

It comes after all actions: whoever can be made to leave for the gang has been asked by then.
"""

from __future__ import annotations

from itertools import groupby

from extender.model.gang import GangKey
from extender.planner.actions.allocate import gang_order
from extender.planner.capacity_forecast import CapacityForecast, most_s
from extender.planner.plugin import Round
from extender.planner.session import Demand, Session, needed_pods
from extender.planner.starvation import may_be_preferred
from extender.planner.state import GangState

#: From a plan until the last kubelet has taken its pod, and between clocks.
MARGIN_S = 60.0


def use_reserved(session: Session) -> None:
    """Let gangs into room that is kept if they are gone before it can be needed."""
    if not session.fenced:
        return
    brief = [gang for gang in session.accounting.contenders.values() if _is_brief(session, gang)]
    if not brief:
        return
    claims = [_demand(session, session.accounting.contenders[key]) for key in session.fenced]
    session.first_start = start = _first(session, claims)
    gone_by = start[1] - session.snapshot.now - MARGIN_S
    gangs = [gang for gang in brief if most_s(gang.gang.waiting) <= gone_by]
    session.too_long = {gang.key for gang in brief} - {gang.key for gang in gangs}
    if gangs:
        _let_in(session, gangs, claims)


def _is_brief(session: Session, gang: GangState) -> bool:
    """Ask whether *gang* waits for room, and will not run for long whatever it does."""
    waits = not (gang.placed or gang.pipelined or gang.evicted or gang.is_pending)
    if not waits or gang.key in session.fenced:
        return False
    if most_s(gang.gang.waiting) > session.policy.starvation.backfill_s:
        return False
    if any(pod.shape.host_ports for pod in gang.gang.waiting):
        return False
    is_complete = session.opinions.invalid_reason(gang) is None
    return is_complete and session.opinions.missing_members(gang) > 0


def _demand(session: Session, gang: GangState) -> Demand:
    return Demand(gang, needed_pods(session, gang))


def _first(session: Session, claims: list[Demand]) -> tuple[GangKey, float]:
    """Give which gang could need its room first, and when at the earliest."""
    outlook = CapacityForecast(session)
    at, key = min((outlook.earliest(claim), claim.gang.key) for claim in claims)
    return key, at


def _let_in(session: Session, gangs: list[GangState], claims: list[Demand]) -> None:
    """Hand out idle room as if none were kept; what is left of it is kept again."""
    room = session.capacity
    for fence in (each for fences in session.fenced.values() for each in fences):
        room.release(fence)
    session.round = Round.BORROW
    footing = _footing(session, claims)
    for gang in gang_order(session, gangs):
        with room.trial(gang) as trial:
            if _finds_room(session, gang) and _footing(session, claims) == footing:
                gang.commit()
                gang.blocked = None
                trial.keep()
                session.let_in_meanwhile.add(gang.key)
    session.round = Round.DEFAULT
    session.fenced = {
        key: [room.reservation(fence.row, fence.kept + fence.missing) for fence in fences]
        for key, fences in session.fenced.items()
    }


def _finds_room(session: Session, gang: GangState) -> bool:
    """Give the minimum of *gang* idle room, if its queue may start it."""
    demand = _demand(session, gang)
    if not demand.pods or not demand.is_allowed(session):
        return False
    places = demand.assign(session, idle=True)
    if places is None:
        return False
    for _, alike in groupby(places, key=lambda place: place[0].shape):
        pods, rows = zip(*alike, strict=True)
        session.capacity.place(gang, list(pods), list(rows))
    return session.opinions.is_ready(gang) and session.occupied(gang) is None


def _footing(session: Session, claims: list[Demand]) -> list[tuple[bool, bool]]:
    """Say on what ground room is kept in each round, by what queues use now."""
    now, found = session.round, list[tuple[bool, bool]]()
    for session.round in (Round.DESERVED, Round.OVERSHOOT):
        found += [
            (may_be_preferred(session, each), session.opinions.is_entitled(each.gang, each.total))
            for each in claims
        ]
    session.round = now
    return found
