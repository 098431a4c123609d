"""Carries out the plan's evictions: whole sets, one at a time for each gang that needs room.

Rule 1: a set goes out whole or not at all. If one victim may not go, none of them would help, so
the objection is remembered, the pod gets a reprieve, and a next plan, at once, chooses otherwise.
Rule 2: while a set is on its way, nothing more is asked for the same gang: plans made before the
victims are seen to leave would ask for others in their place.
Rule 3: what is left of a gang that lost members to a set is asked again, whatever plans say; so is
whoever had joined it before it was known that all of it leaves. From then on nobody joins it.
Rule 4: `carry_out` and `protect` belong to the planning thread and never wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from functools import partial

from extender.cache.gang_history import PendingEvictions
from extender.durations import Backoff
from extender.evictions import checks
from extender.evictions.backoff import EvictionBackoff
from extender.evictions.checks import Victim
from extender.evictions.pending import PartialEvictions, VictimSet
from extender.logs import event
from extender.metrics import Metrics, init_labels
from extender.model.gang import Gang, GangKey
from extender.model.pod import Pod, PodUid
from extender.model.reason import Happening
from extender.model.snapshot import Snapshot
from extender.planner.plan import Eviction, Plan
from extender.ports import (
    Clock,
    EventRecord,
    EventWriter,
    Evictor,
    EvictOrder,
    EvictOutcome,
    EvictResult,
    ObjectReference,
)
from extender.status.history import GangHistory, RecordedEviction

#: Volcano's word for it.
EVICT = Happening.EVICT.value
WOULD_EVICT = Happening.WOULD_EVICT.value


class EvictionMessages:
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

    def on_gangs(self) -> Iterator[EventRecord]:
        """Give one notice for each gang that loses members."""
        for key, gang in self._gangs.items():
            subject = ObjectReference.of_gang(gang)
            if subject is not None:
                yield EventRecord(
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
        part = f"{len(mine)} of {self._gangs[key].scheduled} running members"
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


log = logging.getLogger(__name__)
#: How long a pod is left alone after the API server would not let it go.
BLOCKED = Backoff(30.0, 600.0)
#: The same after a check of ours, or an API server that did not answer.
REFUSED = Backoff(5.0, 300.0)
#: A victim that was let go and is not seen to leave by then is taken for one that stays.
UNSEEN_S = 60.0
#: A pod that began later than this from now says so by a clock that is wrong.
_SKEW_S = 60.0
#: What `gang_extender_evictions_total` counts.
_FOLLOW = "follow"
ACTIONS = ("reclaim", "preempt", _FOLLOW)
OUTCOMES = ("evicted", "blocked", "failed", "refused", "dry-run")
_FOLLOWS = "the rest of its gang was made to leave"
#: Without asking anybody, the same set is reported again after this long.
DRY_RUN_S = 3600.0


class EvictionRunner:
    """Stands between the plan and the Eviction API."""

    def __init__(
        self,
        *,
        evictor: Evictor,
        announcer: EventWriter,
        journal: GangHistory,
        metrics: Metrics,
        clock: Clock,
        reprieves: EvictionBackoff | None = None,
        goodbyes: PendingEvictions,
        dry_run: bool = False,
    ) -> None:
        self._evictor = evictor
        self._announcer = announcer
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        init_labels(metrics.evictions, *((action, word) for action in ACTIONS for word in OUTCOMES))
        self._reprieves = reprieves or EvictionBackoff()
        self._goodbyes = goodbyes
        self._dry_run = dry_run
        self._sets: dict[GangKey, VictimSet] = {}
        self._remnants = PartialEvictions()
        #: Who of a torn gang was asked to follow the others, and when.
        self._followers: dict[PodUid, tuple[GangKey, float]] = {}
        #: When the sets of a dry run were reported.
        self._reported: dict[GangKey, float] = {}
        # Outcomes come back in the evictor's threads.
        self._lock = threading.Lock()

    def on_objection(self, listener: Callable[[], None]) -> None:
        """Call *listener* when a victim cannot go, so that another plan is needed."""
        self._listeners.append(listener)

    def protect(self, snapshot: Snapshot) -> Snapshot:
        """Give *snapshot* with the pods that must be left alone for now."""
        with self._lock:
            protected = self._reprieves.protected(
                snapshot, partial(self._running_since, snapshot), self._clock.monotonic()
            )
        if not protected:
            return snapshot
        return replace(snapshot, protected={**snapshot.protected, **protected})

    def _running_since(self, snapshot: Snapshot, key: GangKey) -> float | None:
        """Tell since when a gang runs, by what we noted or its pods say, whichever is later.

        Nothing is noted before our first plan, nor while another leads.
        """
        gang, noted = snapshot.gangs.get(key), self._journal.running_since(key)
        shown = gang.runs_since if gang is not None else None
        if shown is None or shown > snapshot.now + _SKEW_S:
            return noted
        shown = min(shown, snapshot.now)
        return shown if noted is None or noted > snapshot.now else max(noted, shown)

    def send(self, snapshot: Snapshot, plan: Plan) -> None:
        """Send the evictions of *plan* that are not on their way already."""
        sets, objected = [], False
        with self._lock:
            self._look_who_left(snapshot)
            stayed = self._who_must_follow(snapshot)
            for beneficiary, evictions in _by_beneficiary(plan.evictions).items():
                if self._is_on_its_way(beneficiary, evictions):
                    continue
                victims = checks.find(evictions, snapshot)
                if len(victims) < len(evictions):
                    continue  # somebody left meanwhile; the next plan knows
                if not self._may_go(victims, snapshot):
                    objected = True
                elif not checks.has_changed(victims, self._goodbyes, self._leaving()):
                    sets.append(self._order(beneficiary, victims, snapshot))
                # else it would tear a gang only as that is by now; the next plan knows
            self._say_goodbyes()
        # An outcome may be there at once, and noting it takes the lock again.
        self._ask_again(stayed)
        for each in sets:
            self._send(each)
        if objected:
            self._object()

    def _look_who_left(self, snapshot: Snapshot) -> None:
        now = self._clock.monotonic()
        for beneficiary, each in list(self._sets.items()):
            for victim in each.look(snapshot, now, UNSEEN_S):
                self._leave_alone(victim, "it was let go and does not leave", REFUSED, "failed")
                each.refused(victim)
            if each.is_over or now - self._reported.get(beneficiary, now) > DRY_RUN_S:
                del self._sets[beneficiary]
                self._reported.pop(beneficiary, None)

    def _is_on_its_way(self, beneficiary: GangKey, evictions: Sequence[Eviction]) -> bool:
        if beneficiary in self._sets:
            return True
        return not self._leaving().isdisjoint(eviction.uid for eviction in evictions)

    def _leaving(self) -> set[PodUid]:
        return {uid for each in self._sets.values() for uid in each.open}

    def _say_goodbyes(self) -> None:
        if not self._dry_run:
            asked = {uid: gang for uid, (gang, _) in self._followers.items()}
            for each in self._sets.values():
                asked |= each.open
            self._goodbyes.replace(asked)

    def _who_must_follow(self, snapshot: Snapshot) -> list[Pod]:
        """Give who stayed of gangs that are torn, by now as well: one may have become whole."""
        now = self._clock.monotonic()
        due = self._remnants.due(snapshot, self._leaving(), now)
        torn = {key: pods for key, pods in due.items() if self._is_torn(snapshot.gangs[key])}
        lately = self._followers.items()
        self._followers = {uid: told for uid, told in lately if now - told[1] < UNSEEN_S}
        for key, pods in torn.items():
            self._followers |= {pod.uid: (key, now) for pod in pods}
        return [pod for pods in torn.values() for pod in pods]

    def _is_torn(self, gang: Gang) -> bool:
        return replace(
            gang, pods=tuple(self._goodbyes.meanwhile.pods_of(gang.key))
        ).is_below_minimum

    def _may_go(self, victims: Mapping[PodUid, Victim], snapshot: Snapshot) -> bool:
        now = self._clock.monotonic()
        if any(self._reprieves.protects(victim.pod, now) for victim in victims.values()):
            return False  # refused while this plan was made
        leaving = self._leaving()
        refused = checks.objections(victims, snapshot, leaving)
        for uid, why in refused.items():
            self._leave_alone(victims[uid], why, REFUSED, "refused", snapshot)
        for budget in checks.exhausted(victims, snapshot, leaving) if refused else ():
            why = f"PodDisruptionBudget {budget.namespace}/{budget.name} allows nobody to leave"
            self._reprieves.forbid(budget, why, REFUSED, now)
        return not refused

    def _order(
        self, beneficiary: GangKey, victims: Mapping[PodUid, Victim], snapshot: Snapshot
    ) -> VictimSet:
        """Note a set as on its way."""
        guarded = checks.guarded(victims, snapshot)
        ordered = VictimSet(beneficiary, victims, snapshot, guarded)
        self._sets[beneficiary] = ordered
        if self._dry_run:
            self._reported[beneficiary] = self._clock.monotonic()
        return ordered

    def _tell(self, one: VictimSet, victims: Sequence[Victim]) -> None:
        snapshot, beneficiary = one.snapshot, one.beneficiary
        notices = EvictionMessages(snapshot, beneficiary, victims, dry_run=self._dry_run)
        for key, text in notices.lines():
            self._journal.tell(key, snapshot.now, snapshot.generation, notices.word, text)
        for victim in victims:
            self._note(victim, snapshot.now, reason_for(victim, snapshot))
        for notice in notices.on_gangs():
            self._announcer.write(notice)
        event(log, logging.INFO, notices.sentence, gang=beneficiary, **notices.facts())

    def _send(self, one: VictimSet) -> None:
        """Send what of a set may go out by now; called again with every answer."""
        if self._dry_run:
            self._tell(one, one.victims)
            for victim in one.victims:
                self._count(victim, "dry-run")
            return
        with self._lock:
            if not one.begin_to_send():
                return  # whoever is sending will see what has changed
        while wave := self._next_wave(one):
            self._tell(one, wave)
            outcomes = self._evictor.evict([_order_for(each, one.snapshot) for each in wave])
            for victim, outcome in zip(wave, outcomes, strict=True):
                with self._lock:
                    one.sent(victim, outcome)
                outcome.add_done_callback(partial(self._done, one, victim))

    def _ask_again(self, stayed: Sequence[Pod]) -> None:
        """Ask those whose gang was torn, by us or whoever led before us, to follow the others."""
        if not stayed or self._dry_run:
            return
        orders = [
            EvictOrder(uid=pod.uid, namespace=pod.namespace, name=pod.name, why=_FOLLOWS)
            for pod in stayed
        ]
        for pod, outcome in zip(stayed, self._evictor.evict(orders), strict=True):
            outcome.add_done_callback(partial(self._followed, pod.uid))
        names = sorted(pod.key for pod in stayed)
        sentence = "the rest of a torn gang is asked to leave again"
        event(log, logging.WARNING, sentence, pods=names[:50], count=len(names))

    def _followed(self, uid: PodUid, future: Future[EvictOutcome]) -> None:
        outcome = _outcome_of(future)
        has_left = outcome and outcome.result in (EvictResult.LEAVING, EvictResult.GONE)
        if not has_left:
            with self._lock:
                self._followers.pop(uid, None)
                self._say_goodbyes()
        if outcome is not None:
            word = "evicted" if has_left else outcome.result.value
            self._metrics.evictions.labels(_FOLLOW, word).inc()

    def _next_wave(self, one: VictimSet) -> list[Victim]:
        with self._lock:
            return one.next_wave()

    def _done(self, one: VictimSet, victim: Victim, future: Future[EvictOutcome]) -> None:
        outcome, stays = _outcome_of(future), False
        to_call_back: list[Future[EvictOutcome]] = []
        with self._lock:
            if outcome is None:
                one.forget(victim.pod.uid)
                one.withdraw()
                self._say_goodbyes()
            elif outcome.result in (EvictResult.LEAVING, EvictResult.GONE):
                now = self._clock.monotonic()
                if one.agreed(victim, now):
                    self._reprieves.made_to_leave(victim.gang.key, now)
                    self._remnants.lost(victim.gang.key, self._who_leaves(one, victim.gang), now)
                self._count(victim, "evicted")
            else:
                stays = True
                pause = BLOCKED if outcome.result is EvictResult.BLOCKED else REFUSED
                result = outcome.result.value
                self._leave_alone(victim, outcome.message, pause, result, one.snapshot)
                if outcome.result is EvictResult.BLOCKED:
                    self._forbid(victim, outcome.message, one.snapshot)
                to_call_back = one.refused(victim)
                self._say_goodbyes()
        for other in to_call_back:
            other.cancel()
        if stays:
            self._object()
        self._send(one)

    def _who_leaves(self, one: VictimSet, gang: Gang) -> Set[PodUid]:
        """Name those of a gang who leave with a set: all who stand, if it cannot go on without."""
        members = one.members_of(gang)
        if gang.bound_or_done - len(members) >= gang.group.min_member:
            return members
        return members | self._goodbyes.meanwhile.on_nodes(gang.key)

    def _forbid(self, victim: Victim, why: str, snapshot: Snapshot) -> None:
        """Leave all others alone too that the same budget covers; with several, who can tell?"""
        about = checks.budgets_about(victim.pod, snapshot)
        if len(about) == 1:
            self._reprieves.forbid(about[0], why, BLOCKED, self._clock.monotonic())

    def _object(self) -> None:
        for listener in self._listeners:
            listener()

    def _leave_alone(
        self,
        victim: Victim,
        why: str,
        pause: Backoff,
        outcome: str,
        snapshot: Snapshot | None = None,
    ) -> None:
        now = self._clock.now()
        budgets = checks.budgets_about(victim.pod, snapshot) if snapshot else ()
        self._reprieves.add(victim.pod, why, pause, self._clock.monotonic(), budgets)
        self._note(victim, now, f"it stays: {why}")
        self._count(victim, outcome)
        text = f"{victim.pod.key} stays: {why}"
        for key in (victim.eviction.beneficiary, victim.gang.key):
            self._journal.tell(key, now, 0, Happening.VICTIM_NOT_EVICTED, text)
        event(
            log,
            logging.WARNING,
            "victim stays",
            gang=victim.eviction.beneficiary,
            pod=victim.pod.key,
            why=why,
        )

    def _note(self, victim: Victim, at: float, why: str) -> None:
        """Remember for those who look whom we asked to leave, or would have."""
        told = RecordedEviction(
            at=at,
            pod=victim.pod.key,
            gang=victim.gang.key,
            node=victim.eviction.node,
            action=victim.eviction.action,
            beneficiary=victim.eviction.beneficiary,
            why=why,
        )
        self._journal.departures.note(victim.pod.uid, told)

    def _count(self, victim: Victim, outcome: str) -> None:
        self._journal.departures.settled(victim.pod.uid, outcome)
        self._metrics.evictions.labels(victim.eviction.action, outcome).inc()


def _by_beneficiary(evictions: Sequence[Eviction]) -> dict[GangKey, list[Eviction]]:
    sets: dict[GangKey, list[Eviction]] = {}
    for eviction in evictions:
        sets.setdefault(eviction.beneficiary, []).append(eviction)
    return sets


def _order_for(victim: Victim, snapshot: Snapshot) -> EvictOrder:
    pod = victim.pod
    return EvictOrder(
        uid=pod.uid, namespace=pod.namespace, name=pod.name, why=reason_for(victim, snapshot)
    )


def _outcome_of(future: Future[EvictOutcome]) -> EvictOutcome | None:
    """Give what became of an order, None when it was called back before anybody was asked."""
    try:
        return future.result()
    except CancelledError:
        return None
    except Exception as error:
        log.exception("eviction failed")
        return EvictOutcome(EvictResult.FAILED, str(error))
