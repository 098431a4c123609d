"""A queue whose share others use while it sleeps, and who gives it back when it wakes."""

from __future__ import annotations

from extender.sim.story.stage_set import SLOTS, THIRD
from extender.sim.story.telling import Act, Telling
from extender.sim.tenants import GangWish

# In the order of the alphabet: of two that are equally old it decides who stays.
_LAB = ("fold", "scan", "train", "tune")
_EACH = SLOTS // len(_LAB)
_DUE = SLOTS // 2


def _tell(on: Telling) -> None:
    for name in _LAB:
        on.tenants.submit(GangWish(name=name, queue="lab", size=_EACH, least=_EACH, each=THIRD))
        on.wait_for_start(name, _EACH)
        on.rest(0.2)
    on.say(
        "Queues lab and ops are due half of the cluster each. Ops sleeps, so lab runs"
        f" {len(_LAB)} gangs on all of it."
    )
    on.tenants.submit(GangWish(name="report", queue="ops", size=_DUE, least=_DUE, each=THIRD))
    on.wait_for_start("report", _DUE)
    left = {name: on.tenants.evicted[name] for name in _LAB if on.tenants.evicted[name]}
    stayed = [name for name in _LAB if name not in left]
    on.claim(
        all(count == _EACH for count in left.values()) and sum(left.values()) == _DUE,
        f"{len(left)} whole gangs of lab left, no pod more than ops was due",
    )
    on.claim(
        all(on.witness.fewest(name, 0.0, _EACH) == _EACH for name in stayed),
        "the others of lab never lost a pod",
    )
    on.say(
        f"Ops wakes: report needs {_DUE} pods, its due. {_and(left).capitalize()} leave whole,"
        f" {_and(stayed)} never lose a pod, report starts whole."
    )
    for name in left:
        on.wait_for_reason(name, "QueueOverDeserved", "NotEnoughRoom", "NotYourTurn")
    on.say(f"{_and(left).capitalize()} wait for room that nobody else is due.")
    on.tenants.end("report")
    for name in left:
        on.wait_for_start(name, _EACH)
    on.claim(on.tenants.evicted.total() == _DUE, "whoever left came back when ops slept again")
    on.say(f"Report is done, ops sleeps again, and {_and(left)} are back.")


def _and(names: dict[str, int] | list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


ACT = Act(
    "lending",
    "a queue takes back what it lent",
    "whole gangs left, as few as it took, and came back",
    _tell,
)
