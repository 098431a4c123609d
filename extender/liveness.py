"""Liveness of kube-scheduler: one record for every scheduler name that the extender serves.

No object of the cluster shows that a kube-scheduler serves a name; only its calls do. Where it does
not call, capacity would be reserved in vain. What counts:

    a call         a hook was called for a pod of that name
    a sign         kube-scheduler wrote a new reason why a pod of that name fits nowhere, or cleared
                   its nomination; it does not call for pods that no node would accept anyway
    a condition    a pod has such a reason from before this start: the name was served once
    a pod is       kube-scheduler should have called for it: it is new, or was woken
      overdue      (`patience_s` ago)

A name is silent when a pod is overdue and there was no sign for as long. No call alone is no
evidence: an idle cluster is healthy. If calls come for other pods, a missing call is no
evidence: something else delays this pod. Nor is a pod that kube-scheduler refused for a reason that
the extender cannot change, such as labels that no node has: kube-scheduler may pass it over in any
case.

Rule 1: nothing here acts. The readers decide, such as the plan by its snapshot.
Rule 2: a standby records nothing and decides nothing; a new leader begins anew (`forget`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from extender.durations import Backoff
from extender.model.pod import Pod, PodUid, Status
from extender.model.snapshot import Liveness, SchedulerStatus
from extender.ports import Clock

#: After so long without a sign, while pods wait, kube-scheduler is probed.
KEEP_S = 25.0
#: Where a probe makes kube-scheduler retry all pods that lack capacity, at most one probe in so
#: long for each of them: kube-scheduler needs a tenth of that to check one pod.
MANY_WAITING_S = 0.02
#: Delays between probes while no hook is called.
PROBE_BACKOFF = Backoff(first_s=2.0, longest_s=30.0)
#: So long after a start, a condition in our words may have been caused by the leader before us.
SETTLED_S = 10.0
#: No pod is evicted for a kube-scheduler that has not called this replica before so long: it may
#: use another extender, which probes it as often as this one.
ALONE_S = 30.0
#: How long a sign of another extender is remembered.
RIVAL_S = 600.0
#: Pods remembered as called for, or as woken; more than wait for their condition at any time.
_REMEMBERED = 50_000
#: Pods that are checked in one go to find one to probe with.
_MAX_CANDIDATES = 64


@dataclass(slots=True)
class _SchedulerRecord:
    name: str
    #: Monotonic seconds.
    called_at: float = -inf
    sign_at: float = -inf
    elsewhere_at: float = -inf
    probed_at: float = -inf
    #: The wall time of `called_at`.
    called_on: float = 0.0
    #: When another extender woke a pod of that name, and the name of that extender.
    rival_at: float = -inf
    rival: str = ""
    has_condition: bool = False
    is_silent: bool = False
    #: Probes since its last call.
    probes: int = 0
    #: Pods that wait for a node.
    waiting: dict[PodUid, Pod] = field(default_factory=dict)
    #: Those of them that kube-scheduler retries on any change, and those that it retries when
    #: capacity is released; the longest unprobed first. It retries the others on neither.
    retried: dict[PodUid, None] = field(default_factory=dict)
    lacking_capacity: dict[PodUid, None] = field(default_factory=dict)
    #: Pods that it should call for, and since when; the oldest first.
    due: dict[PodUid, float] = field(default_factory=dict)

    def forget(self) -> None:
        """Begin anew with the pods that wait."""
        self.called_at = self.sign_at = self.elsewhere_at = self.probed_at = -inf
        self.rival_at, self.rival = -inf, ""
        self.called_on, self.probes = 0.0, 0
        self.is_silent = False
        self.has_condition = any(pod.refusal for pod in self.waiting.values())
        self.due = {}

    def keep(self, pod: Pod) -> None:
        self.waiting[pod.uid] = pod
        candidate_sets = (
            (self.retried, not pod.fits_no_node),
            (self.lacking_capacity, pod.lacks_capacity),
        )
        for candidates, is_candidate in candidate_sets:
            if is_candidate:
                candidates.setdefault(pod.uid)
            else:
                candidates.pop(pod.uid, None)

    def drop(self, uid: PodUid) -> None:
        for each in (self.waiting, self.retried, self.lacking_capacity, self.due):
            each.pop(uid, None)


class SchedulerLiveness:
    """Written by hooks, watch and wake-ups, in any thread; read for every snapshot."""

    def __init__(
        self, names: Iterable[str], clock: Clock, *, patience_s: float = 20.0, me: str = ""
    ) -> None:
        #: The name of this process in wake-ups; no other extender has it.
        self.me = me
        self._clock = clock
        self._patience_s = patience_s
        self._records = {name: _SchedulerRecord(name) for name in names}
        self._lock = threading.Lock()
        #: The begin of the observation, monotonic and wall time; before that nothing is decided.
        self._began: tuple[float, float] | None = None
        self._called: dict[PodUid, None] = {}
        #: The nodes of our nominations.
        self._nominated: dict[PodUid, str] = {}
        self._listeners: list[Callable[[SchedulerStatus], None]] = []

    def on_change(self, listener: Callable[[SchedulerStatus], None]) -> None:
        """Call *listener* with a scheduler name whose liveness has changed."""
        self._listeners.append(listener)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the observed scheduler names, sorted."""
        return tuple(sorted(self._records))

    # ── events ────────────────────────────────────────────────────────────────────────────

    def hook_called(self, pod: Pod) -> None:
        """Record that a hook was called for *pod*."""
        record = self._records.get(pod.scheduler)
        if record is None:
            return
        with self._lock:
            before = self._observed(record)
            record.called_at = record.sign_at = self._clock.monotonic()
            record.called_on = self._clock.now()
            record.is_silent, record.probes = False, 0
            record.due.pop(pod.uid, None)
            self._called[pod.uid] = None
            if len(self._called) > _REMEMBERED:
                del self._called[next(iter(self._called))]
        self._notify_if_changed(record, before)

    def pod_seen(self, uid: PodUid, pod: Pod | None) -> None:
        """Called by the watch with the state of one of our pods; None when it is gone."""
        record = self._records.get(pod.scheduler) if pod is not None else None
        if pod is None or record is None or pod.status is not Status.PENDING or pod.gated:
            with self._lock:
                for each in self._records.values() if record is None else (record,):
                    each.drop(uid)
                self._called.pop(uid, None)
                self._nominated.pop(uid, None)
            return
        with self._lock:
            before = self._observed(record)
            known = record.waiting.get(uid)
            record.keep(pod)
            if pod.refusal:
                record.has_condition = True
            if known is None:
                if not pod.refusal:
                    record.due.setdefault(uid, self._clock.monotonic())
            else:
                if self._has_responded(known, pod):
                    self._note_response(record, pod, is_condition=pod.refusal != known.refusal)
                self._note_rival(record, known, pod)
        self._notify_if_changed(record, before)

    def pod_woken(self, uid: PodUid, node: str = "") -> None:
        """Record that a pod was woken, for *node*: kube-scheduler should call for it.

        Not for a pod that fits no node: kube-scheduler may find the same reason again, and then it
        writes nothing.
        """
        with self._lock:
            self._nominated[uid] = node
            if len(self._nominated) > _REMEMBERED:  # some were gone before they were woken
                del self._nominated[next(iter(self._nominated))]
            for record in self._records.values():
                pod = record.waiting.get(uid)
                if pod is not None and node and not pod.fits_no_node:
                    record.due.setdefault(uid, self._clock.monotonic())

    def forget(self) -> None:
        """Begin anew, because a term has begun or ended."""
        with self._lock:
            self._began = None
            self._called.clear()
            self._nominated.clear()
            for record in self._records.values():
                record.forget()

    def _has_responded(self, known: Pod, pod: Pod) -> bool:
        """Return whether kube-scheduler wrote to the status of *pod*."""
        if pod.refusal != known.refusal:
            return not pod.is_woken
        was_cleared = bool(known.nominated) and not pod.nominated
        return was_cleared and self._nominated.get(pod.uid) == known.nominated

    def _note_response(self, record: _SchedulerRecord, pod: Pod, *, is_condition: bool) -> None:
        now = self._clock.monotonic()
        record.due.pop(pod.uid, None)
        is_ours = is_condition and bool(pod.refusal) and not pod.fits_no_node
        if is_ours and pod.uid not in self._called:
            # Another extender refused the pod in our words.
            if self._observed_for(now) <= SETTLED_S:
                return  # the leader before us, or another extender; the next condition will tell
            record.elsewhere_at = now
        record.sign_at, record.is_silent = now, False

    def _note_rival(self, record: _SchedulerRecord, known: Pod, pod: Pod) -> None:
        now = self._clock.monotonic()
        is_another = pod.woken_by not in (known.woken_by, self.me, "")
        if is_another and self._observed_for(now) > SETTLED_S:
            record.rival_at, record.rival = now, pod.woken_by

    # ── decisions ─────────────────────────────────────────────────────────────────────────

    def update(self) -> None:
        """Decide which schedulers are silent; called often, but only by a ready leader."""
        now = self._clock.monotonic()
        for record in self._records.values():
            with self._lock:
                if self._began is None:
                    self._begin(now)
                before = self._observed(record)
                self._drop_overtaken(record)
                oldest = next(iter(record.due.values()), inf)
                quiet_s = min(now - record.sign_at, self._observed_for(now))
                if quiet_s > self._patience_s and now - oldest > self._patience_s:
                    record.is_silent = True
            self._notify_if_changed(record, before)

    def _begin(self, now: float) -> None:
        self._began = now, self._clock.now()
        for record in self._records.values():
            record.due = {uid: now for uid, pod in record.waiting.items() if not pod.refusal}

    def _drop_overtaken(self, record: _SchedulerRecord) -> None:
        """Drop overdue pods if kube-scheduler gave signs long after they were due."""
        overtaken = record.sign_at - self._patience_s
        while record.due:
            uid, since = next(iter(record.due.items()))
            if since > overtaken:
                return
            del record.due[uid]

    def _observed_for(self, now: float) -> float:
        return now - self._began[0] if self._began is not None else 0.0

    def _liveness(self, record: _SchedulerRecord) -> Liveness:
        if record.elsewhere_at > record.called_at + self._patience_s:
            return Liveness.ELSEWHERE
        if record.rival and record.called_at == -inf:
            # Two extenders act, and kube-scheduler has not called this one.
            return Liveness.ELSEWHERE
        if record.is_silent:
            return Liveness.SILENT
        if record.called_at > -inf:
            return Liveness.HEARD
        return Liveness.EXPECTED if record.has_condition else Liveness.UNHEARD

    def _observed(self, record: _SchedulerRecord) -> tuple[Liveness, str]:
        return self._liveness(record), record.rival

    def _notify_if_changed(self, record: _SchedulerRecord, before: tuple[Liveness, str]) -> None:
        if self._observed(record) != before:
            status = self._status(record)
            for listener in self._listeners:
                listener(status)

    # ── reads ─────────────────────────────────────────────────────────────────────────────

    def statuses(self) -> Mapping[str, SchedulerStatus]:
        """Return the status of every scheduler name, sorted."""
        return {name: self._status(record) for name, record in sorted(self._records.items())}

    def _status(self, record: _SchedulerRecord) -> SchedulerStatus:
        now = self._clock.monotonic()
        began_on = self._began[1] if self._began is not None else self._clock.now()
        is_alone = record.called_at > -inf or self._observed_for(now) > ALONE_S
        return SchedulerStatus(
            name=record.name,
            liveness=self._liveness(record),
            called_at=record.called_on,
            quiet_since=record.called_on or began_on,
            is_alive=record.sign_at > -inf and is_alone,
            rival=record.rival if now - record.rival_at < RIVAL_S else "",
        )

    def overdue(self, name: str) -> int:
        """Return the number of pods that wait for a silent kube-scheduler; 0 while it is alive."""
        record, now = self._records[name], self._clock.monotonic()
        with self._lock:
            if not record.is_silent:
                return 0
            return sum(now - since > self._patience_s for since in record.due.values())

    def choose_for_probe(self, name: str, may_be: Callable[[Pod], bool]) -> Pod | None:
        """Choose the next pod to probe with, each in turn; None when no probe is due."""
        record, now = self._records[name], self._clock.monotonic()
        with self._lock:
            if not self._is_probe_due(record, now):
                return None
            for candidates in (record.retried, record.lacking_capacity):
                for uid in list(islice(candidates, _MAX_CANDIDATES)):
                    candidates[uid] = candidates.pop(uid)
                    if may_be(record.waiting[uid]):
                        record.probed_at = now
                        record.probes += 1
                        record.due.setdefault(uid, now)
                        return record.waiting[uid]
        return None

    def _is_probe_due(self, record: _SchedulerRecord, now: float) -> bool:
        if not record.waiting or self._began is None:
            return False
        # Released capacity makes kube-scheduler retry all pods that lack some, as any end of a pod.
        spread_s = 0.0 if record.retried else MANY_WAITING_S * len(record.lacking_capacity)
        # An extender that is not called goes on probing in spite of signs: they may be for another
        # extender, which detects this one by its probes.
        is_called = record.called_at > -inf or not record.retried
        if is_called and record.sign_at > -inf and not record.is_silent:
            return now - max(record.sign_at, record.probed_at) > max(KEEP_S, spread_s)
        oldest = next(iter(record.due.values()), now)
        if not record.has_condition and now - oldest < PROBE_BACKOFF.first_s:
            return False  # kube-scheduler comes for new pods itself
        return now - record.probed_at >= max(PROBE_BACKOFF.delay_s(record.probes), spread_s)
