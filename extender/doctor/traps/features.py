"""Traps of Kubernetes' own features that do what we do."""

from __future__ import annotations

from collections.abc import Iterator

from extender.doctor.seen import Seen
from extender.doctor.trap import Caught, Trap

#: By these kube-scheduler assembles gangs itself: off by default in 1.35 to 1.37.
GATES = ("GangScheduling", "GenericWorkload")

NATIVE_GANGS = Trap(
    "NativeGangs",
    "kube-scheduler assembles pods with a `schedulingGroup` itself (1.35 and later): they pass us"
    " by, without our queues' order and without our hold, and one that does not fit asks our"
    " filter without end",
    "the feature gates off, in kube-scheduler and API server, or no pods with a `schedulingGroup`",
)

TRAPS = (NATIVE_GANGS,)


def of_features(seen: Seen) -> Iterator[Caught]:
    """Name everybody who has a gate of native gangs on."""
    for scheduler in seen.schedulers:
        if on := [gate for gate in GATES if scheduler.gates.get(gate)]:
            yield _caught(scheduler.where, on)
    if on := [gate for gate in GATES if gate in seen.server_gates]:
        yield _caught("the API server", on)


def _caught(where: str, gates: list[str]) -> Caught:
    off = ",".join(f"{gate}=false" for gate in gates)
    return NATIVE_GANGS.at(
        where, f"{' and '.join(gates)} on", f"write `--feature-gates={off}` into its command"
    )
