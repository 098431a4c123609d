"""What is left of a gang that lost members to us: it is asked to leave again, until it does.

A set goes out whole, but the API server may let some of a gang go, and then say no, or nothing, of
the others. They hold room without being of use to anybody, and no later plan has to choose them.
We know of two ways only, and neither can a tenant have by himself:

    a set of ours         somebody of the gang was let go, and those who were to go with him stayed
    a mark on the pod     a scheduler wrote on it that it has to leave (DisruptionTarget): we before
                          a fall, or whoever led before us
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from extender.model.gang import GangKey
from extender.model.pod import SEATED_SET, Pod, PodUid
from extender.model.snapshot import Snapshot
from extender.timing.pause import Pause

#: Before they are asked again.
AGAIN = Pause(1.0, 30.0)


@dataclass(slots=True)
class _Loser:
    """A gang of which somebody was let go, and who was to go with him."""

    victims: set[PodUid]
    ask_at: float
    times: int = 0


class Remnants:
    """Whoever owns it sees to it that one thread is here at a time."""

    def __init__(self) -> None:
        self._losers: dict[GangKey, _Loser] = {}

    def lost(self, gang: GangKey, victims: Iterable[PodUid], now: float) -> None:
        """Hear that the first of *victims*, all of *gang*, was let go."""
        loser = self._losers.setdefault(gang, _Loser(set(), now + AGAIN.first_s))
        loser.victims.update(victims)

    def due(self, snapshot: Snapshot, leaving: Set[PodUid], now: float) -> list[Pod]:
        """Give those who stayed though their gang is torn, unless they were asked just now.

        Whoever is *leaving* has been asked, and the answer, or its effect, is not seen yet.
        """
        self._find_marked(snapshot, now)
        due: list[Pod] = []
        for key, loser in list(self._losers.items()):
            if not leaving.isdisjoint(loser.victims):
                continue
            gang = snapshot.gangs.get(key)
            pods = gang.pods if gang is not None and gang.is_torn else ()
            stayed = [pod for pod in pods if pod.status in SEATED_SET and pod.uid in loser.victims]
            if not stayed:
                del self._losers[key]
            elif now >= loser.ask_at:
                loser.times += 1
                loser.ask_at = now + AGAIN.after(loser.times)
                due += stayed
        return due

    def _find_marked(self, snapshot: Snapshot, now: float) -> None:
        for key, gang in snapshot.gangs.items():
            if gang.is_torn:
                marked = {pod.uid for pod in gang.pods if pod.doomed and pod.status in SEATED_SET}
                if marked:
                    self.lost(key, marked, now)
