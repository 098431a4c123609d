"""A gang as large as the cluster, among small ones that never stop coming."""

from __future__ import annotations

import time

from extender.plan.policy import policies
from extender.sim.story.stage_set import SLOTS, THIRD, impatient
from extender.sim.story.telling import Act, Telling
from extender.sim.tenants import GangWish

_SMALL = 3
_AT_ONCE = SLOTS // _SMALL
_EVERY_S = 0.8
#: Seconds of the story for which giant loses its turn; in a real cluster ten minutes.
_PATIENCE_S = 3.0


def _tell(on: Telling) -> None:
    small = _Crowd(on)
    on.meanwhile = small.go_on
    on.wait(lambda: small.running() == _AT_ONCE, "small gangs fill the cluster")
    on.say(f"Small gangs of {_SMALL} pods never stop coming: when one ends, the next one starts.")
    on.tenants.submit(GangWish(name="giant", queue="lab", size=SLOTS, least=SLOTS, each=THIRD))
    on.wait_for_reason("giant", "NotEnoughRoom", "NotYourTurn")
    ahead, patient_until = small.started(), time.monotonic() + on.in_story(_PATIENCE_S)
    on.say(f"Giant needs all {SLOTS} places at once, and there is no moment when all are free.")
    on.wait(lambda: small.started() >= ahead + 2, "small gangs start before giant")
    on.claim(not on.witness.moments("giant"), "small gangs ran first, giant never held a place")
    on.wait(lambda: time.monotonic() >= patient_until, "giant has lost its turn for long")
    try:
        on.set_policy(impatient(on.in_story(_PATIENCE_S) / 2))
        small.gives_way = True
        on.wait(lambda: on.is_all_kept_for("giant"), "room is kept for giant")
        late = small.started()
        on.wait_for_start("giant", SLOTS)
    finally:
        on.set_policy(policies.DEFAULT_TEXT)
    on.claim(small.started() == late, "once room was kept for giant, nobody overtook it")
    on.claim(small.waiting() > 0, "giant started although small gangs were still waiting")
    on.claim(on.tenants.evicted.total() == 0, "nobody had to leave for giant")
    on.say(
        f"It lost its turn for {_PATIENCE_S:.0f} s, so what became free was kept for it (after ten"
        " minutes by default). It runs, and nobody was evicted."
    )
    on.tenants.end("giant")
    on.wait(lambda: small.started() > late, "small gangs run again")
    on.claim(on.witness.on_nodes("giant") == 0, "small gangs went on after giant")
    on.say("Giant is done, and the small ones go on.")


class _Crowd:
    """The small gangs: one waits at any time, and one ends now and then."""

    def __init__(self, on: Telling) -> None:
        self._on = on
        self._sent: list[str] = []
        self._ended: set[str] = set()
        self._next_at = 0.0
        #: Room may stay free that is kept for giant; before, only what the next one takes at once.
        self.gives_way = False

    def go_on(self) -> None:
        """Send another if nobody waits; end the oldest if it has worked and the next may start."""
        if self.waiting() == 0:
            self._send_one()
        elif time.monotonic() >= self._next_at and self._is_settled():
            self._next_at = time.monotonic() + self._on.in_story(_EVERY_S)
            if oldest := next(iter(self._working()), None):
                self._ended.add(oldest)
                self._on.tenants.end(oldest)

    def started(self) -> int:
        """Count those that have begun."""
        return sum(map(self._has_started, self._sent))

    def running(self) -> int:
        """Count those that work."""
        return len(self._working())

    def waiting(self) -> int:
        """Count those that have not begun."""
        return len(self._sent) - self.started()

    def _is_settled(self) -> bool:
        """Ask whether the room of who ended last was taken, or is kept for giant."""
        is_full = self.running() == _AT_ONCE
        return is_full or (self.gives_way and self._on.is_all_kept_for("giant"))

    def _working(self) -> list[str]:
        return [name for name in self._sent if self._has_started(name) and name not in self._ended]

    def _has_started(self, name: str) -> bool:
        return self._on.witness.started_at(name, _SMALL) is not None

    def _send_one(self) -> None:
        name = f"s{len(self._sent) + 1}"
        self._sent.append(name)
        self._on.tenants.submit(
            GangWish(name=name, queue="lab", size=_SMALL, least=_SMALL, each=THIRD)
        )


ACT = Act(
    "giant",
    "a giant that does not starve",
    "it ran although small gangs never stopped coming",
    _tell,
)
