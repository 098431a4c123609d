"""A user of much cpu and a user of much memory, who get alike of what each needs most."""

from __future__ import annotations

from fractions import Fraction

from extender.sim.story.stage_set import CPUS, MEMORY_GI, NODES, SLOTS
from extender.sim.story.telling import Act, Telling
from extender.sim.tenants import GangWish

_ALL_CPUS, _ALL_GI = NODES * CPUS, NODES * MEMORY_GI
_CPUS, _GI = 3, 4


def _tell(on: Telling) -> None:
    full = {"cpu": str(_CPUS), "memory": f"{MEMORY_GI // 3}Gi"}
    on.tenants.submit(GangWish(name="night", queue="lab", size=SLOTS, least=SLOTS, each=full))
    on.wait_for_start("night", SLOTS)
    sums = GangWish(
        name="sums", queue="lab", size=SLOTS, least=1, each={"cpu": f"{_CPUS}", "memory": "1Gi"}
    )
    index = GangWish(
        name="index", queue="lab", size=16, least=1, each={"cpu": "1", "memory": f"{_GI}Gi"}
    )
    on.tenants.submit(sums)
    on.tenants.submit(index)
    for name in ("sums", "index"):
        on.wait_for_reason(name, "NotEnoughRoom", "NotYourTurn")
    on.say(
        f"Everything is taken by night. Sums wants {sums.size} pods of {_CPUS} cpus, index, behind"
        f" it, {index.size} of {_GI} GiB: whoever is first could take nearly all."
    )
    on.tenants.end("night")
    on.wait(lambda: _is_settled(on), "sums and index have shared the room")
    cpus, memory = _shares(on)
    # Pods are indivisible: nobody can be nearer than one pod.
    one_pod = max(Fraction(_CPUS, _ALL_CPUS), Fraction(_GI, _ALL_GI))
    on.claim(
        abs(cpus - memory) <= one_pod,
        f"sums holds {float(cpus):.0%} of the cpus, index {float(memory):.0%} of the memory",
    )
    on.say(
        "Night is done. By dominant resource fairness sums gets"
        f" {on.witness.on_nodes('sums')} pods, {float(cpus):.0%} of all cpus, and index"
        f" {on.witness.on_nodes('index')}, {float(memory):.0%} of all memory."
    )


def _shares(on: Telling) -> tuple[Fraction, Fraction]:
    return (
        Fraction(on.witness.on_nodes("sums") * _CPUS, _ALL_CPUS),
        Fraction(on.witness.on_nodes("index") * _GI, _ALL_GI),
    )


def _is_settled(on: Telling) -> bool:
    """Ask whether no further pod of sums fits anywhere, and the plan lets nobody else in."""
    used = on.witness.on_nodes("sums") * _CPUS + on.witness.on_nodes("index")
    return used > _ALL_CPUS - _CPUS


ACT = Act(
    "fair-shares",
    "one needs cpus, the other memory",
    "both hold alike of what they need most",
    _tell,
)
