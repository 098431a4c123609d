"""What is left of a gang that lost members to us: it is asked to leave again, until it does.

A set goes out whole, but the API server may let some of a gang go, and then say no, or nothing, of
the others. They hold room without being of use to anybody, and no later plan has to choose them.
We know of two ways only, and neither can a tenant have by himself:

    a set of ours         somebody of the gang was let go, and those who were to go with him stayed
    a mark on the pod     a scheduler wrote on it that it has to leave (DisruptionTarget): we before
                          a fall, or whoever led before us; unless its gang ran on whole with it
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass

from extender.model.gang import Gang, GangKey
from extender.model.pod import SEATED_SET, Pod, PodUid, Status
from extender.model.snapshot import Snapshot
from extender.timing.pause import Pause

#: Before they are asked again.
AGAIN = Pause(1.0, 30.0)
#: Whoever carries a mark and stands in a whole gang for so long was never asked to leave: who wrote
#: it was ended before he could ask, or was not let to, and nobody takes it off again.
LET_OFF_S = 60.0


@dataclass(slots=True)
class _Loser:
    """A gang of which somebody was let go, and who was to go with him."""

    victims: set[PodUid]
    ask_at: float
    times: int = 0


def _may_come(gang: Gang, victims: Set[PodUid]) -> bool:
    """Ask whether somebody who was to go with the others is on the way to a node."""
    binding = gang.by_status.get(Status.BINDING, ())
    return any(pod.uid in victims for pod in binding)


class Remnants:
    """Whoever owns it sees to it that one thread is here at a time."""

    def __init__(self) -> None:
        self._losers: dict[GangKey, _Loser] = {}
        #: Since when those who carry a mark were seen in a whole gang.
        self._whole_since: dict[PodUid, float] = {}

    def lost(self, gang: GangKey, victims: Iterable[PodUid], now: float) -> None:
        """Hear that the first of *victims*, all of *gang*, was let go."""
        loser = self._losers.setdefault(gang, _Loser(set(), now + AGAIN.first_s))
        loser.victims.update(victims)

    def due(self, snapshot: Snapshot, leaving: Set[PodUid], now: float) -> dict[GangKey, list[Pod]]:
        """Give those who stayed though their gang is torn, unless they were asked just now.

        Whoever is *leaving* has been asked, and the answer, or its effect, is not seen yet.
        """
        self._find_marked(snapshot, leaving, now)
        due: dict[GangKey, list[Pod]] = {}
        for key, loser in list(self._losers.items()):
            if not leaving.isdisjoint(loser.victims):
                continue
            gang = snapshot.gangs.get(key)
            pods = gang.pods if gang is not None and gang.is_torn else ()
            stayed = [pod for pod in pods if pod.status in SEATED_SET and pod.uid in loser.victims]
            if not stayed:
                if gang is None or not _may_come(gang, loser.victims):
                    del self._losers[key]
            elif now >= loser.ask_at:
                loser.times += 1
                loser.ask_at = now + AGAIN.after(loser.times)
                due[key] = stayed
        return due

    def _find_marked(self, snapshot: Snapshot, leaving: Set[PodUid], now: float) -> None:
        """Find those of torn gangs who were to leave with the others.

        Whoever is *leaving* we marked ourselves, and are about to ask.
        """
        before, self._whole_since = self._whole_since, {}
        for key, gang in snapshot.gangs.items():
            if gang.group.min_member <= 1 or not gang.doomed:
                continue  # nearly always; and a gang of one cannot be torn
            known = {uid: before[uid] for uid in gang.doomed if uid in before}
            if gang.is_torn:
                let_off = {uid: since for uid, since in known.items() if now - since >= LET_OFF_S}
                self._whole_since |= let_off
                if marked := gang.doomed - let_off.keys():
                    self.lost(key, marked, now)
            else:
                stays = gang.doomed - leaving
                self._whole_since |= {uid: known.get(uid, now) for uid in stays}
