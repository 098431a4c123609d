"""Why somebody may use room that is kept for another, until that one can start, and why not."""

from __future__ import annotations

from math import isfinite

from extender.plan.endings import most_s
from extender.plan.room.state import GangState
from extender.plan.session import Session
from extender.text.spans import clock, told


def why_let_in(session: Session, gang: GangState) -> str:
    """Say why *gang* was given room that is kept for another; empty when it was not."""
    if session.first_start is None or gang.key not in session.let_in_meanwhile:
        return ""
    key, at = session.first_start
    return f"; it ends before {key} can start, about {clock(at, session.snapshot.now)}"


def why_kept_out(session: Session, gang: GangState) -> str:
    """Say why *gang* may not use it meanwhile; empty where that is not the point."""
    longest_s, most = session.policy.starvation.backfill_s, most_s(gang.gang.waiting)
    if not longest_s:
        return ""
    if most > longest_s:
        this = f", this one in {told(most)}" if isfinite(most) else ""
        rule = f"gangs that activeDeadlineSeconds ends within {told(longest_s)}"
        return f"; only {rule} may use it meanwhile{this}"
    if session.first_start is None:
        return ""
    (key, at), now = session.first_start, session.snapshot.now
    waits = session.census.contenders.get(key)
    if at <= now and waits and any(pod.shape.host_ports for pod in waits.gang.waiting):
        return f"; {key} could start at any moment: when host ports become free is not foreseen"
    if at <= now:
        return f"; {key} could start at any moment, for not all it waits for say how long they run"
    if gang.key in session.too_long:
        return f"; {key} can start about {clock(at, now)}, before this one is sure to have ended"
    return ""
