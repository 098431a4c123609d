"""Traps of leadership: a lease that nobody renews."""

from __future__ import annotations

from collections.abc import Iterator

from extender.doctor.seen import LeaseSeen, Seen
from extender.doctor.trap import Caught, Trap
from extender.timing.clock import timestamp

#: A lease that ran out may be taken the next moment.
_PATIENCE_S = 5.0

NOBODY_LEADS = Trap(
    "NobodyLeads",
    "nobody holds the lease by which one of the replicas acts: all of them stand by, and nothing"
    " is scheduled",
    "a replica, or the kube-scheduler beside it, that runs and may write the lease",
)

TRAPS = (NOBODY_LEADS,)


def of_leases(seen: Seen) -> Iterator[Caught]:
    """Find leases that are not there, were given back, or ran out."""
    # They are written by clocks of the cluster; whose clock is wrong is told elsewhere.
    now = seen.clocks.here + (seen.clocks.api_server_s or 0.0)
    for lease in seen.leases:
        if why := _problem(lease, now):
            yield NOBODY_LEADS.at(
                f"lease/{lease.name} in {lease.namespace}",
                why,
                f"kubectl -n {lease.namespace} get lease {lease.name} -o yaml, and the logs of"
                " whoever should hold it",
            )


def _problem(lease: LeaseSeen, now: float) -> str:
    if not lease.exists:
        return "it does not exist"
    if not lease.holder:
        return "nobody holds it"
    silent_s = now - lease.renewed
    if silent_s > lease.duration_s + _PATIENCE_S:
        return f"{lease.holder} renewed it last at {timestamp(lease.renewed)}, {silent_s:.0f} s ago"
    return ""
