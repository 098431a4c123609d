"""How an eviction is told to the people whose pods leave, and to those it is done for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from extender.evictions.safety import Victim
from extender.model.gang import Gang, GangKey
from extender.model.reason import Happening
from extender.model.snapshot import Snapshot
from extender.ports import Notice, Subject

#: Volcano's word for it.
EVICT = Happening.EVICT.value
WOULD_EVICT = Happening.WOULD_EVICT.value


class Notices:
    """One set of victims, told once to each gang concerned instead of once per pod."""

    def __init__(
        self,
        snapshot: Snapshot,
        beneficiary: GangKey,
        victims: Sequence[Victim],
        *,
        dry_run: bool,
    ) -> None:
        self._snapshot = snapshot
        self._beneficiary = beneficiary
        self._victims = victims
        self._gangs: dict[GangKey, Gang] = {each.gang.key: each.gang for each in victims}
        self.word = WOULD_EVICT if dry_run else EVICT
        self.sentence = "victims would be asked to leave" if dry_run else "victims asked to leave"

    def lines(self) -> Iterator[tuple[GangKey, str]]:
        """Give a line for the story of each gang concerned."""
        action = self._victims[0].eviction.action
        pods = _count(len(self._victims), "pod")
        gangs = ", ".join(sorted(self._gangs)[:5]) + (", …" if len(self._gangs) > 5 else "")
        yield self._beneficiary, f"{action} asks {pods} to leave for it, of {gangs}"
        for key in self._gangs:
            yield key, self._loss(key)

    def on_gangs(self) -> Iterator[Notice]:
        """Give one notice for each gang that loses members."""
        for key, gang in self._gangs.items():
            subject = Subject.of_gang(gang)
            if subject is not None:
                yield Notice(
                    subject=subject,
                    reason=self.word,
                    message=self._loss(key),
                    at=self._snapshot.now,
                )

    def facts(self) -> dict[str, object]:
        """Give the facts for the log."""
        return {
            "action": self._victims[0].eviction.action,
            "pods": [victim.pod.key for victim in self._victims[:50]],
            "count": len(self._victims),
            "victims": sorted(self._gangs)[:50],
        }

    def _loss(self, key: GangKey) -> str:
        mine = [victim for victim in self._victims if victim.gang.key == key]
        part = f"{len(mine)} of {self._gangs[key].seated} running members"
        return f"{part} leave: {reason_for(mine[0], self._snapshot)}"


def reason_for(victim: Victim, snapshot: Snapshot) -> str:
    """Say in one sentence for whom a pod leaves, and by what right."""
    claimant = snapshot.gangs[victim.eviction.beneficiary]
    if victim.eviction.action == "reclaim":
        return (
            f"queue {claimant.queue} takes back its due from queue {victim.gang.queue}"
            f" for {claimant.key}"
        )
    if claimant.priority > victim.gang.priority:
        return f"{claimant.key} has priority {claimant.priority} over {victim.gang.priority}"
    return f"{claimant.key} is further below its share of queue {claimant.queue}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
