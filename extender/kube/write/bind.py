"""Bindings: sent until the API server shows the outcome, or the deadline is reached.

A binding is safe to repeat: its uid is a precondition, and a pod with a node cannot be bound to
another. So when a response is missing or unclear, the pod itself is read, and it alone decides. The
API server would also bind a pod to a node that does not exist, for ever. So a node that the watch
has not shown is requested first. The API server copies a binding's annotations to its pod together
with the node: so the pod records for ever in which queue it was started.

An unknown outcome is not a failure: while kube-scheduler waits, we read the pod and retry. The
`bind_limiter` limits the bindings in flight.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from extender.durations import Backoff, with_retry_after
from extender.errors import InvalidHookCall
from extender.kube.connection import PipelinedRequest, Reply
from extender.kube.decode import pods
from extender.kube.decode.raw import RawPod
from extender.kube.errors import is_terminating, message, missing_permission
from extender.kube.pipeline import Pipeline, pod_path
from extender.kube.write.bind_limiter import BindBatch, BindLimiter
from extender.logs import RateLimitedLog, event
from extender.model.annotations import STARTED_IN
from extender.model.pod import PodUid
from extender.ports import (
    AlwaysLeader,
    BindOrder,
    BindOutcome,
    BindResult,
    Fencing,
    OnOutcome,
    Whose,
)

log = logging.getLogger(__name__)
BOUND = BindOutcome(BindResult.BOUND)
POD_GONE = BindOutcome(BindResult.LOST, "the pod is gone, or was replaced by another one")
DELETING = BindOutcome(BindResult.LOST, "the pod is being deleted")
NAMESPACE_GOES = BindOutcome(BindResult.FAILED, "the pod's namespace is being deleted")
ELSEWHERE = BindOutcome(BindResult.LOST, "the pod is already on another node")
GATED = BindOutcome(BindResult.FAILED, "the pod has scheduling gates")
REFUSED = BindOutcome(BindResult.FAILED, "the API server refused the binding; see our log")
TIMED_OUT = BindOutcome(BindResult.FAILED, "the API server did not apply the binding in time")
UNKNOWN = BindOutcome(
    BindResult.UNKNOWN, "it is not known whether the API server applied the binding"
)
NOT_LEADER = BindOutcome(BindResult.FAILED, "this extender does not lead any more")
NOT_EXEMPT = BindOutcome(
    BindResult.FAILED, "the pod is not an exempt pod of ours, and filter has not admitted it"
)
NO_NODE = BindOutcome(BindResult.FAILED, "the chosen node does not exist")
_PAUSE = Backoff(0.05, 1.0)
#: A valid name of a node.
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_encode = msgspec.json.Encoder().encode


class _Nodes(msgspec.Struct):
    """A list of nodes, of which only the length counts."""

    items: list[msgspec.Raw] | None


_read_nodes = msgspec.json.Decoder(_Nodes).decode


@dataclass(slots=True)
class _Batch:
    """Orders that belong together, and the timer of their deadline."""

    open: int
    timer: asyncio.TimerHandle
    #: The deadline.
    until: float


@dataclass(slots=True)
class _PendingBind:
    """One order whose outcome is not reported yet.

    *in_flight* while a request has no response; *is_uncertain* once a binding may have taken effect
    without a response that shows it.
    """

    order: BindOrder
    on_outcome: OnOutcome
    #: The term of the order.
    term: int
    batch: _Batch | None = None
    failures: int = 0
    in_flight: bool = False
    is_uncertain: bool = False
    #: Its binding has not been written yet.
    is_new: bool = True
    #: It has a slot of the limiter, since *sent_at*.
    has_slot: bool = False
    sent_at: float = 0.0

    def is_open(self) -> bool:
        """Return whether the caller still waits for the outcome."""
        return self.batch is not None


class ApiBinder:
    """The `Binder` of a real cluster."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        started_in: Callable[[PodUid], str] = lambda uid: "",
        fencing: Fencing | None = None,
        is_exempt: Callable[[RawPod], bool] = lambda pod: False,
        knows_node: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """*started_in* returns the queue of a pod that is bound; empty without one.

        *is_exempt* returns whether a pod that the watch has not shown is ours and exempt;
        *knows_node* whether the watch has shown a node.
        """
        self._is_exempt = is_exempt
        self._knows_node = knows_node
        self._fencing = fencing or AlwaysLeader()
        self._pipeline = pipeline
        self._started_in = started_in
        self._now = now
        self._chance = chance
        self._limiter: BindLimiter[_PendingBind] = BindLimiter(self._write, now)
        self._is_start_scheduled = False
        self._limited_log = RateLimitedLog(log)

    @property
    def in_flight(self) -> int:
        """The number of bindings that occupy a slot of the limiter."""
        return self._limiter.in_flight

    def bind(self, orders: Sequence[BindOrder], on_outcome: OnOutcome, until: float) -> None:
        """Queue *orders* in the limiter; *on_outcome* is called for each in the event loop."""
        term = self._fencing.current()
        binds = [_PendingBind(order, on_outcome, term) for order in orders]
        if binds:
            self._pipeline.run(lambda: self._start(binds, until))

    def _start(self, binds: list[_PendingBind], until: float) -> None:
        left_s = max(0.0, until - self._now())
        timer = self._pipeline.loop.call_later(left_s, lambda: self._deadline_passed(binds))
        batch = _Batch(len(binds), timer, until)
        for bind in binds:
            bind.batch = batch
        ready: deque[_PendingBind] = deque()
        for bind in binds:
            if bind.order.whose is Whose.UNKNOWN:
                self._read_pod(bind)
            elif not self._knows_node(bind.order.node):
                self._find_node(bind)
            elif bind.order.whose is Whose.SCHEDULERS:
                self._repeat(bind)  # another scheduler's decision needs no check and no gang
            else:
                ready.append(bind)
        if ready:
            self._limiter.add(BindBatch(ready, until, lambda: self._too_late(binds)))

    def _too_late(self, binds: list[_PendingBind]) -> None:
        """Send no binding of a gang that could only be bound partly before its deadline."""
        if waiting := [bind for bind in binds if bind.is_open()]:
            event(log, logging.WARNING, "too late to bind the whole gang", pods=len(waiting))
        for bind in waiting:
            self._finish(bind, TIMED_OUT)

    def _finish(self, bind: _PendingBind, outcome: BindOutcome) -> None:
        """Report the outcome, unless the deadline has reported one."""
        self._release_slot(bind)
        batch, bind.batch = bind.batch, None
        if batch is None:
            return
        batch.open -= 1
        if not batch.open:
            batch.timer.cancel()
        try:
            bind.on_outcome(bind.order, outcome)
        except Exception:
            # A callback that fails must not prevent the outcomes of the rest of its batch.
            log.exception("outcome callback failed", extra={"facts": {"pod": bind.order.name}})

    def _release_slot(self, bind: _PendingBind) -> None:
        """Release the slot; the next binding starts in a later callback, with many responses."""
        if not bind.has_slot:
            return
        bind.has_slot = False
        self._limiter.release()
        if not self._is_start_scheduled:
            self._is_start_scheduled = True
            self._pipeline.loop.call_soon(self._start_next)

    def _start_next(self) -> None:
        self._is_start_scheduled = False
        self._limiter.start_next()

    def _write(self, binds: list[_PendingBind]) -> None:
        sent_at = self._now()
        for bind in binds:
            bind.has_slot, bind.sent_at = True, sent_at
            if not bind.is_open():
                self._release_slot(bind)  # its deadline passed while it was queued
        if wanted := [bind for bind in binds if bind.is_open()]:
            self._pipeline.send([self._binding(bind) for bind in wanted])

    def _binding(self, bind: _PendingBind) -> PipelinedRequest:
        order = bind.order
        metadata: dict[str, object] = {"name": order.name, "uid": order.uid}
        if queue := self._started_in(order.uid):
            metadata["annotations"] = {STARTED_IN: queue}
        binding = {
            "metadata": metadata,
            "target": {"name": order.node, "kind": "Node"},
            "kind": "Binding",
            "apiVersion": "v1",
        }
        path = pod_path(order.namespace, order.name, "/binding")
        request = self._pipeline.frame(b"POST", path, _encode(binding))
        return PipelinedRequest(
            request, partial(self._answered, bind), partial(self._may_send, bind)
        )

    def _may_send(self, bind: _PendingBind) -> bool:
        """Return, just before the write, whether a binding may be sent; mark it as in flight.

        After the deadline kube-scheduler has a refusal. In another term another leader may have
        used the capacity. A binding that kube-scheduler decided itself needs no term.
        """
        if not bind.is_open() or not self._is_allowed(bind):
            return False
        bind.in_flight, bind.is_new = True, False
        return True

    def _is_allowed(self, bind: _PendingBind) -> bool:
        return bind.order.whose is not Whose.OURS or self._fencing.holds(bind.term)

    def _answered(self, bind: _PendingBind, reply: Reply) -> None:
        order, status = bind.order, reply.status
        bind.in_flight = False
        bind.is_uncertain = bind.is_uncertain or status >= 500 or (status == 0 and reply.sent)
        if status:
            # A refused binding releases its slot; one without a response keeps it.
            self._limiter.answered(bind.sent_at)
            self._release_slot(bind)
        if status in (200, 201):
            self._finish(bind, BOUND)
        elif not reply.sent and not self._is_allowed(bind):
            self._give_up(bind)
        elif status in (404, 409) or (status == 0 and reply.sent):
            self._read_pod(bind)
        elif reply.may_retry:
            self._retry_later(bind, reply, self._repeat)
        elif status < 400:
            self._unexpected(bind, reply)
        elif is_terminating(status, reply.body):
            self._finish(bind, NAMESPACE_GOES)
        else:
            event(
                log,
                logging.WARNING,
                "binding refused",
                pod=f"{order.namespace}/{order.name}",
                node=order.node,
                status=status,
                answer=reply.answer,
            )
            permission = missing_permission(message(reply.body)) if status == 403 else None
            self._finish(
                bind, BindOutcome(BindResult.FAILED, str(permission)) if permission else REFUSED
            )

    def _unexpected(self, bind: _PendingBind, reply: Reply) -> None:
        """Read the pod: this status is neither a success nor a refusal of a binding."""
        bind.is_uncertain = True
        pod = f"{bind.order.namespace}/{bind.order.name}"
        sentence = "unexpected response to a binding"
        self._limited_log.event(
            logging.WARNING, sentence, reply.status, pod=pod, answer=reply.answer
        )
        self._read_pod(bind)

    def _give_up(self, bind: _PendingBind) -> None:
        """Report the outcome after the term: a binding sent before may still take effect."""
        self._finish(bind, UNKNOWN if bind.is_uncertain else NOT_LEADER)

    def _repeat(self, bind: _PendingBind) -> None:
        if not bind.is_open():
            return
        if bind.has_slot:
            self._write([bind])
        elif bind.is_new and bind.order.whose is Whose.OURS:
            self._limiter.add(_single(bind))  # its gang may be queued, and goes before it
        else:
            self._limiter.add_first(bind)

    def _read_pod(self, bind: _PendingBind) -> None:
        bind.in_flight = True
        path = pod_path(bind.order.namespace, bind.order.name)
        self._pipeline.request(self._pipeline.frame(b"GET", path), partial(self._pod_read, bind))

    def _pod_read(self, bind: _PendingBind, reply: Reply) -> None:
        bind.in_flight = False
        if reply.status == 404:
            self._finish(bind, POD_GONE)
        elif (found := pod_in(reply)) is None:
            self._retry_later(bind, reply, self._read_pod)
        elif (outcome := _outcome_of(bind.order, found)) is not None:
            self._finish(bind, outcome)
        elif bind.order.whose is Whose.UNKNOWN and not self._is_exempt(found):
            self._finish(bind, NOT_EXEMPT)
        elif bind.is_new and not self._knows_node(bind.order.node):
            self._find_node(bind)
        elif bind.is_new:
            self._repeat(bind)
        else:
            self._retry_later(bind, reply, self._repeat)

    def _find_node(self, bind: _PendingBind) -> None:
        """Request a node that the watch has not shown: kube-scheduler may know it before us."""
        name = bind.order.node
        if not _NODE_NAME.fullmatch(name):
            self._refuse_node(bind)
            return
        bind.in_flight = True
        path = f"/api/v1/nodes?fieldSelector=metadata.name%3D{name}&limit=1"
        self._pipeline.request(self._pipeline.frame(b"GET", path), partial(self._node_read, bind))

    def _node_read(self, bind: _PendingBind, reply: Reply) -> None:
        bind.in_flight = False
        if reply.status == 403:
            # Without this permission pods of gangs do not get here; exempt pods never wait (0028).
            self._repeat(bind)
        elif (found := _nodes_in(reply)) is None:
            self._retry_later(bind, reply, self._find_node)
        elif not found:
            self._refuse_node(bind)
        else:
            self._repeat(bind)

    def _refuse_node(self, bind: _PendingBind) -> None:
        order = bind.order
        pod = f"{order.namespace}/{order.name}"
        sentence = "refused to bind to a node that does not exist"
        self._limited_log.event(logging.WARNING, sentence, pod=pod, node=order.node[:253])
        self._finish(bind, NO_NODE)

    def _retry_later(
        self, bind: _PendingBind, reply: Reply, step: Callable[[_PendingBind], None]
    ) -> None:
        if reply.status == 401:
            self._pipeline.renew()
        if not bind.is_open():
            return  # the caller does not wait any more; the watch will show the outcome
        bind.failures += 1
        chance = self._chance()
        pause_s = _PAUSE.delay_s(bind.failures, chance)
        if reply.retry_after_s and bind.batch:
            left_s = bind.batch.until - self._now()
            pause_s = with_retry_after(pause_s, reply.retry_after_s, left_s, chance)
        self._pipeline.loop.call_later(pause_s, partial(step, bind))

    def _deadline_passed(self, binds: list[_PendingBind]) -> None:
        for bind in binds:
            is_open = bind.in_flight and not bind.is_new
            self._finish(bind, UNKNOWN if bind.is_uncertain or is_open else TIMED_OUT)


def pod_in(reply: Reply) -> RawPod | None:
    """Return the pod of a response; None if it is not a pod, and a retry may help."""
    if reply.status != 200:
        return None
    try:
        return pods.pod(reply.body)
    except InvalidHookCall:
        return None


def _nodes_in(reply: Reply) -> list[msgspec.Raw] | None:
    """Return the nodes of a response; None if it is not a list of nodes."""
    if reply.status != 200:
        return None
    try:
        return _read_nodes(reply.body).items or []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _single(bind: _PendingBind) -> BindBatch[_PendingBind]:
    return BindBatch(deque([bind]), float("inf"), lambda: None)


def _outcome_of(order: BindOrder, pod: RawPod) -> BindOutcome | None:
    """Return the outcome that the pod shows; None while it may still be bound."""
    if pod.metadata.uid != order.uid:
        return POD_GONE
    if pod.spec.node_name:
        return BOUND if pod.spec.node_name == order.node else ELSEWHERE
    if pod.metadata.deletion_timestamp is not None:
        return DELETING
    return GATED if pod.spec.scheduling_gates else None
