"""Who asks, and who does not: one ear for every scheduler name we serve.

Only its calls tell us that a kube-scheduler serves a name; no object of the cluster says so. Where
nobody asks, room that we kept would be kept for nobody. What counts:

    it asks      a hook was called for a pod of that name
    a sign       kube-scheduler wrote anew why a pod of that name fits nowhere, or took away its
                 nomination; it does not ask us about pods that no node would take anyway
    a trace      a pod has such words from before our time: somebody served that name once
    a pod is     kube-scheduler should have come for it: it is new, or somebody woke it
      overdue    (`patience_s` ago)

A name is silent when a pod is overdue and there was no sign for as long. Not having asked is
nothing by itself: an idle cluster is well. A pod that stays away while others come is not
evidence: something else keeps it. Nor is one that kube-scheduler refused for what we cannot
change, such as labels that no node has: it may pass over whatever we do.

Rule 1: nothing here acts. Who conclude something are those that ask: the plan by its snapshot.
Rule 2: a standby hears nothing and concludes nothing; whoever leads begins anew (`forget`).
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

#: After so long without a sign, while pods wait, kube-scheduler is called to see whether it lives.
KEEP_S = 25.0
#: And where a call brings all pods that lack room, no sooner than so long for each of them: it
#: takes kube-scheduler a tenth of that to look at one.
MANY_WAITING_S = 0.02
#: Pauses between calls while nobody asks.
CALL_PAUSE = Backoff(first_s=2.0, longest_s=30.0)
#: So long after we began, words of ours that we did not speak may be those of our predecessor.
SETTLED_S = 10.0
#: Nobody has to leave on the word of a kube-scheduler that has not asked us before we have listened
#: for so long: it may ask another, who calls for it as often as we do.
ALONE_S = 30.0
#: How long a trace of another extender is remembered.
RIVAL_S = 600.0
#: Pods remembered as asked for, or as woken; more than are ever between that and the word of it.
_REMEMBERED = 50_000
#: Pods looked at in one go to find one that may be called for.
_MOST_LOOKS = 64


@dataclass(slots=True)
class _SchedulerRecord:
    name: str
    #: Monotonic seconds.
    asked_at: float = -inf
    sign_at: float = -inf
    elsewhere_at: float = -inf
    called_at: float = -inf
    #: The first of these on the wall.
    asked_on: float = 0.0
    #: When another extender woke a pod of that name, and who that was.
    rival_at: float = -inf
    rival: str = ""
    has_trace: bool = False
    is_silent: bool = False
    #: Calls since it last asked.
    calls: int = 0
    #: Pods that wait for a node.
    waiting: dict[PodUid, Pod] = field(default_factory=dict)
    #: Those of them that kube-scheduler looks at when anything changes, and those it looks at when
    #: room becomes free; the one called for longest ago first. The rest comes for neither.
    at_hand: dict[PodUid, None] = field(default_factory=dict)
    without_room: dict[PodUid, None] = field(default_factory=dict)
    #: Those it should come for, and since when; the oldest first.
    due: dict[PodUid, float] = field(default_factory=dict)

    def forget(self) -> None:
        """Begin anew with the pods that wait."""
        self.asked_at = self.sign_at = self.elsewhere_at = self.called_at = -inf
        self.rival_at, self.rival = -inf, ""
        self.asked_on, self.calls = 0.0, 0
        self.is_silent = False
        self.has_trace = any(pod.refusal for pod in self.waiting.values())
        self.due = {}

    def keep(self, pod: Pod) -> None:
        self.waiting[pod.uid] = pod
        comes_for = (self.at_hand, not pod.fits_no_node), (self.without_room, pod.lacks_capacity)
        for turns, has_its_turn in comes_for:
            if has_its_turn:
                turns.setdefault(pod.uid)
            else:
                turns.pop(pod.uid, None)

    def drop(self, uid: PodUid) -> None:
        for each in (self.waiting, self.at_hand, self.without_room, self.due):
            each.pop(uid, None)


class SchedulerLiveness:
    """Told by hooks, watch and wake-ups, in any thread; asked by whoever makes a snapshot."""

    def __init__(
        self, names: Iterable[str], clock: Clock, *, patience_s: float = 20.0, me: str = ""
    ) -> None:
        #: What we are called where we wake a pod; no other extender is called so.
        self.me = me
        self._clock = clock
        self._patience_s = patience_s
        self._ears = {name: _SchedulerRecord(name) for name in names}
        self._lock = threading.Lock()
        #: When we began to listen, monotonic and on the wall; before that nothing is concluded.
        self._began: tuple[float, float] | None = None
        self._asked: dict[PodUid, None] = {}
        #: Nodes that we nominated pods to.
        self._nominated: dict[PodUid, str] = {}
        self._listeners: list[Callable[[SchedulerStatus], None]] = []

    def on_change(self, listener: Callable[[SchedulerStatus], None]) -> None:
        """Call *listener* with a scheduler name of which we hear something else than before."""
        self._listeners.append(listener)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the schedulers we listen for, sorted."""
        return tuple(sorted(self._ears))

    # ── told ──────────────────────────────────────────────────────────────────────────────

    def hook_called(self, pod: Pod) -> None:
        """Record that a hook was called for *pod*."""
        ear = self._ears.get(pod.scheduler)
        if ear is None:
            return
        with self._lock:
            before = self._heard_of(ear)
            ear.asked_at = ear.sign_at = self._clock.monotonic()
            ear.asked_on = self._clock.now()
            ear.is_silent, ear.calls = False, 0
            ear.due.pop(pod.uid, None)
            self._asked[pod.uid] = None
            if len(self._asked) > _REMEMBERED:
                del self._asked[next(iter(self._asked))]
        self._tell_if_changed(ear, before)

    def pod_seen(self, uid: PodUid, pod: Pod | None) -> None:
        """Hear from the watch what became of a pod of ours; None when it is gone."""
        ear = self._ears.get(pod.scheduler) if pod is not None else None
        if pod is None or ear is None or pod.status is not Status.PENDING or pod.gated:
            with self._lock:
                for each in self._ears.values() if ear is None else (ear,):
                    each.drop(uid)
                self._asked.pop(uid, None)
                self._nominated.pop(uid, None)
            return
        with self._lock:
            before = self._heard_of(ear)
            known = ear.waiting.get(uid)
            ear.keep(pod)
            if pod.refusal:
                ear.has_trace = True
            if known is None:
                if not pod.refusal:
                    ear.due.setdefault(uid, self._clock.monotonic())
            else:
                if self._has_spoken(known, pod):
                    self._spoke(ear, pod, is_word=pod.refusal != known.refusal)
                self._note_rival(ear, known, pod)
        self._tell_if_changed(ear, before)

    def pod_woken(self, uid: PodUid, node: str = "") -> None:
        """Record that a pod was woken, for *node*: kube-scheduler should come for it.

        Of one that it said itself fits nowhere that cannot be told: it may say the same again, and
        writes nothing then.
        """
        with self._lock:
            self._nominated[uid] = node
            if len(self._nominated) > _REMEMBERED:  # some were gone before they were woken
                del self._nominated[next(iter(self._nominated))]
            for ear in self._ears.values():
                pod = ear.waiting.get(uid)
                if pod is not None and node and not pod.fits_no_node:
                    ear.due.setdefault(uid, self._clock.monotonic())

    def forget(self) -> None:
        """Begin anew: a term has begun, or is over."""
        with self._lock:
            self._began = None
            self._asked.clear()
            self._nominated.clear()
            for ear in self._ears.values():
                ear.forget()

    def _has_spoken(self, known: Pod, pod: Pod) -> bool:
        """Return whether kube-scheduler wrote something to the status of *pod*."""
        if pod.refusal != known.refusal:
            return not pod.is_woken
        was_cleared = bool(known.nominated) and not pod.nominated
        return was_cleared and self._nominated.get(pod.uid) == known.nominated

    def _spoke(self, ear: _SchedulerRecord, pod: Pod, *, is_word: bool) -> None:
        now = self._clock.monotonic()
        ear.due.pop(pod.uid, None)
        is_ours = is_word and bool(pod.refusal) and not pod.fits_no_node
        if is_ours and pod.uid not in self._asked:
            # Somebody spoke our words to kube-scheduler, and it was not us.
            if self._listens_for(now) <= SETTLED_S:
                return  # our predecessor, or who else? The next word will tell.
            ear.elsewhere_at = now
        ear.sign_at, ear.is_silent = now, False

    def _note_rival(self, ear: _SchedulerRecord, known: Pod, pod: Pod) -> None:
        now = self._clock.monotonic()
        is_another = pod.woken_by not in (known.woken_by, self.me, "")
        if is_another and self._listens_for(now) > SETTLED_S:
            ear.rival_at, ear.rival = now, pod.woken_by

    # ── concluded ─────────────────────────────────────────────────────────────────────────

    def update(self) -> None:
        """Conclude who is silent; called again and again, while we lead and see the cluster."""
        now = self._clock.monotonic()
        for ear in self._ears.values():
            with self._lock:
                if self._began is None:
                    self._begin(now)
                before = self._heard_of(ear)
                self._pass_over(ear)
                oldest = next(iter(ear.due.values()), inf)
                quiet_s = min(now - ear.sign_at, self._listens_for(now))
                if quiet_s > self._patience_s and now - oldest > self._patience_s:
                    ear.is_silent = True
            self._tell_if_changed(ear, before)

    def _begin(self, now: float) -> None:
        self._began = now, self._clock.now()
        for ear in self._ears.values():
            ear.due = {uid: now for uid, pod in ear.waiting.items() if not pod.refusal}

    def _pass_over(self, ear: _SchedulerRecord) -> None:
        """Drop those who stayed away though kube-scheduler was there long after they were due."""
        overtaken = ear.sign_at - self._patience_s
        while ear.due:
            uid, since = next(iter(ear.due.items()))
            if since > overtaken:
                return
            del ear.due[uid]

    def _listens_for(self, now: float) -> float:
        return now - self._began[0] if self._began is not None else 0.0

    def _voice(self, ear: _SchedulerRecord) -> Liveness:
        if ear.elsewhere_at > ear.asked_at + self._patience_s:
            return Liveness.ELSEWHERE
        if ear.rival and ear.asked_at == -inf:
            return Liveness.ELSEWHERE  # two that act, and kube-scheduler has not asked us
        if ear.is_silent:
            return Liveness.SILENT
        if ear.asked_at > -inf:
            return Liveness.HEARD
        return Liveness.EXPECTED if ear.has_trace else Liveness.UNHEARD

    def _heard_of(self, ear: _SchedulerRecord) -> tuple[Liveness, str]:
        return self._voice(ear), ear.rival

    def _tell_if_changed(self, ear: _SchedulerRecord, before: tuple[Liveness, str]) -> None:
        if self._heard_of(ear) != before:
            told = self._caller(ear)
            for listener in self._listeners:
                listener(told)

    # ── asked ─────────────────────────────────────────────────────────────────────────────

    def statuses(self) -> Mapping[str, SchedulerStatus]:
        """Return what is known of every scheduler name, sorted."""
        return {name: self._caller(ear) for name, ear in sorted(self._ears.items())}

    def _caller(self, ear: _SchedulerRecord) -> SchedulerStatus:
        now = self._clock.monotonic()
        began_on = self._began[1] if self._began is not None else self._clock.now()
        is_alone = ear.asked_at > -inf or self._listens_for(now) > ALONE_S
        return SchedulerStatus(
            name=ear.name,
            liveness=self._voice(ear),
            called_at=ear.asked_on,
            quiet_since=ear.asked_on or began_on,
            is_alive=ear.sign_at > -inf and is_alone,
            rival=ear.rival if now - ear.rival_at < RIVAL_S else "",
        )

    def overdue(self, name: str) -> int:
        """Count the pods that wait for a kube-scheduler which does not come; 0 while it does."""
        ear, now = self._ears[name], self._clock.monotonic()
        with self._lock:
            if not ear.is_silent:
                return 0
            return sum(now - since > self._patience_s for since in ear.due.values())

    def due_for_probe(self, name: str, may_be: Callable[[Pod], bool]) -> Pod | None:
        """Choose a pod to call kube-scheduler for, each in turn; None when that is not due."""
        ear, now = self._ears[name], self._clock.monotonic()
        with self._lock:
            if not self._must_call(ear, now):
                return None
            for turns in (ear.at_hand, ear.without_room):
                for uid in list(islice(turns, _MOST_LOOKS)):
                    turns[uid] = turns.pop(uid)
                    if may_be(ear.waiting[uid]):
                        ear.called_at = now
                        ear.calls += 1
                        ear.due.setdefault(uid, now)
                        return ear.waiting[uid]
        return None

    def _must_call(self, ear: _SchedulerRecord, now: float) -> bool:
        if not ear.waiting or self._began is None:
            return False
        # Room that becomes free brings everybody who lacks some, as the end of any pod does.
        crowd_s = 0.0 if ear.at_hand else MANY_WAITING_S * len(ear.without_room)
        # Whoever was not asked goes on calling, whatever signs there are: they may be for another
        # extender, which finds us by our calls.
        is_asked = ear.asked_at > -inf or not ear.at_hand
        if is_asked and ear.sign_at > -inf and not ear.is_silent:
            return now - max(ear.sign_at, ear.called_at) > max(KEEP_S, crowd_s)
        oldest = next(iter(ear.due.values()), now)
        if not ear.has_trace and now - oldest < CALL_PAUSE.first_s:
            return False  # new pods bring kube-scheduler by themselves
        return now - ear.called_at >= max(CALL_PAUSE.delay_s(ear.calls), crowd_s)
