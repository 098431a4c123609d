"""The four hooks: bytes in, bytes out; the answer to a bind that must wait is told later.

They know nothing of HTTP, which the hook port speaks. Whatever goes wrong, kube-scheduler gets an
`Error` it can show, and the server lives on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

from cachetools import LRUCache
from msgspec.structs import replace

from extender.errors import ExtenderError, InvalidHookCall, NotReady, OtherSchedulersPod
from extender.hooks import wire
from extender.hooks.gate import Gate
from extender.logs import RateLimitedLog, event
from extender.metrics import Metrics, init_labels
from extender.model.gang import Membership
from extender.model.pod import Pod, PodUid
from extender.model.reason import Reason
from extender.permit.messages import CallId, Cause, TakeAnswer
from extender.permit.runner import PermitRunner
from extender.ports import BindOrder, Clock, Whose
from extender.status.notes import RefusedNamespaces

#: kube-scheduler's backoffs begin with 1 s, rounded down, and double: of two in a row that are
#: shorter than that, one was cut short.
_SOON_S = 0.9
#: As long as four of its attempts take.
_BREATH_S = 0.005
#: More pods than it can try in so short a time.
_REMEMBERED = 5_000


class _Tried(NamedTuple):
    """A refusal: when, and whether it came soon after the one before."""

    at: float
    soon: bool


_NEVER = _Tried(float("-inf"), soon=False)


class RetryDelay:
    """Says how long a refusal takes; everything happens on the loop."""

    def __init__(self) -> None:
        self._last: LRUCache[PodUid, _Tried] = LRUCache(_REMEMBERED)

    def delay_s(self, uid: PodUid, now: float) -> float:
        """Give the time after which kube-scheduler hears that *uid* is refused, mostly none."""
        last = self._last.get(uid, _NEVER)
        is_soon = now - last.at < _SOON_S
        self._last[uid] = _Tried(now, is_soon)
        return _BREATH_S if is_soon and last.soon else 0.0


log = logging.getLogger(__name__)
#: Reads the Pod object inside a call; the decoder of the watch, handed in by the wiring.
PodReader: TypeAlias = Callable[[bytes], tuple[Pod, Membership]]
#: Sentences that say why we must not decide now; empty when we may.
Readiness: TypeAlias = Callable[[], list[str]]
VERBS = ("filter", "prioritize", "preempt", "bind")
#: Every outcome we count, by verb; filter also refuses for a reason.
OUTCOMES = (
    *(("filter", word) for word in ("passed", "steered", "error")),
    *(("filter", reason.value) for reason in Reason),
    *(("prioritize", word) for word in ("passed", "error")),
    *(("preempt", word) for word in ("passed", "vetoed", "error")),
    *(("bind", word) for word in ("bound", "refused")),
)
#: How long a good answer about our readiness is believed; what it depends on takes seconds, but
#: for who leads, which is asked each time.
_READY_S = 0.05
#: How long whoever asks before we are ready waits for that. kube-scheduler would put each of its
#: pods off for seconds, and a gang that stands in part for as long. It gives up after two (our
#: `httpTimeout` for filter), and would not hear why.
_PATIENCE_S = 1.2
#: Of a bind that was refused before the barrier knew of it.
NO_CALL = CallId(0)
#: A pod may be 1.5 MiB in etcd and 5,000 node names come on top.
BODY_LIMIT = 4 * 1024 * 1024
#: No object has a longer name, nor uid; what we remember of strangers is bounded by it.
_LONGEST_NAME = 253


class HookAnswer(NamedTuple):
    """What filter, prioritize or preempt is told, and how long that may take."""

    body: bytes
    delay_s: float = 0.0
    #: We have only just begun, or begun to lead: asked again in a moment we may know better.
    ask_again: bool = False


class Hooks:
    """Read, ask the gate or the barrier, write."""

    def __init__(
        self,
        gate: Gate,
        barrier: PermitRunner,
        read_pod: PodReader,
        readiness: Readiness,
        clock: Clock,
        metrics: Metrics,
        standby: Readiness = list,
    ) -> None:
        self.standby = standby
        self._gate = gate
        self._barrier = barrier
        self._read_pod = read_pod
        self._readiness = readiness
        self._clock = clock
        self._asked_at = float("-inf")
        self._ready_until = float("-inf")
        self._patient_until: float | None = None
        self._warned = False
        self._retries = RetryDelay()
        self._hasty = metrics.delayed_refusals
        self._seldom = RateLimitedLog(log)
        # Looking a series up costs more than counting, and there are few.
        self._counter = cache(metrics.hook_answers.labels)
        self._burdens = RefusedNamespaces(metrics)
        init_labels(metrics.hook_answers, *OUTCOMES)
        init_labels(metrics.bind_wait_seconds, *((cause.word,) for cause in Cause))
        self._seconds = {verb: metrics.hook_seconds.labels(verb) for verb in VERBS}
        self._answers = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "preempt": self._preempt,
        }

    def answer(self, verb: str, body: bytes) -> HookAnswer:
        """Answer filter, prioritize or preempt; it is known at once."""
        self._asked_at = started = self._clock.monotonic()
        try:
            said = self._answers[verb](body)
        except ExtenderError as error:
            apology = _apology(verb, str(error))
            if isinstance(error, NotReady) and self._is_patient(started):
                return HookAnswer(apology, ask_again=True)
            self._count(verb, "error")
            said = HookAnswer(apology)
        except Exception:
            log.exception("hook failed", extra={"facts": {"verb": verb}})
            self._count(verb, "error")
            said = HookAnswer(
                _apology(verb, "the extender failed to answer; its log has the details")
            )
        self._seconds[verb].observe(self._clock.monotonic() - started)
        return said

    def bind(self, body: bytes, answer: TakeAnswer) -> CallId:
        """Start a bind; *answer* is called once, at once or much later, from any thread."""
        started = self._clock.monotonic()
        try:
            call = wire.read_bind(body)
            _must_be_names(call.uid, call.namespace, call.name, call.node)
            order = BindOrder(
                uid=PodUid(call.uid), namespace=call.namespace, name=call.name, node=call.node
            )
            whose = self._whose(order)
            self._gate.heard_bind(order.uid)
            if whose is Whose.SCHEDULERS:
                return self._barrier.bind(replace(order, whose=whose), answer)
            try:
                self._must_be_ready(started)
            except NotReady as error:
                if whose is Whose.UNKNOWN:
                    return self._relay(order, str(error), answer)
                raise
            if whose is Whose.UNKNOWN and self._gate.exempts(order.namespace):
                # A namespace is only a word of the caller: whose pod it is, the API server says.
                return self._barrier.bind(replace(order, whose=whose), answer)
            return self._barrier.bind(order, answer)
        except ExtenderError as error:
            answer(str(error))
        except Exception:
            log.exception("hook failed", extra={"facts": {"verb": "bind"}})
            answer("the extender failed to bind; its log has the details")
        finally:
            self._seconds["bind"].observe(self._clock.monotonic() - started)
        return NO_CALL

    def _whose(self, order: BindOrder) -> Whose:
        try:
            return self._gate.whose(order.uid)
        except OtherSchedulersPod:
            pod = f"{order.namespace}/{order.name}"
            sentence = "refused to bind another scheduler's pod"
            self._seldom.event(logging.WARNING, sentence, pod=pod, node=order.node)
            raise

    def _relay(self, order: BindOrder, why_not: str, answer: TakeAnswer) -> CallId:
        """Bind a pod that we have never seen if it turns out to be exempt; else say *why_not*."""
        return self._barrier.bind(
            replace(order, whose=Whose.UNKNOWN), lambda error: answer(error and why_not)
        )

    def peer_gone(self, call: CallId) -> None:
        """Tell the barrier that the caller of a held bind went away."""
        self._barrier.peer_gone(call)

    def bound(self, error: str) -> bytes:
        """Write the answer to a bind and count it."""
        self._count("bind", "refused" if error else "bound")
        return wire.write_error(error) if error else wire.BOUND

    def _filter(self, body: bytes) -> HookAnswer:
        call = wire.read_filter(body)
        if call.sent_whole_nodes and not self._warned:
            self._warned = True
            event(log, logging.WARNING, "kube-scheduler sends whole nodes; set nodeCacheCapable")
        pod, member = self._heard(call.pod)
        if not pod.uses_no_resources:
            self._must_be_ready(self._asked_at)
        answer = self._gate.filter(pod, member, call.offered())
        self._count("filter", answer.outcome)
        body = wire.write_filter(call, answer.nodes, answer.refused)
        if answer.nodes:
            return HookAnswer(body)
        self._burdens.refused(pod.namespace, member.key, answer.outcome, self._asked_at)
        breath_s = self._retries.delay_s(pod.uid, self._asked_at)
        if breath_s:
            self._hasty.inc()
        return HookAnswer(body, breath_s)

    def _prioritize(self, body: bytes) -> HookAnswer:
        call = wire.read_filter(body)
        pod, _ = self._heard(call.pod)
        self._count("prioritize", "passed")
        return HookAnswer(wire.write_scores(self._gate.prioritize(pod, call.offered())))

    def _preempt(self, body: bytes) -> HookAnswer:
        call = wire.read_preempt(body)
        pod, member = self._heard(call.pod)
        if not pod.uses_no_resources:
            self._must_be_ready(self._asked_at)
        victims = self._gate.preempt(pod, member, call.victims())
        self._count("preempt", "passed" if victims else "vetoed")
        return HookAnswer(wire.write_victims(call, victims))

    def _heard(self, raw: bytes) -> tuple[Pod, Membership]:
        pod, member = self._read_pod(raw)
        _must_be_names(pod.uid, pod.namespace, pod.name)
        self._gate.heard(pod)
        return pod, member

    def _must_be_ready(self, now: float) -> None:
        if now < self._ready_until and not self.standby():
            return
        for sentence in self._readiness():
            raise NotReady(f"the extender is not ready: {sentence}")
        self._ready_until = now + _READY_S
        self._patient_until = None

    def _is_patient(self, now: float) -> bool:
        """Whether what keeps us has only just begun; it may be long, and others are served then."""
        if self.standby():
            self._patient_until = None
            return False
        if self._patient_until is None:
            self._patient_until = now + _PATIENCE_S
        return now < self._patient_until

    def _count(self, verb: str, outcome: str) -> None:
        self._counter(verb, outcome).inc()


def _must_be_names(*texts: str) -> None:
    for text in texts:
        if len(text) > _LONGEST_NAME:
            raise InvalidHookCall(f"a name or uid of more than {_LONGEST_NAME} letters")


def _apology(verb: str, message: str) -> bytes:
    """Errors of prioritize are ignored by kube-scheduler, but its decoder wants an array."""
    return b"[]" if verb == "prioritize" else wire.write_error(message)
