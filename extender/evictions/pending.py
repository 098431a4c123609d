"""One set of victims on its way: what goes out next, and who has not left yet.

A set goes out in waves, and a wave only when all of the one before said yes: gangs that a budget
has a say about first, each by itself, then the others, many at once. A gang never stands in two
waves. So when somebody may not leave after all, or whoever needed the room is gone, nobody else
leaves in vain, and a restart in the middle finds whole gangs.

A set is over when each of its pods is gone, was refused, or will never go. After a refusal it is
over as soon as the others are seen to leave: from then on plans know all there is to know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass

from extender.durations import Backoff
from extender.evictions.checks import Victim
from extender.model.gang import Gang, GangKey
from extender.model.pod import FINISHED_SET, SCHEDULED_SET, Pod, PodUid, Status
from extender.model.snapshot import Snapshot
from extender.ports import EvictOutcome

#: A wave takes in whole gangs until it has so many pods.
WAVE = 50


@dataclass(slots=True, eq=False)
class _Awaited:
    """A victim that has not left; *agreed_at* is when the API server said that it will."""

    victim: Victim
    asked: bool = False
    agreed_at: float | None = None
    future: Future[EvictOutcome] | None = None


class VictimSet:
    """The victims of one gang; whoever owns it sees to it that one thread is here at a time."""

    def __init__(
        self,
        beneficiary: GangKey,
        victims: Mapping[PodUid, Victim],
        snapshot: Snapshot,
        guarded: Set[PodUid],
    ) -> None:
        self.beneficiary = beneficiary
        self.snapshot = snapshot
        self._all = tuple(victims.values())
        self._awaited = {uid: _Awaited(victim) for uid, victim in victims.items()}
        self._waves = deque(_waves(victims.values(), guarded))
        self._unanswered: set[PodUid] = set()
        #: Gangs that lose members.
        self._losers: set[GangKey] = set()
        self._was_refused = False
        self._is_sending = False

    @property
    def open(self) -> Mapping[PodUid, GangKey]:
        """Name those who have not left, each with its gang."""
        return {uid: each.victim.gang.key for uid, each in self._awaited.items()}

    @property
    def victims(self) -> list[Victim]:
        """List those who have not left."""
        return [each.victim for each in self._awaited.values()]

    def members_of(self, gang: Gang) -> set[PodUid]:
        """Name all victims of one gang, whether they have left or not."""
        return {victim.pod.uid for victim in self._all if victim.gang is gang}

    @property
    def is_over(self) -> bool:
        """Ask whether nobody is waited for any more."""
        return not self._awaited

    # Going out

    def begin_to_send(self) -> bool:
        """Ask for the right to send waves; only one thread at a time has it."""
        mine = not self._is_sending
        self._is_sending = True
        return mine

    def next_wave(self) -> list[Victim]:
        """Give the wave that is due; with none, the right to send is given back."""
        while self._waves and not self._unanswered:
            wave = [victim for victim in self._waves.popleft() if victim.pod.uid in self._awaited]
            for victim in wave:
                self._awaited[victim.pod.uid].asked = True
                self._unanswered.add(victim.pod.uid)
            if wave:
                return wave
        self._is_sending = False
        return []

    def sent(self, victim: Victim, future: Future[EvictOutcome]) -> None:
        """Note how the answer about a victim will come."""
        awaited = self._awaited.get(victim.pod.uid)
        if awaited is not None:
            awaited.future = future

    def agreed(self, victim: Victim, now: float) -> bool:
        """Note that the API server lets a victim go; True for the first of its gang."""
        uid, key = victim.pod.uid, victim.gang.key
        self._unanswered.discard(uid)
        awaited = self._awaited.get(uid)
        if awaited is not None:
            awaited.agreed_at, awaited.future = now, None
        is_first = key not in self._losers
        self._losers.add(key)
        return is_first

    def refused(self, victim: Victim) -> list[Future[EvictOutcome]]:
        """Note that a victim stays, and give the orders that may still be called back.

        What is left of its gang would leave in vain, and so would the waves to come.
        """
        self._was_refused = True
        self.forget(victim.pod.uid)
        self.withdraw()
        return [
            each.future
            for each in self._awaited.values()
            if each.future is not None and each.victim.gang is victim.gang
        ]

    def forget(self, uid: PodUid) -> None:
        """Wait for a pod no more."""
        self._unanswered.discard(uid)
        self._awaited.pop(uid, None)

    def withdraw(self) -> None:
        """Leave out whoever has not been asked yet."""
        self._waves.clear()
        self._awaited = {uid: each for uid, each in self._awaited.items() if each.asked}

    # Being gone

    def look(self, snapshot: Snapshot, now: float, unseen_s: float) -> list[Victim]:
        """See who has left; give those who were to leave *unseen_s* ago and do not."""
        pods = self._pods(snapshot)
        if not _needs_room(snapshot, self.beneficiary):
            self.withdraw()
        staying = []
        for uid, each in list(self._awaited.items()):
            pod = pods.get(uid)
            if pod is None or pod.status in FINISHED_SET or uid in snapshot.stuck:
                self.forget(uid)
            elif pod.status is Status.RELEASING:
                if self._was_refused:
                    self.forget(uid)
            elif pod.status not in SCHEDULED_SET:
                self.forget(uid)  # its node is lost, and nobody can tell
            elif each.agreed_at is not None and now - each.agreed_at > unseen_s:
                staying.append(each.victim)
        return staying

    def _pods(self, snapshot: Snapshot) -> dict[PodUid, Pod]:
        keys = set(self.open.values())
        return {
            pod.uid: pod
            for key in keys
            if key in snapshot.gangs
            for pod in snapshot.gangs[key].pods
        }


def _needs_room(snapshot: Snapshot, key: GangKey) -> bool:
    gang = snapshot.gangs.get(key)
    return gang is not None and bool(gang.waiting)


def _waves(victims: Iterable[Victim], guarded: Set[PodUid]) -> Iterable[Sequence[Victim]]:
    gangs: dict[GangKey, list[Victim]] = {}
    for victim in victims:
        gangs.setdefault(victim.gang.key, []).append(victim)
    free: list[Victim] = []
    rest: list[list[Victim]] = []
    for members in gangs.values():
        if any(victim.pod.uid in guarded for victim in members):
            yield members
            continue
        free.extend(members)
        if len(free) >= WAVE:
            rest.append(free)
            free = []
    yield from rest
    if free:
        yield free


#: Before they are asked again.
AGAIN = Backoff(1.0, 30.0)
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


class PartialEvictions:
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
            pods = gang.pods if gang is not None and gang.is_below_minimum else ()
            stayed = [
                pod for pod in pods if pod.status in SCHEDULED_SET and pod.uid in loser.victims
            ]
            if not stayed:
                if gang is None or not _may_come(gang, loser.victims):
                    del self._losers[key]
            elif now >= loser.ask_at:
                loser.times += 1
                loser.ask_at = now + AGAIN.delay_s(loser.times)
                due[key] = stayed
        return due

    def _find_marked(self, snapshot: Snapshot, leaving: Set[PodUid], now: float) -> None:
        """Find those of torn gangs who were to leave with the others.

        Whoever is *leaving* we marked ourselves, and are about to ask.
        """
        before, self._whole_since = self._whole_since, {}
        for key, gang in snapshot.gangs.items():
            if gang.group.min_member <= 1 or not gang.terminating:
                continue  # nearly always; and a gang of one cannot be torn
            known = {uid: before[uid] for uid in gang.terminating if uid in before}
            if gang.is_below_minimum:
                let_off = {uid: since for uid, since in known.items() if now - since >= LET_OFF_S}
                self._whole_since |= let_off
                if marked := gang.terminating - let_off.keys():
                    self.lost(key, marked, now)
            else:
                stays = gang.terminating - leaving
                self._whole_since |= {uid: known.get(uid, now) for uid in stays}
