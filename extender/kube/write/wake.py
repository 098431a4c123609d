"""Wake-ups: requeue pods of kube-scheduler's unschedulable queue and nominate their reserved node.

One patch does both. `status.nominatedNodeName` makes kube-scheduler try that node first. The
annotation causes the requeue: up to 1.31 kube-scheduler ignores a change of status alone, and every
version ignores a patch that changes nothing, such as a second nomination of the same node.

To check whether kube-scheduler is alive, the patch also changes the condition that it last wrote:
it does not write a condition that exists already, so a pod that fits no node would show no sign.
From 1.33 on it does not requeue a pod without a feasible node for any change of that pod. But it
does when a nomination is removed, which counts as capacity that became free.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from extender.clock import RateLimit
from extender.durations import Backoff
from extender.kube.connection import PipelinedRequest, Reply
from extender.kube.pipeline import MERGE_PATCH, STRATEGIC_PATCH, Pipeline, pod_path
from extender.logs import RateLimitedLog
from extender.model.annotations import WOKEN
from extender.model.pod import PodUid
from extender.ports import AlwaysLeader, Fencing, WakeOrder

log = logging.getLogger(__name__)
_ATTEMPTS = 5
_PAUSE = Backoff(0.2, 1.6)
_encode = msgspec.json.Encoder().encode


def _now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class ApiWaker:
    """The `Waker` of a real cluster: *burst* at once, then *per_s*; the latest order counts."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        per_s: float = 200.0,
        burst: int = 400,
        chance: Callable[[], float] = random.random,
        now: Callable[[], str] = _now_text,
        fencing: Fencing | None = None,
        identity: str = "",
    ) -> None:
        """The annotation contains *identity*: two extenders that wake the same pods notice it."""
        self._signature = f" by {identity}" if identity else ""
        self._fencing = fencing or AlwaysLeader()
        self._pipeline = pipeline
        self._rate = RateLimit(per_s, burst, pipeline.loop.time)
        self._chance = chance
        self._now = now
        self._limited_log = RateLimitedLog(log)
        #: Orders that wait for the rate limit, or for the response to an older one.
        self._queued: dict[PodUid, tuple[WakeOrder, int]] = {}
        self._in_flight: set[PodUid] = set()
        #: Admitted by the rate limit while an older order was in flight.
        self._overdue: set[PodUid] = set()
        #: Failed orders that are retried, unless a newer order replaces them.
        self._retried: dict[PodUid, WakeOrder] = {}

    def wake(self, orders: Sequence[WakeOrder]) -> None:
        """Queue *orders*; a later order for the same pod replaces one not yet sent."""
        term = self._fencing.current()
        self._pipeline.run(
            lambda: self._send([each.uid for each in orders if self._queue(each, term)])
        )

    def _queue(self, order: WakeOrder, term: int) -> bool:
        """Queue an order; returns True when the rate limit admits it now."""
        self._retried.pop(order.uid, None)
        is_queued = order.uid in self._queued
        self._queued[order.uid] = order, term
        if is_queued:
            return False
        wait_s = self._rate.acquire()
        if wait_s <= 0:
            return True
        self._pipeline.loop.call_later(wait_s, lambda: self._send([order.uid]))
        return False

    def _send(self, uids: Sequence[PodUid]) -> None:
        # Two patches of one pod on two connections could overtake each other.
        self._overdue.update(uid for uid in uids if uid in self._in_flight)
        ready = [self._queued.pop(uid) for uid in uids if uid not in self._in_flight]
        if ready:
            self._pipeline.send([self._patch(order, term) for order, term in ready])

    def _patch(self, order: WakeOrder, term: int, attempt: int = 1) -> PipelinedRequest:
        self._in_flight.add(order.uid)
        body: dict[str, Any] = {
            # The API server refuses the patch for another pod of the same name.
            "metadata": {
                "uid": order.uid,
                "annotations": {WOKEN: self._now() + self._signature},
            },
            "status": {"nominatedNodeName": order.node or None},
        }
        if order.refusal:
            condition = {"type": "PodScheduled", "message": order.refusal}
            body["status"]["conditions"] = [condition]
        path = pod_path(order.namespace, order.name, "/status")
        # Conditions are a list by type: only a strategic merge patch keeps the others.
        kind = STRATEGIC_PATCH if order.refusal else MERGE_PATCH
        request = self._pipeline.frame(b"PATCH", path, _encode(body), kind)
        done = partial(self._answered, order, term, attempt)
        return PipelinedRequest(request, done, partial(self._fencing.holds, term))

    def _answered(self, order: WakeOrder, term: int, attempt: int, reply: Reply) -> None:
        self._in_flight.discard(order.uid)
        if order.uid in self._overdue:
            self._overdue.discard(order.uid)
            self._send([order.uid])
        elif reply.status == 200 and order.briefly:
            cleared = replace(order, node="", refusal="", briefly=False)
            self._pipeline.send((self._patch(cleared, term),))
        elif reply.status in (200, 404, 409, 422):
            return  # woken, or gone, or replaced by another pod (a uid cannot be changed)
        elif not self._fencing.holds(term):
            return  # the next leader wakes it
        elif attempt < _ATTEMPTS and reply.may_retry:
            self._retry_later(order, term, attempt, reply)
        else:
            pod = f"{order.namespace}/{order.name}"
            facts = {"pod": pod, "answer": reply.answer}
            self._limited_log.event(logging.WARNING, "pod not woken", reply.status, **facts)

    def _retry_later(self, order: WakeOrder, term: int, attempt: int, reply: Reply) -> None:
        if reply.status == 401:
            self._pipeline.renew()
        if order.uid in self._queued:
            return  # a newer order follows
        self._retried[order.uid] = order
        pause_s = _PAUSE.delay_s(attempt, self._chance())
        self._pipeline.loop.call_later(pause_s, lambda: self._retry(order, term, attempt + 1))

    def _retry(self, order: WakeOrder, term: int, attempt: int) -> None:
        if self._retried.get(order.uid) is order:
            del self._retried[order.uid]
            self._pipeline.send((self._patch(order, term, attempt),))
