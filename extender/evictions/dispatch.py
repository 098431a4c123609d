"""Carries out the plan's evictions: whole sets, one at a time for each gang that needs room.

Rule 1: a set goes out whole or not at all. If one victim may not go, none of them would help, so
the objection is remembered, the pod gets a reprieve, and the next plan chooses otherwise.
Rule 2: while a set is on its way, nothing more is asked for the same gang: plans made before the
victims are seen to leave would ask for others in their place.
Rule 3: `carry_out` and `protect` belong to the planning thread and never wait.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from functools import partial

from extender.evictions import safety
from extender.evictions.notices import Notices, reason_for
from extender.evictions.reprieves import Reprieves
from extender.evictions.safety import Victim
from extender.logs import event
from extender.metrics import Metrics
from extender.model.gang import GangKey
from extender.model.pod import SEATED_SET, PodUid
from extender.model.snapshot import Snapshot
from extender.plan.decision import Eviction, Plan
from extender.ports import Announcer, Clock, Evictor, EvictOrder, EvictOutcome, EvictResult
from extender.reporting.journal import Journal

log = logging.getLogger(__name__)

#: How long a pod is left alone after a budget forbade its eviction.
BLOCKED_S = 30.0
#: The same after a check of ours, or an API server that did not answer.
REFUSED_S = 5.0
#: A victim that was not seen to leave by then is no longer waited for.
UNSEEN_S = 60.0
#: The same when nobody is really asked to leave; it is then reported again.
DRY_RUN_S = 3600.0


@dataclass(slots=True)
class _Set:
    """The victims of one gang that have not been seen to leave, each with its own gang."""

    ordered_at: float
    open: dict[PodUid, GangKey]


class Dispatch:
    """Stands between the plan and the Eviction API."""

    def __init__(
        self,
        *,
        evictor: Evictor,
        announcer: Announcer,
        journal: Journal,
        metrics: Metrics,
        clock: Clock,
        reprieves: Reprieves | None = None,
        dry_run: bool = False,
    ) -> None:
        self._evictor = evictor
        self._announcer = announcer
        self._journal = journal
        self._metrics = metrics
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._reprieves = reprieves or Reprieves()
        self._dry_run = dry_run
        self._unseen_s = DRY_RUN_S if dry_run else UNSEEN_S
        self._sets: dict[GangKey, _Set] = {}
        # Outcomes come back in the evictor's threads.
        self._lock = threading.Lock()

    def on_objection(self, listener: Callable[[], None]) -> None:
        """Call *listener* when a victim cannot go, so that another plan is needed."""
        self._listeners.append(listener)

    def protect(self, snapshot: Snapshot) -> Snapshot:
        """Give *snapshot* with the pods that must be left alone for now."""
        with self._lock:
            protected = self._reprieves.protected(snapshot, self._journal.running_since)
        return replace(snapshot, protected=protected) if protected else snapshot

    def carry_out(self, snapshot: Snapshot, plan: Plan) -> None:
        """Send the evictions of *plan* that are not on their way already."""
        with self._lock:
            self._look_who_left(snapshot)
            ordered = [
                victim
                for beneficiary, evictions in _by_beneficiary(plan.evictions).items()
                if not self._is_on_its_way(beneficiary, evictions)
                for victim in self._order(beneficiary, evictions, snapshot)
            ]
        # An outcome may be there at once, and noting it takes the lock again.
        self._send(ordered, snapshot)

    def _look_who_left(self, snapshot: Snapshot) -> None:
        for beneficiary, each in list(self._sets.items()):
            each.open = {
                uid: key for uid, key in each.open.items() if _is_seated(uid, key, snapshot)
            }
            if not each.open or snapshot.now - each.ordered_at > self._unseen_s:
                del self._sets[beneficiary]

    def _is_on_its_way(self, beneficiary: GangKey, evictions: Sequence[Eviction]) -> bool:
        if beneficiary in self._sets:
            return True
        leaving = self._leaving()
        return any(eviction.uid in leaving for eviction in evictions)

    def _leaving(self) -> set[PodUid]:
        return {uid for each in self._sets.values() for uid in each.open}

    def _order(
        self, beneficiary: GangKey, evictions: Sequence[Eviction], snapshot: Snapshot
    ) -> list[Victim]:
        """Note a set as on its way and give its victims; none when it may not go out."""
        victims = safety.find(evictions, snapshot)
        if len(victims) < len(evictions):
            return []  # somebody left meanwhile; the next plan knows
        refused = safety.objections(victims, snapshot, self._leaving())
        for uid, why in refused.items():
            self._leave_alone(victims[uid], why, REFUSED_S, "refused")
        if refused:
            return []
        opened = {uid: victim.gang.key for uid, victim in victims.items()}
        self._sets[beneficiary] = _Set(snapshot.now, opened)
        self._tell(beneficiary, list(victims.values()), snapshot)
        return list(victims.values())

    def _tell(self, beneficiary: GangKey, victims: Sequence[Victim], snapshot: Snapshot) -> None:
        notices = Notices(snapshot, beneficiary, victims, dry_run=self._dry_run)
        for key, text in notices.lines():
            self._journal.tell(key, snapshot.now, snapshot.generation, notices.word, text)
        for notice in notices.on_gangs():
            self._announcer.announce(notice)
        event(log, logging.INFO, notices.sentence, gang=beneficiary, **notices.facts())

    def _send(self, victims: Sequence[Victim], snapshot: Snapshot) -> None:
        if self._dry_run:
            for victim in victims:
                self._count(victim, "dry-run")
            return
        with self._lock:
            for key in {victim.gang.key for victim in victims}:
                self._reprieves.made_to_leave(key, snapshot.now)
        outcomes = self._evictor.evict([_order_for(victim, snapshot) for victim in victims])
        for victim, outcome in zip(victims, outcomes, strict=True):
            outcome.add_done_callback(partial(self._done, victim))

    def _done(self, victim: Victim, future: Future[EvictOutcome]) -> None:
        outcome = _outcome_of(future)
        if outcome.result in (EvictResult.LEAVING, EvictResult.GONE):
            self._count(victim, "evicted")
            return
        blocked = outcome.result is EvictResult.BLOCKED
        with self._lock:
            seconds = BLOCKED_S if blocked else REFUSED_S
            self._leave_alone(victim, outcome.message, seconds, outcome.result.value)
            known = self._sets.get(victim.eviction.beneficiary)
            if known is not None:
                known.open.pop(victim.pod.uid, None)
        for listener in self._listeners:
            listener()

    def _leave_alone(self, victim: Victim, why: str, seconds: float, outcome: str) -> None:
        now = self._clock.now()
        self._reprieves.grant(victim.pod.uid, why, now + seconds)
        self._count(victim, outcome)
        text = f"{victim.pod.key} stays: {why}"
        self._journal.tell(victim.eviction.beneficiary, now, 0, "VictimStays", text)
        event(
            log,
            logging.WARNING,
            "victim stays",
            gang=victim.eviction.beneficiary,
            pod=victim.pod.key,
            why=why,
        )

    def _count(self, victim: Victim, outcome: str) -> None:
        self._metrics.evictions.labels(victim.eviction.action, outcome).inc()


def _by_beneficiary(evictions: Sequence[Eviction]) -> dict[GangKey, list[Eviction]]:
    sets: dict[GangKey, list[Eviction]] = {}
    for eviction in evictions:
        sets.setdefault(eviction.beneficiary, []).append(eviction)
    return sets


def _is_seated(uid: PodUid, key: GangKey, snapshot: Snapshot) -> bool:
    gang = snapshot.gangs.get(key)
    return gang is not None and any(
        pod.uid == uid and pod.status in SEATED_SET for pod in gang.pods
    )


def _order_for(victim: Victim, snapshot: Snapshot) -> EvictOrder:
    pod = victim.pod
    return EvictOrder(
        uid=pod.uid, namespace=pod.namespace, name=pod.name, why=reason_for(victim, snapshot)
    )


def _outcome_of(future: Future[EvictOutcome]) -> EvictOutcome:
    try:
        return future.result()
    except CancelledError:
        return EvictOutcome(EvictResult.FAILED, "we are shutting down")
    except Exception as error:
        log.exception("eviction failed")
        return EvictOutcome(EvictResult.FAILED, str(error))
