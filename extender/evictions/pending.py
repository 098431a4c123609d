"""Sets of victims in progress, and gangs that were evicted in part.

A set is sent in waves. A wave is sent only after all evictions of the wave before were accepted.
Gangs covered by a budget come first, each by itself, then the others, many at once. A gang is
never part of two waves. So when a victim is refused, or the gang that needs the capacity is gone,
no other victim is evicted in vain, and a restart in the middle finds whole gangs.

A set is over when each of its pods is gone, was refused, or will never terminate. After a refusal
it is over as soon as the others are seen to terminate: from then on plans have the full state.
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

#: A wave collects whole gangs until it has so many pods.
WAVE = 50


@dataclass(slots=True, eq=False)
class _Awaited:
    """A victim that is not gone; *accepted_at* is when the API server accepted its eviction."""

    victim: Victim
    is_sent: bool = False
    accepted_at: float | None = None
    future: Future[EvictOutcome] | None = None


class VictimSet:
    """The victims evicted for one gang; the owner serializes access by threads."""

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
        self._evicted_gangs: set[GangKey] = set()
        self._was_refused = False
        self._is_sending = False

    @property
    def open(self) -> Mapping[PodUid, GangKey]:
        """The victims that are not gone, each with its gang."""
        return {uid: each.victim.gang.key for uid, each in self._awaited.items()}

    @property
    def victims(self) -> list[Victim]:
        """The victims that are not gone."""
        return [each.victim for each in self._awaited.values()]

    def members_of(self, gang: Gang) -> set[PodUid]:
        """Return all victims of one gang, gone or not."""
        return {victim.pod.uid for victim in self._all if victim.gang is gang}

    @property
    def is_over(self) -> bool:
        """Return whether no victim is awaited any more."""
        return not self._awaited

    # Sending

    def begin_to_send(self) -> bool:
        """Acquire the right to send waves; only one thread at a time has it."""
        is_first = not self._is_sending
        self._is_sending = True
        return is_first

    def next_wave(self) -> list[Victim]:
        """Return the next wave; without one, release the right to send."""
        while self._waves and not self._unanswered:
            wave = [victim for victim in self._waves.popleft() if victim.pod.uid in self._awaited]
            for victim in wave:
                self._awaited[victim.pod.uid].is_sent = True
                self._unanswered.add(victim.pod.uid)
            if wave:
                return wave
        self._is_sending = False
        return []

    def sent(self, victim: Victim, future: Future[EvictOutcome]) -> None:
        """Store the future of a victim's eviction."""
        awaited = self._awaited.get(victim.pod.uid)
        if awaited is not None:
            awaited.future = future

    def accepted(self, victim: Victim, now: float) -> bool:
        """Record that the API server accepted an eviction; True for the first of its gang."""
        uid, key = victim.pod.uid, victim.gang.key
        self._unanswered.discard(uid)
        awaited = self._awaited.get(uid)
        if awaited is not None:
            awaited.accepted_at, awaited.future = now, None
        is_first = key not in self._evicted_gangs
        self._evicted_gangs.add(key)
        return is_first

    def refused(self, victim: Victim) -> list[Future[EvictOutcome]]:
        """Record that a victim stays, and return the orders that may still be cancelled.

        Evicting the rest of its gang, and the later waves, would be in vain.
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
        """Stop waiting for a pod."""
        self._unanswered.discard(uid)
        self._awaited.pop(uid, None)

    def withdraw(self) -> None:
        """Drop the victims whose evictions are not sent yet."""
        self._waves.clear()
        self._awaited = {uid: each for uid, each in self._awaited.items() if each.is_sent}

    # Termination

    def update(self, snapshot: Snapshot, now: float, unseen_s: float) -> list[Victim]:
        """Drop victims that are gone; return those accepted *unseen_s* ago and not terminating."""
        pods = self._pods(snapshot)
        if not _is_waiting(snapshot, self.beneficiary):
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
                self.forget(uid)  # its node is lost, so its state is unknown
            elif each.accepted_at is not None and now - each.accepted_at > unseen_s:
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


def _is_waiting(snapshot: Snapshot, key: GangKey) -> bool:
    gang = snapshot.gangs.get(key)
    return gang is not None and bool(gang.waiting)


def _waves(victims: Iterable[Victim], guarded: Set[PodUid]) -> Iterable[Sequence[Victim]]:
    gangs: dict[GangKey, list[Victim]] = {}
    for victim in victims:
        gangs.setdefault(victim.gang.key, []).append(victim)
    unguarded: list[Victim] = []
    rest: list[list[Victim]] = []
    for members in gangs.values():
        if any(victim.pod.uid in guarded for victim in members):
            yield members
            continue
        unguarded.extend(members)
        if len(unguarded) >= WAVE:
            rest.append(unguarded)
            unguarded = []
    yield from rest
    if unguarded:
        yield unguarded


#: The delay before the rest of a gang is evicted again.
AGAIN = Backoff(1.0, 30.0)
#: A pod with a DisruptionTarget condition in a gang at its minimum for so long was never evicted.
#: The scheduler that set the condition stopped before the eviction, or the eviction was refused;
#: no controller removes the condition.
LET_OFF_S = 60.0


@dataclass(slots=True)
class _PartialGang:
    """A gang of which a member was evicted, and the members to evict with it."""

    victims: set[PodUid]
    evict_at: float
    times: int = 0


def _is_binding(gang: Gang, victims: Set[PodUid]) -> bool:
    """Return whether one of *victims* is being bound."""
    binding = gang.by_status.get(Status.BINDING, ())
    return any(pod.uid in victims for pod in binding)


class PartialEvictions:
    """Gangs evicted in part, and the rest to evict; the owner serializes access by threads."""

    def __init__(self) -> None:
        self._gangs: dict[GangKey, _PartialGang] = {}
        #: Since when a pod with the condition is in a gang at its minimum.
        self._whole_since: dict[PodUid, float] = {}

    def add(self, gang: GangKey, victims: Iterable[PodUid], now: float) -> None:
        """Record that the eviction of the first of *victims*, all of *gang*, was accepted."""
        partial = self._gangs.setdefault(gang, _PartialGang(set(), now + AGAIN.first_s))
        partial.victims.update(victims)

    def to_evict(
        self, snapshot: Snapshot, in_progress: Set[PodUid], now: float
    ) -> dict[GangKey, list[Pod]]:
        """Return the rest of gangs below their minimum, unless it was evicted just now.

        The outcome of evictions *in_progress* is not seen yet.
        """
        self._find_marked(snapshot, in_progress, now)
        due: dict[GangKey, list[Pod]] = {}
        for key, partial in list(self._gangs.items()):
            if not in_progress.isdisjoint(partial.victims):
                continue
            gang = snapshot.gangs.get(key)
            pods = gang.pods if gang is not None and gang.is_below_minimum else ()
            stayed = [
                pod for pod in pods if pod.status in SCHEDULED_SET and pod.uid in partial.victims
            ]
            if not stayed:
                if gang is None or not _is_binding(gang, partial.victims):
                    del self._gangs[key]
            elif now >= partial.evict_at:
                partial.times += 1
                partial.evict_at = now + AGAIN.delay_s(partial.times)
                due[key] = stayed
        return due

    def _find_marked(self, snapshot: Snapshot, in_progress: Set[PodUid], now: float) -> None:
        """Find members of partly evicted gangs that carry the condition DisruptionTarget.

        Pods *in_progress* carry it from this extender, which is about to evict them.
        """
        before, self._whole_since = self._whole_since, {}
        for key, gang in snapshot.gangs.items():
            if gang.group.min_member <= 1 or not gang.terminating:
                continue  # nearly always; and a gang of one is never partly evicted
            known = {uid: before[uid] for uid in gang.terminating if uid in before}
            if gang.is_below_minimum:
                let_off = {uid: since for uid, since in known.items() if now - since >= LET_OFF_S}
                self._whole_since |= let_off
                if marked := gang.terminating - let_off.keys():
                    self.add(key, marked, now)
            else:
                stays = gang.terminating - in_progress
                self._whole_since |= {uid: known.get(uid, now) for uid in stays}
