"""Bindings: written once, retried in doubt, and called bound only when the API server shows it.

A binding is safe to repeat: its uid is a precondition, and a pod that has a node refuses
another. So whenever an answer is missing or unclear, the pod itself is read, and it alone
decides. It would also take a node that does not exist, for ever: one that we do not know is asked
for first. The API server copies a binding's annotations to its pod in the same step as the node: so
the pod says for ever in which queue it was started.

An outcome that is not known is not a failure: as long as kube-scheduler waits, we look and try
again. Those who wait for a place under way stand in `line`.
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
from extender.kube.client import is_terminating, message
from extender.kube.connection import PipelinedRequest, Reply
from extender.kube.decode import pods
from extender.kube.decode.pods import STARTED_IN
from extender.kube.decode.raw import RawPod
from extender.kube.errors import missing_permission
from extender.kube.pipeline import Pipeline, pod_path
from extender.kube.write.bind_limiter import BindBatch, BindLimiter
from extender.logs import RateLimitedLog, event
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
POD_GONE = BindOutcome(BindResult.LOST, "the pod is gone, or another one by now")
DELETING = BindOutcome(BindResult.LOST, "the pod is being deleted")
NAMESPACE_GOES = BindOutcome(BindResult.FAILED, "the pod's namespace is being deleted")
ELSEWHERE = BindOutcome(BindResult.LOST, "the pod is already on another node")
GATED = BindOutcome(BindResult.FAILED, "the pod has scheduling gates")
REFUSED = BindOutcome(BindResult.FAILED, "the API server refused the binding; see our log")
TIMED_OUT = BindOutcome(BindResult.FAILED, "the API server did not take the binding in time")
UNKNOWN = BindOutcome(
    BindResult.UNKNOWN, "the API server does not tell whether it took the binding"
)
NOT_LEADER = BindOutcome(BindResult.FAILED, "this extender does not lead any more")
NOT_EXEMPT = BindOutcome(
    BindResult.FAILED, "the pod is not exempt, or another scheduler's, and has not passed filter"
)
NO_NODE = BindOutcome(BindResult.FAILED, "the chosen node does not exist")
_PAUSE = Backoff(0.05, 1.0)
#: What a node can be called.
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_encode = msgspec.json.Encoder().encode


class _Nodes(msgspec.Struct):
    """A list of nodes, of which only the length counts."""

    items: list[msgspec.Raw] | None


_read_nodes = msgspec.json.Decoder(_Nodes).decode


@dataclass(slots=True)
class _Batch:
    """Orders that belong together, and the alarm that ends their waiting."""

    open: int
    alarm: asyncio.TimerHandle
    #: When it rings.
    until: float


@dataclass(slots=True)
class _PendingBind:
    """One order on its way.

    *asking* while a question is unanswered; *unsure* once one may have taken effect unseen.
    """

    order: BindOrder
    settle: OnOutcome
    #: The term in which it was ordered.
    term: int
    batch: _Batch | None = None
    failures: int = 0
    asking: bool = False
    unsure: bool = False
    #: Its binding has not been written yet.
    is_new: bool = True
    #: It has one of the places under way, since then.
    has_place: bool = False
    sent_at: float = 0.0

    def is_open(self) -> bool:
        """Ask whether somebody still waits for the outcome."""
        return self.batch is not None


class ApiBinder:
    """The `Binder` of the real cluster."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        now: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
        started_in: Callable[[PodUid], str] = lambda uid: "",
        mandate: Fencing | None = None,
        is_exempt: Callable[[RawPod], bool] = lambda pod: False,
        knows_node: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """*started_in* names the queue of a pod that is bound; empty when it is in none.

        *is_exempt* says of a pod that nobody has seen whether it is ours and waits for nobody;
        *knows_node* whether the watch has shown a node.
        """
        self._is_exempt = is_exempt
        self._knows_node = knows_node
        self._mandate = mandate or AlwaysLeader()
        self._pipeline = pipeline
        self._started_in = started_in
        self._now = now
        self._chance = chance
        self._line: BindLimiter[_PendingBind] = BindLimiter(self._write, now)
        self._is_moving_up = False
        self._seldom = RateLimitedLog(log)

    def bind(self, orders: Sequence[BindOrder], settle: OnOutcome, until: float) -> None:
        """Send *orders* when it is their turn; each is settled on the loop."""
        term = self._mandate.current()
        errands = [_PendingBind(order, settle, term) for order in orders]
        if errands:
            self._pipeline.run(lambda: self._start(errands, until))

    def _start(self, errands: list[_PendingBind], until: float) -> None:
        left_s = max(0.0, until - self._now())
        alarm = self._pipeline.loop.call_later(left_s, lambda: self._time_is_up(errands))
        batch = _Batch(len(errands), alarm, until)
        for errand in errands:
            errand.batch = batch
        ready: deque[_PendingBind] = deque()
        for errand in errands:
            if errand.order.whose is Whose.UNKNOWN:
                self._look(errand)
            elif not self._knows_node(errand.order.node):
                self._seek_node(errand)
            elif errand.order.whose is Whose.SCHEDULERS:
                self._repeat(errand)  # it asks nobody, and waits for nobody
            else:
                ready.append(errand)
        if ready:
            self._line.join(BindBatch(ready, until, lambda: self._too_late(errands)))

    def _too_late(self, errands: list[_PendingBind]) -> None:
        """Send nothing of a gang that would be torn by the end of its time."""
        if waiting := [errand for errand in errands if errand.is_open()]:
            event(log, logging.WARNING, "too late to bind a gang whole", pods=len(waiting))
        for errand in waiting:
            self._finish(errand, TIMED_OUT)

    def _finish(self, errand: _PendingBind, outcome: BindOutcome) -> None:
        """Tell the outcome, unless time ran out before."""
        self._leave_place(errand)
        batch, errand.batch = errand.batch, None
        if batch is None:
            return
        batch.open -= 1
        if not batch.open:
            batch.alarm.cancel()
        try:
            errand.settle(errand.order, outcome)
        except Exception:
            # Whoever hears it badly must not cost the others of its batch their outcomes.
            log.exception("outcome not taken", extra={"facts": {"pod": errand.order.name}})

    def _leave_place(self, errand: _PendingBind) -> None:
        """Let somebody else go, a moment later: many answers come at once."""
        if not errand.has_place:
            return
        errand.has_place = False
        self._line.release()
        if not self._is_moving_up:
            self._is_moving_up = True
            self._pipeline.loop.call_soon(self._move_up)

    def _move_up(self) -> None:
        self._is_moving_up = False
        self._line.start_next()

    def _write(self, errands: list[_PendingBind]) -> None:
        sent_at = self._now()
        for errand in errands:
            errand.has_place, errand.sent_at = True, sent_at
            if not errand.is_open():
                self._leave_place(errand)  # its time was up while it stood in line
        if wanted := [errand for errand in errands if errand.is_open()]:
            self._pipeline.send([self._binding(errand) for errand in wanted])

    def _binding(self, errand: _PendingBind) -> PipelinedRequest:
        order = errand.order
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
            request, partial(self._answered, errand), partial(self._goes_out, errand)
        )

    def _goes_out(self, errand: _PendingBind) -> bool:
        """Say at the last moment whether a binding may still go out, and note that it does.

        Once its time is up, kube-scheduler was told "no"; and in another term somebody else may
        have given its room away. What kube-scheduler decided for itself we only pass on.
        """
        if not errand.is_open() or not self._is_licensed(errand):
            return False
        errand.asking, errand.is_new = True, False
        return True

    def _is_licensed(self, errand: _PendingBind) -> bool:
        return errand.order.whose is not Whose.OURS or self._mandate.holds(errand.term)

    def _answered(self, errand: _PendingBind, reply: Reply) -> None:
        order, status = errand.order, reply.status
        errand.asking = False
        errand.unsure = errand.unsure or status >= 500 or (status == 0 and reply.sent)
        if status:
            # Whoever is refused for now makes way; who has no answer keeps its place.
            self._line.answered(errand.sent_at)
            self._leave_place(errand)
        if status in (200, 201):
            self._finish(errand, BOUND)
        elif not reply.sent and not self._is_licensed(errand):
            self._give_up(errand)
        elif status in (404, 409) or (status == 0 and reply.sent):
            self._look(errand)
        elif reply.may_pass:
            self._again(errand, reply, self._repeat)
        elif status < 400:
            self._wonder(errand, reply)
        elif is_terminating(status, reply.body):
            self._finish(errand, NAMESPACE_GOES)
        else:
            facts = {"pod": f"{order.namespace}/{order.name}", "node": order.node, **reply.facts()}
            event(log, logging.WARNING, "binding refused", **facts)
            right = missing_permission(message(reply.body)) if status == 403 else None
            self._finish(errand, BindOutcome(BindResult.FAILED, str(right)) if right else REFUSED)

    def _wonder(self, errand: _PendingBind, reply: Reply) -> None:
        """Look what became of a binding: no API server answers so, and no refusal is so spelt."""
        errand.unsure = True
        pod = f"{errand.order.namespace}/{errand.order.name}"
        sentence = "strange answer to a binding"
        self._seldom.event(logging.WARNING, sentence, reply.status, pod=pod, answer=reply.answer)
        self._look(errand)

    def _give_up(self, errand: _PendingBind) -> None:
        """Send nothing more: what was sent in our term may yet take effect, all else has not."""
        self._finish(errand, UNKNOWN if errand.unsure else NOT_LEADER)

    def _repeat(self, errand: _PendingBind) -> None:
        if not errand.is_open():
            return
        if errand.has_place:
            self._write([errand])
        elif errand.is_new and errand.order.whose is Whose.OURS:
            self._line.join(_alone(errand))  # its gang may stand in line, and goes before it
        else:
            self._line.first(errand)

    def _look(self, errand: _PendingBind) -> None:
        errand.asking = True
        path = pod_path(errand.order.namespace, errand.order.name)
        self._pipeline.request(self._pipeline.frame(b"GET", path), partial(self._looked, errand))

    def _looked(self, errand: _PendingBind, reply: Reply) -> None:
        errand.asking = False
        if reply.status == 404:
            self._finish(errand, POD_GONE)
        elif (found := pod_in(reply)) is None:
            self._again(errand, reply, self._look)
        elif (outcome := _shown(errand.order, found)) is not None:
            self._finish(errand, outcome)
        elif errand.order.whose is Whose.UNKNOWN and not self._is_exempt(found):
            self._finish(errand, NOT_EXEMPT)
        elif errand.is_new and not self._knows_node(errand.order.node):
            self._seek_node(errand)
        elif errand.is_new:
            self._repeat(errand)
        else:
            self._again(errand, reply, self._repeat)

    def _seek_node(self, errand: _PendingBind) -> None:
        """Ask for a node that the watch has not shown: kube-scheduler may have seen it first."""
        name = errand.order.node
        if not _NODE_NAME.fullmatch(name):
            self._refuse_node(errand)
            return
        errand.asking = True
        path = f"/api/v1/nodes?fieldSelector=metadata.name%3D{name}&limit=1"
        self._pipeline.request(self._pipeline.frame(b"GET", path), partial(self._sought, errand))

    def _sought(self, errand: _PendingBind, reply: Reply) -> None:
        errand.asking = False
        if reply.status == 403:
            # Without that right nothing of ours gets here, and exempt pods never wait (0030).
            self._repeat(errand)
        elif (found := _nodes_in(reply)) is None:
            self._again(errand, reply, self._seek_node)
        elif not found:
            self._refuse_node(errand)
        else:
            self._repeat(errand)

    def _refuse_node(self, errand: _PendingBind) -> None:
        order = errand.order
        pod, sentence = f"{order.namespace}/{order.name}", "refused to bind to a node that is none"
        self._seldom.event(logging.WARNING, sentence, pod=pod, node=order.node[:253])
        self._finish(errand, NO_NODE)

    def _again(
        self, errand: _PendingBind, reply: Reply, step: Callable[[_PendingBind], None]
    ) -> None:
        if reply.status == 401:
            self._pipeline.renew()
        if not errand.is_open():
            return  # nobody waits for it: the watch will show what became of it
        errand.failures += 1
        chance = self._chance()
        pause_s = _PAUSE.delay_s(errand.failures, chance)
        if reply.retry_after_s and errand.batch:
            left_s = errand.batch.until - self._now()
            pause_s = with_retry_after(pause_s, reply.retry_after_s, left_s, chance)
        self._pipeline.loop.call_later(pause_s, partial(step, errand))

    def _time_is_up(self, errands: list[_PendingBind]) -> None:
        for errand in errands:
            is_open = errand.asking and not errand.is_new
            self._finish(errand, UNKNOWN if errand.unsure or is_open else TIMED_OUT)


def pod_in(reply: Reply) -> RawPod | None:
    """Read the pod that was asked for; None when what came is none, and may be another time."""
    if reply.status != 200:
        return None
    try:
        return pods.pod(reply.body)
    except InvalidHookCall:
        return None


def _nodes_in(reply: Reply) -> list[msgspec.Raw] | None:
    """Read the nodes that were asked for; None when what came is no list of them."""
    if reply.status != 200:
        return None
    try:
        return _read_nodes(reply.body).items or []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _alone(errand: _PendingBind) -> BindBatch[_PendingBind]:
    return BindBatch(deque([errand]), float("inf"), lambda: None)


def _shown(order: BindOrder, pod: RawPod) -> BindOutcome | None:
    """Say what a pod itself shows, None when it may still be bound."""
    if pod.metadata.uid != order.uid:
        return POD_GONE
    if pod.spec.node_name:
        return BOUND if pod.spec.node_name == order.node else ELSEWHERE
    if pod.metadata.deletion_timestamp is not None:
        return DELETING
    return GATED if pod.spec.scheduling_gates else None
