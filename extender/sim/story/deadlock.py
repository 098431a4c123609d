"""Two gangs that would each take half of the room and wait for ever for the other half."""

from __future__ import annotations

from extender.sim.story.stage_set import SLOTS, THIRD
from extender.sim.story.telling import Act, Telling
from extender.sim.tenants import GangWish

_NEED = 8
_HALF = SLOTS // 2


def _tell(on: Telling) -> None:
    red, blue = (
        GangWish(name=name, queue="lab", size=_NEED, least=_NEED, each=THIRD)
        for name in ("red", "blue")
    )
    on.say(
        f"Gangs red and blue need {_NEED} pods each, all at once; {SLOTS} fit. Placed pod by pod"
        f" each would get {_HALF}, and neither could ever begin."
    )
    on.tenants.submit(red, blue)
    on.wait_for_start("red", _NEED)
    waits = on.wait_for_reason("blue", "NotEnoughRoom")
    on.claim(on.witness.on_nodes("blue") == 0, "blue occupies no node while red runs")
    spread = on.witness.spread_ms("red", _NEED)
    on.say(
        f"Their pods came by turns. Red starts whole, its last pod {spread:.0f} ms after its first."
    )
    why = waits["message"].partition(";")[
        0
    ]  # what is free now, and for whom, changes by the moment
    on.say(f"Blue occupies nothing and says why: {waits['reason']}, {why}.")
    on.tenants.end("red")
    on.wait_for_start("blue", _NEED)
    on.claim(not on.witness.were_together("red", "blue"), "never did both hold room at once")
    on.claim(on.tenants.evicted.total() == 0, "nobody had to leave")
    spread = on.witness.spread_ms("blue", _NEED)
    on.say(f"Red is done and blue starts by itself, its last pod {spread:.0f} ms after its first.")


ACT = Act(
    "deadlock",
    "two gangs that would block each other",
    "each started whole, neither held room the other needed",
    _tell,
)
