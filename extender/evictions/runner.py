"""Sends the evictions of the plan as whole sets, one set at a time for each gang that needs them.

Rule 1: a set is sent whole or not at all. If one victim may not be evicted, the others would not
help. So the objection is stored, the pod gets a backoff, and a new plan is requested at once.
Rule 2: while a set is in progress, no other victims are evicted for the same gang. Plans made
before the victims are seen to terminate would choose others in their place.
Rule 3: the rest of a gang that lost members to a set is evicted again, whatever later plans choose.
So are pods that joined it before it was known that all of it is evicted; later none may join.
Rule 4: `send` and `protect` belong to the planning thread and never wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence, Set
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

#: The reason that Volcano uses too.
EVICT = Happening.EVICT.value
WOULD_EVICT = Happening.WOULD_EVICT.value


def reason_for(victim: Victim, snapshot: Snapshot) -> str:
    """Return for which gang a pod is evicted and by which rule, as a sentence."""
    beneficiary = snapshot.gangs[victim.eviction.beneficiary]
    if victim.eviction.action == "reclaim":
        return (
            f"queue {beneficiary.queue} reclaims its deserved share from queue {victim.gang.queue}"
            f" for {beneficiary.key}"
        )
    if beneficiary.priority > victim.gang.priority:
        return f"{beneficiary.key} has priority {beneficiary.priority} over {victim.gang.priority}"
    return f"{beneficiary.key} is further below its share of queue {beneficiary.queue}"


def _loss(victims: Sequence[Victim], snapshot: Snapshot) -> str:
    part = f"{len(victims)} of {victims[0].gang.scheduled} running members"
    return f"{part} evicted: {reason_for(victims[0], snapshot)}"


def _pods(number: int) -> str:
    return f"{number} pod" + ("" if number == 1 else "s")


log = logging.getLogger(__name__)
#: How long a pod is protected after the API server refused its eviction.
BLOCKED = Backoff(30.0, 600.0)
#: The same after a check here refused it, or the API server did not answer.
REFUSED = Backoff(5.0, 300.0)
#: A victim whose eviction was accepted and that is not seen to terminate by then counts as failed.
UNSEEN_S = 60.0
#: A start time further in the future than this comes from a wrong clock.
_SKEW_S = 60.0
#: The label values of `gang_extender_evictions_total`.
_FOLLOW = "follow"
ACTIONS = ("reclaim", "preempt", _FOLLOW)
OUTCOMES = ("evicted", "blocked", "failed", "refused", "dry-run")
_FOLLOWS = "the rest of its gang was evicted"
#: A dry run reports the same set again after this long.
DRY_RUN_S = 3600.0


class EvictionRunner:
    """Sends planned evictions to the Eviction API and reports their outcomes."""

    def __init__(
        self,
        *,
        evictor: Evictor,
        events: EventWriter,
        history: GangHistory,
        metrics: Metrics,
        clock: Clock,
        backoff: EvictionBackoff | None = None,
        pending: PendingEvictions,
        dry_run: bool = False,
    ) -> None:
        self._evictor = evictor
        self._events = events
        self._history = history
        self._metrics = metrics
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        init_labels(metrics.evictions, *((action, word) for action in ACTIONS for word in OUTCOMES))
        self._backoff = backoff or EvictionBackoff()
        self._pending = pending
        self._dry_run = dry_run
        self._sets: dict[GangKey, VictimSet] = {}
        self._partial = PartialEvictions()
        #: The rest of partial gangs that was evicted too: gang and time.
        self._followers: dict[PodUid, tuple[GangKey, float]] = {}
        #: When the sets of a dry run were reported.
        self._reported: dict[GangKey, float] = {}
        # Outcomes arrive in the evictor's threads.
        self._lock = threading.Lock()

    def on_objection(self, listener: Callable[[], None]) -> None:
        """Call *listener* when a victim cannot be evicted, so that another plan is needed."""
        self._listeners.append(listener)

    def protect(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the pods that must not be evicted for now."""
        with self._lock:
            protected = self._backoff.protected(
                snapshot, partial(self._running_since, snapshot), self._clock.monotonic()
            )
        if not protected:
            return snapshot
        return replace(snapshot, protected={**snapshot.protected, **protected})

    def _running_since(self, snapshot: Snapshot, key: GangKey) -> float | None:
        """Return since when a gang runs, by the history or by its pods, whichever is later.

        The history has nothing before the first plan, nor while another replica leads.
        """
        gang, recorded = snapshot.gangs.get(key), self._history.running_since(key)
        by_pods = gang.runs_since if gang is not None else None
        if by_pods is None or by_pods > snapshot.now + _SKEW_S:
            return recorded
        by_pods = min(by_pods, snapshot.now)
        return by_pods if recorded is None or recorded > snapshot.now else max(recorded, by_pods)

    def send(self, snapshot: Snapshot, plan: Plan) -> None:
        """Send the evictions of *plan* that are not in progress already."""
        sets, objected = [], False
        with self._lock:
            self._update_sets(snapshot)
            rest = self._rest_of_partial(snapshot)
            for beneficiary, evictions in _by_beneficiary(plan.evictions).items():
                if self._is_in_progress(beneficiary, evictions):
                    continue
                victims = checks.find(evictions, snapshot)
                if len(victims) < len(evictions):
                    continue  # a victim is gone meanwhile; the next plan accounts for it
                if not self._are_allowed(victims, snapshot):
                    objected = True
                elif not checks.has_changed(victims, self._pending, self._in_progress()):
                    sets.append(self._order(beneficiary, victims, snapshot))
                # else a gang changed after the snapshot and would fall below its minimum; the next
                # plan accounts for it
            self._publish_pending()
        # An outcome may arrive at once, and recording it takes the lock again.
        self._evict_rest(rest)
        for each in sets:
            self._send(each)
        if objected:
            self._notify()

    def _update_sets(self, snapshot: Snapshot) -> None:
        now = self._clock.monotonic()
        for beneficiary, each in list(self._sets.items()):
            for victim in each.update(snapshot, now, UNSEEN_S):
                why = "its eviction was accepted, but it does not terminate"
                self._protect(victim, why, REFUSED, "failed")
                each.refused(victim)
            if each.is_over or now - self._reported.get(beneficiary, now) > DRY_RUN_S:
                del self._sets[beneficiary]
                self._reported.pop(beneficiary, None)

    def _is_in_progress(self, beneficiary: GangKey, evictions: Sequence[Eviction]) -> bool:
        if beneficiary in self._sets:
            return True
        return not self._in_progress().isdisjoint(eviction.uid for eviction in evictions)

    def _in_progress(self) -> set[PodUid]:
        return {uid for each in self._sets.values() for uid in each.open}

    def _publish_pending(self) -> None:
        if not self._dry_run:
            pending = {uid: gang for uid, (gang, _) in self._followers.items()}
            for each in self._sets.values():
                pending |= each.open
            self._pending.replace(pending)

    def _rest_of_partial(self, snapshot: Snapshot) -> list[Pod]:
        """Return the rest of partly evicted gangs, unless a gang has its minimum again."""
        now = self._clock.monotonic()
        due = self._partial.to_evict(snapshot, self._in_progress(), now)
        partial_gangs = {
            key: pods for key, pods in due.items() if self._is_below_minimum(snapshot.gangs[key])
        }
        recent = self._followers.items()
        self._followers = {uid: sent for uid, sent in recent if now - sent[1] < UNSEEN_S}
        for key, pods in partial_gangs.items():
            self._followers |= {pod.uid: (key, now) for pod in pods}
        return [pod for pods in partial_gangs.values() for pod in pods]

    def _is_below_minimum(self, gang: Gang) -> bool:
        return replace(gang, pods=tuple(self._pending.meanwhile.pods_of(gang.key))).is_below_minimum

    def _are_allowed(self, victims: Mapping[PodUid, Victim], snapshot: Snapshot) -> bool:
        now = self._clock.monotonic()
        if any(self._backoff.protects(victim.pod, now) for victim in victims.values()):
            return False  # refused while this plan was made
        in_progress = self._in_progress()
        refused = checks.objections(victims, snapshot, in_progress)
        for uid, why in refused.items():
            self._protect(victims[uid], why, REFUSED, "refused", snapshot)
        for budget in checks.exhausted(victims, snapshot, in_progress) if refused else ():
            why = f"PodDisruptionBudget {budget.namespace}/{budget.name} allows no disruptions"
            self._backoff.forbid(budget, why, REFUSED, now)
        return not refused

    def _order(
        self, beneficiary: GangKey, victims: Mapping[PodUid, Victim], snapshot: Snapshot
    ) -> VictimSet:
        """Record a set as in progress."""
        guarded = checks.guarded(victims, snapshot)
        created = VictimSet(beneficiary, victims, snapshot, guarded)
        self._sets[beneficiary] = created
        if self._dry_run:
            self._reported[beneficiary] = self._clock.monotonic()
        return created

    def _report(self, one: VictimSet, victims: Sequence[Victim]) -> None:
        """Report evictions in log, history and events: once for each gang, not per pod."""
        snapshot, beneficiary, action = one.snapshot, one.beneficiary, victims[0].eviction.action
        reason = WOULD_EVICT if self._dry_run else EVICT
        by_gang: dict[GangKey, list[Victim]] = {}
        for victim in victims:
            by_gang.setdefault(victim.gang.key, []).append(victim)
        names = sorted(by_gang)
        gangs = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        text = f"{action} evicts {_pods(len(victims))} for it, of {gangs}"
        self._history.add_entry(beneficiary, snapshot.now, snapshot.generation, reason, text)
        losses = {key: _loss(own, snapshot) for key, own in by_gang.items()}
        for key, loss in losses.items():
            self._history.add_entry(key, snapshot.now, snapshot.generation, reason, loss)
        for victim in victims:
            self._record(victim, snapshot.now, reason_for(victim, snapshot))
        for key, loss in losses.items():
            subject = ObjectReference.of_gang(by_gang[key][0].gang)
            if subject is not None:
                self._events.write(
                    EventRecord(subject=subject, reason=reason, message=loss, at=snapshot.now)
                )
        event(
            log,
            logging.INFO,
            "victims would be evicted" if self._dry_run else "evicting victims",
            gang=beneficiary,
            action=action,
            pods=[victim.pod.key for victim in victims[:50]],
            count=len(victims),
            victims=names[:50],
        )

    def _send(self, one: VictimSet) -> None:
        """Send the next waves of a set; called again with every answer."""
        if self._dry_run:
            self._report(one, one.victims)
            for victim in one.victims:
                self._count(victim, "dry-run")
            return
        with self._lock:
            if not one.begin_to_send():
                return  # the thread that is sending sees the change
        while wave := self._next_wave(one):
            self._report(one, wave)
            outcomes = self._evictor.evict([_order_for(each, one.snapshot) for each in wave])
            for victim, outcome in zip(wave, outcomes, strict=True):
                with self._lock:
                    one.sent(victim, outcome)
                outcome.add_done_callback(partial(self._done, one, victim))

    def _evict_rest(self, rest: Sequence[Pod]) -> None:
        """Evict the rest of gangs that this or an earlier leader evicted in part."""
        if not rest or self._dry_run:
            return
        orders = [
            EvictOrder(uid=pod.uid, namespace=pod.namespace, name=pod.name, why=_FOLLOWS)
            for pod in rest
        ]
        for pod, outcome in zip(rest, self._evictor.evict(orders), strict=True):
            outcome.add_done_callback(partial(self._followed, pod.uid))
        names = sorted(pod.key for pod in rest)
        sentence = "evicting the rest of a partly evicted gang"
        event(log, logging.WARNING, sentence, pods=names[:50], count=len(names))

    def _followed(self, uid: PodUid, future: Future[EvictOutcome]) -> None:
        outcome = _outcome_of(future)
        is_evicted = outcome and outcome.result in (EvictResult.LEAVING, EvictResult.GONE)
        if not is_evicted:
            with self._lock:
                self._followers.pop(uid, None)
                self._publish_pending()
        if outcome is not None:
            word = "evicted" if is_evicted else outcome.result.value
            self._metrics.evictions.labels(_FOLLOW, word).inc()

    def _next_wave(self, one: VictimSet) -> list[Victim]:
        with self._lock:
            return one.next_wave()

    def _done(self, one: VictimSet, victim: Victim, future: Future[EvictOutcome]) -> None:
        outcome, stays = _outcome_of(future), False
        to_cancel: list[Future[EvictOutcome]] = []
        with self._lock:
            if outcome is None:
                one.forget(victim.pod.uid)
                one.withdraw()
                self._publish_pending()
            elif outcome.result in (EvictResult.LEAVING, EvictResult.GONE):
                now = self._clock.monotonic()
                if one.accepted(victim, now):
                    self._backoff.gang_evicted(victim.gang.key, now)
                    self._partial.add(victim.gang.key, self._evicted_with(one, victim.gang), now)
                self._count(victim, "evicted")
            else:
                stays = True
                delay = BLOCKED if outcome.result is EvictResult.BLOCKED else REFUSED
                result = outcome.result.value
                self._protect(victim, outcome.message, delay, result, one.snapshot)
                if outcome.result is EvictResult.BLOCKED:
                    self._forbid(victim, outcome.message, one.snapshot)
                to_cancel = one.refused(victim)
                self._publish_pending()
        for other in to_cancel:
            other.cancel()
        if stays:
            self._notify()
        self._send(one)

    def _evicted_with(self, one: VictimSet, gang: Gang) -> Set[PodUid]:
        """Return the members evicted with a set: all on nodes, if the rest is below the minimum."""
        members = one.members_of(gang)
        if gang.bound_or_done - len(members) >= gang.group.min_member:
            return members
        return members | self._pending.meanwhile.on_nodes(gang.key)

    def _forbid(self, victim: Victim, why: str, snapshot: Snapshot) -> None:
        """Protect all pods of the budget that refused; with several, the cause is unknown."""
        about = checks.budgets_about(victim.pod, snapshot)
        if len(about) == 1:
            self._backoff.forbid(about[0], why, BLOCKED, self._clock.monotonic())

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _protect(
        self,
        victim: Victim,
        why: str,
        delay: Backoff,
        outcome: str,
        snapshot: Snapshot | None = None,
    ) -> None:
        now = self._clock.now()
        budgets = checks.budgets_about(victim.pod, snapshot) if snapshot else ()
        self._backoff.add(victim.pod, why, delay, self._clock.monotonic(), budgets)
        self._record(victim, now, f"it stays: {why}")
        self._count(victim, outcome)
        text = f"{victim.pod.key} stays: {why}"
        for key in (victim.eviction.beneficiary, victim.gang.key):
            self._history.add_entry(key, now, 0, Happening.VICTIM_NOT_EVICTED, text)
        event(
            log,
            logging.WARNING,
            "victim stays",
            gang=victim.eviction.beneficiary,
            pod=victim.pod.key,
            why=why,
        )

    def _record(self, victim: Victim, at: float, why: str) -> None:
        """Record the eviction, or that of a dry run, for the pages."""
        eviction = RecordedEviction(
            at=at,
            pod=victim.pod.key,
            gang=victim.gang.key,
            node=victim.eviction.node,
            action=victim.eviction.action,
            beneficiary=victim.eviction.beneficiary,
            why=why,
        )
        self._history.evictions.note(victim.pod.uid, eviction)

    def _count(self, victim: Victim, outcome: str) -> None:
        self._history.evictions.settled(victim.pod.uid, outcome)
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
    """Return the outcome of an order, None when it was cancelled before it was sent."""
    try:
        return future.result()
    except CancelledError:
        return None
    except Exception as error:
        log.exception("eviction failed")
        return EvictOutcome(EvictResult.FAILED, str(error))
