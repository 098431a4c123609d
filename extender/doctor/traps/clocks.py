"""Traps of time: clocks that do not agree."""

from __future__ import annotations

from collections.abc import Iterator

from extender.doctor.seen import Seen
from extender.doctor.trap import Caught, Severity, Trap

#: What nobody notices.
_TOLERATED_S = 5.0

CLOCK_SKEW = Trap(
    "ClockSkew",
    "the extender's clock is not the API server's: how long gangs wait, run and are kept is"
    " counted wrongly, and certificates seem to have expired or not to be valid yet",
    "time synchronisation (chrony, systemd-timesyncd) on the nodes of both",
)
CLOCK_SKEW_HERE = Trap(
    "ClockSkewHere",
    "the clock of the machine you type on is not the API server's: what `explain` and `top` say"
    " of times looks wrong to you",
    "time synchronisation on this machine",
    Severity.HINT,
)

TRAPS = (CLOCK_SKEW, CLOCK_SKEW_HERE)


def of_clocks(seen: Seen) -> Iterator[Caught]:
    """Compare the clocks that were read with the API server's."""
    clocks = seen.clocks
    if clocks.api_server_s is None:
        return
    if abs(clocks.api_server_s) > _TOLERATED_S:
        yield CLOCK_SKEW_HERE.at("this machine", _said(-clocks.api_server_s))
    if clocks.extender_s is not None:
        ahead_s = clocks.extender_s - clocks.api_server_s
        if abs(ahead_s) > _TOLERATED_S:
            yield CLOCK_SKEW.at("the extender", _said(ahead_s))
    now = clocks.here + clocks.api_server_s
    for lease in seen.leases:
        if lease.exists and lease.holder and lease.renewed - now > _TOLERATED_S:
            yield CLOCK_SKEW.at(
                f"lease/{lease.name} in {lease.namespace}",
                f"{lease.holder} renewed it {lease.renewed - now:.0f} s in the future of the API"
                " server",
            )


def _said(ahead_s: float) -> str:
    way = "ahead of" if ahead_s > 0 else "behind"
    return f"its clock is {abs(ahead_s):.0f} s {way} the API server's"
