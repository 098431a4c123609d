"""Short gangs use held capacity if they end before the starving gang can need it.

Rule 1: the end is certain. The pods of such a gang have deadlines, which the kubelet enforces. A
duration that a gang states for itself is not enough.

Rule 2: held capacity is needed when the gangs that the starving gang waits for end by their own
statements (`CapacityForecast`). If that is unknown, no gang is placed. Short gangs placed earlier
do not count, so the same moment applies to all of them.

Rule 3: if stated durations are wrong, the starving gang waits longer by `Starvation.backfill_s` at
most, because no short gang can run longer.

Rule 4: short gangs have no other effect: the starving gang has the same claim to its capacity, and
may start under the same conditions, as without them.

This runs after all actions: by then victims have been chosen for the starving gang.
"""

from __future__ import annotations

from itertools import chain, groupby

from extender.model.gang import GangKey
from extender.planner.actions.allocate import gang_order
from extender.planner.capacity_forecast import CapacityForecast, most_s
from extender.planner.plugin import Round
from extender.planner.session import Demand, Session
from extender.planner.starvation import may_be_preferred
from extender.planner.state import GangState

#: The time from a plan until the last kubelet has started its pod, and the skew of clocks.
MARGIN_S = 60.0


def use_held_capacity(session: Session) -> None:
    """Place gangs in held capacity if they end before it can be needed."""
    if not session.holds:
        return
    contenders = session.accounting.contenders
    brief = [gang for gang in contenders.values() if _is_brief(session, gang)]
    if not brief:
        return
    demands = [session.demand(contenders[key]) for key in session.holds]
    session.first_start = start = _first(session, demands)
    gone_by = start[1] - session.snapshot.now - MARGIN_S
    gangs = [gang for gang in brief if most_s(gang.gang.waiting) <= gone_by]
    session.too_long = {gang.key for gang in brief} - {gang.key for gang in gangs}
    if gangs:
        _place_all(session, gangs, demands)


def _is_brief(session: Session, gang: GangState) -> bool:
    """Return whether *gang* waits for capacity and ends soon in any case."""
    waits = not (gang.placed or gang.pipelined or gang.evicted or gang.is_pending)
    if not waits or gang.key in session.holds:
        return False
    if most_s(gang.gang.waiting) > session.policy.starvation.backfill_s:
        return False
    if any(pod.shape.host_ports for pod in gang.gang.waiting):
        return False
    is_valid = session.plugins.invalid_reason(gang) is None
    return is_valid and session.plugins.missing_members(gang) > 0


def _first(session: Session, demands: list[Demand]) -> tuple[GangKey, float]:
    """Return which gang could need its held capacity first, and the earliest moment."""
    forecast = CapacityForecast(session)
    at, key = min((forecast.earliest(demand), demand.gang.key) for demand in demands)
    return key, at


def _place_all(session: Session, gangs: list[GangState], demands: list[Demand]) -> None:
    """Place gangs as if nothing were held, then hold what is left again."""
    capacity = session.capacity
    for hold in chain.from_iterable(session.holds.values()):
        capacity.release(hold)
    rights = _rights(session, demands)
    with session.in_round(Round.BORROW):
        for gang in gang_order(session, gangs):
            with capacity.trial(gang) as trial:
                if _place(session, gang) and _rights(session, demands) == rights:
                    gang.commit()
                    gang.blocked = None
                    trial.keep()
                    session.in_held_capacity.add(gang.key)
    session.holds = {
        key: [capacity.hold(each.row, each.kept + each.missing) for each in holds]
        for key, holds in session.holds.items()
    }


def _place(session: Session, gang: GangState) -> bool:
    """Place the minimum of *gang* in free capacity, if its queue may start it."""
    demand = session.demand(gang)
    if not demand.pods or not demand.is_allowed(session):
        return False
    rows_by_pod = demand.assign(session, only_free=True)
    if rows_by_pod is None:
        return False
    for _, alike in groupby(rows_by_pod, key=lambda pair: pair[0].shape):
        pods, rows = zip(*alike, strict=True)
        session.capacity.place(gang, list(pods), list(rows))
    return session.plugins.is_ready(gang) and session.blocked_by_terminating(gang) is None


def _rights(session: Session, demands: list[Demand]) -> list[tuple[bool, bool]]:
    """Return by which right capacity is held in each round, by the current usage of queues."""
    found: list[tuple[bool, bool]] = []
    for current in (Round.DESERVED, Round.OVERSHOOT):
        with session.in_round(current):
            found += [
                (
                    may_be_preferred(session, each),
                    session.plugins.is_entitled(each.gang, each.total),
                )
                for each in demands
            ]
    return found
