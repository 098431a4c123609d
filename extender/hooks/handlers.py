"""Answer the four hooks, bytes in and bytes out; a bind may be answered later.

This module knows nothing of HTTP, which the hook server handles. After any failure kube-scheduler
gets an `Error` that it can show, and the server keeps running.
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

#: kube-scheduler's backoff starts with 1 s, rounded down, and doubles. If two backoffs in a row
#: are shorter than this, kube-scheduler ended at least one of them early.
_SOON_S = 0.9
#: The duration of about four attempts of kube-scheduler.
_DELAY_S = 0.005
#: More pods than it can retry in so short a time.
_REMEMBERED = 5_000


class _Refused(NamedTuple):
    """The time of a refusal, and whether it came soon after the one before."""

    at: float
    is_soon: bool


_NEVER = _Refused(float("-inf"), is_soon=False)


class RetryDelay:
    """Delays refusals of pods that are retried without backoff; everything happens on the loop."""

    def __init__(self, delay_s: float = _DELAY_S) -> None:
        self._delay_s = delay_s
        self._last: LRUCache[PodUid, _Refused] = LRUCache(_REMEMBERED)

    def refused(self, uid: PodUid, now: float) -> float:
        """Record a refusal of *uid*, and return how long to delay it; mostly 0."""
        last = self._last.get(uid, _NEVER)
        is_soon = now - last.at < _SOON_S
        self._last[uid] = _Refused(now, is_soon)
        return self._delay_s if is_soon and last.is_soon else 0.0


log = logging.getLogger(__name__)
#: Decodes the Pod object inside a call; the decoder of the watch, passed in by the wiring.
PodReader: TypeAlias = Callable[[bytes], tuple[Pod, Membership]]
#: Sentences that state why the extender must not decide now; empty if it may.
Readiness: TypeAlias = Callable[[], list[str]]
VERBS = ("filter", "prioritize", "preempt", "bind")
#: Every outcome that is counted, by verb; filter also refuses for a reason.
OUTCOMES = (
    *(("filter", word) for word in ("passed", "steered", "error")),
    *(("filter", reason.value) for reason in Reason),
    *(("prioritize", word) for word in ("passed", "error")),
    *(("preempt", word) for word in ("passed", "vetoed", "error")),
    *(("bind", word) for word in ("bound", "refused")),
)
#: The id of a bind that was refused before it reached the permit runner.
NO_CALL = CallId(0)
#: A pod may be 1.5 MiB in etcd and 5,000 node names come on top.
BODY_LIMIT = 4 * 1024 * 1024
#: No object has a longer name or uid; this bounds what is remembered of untrusted callers.
_LONGEST_NAME = 253


class HookAnswer(NamedTuple):
    """The answer to filter, prioritize or preempt, and how long to delay it."""

    body: bytes
    delay_s: float = 0.0
    #: The extender has just started or become leader: a retry in a moment may succeed.
    retry_here: bool = False


class Hooks:
    """Decodes calls, passes them to the gate or the permit runner, and encodes the answers."""

    #: How long a positive readiness answer is reused. What it depends on changes within seconds,
    #: except leadership, which is checked each time.
    ready_s = 0.05
    #: How long a call waits for readiness. A refusal would make kube-scheduler back off each of its
    #: pods for seconds, and a partly started gang with them. kube-scheduler gives up a call after
    #: two seconds (our `httpTimeout` for filter) and would not read the reason.
    max_wait_s = 1.2

    def __init__(
        self,
        gate: Gate,
        permit: PermitRunner,
        read_pod: PodReader,
        why_not_ready: Readiness,
        clock: Clock,
        metrics: Metrics,
        standby: Readiness = list,
    ) -> None:
        self.standby = standby
        self.retries = RetryDelay()
        self._gate = gate
        self._permit = permit
        self._read_pod = read_pod
        self._why_not_ready = why_not_ready
        self._clock = clock
        self._called_at = float("-inf")
        self._ready_until = float("-inf")
        self._wait_until: float | None = None
        self._warned = False
        self._delayed_refusals = metrics.delayed_refusals
        self._rate_limited_log = RateLimitedLog(log)
        # Looking up a labelled series costs more than counting, and there are few.
        self._counter = cache(metrics.hook_answers.labels)
        self._refused_namespaces = RefusedNamespaces(metrics)
        init_labels(metrics.hook_answers, *OUTCOMES)
        init_labels(metrics.bind_wait_seconds, *((cause.word,) for cause in Cause))
        self._latency = {verb: metrics.hook_seconds.labels(verb) for verb in VERBS}
        self._answers = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "preempt": self._preempt,
        }

    def answer(self, verb: str, body: bytes) -> HookAnswer:
        """Answer filter, prioritize or preempt without waiting."""
        self._called_at = started = self._clock.monotonic()
        try:
            answer = self._answers[verb](body)
        except ExtenderError as error:
            error_body = _error_body(verb, str(error))
            if isinstance(error, NotReady) and self._may_wait(started):
                return HookAnswer(error_body, retry_here=True)
            self._count(verb, "error")
            answer = HookAnswer(error_body)
        except Exception:
            log.exception("hook failed", extra={"facts": {"verb": verb}})
            self._count(verb, "error")
            answer = HookAnswer(
                _error_body(verb, "the extender failed to answer; its log has the details")
            )
        self._latency[verb].observe(self._clock.monotonic() - started)
        return answer

    def bind(self, body: bytes, answer: TakeAnswer) -> CallId:
        """Start a bind; *answer* is called once, at once or much later, from any thread."""
        started = self._clock.monotonic()
        try:
            call = wire.read_bind(body)
            _check_lengths(call.uid, call.namespace, call.name, call.node)
            order = BindOrder(
                uid=PodUid(call.uid), namespace=call.namespace, name=call.name, node=call.node
            )
            whose = self._whose(order)
            self._gate.record_bind(order.uid)
            if whose is Whose.SCHEDULERS:
                return self._permit.bind(replace(order, whose=whose), answer)
            try:
                self._must_be_ready(started)
            except NotReady as not_ready:
                if whose is not Whose.UNKNOWN:
                    raise
                # Bound only if the API server says that it is exempt.
                why_not = str(not_ready)
                order = replace(order, whose=whose)
                return self._permit.bind(order, lambda error: answer(error and why_not))
            if whose is Whose.UNKNOWN and self._gate.exempts(order.namespace):
                # The namespace is the caller's claim; the API server confirms whose pod it is.
                return self._permit.bind(replace(order, whose=whose), answer)
            return self._permit.bind(order, answer)
        except ExtenderError as error:
            answer(str(error))
        except Exception:
            log.exception("hook failed", extra={"facts": {"verb": "bind"}})
            answer("the extender failed to bind; its log has the details")
        finally:
            self._latency["bind"].observe(self._clock.monotonic() - started)
        return NO_CALL

    def _whose(self, order: BindOrder) -> Whose:
        try:
            return self._gate.whose(order.uid)
        except OtherSchedulersPod:
            pod = f"{order.namespace}/{order.name}"
            sentence = "refused to bind another scheduler's pod"
            self._rate_limited_log.event(logging.WARNING, sentence, pod=pod, node=order.node)
            raise

    def peer_gone(self, call: CallId) -> None:
        """Report that the caller of a waiting bind disconnected."""
        self._permit.peer_gone(call)

    def bound(self, error: str) -> bytes:
        """Return the answer to a bind and count it."""
        self._count("bind", "refused" if error else "bound")
        return wire.write_error(error) if error else wire.BOUND

    def _filter(self, body: bytes) -> HookAnswer:
        call = wire.read_filter(body)
        if call.sent_whole_nodes and not self._warned:
            self._warned = True
            event(log, logging.WARNING, "kube-scheduler sends whole nodes; set nodeCacheCapable")
        pod, member = self._decode_pod(call.pod)
        if not pod.is_unmanaged:
            self._must_be_ready(self._called_at)
        answer = self._gate.filter(pod, member, call.offered())
        self._count("filter", answer.outcome)
        body = wire.write_filter(call, answer.nodes, answer.refused)
        if answer.nodes:
            return HookAnswer(body)
        self._refused_namespaces.refused(pod.namespace, member.key, answer.outcome, self._called_at)
        delay_s = self.retries.refused(pod.uid, self._called_at)
        if delay_s:
            self._delayed_refusals.inc()
        return HookAnswer(body, delay_s)

    def _prioritize(self, body: bytes) -> HookAnswer:
        call = wire.read_filter(body)
        pod, _ = self._decode_pod(call.pod)
        self._count("prioritize", "passed")
        return HookAnswer(wire.write_scores(self._gate.prioritize(pod, call.offered())))

    def _preempt(self, body: bytes) -> HookAnswer:
        call = wire.read_preempt(body)
        pod, member = self._decode_pod(call.pod)
        if not pod.is_unmanaged:
            self._must_be_ready(self._called_at)
        victims = self._gate.preempt(pod, member, call.victims())
        self._count("preempt", "passed" if victims else "vetoed")
        return HookAnswer(wire.write_victims(call, victims))

    def _decode_pod(self, raw: bytes) -> tuple[Pod, Membership]:
        pod, member = self._read_pod(raw)
        _check_lengths(pod.uid, pod.namespace, pod.name)
        self._gate.record_call(pod)
        return pod, member

    def _must_be_ready(self, now: float) -> None:
        if now < self._ready_until and not self.standby():
            return
        for sentence in self._why_not_ready():
            raise NotReady(f"the extender is not ready: {sentence}")
        self._ready_until = now + self.ready_s
        self._wait_until = None

    def _may_wait(self, now: float) -> bool:
        """Return whether readiness was lost only just now; a long outage is answered at once."""
        if self.standby():
            self._wait_until = None
            return False
        if self._wait_until is None:
            self._wait_until = now + self.max_wait_s
        return now < self._wait_until

    def _count(self, verb: str, outcome: str) -> None:
        self._counter(verb, outcome).inc()


def _check_lengths(*texts: str) -> None:
    for text in texts:
        if len(text) > _LONGEST_NAME:
            raise InvalidHookCall(f"a name or uid is longer than {_LONGEST_NAME} characters")


def _error_body(verb: str, message: str) -> bytes:
    """Return an error; kube-scheduler ignores errors of prioritize but its decoder wants a list."""
    return b"[]" if verb == "prioritize" else wire.write_error(message)
