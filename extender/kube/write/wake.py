"""Wake-ups for pods kube-scheduler has put aside, steered to their reserved node.

One patch does two things. `status.nominatedNodeName` makes kube-scheduler look at that node
first. The annotation makes it look at all: up to 1.31 it does not notice a change of status alone,
and in no version a patch that changes nothing, such as a second nomination of the same node.

Where we only want to know whether it lives, its own last word is changed too: it writes no
condition that is there already, so a pod that still fits nowhere would give no sign. From 1.33 on
it does not even look at a pod that it found no room for, whatever changes there; but it does
when a nomination is taken back, which counts as room that became free.
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
from extender.model.pod import PodUid
from extender.ports import AlwaysLeader, Fencing, WakeOrder

log = logging.getLogger(__name__)
WOKEN = "gang-extender.io/woken"
_ATTEMPTS = 5
_PAUSE = Backoff(0.2, 1.6)
_encode = msgspec.json.Encoder().encode


def _this_moment() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class ApiWaker:
    """The `Waker` of the real cluster: *burst* at once, then *per_s*; the latest order wins."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        per_s: float = 200.0,
        burst: int = 400,
        chance: Callable[[], float] = random.random,
        moment: Callable[[], str] = _this_moment,
        mandate: Fencing | None = None,
        me: str = "",
    ) -> None:
        """Others read in the annotation that it was *me*: two that wake the same pods should."""
        self._signature = f" by {me}" if me else ""
        self._mandate = mandate or AlwaysLeader()
        self._pipeline = pipeline
        self._pace = RateLimit(per_s, burst, pipeline.loop.time)
        self._chance = chance
        self._moment = moment
        self._seldom = RateLimitedLog(log)
        #: Orders that wait for their turn, or for the answer to an older one.
        self._queued: dict[PodUid, tuple[WakeOrder, int]] = {}
        self._under_way: set[PodUid] = set()
        #: Had their turn while an older order was under way.
        self._overdue: set[PodUid] = set()
        #: Failed and will be tried again, unless a newer order comes: that one's word stands.
        self._put_off: dict[PodUid, WakeOrder] = {}

    def wake(self, orders: Sequence[WakeOrder]) -> None:
        """Queue *orders*; a later order for the same pod replaces one not yet sent."""
        term = self._mandate.current()
        self._pipeline.run(
            lambda: self._send([each.uid for each in orders if self._queue(each, term)])
        )

    def _queue(self, order: WakeOrder, term: int) -> bool:
        """Give an order its turn; True when that is now."""
        self._put_off.pop(order.uid, None)
        has_a_turn = order.uid in self._queued
        self._queued[order.uid] = order, term
        if has_a_turn:
            return False
        wait_s = self._pace.acquire()
        if wait_s <= 0:
            return True
        self._pipeline.loop.call_later(wait_s, lambda: self._send([order.uid]))
        return False

    def _send(self, uids: Sequence[PodUid]) -> None:
        # Two patches of one pod on two connections could overtake each other.
        self._overdue.update(uid for uid in uids if uid in self._under_way)
        free = [self._queued.pop(uid) for uid in uids if uid not in self._under_way]
        if free:
            self._pipeline.send([self._patch(order, term) for order, term in free])

    def _patch(self, order: WakeOrder, term: int, attempt: int = 1) -> PipelinedRequest:
        self._under_way.add(order.uid)
        body: dict[str, Any] = {
            # Another pod of the same name is refused.
            "metadata": {
                "uid": order.uid,
                "annotations": {WOKEN: self._moment() + self._signature},
            },
            "status": {"nominatedNodeName": order.node or None},
        }
        if order.refusal:
            said = {"type": "PodScheduled", "message": order.refusal}
            body["status"]["conditions"] = [said]
        path = pod_path(order.namespace, order.name, "/status")
        # Conditions are a list by type: only this way of patching leaves the others alone.
        kind = STRATEGIC_PATCH if order.refusal else MERGE_PATCH
        request = self._pipeline.frame(b"PATCH", path, _encode(body), kind)
        done = partial(self._answered, order, term, attempt)
        return PipelinedRequest(request, done, partial(self._mandate.holds, term))

    def _answered(self, order: WakeOrder, term: int, attempt: int, reply: Reply) -> None:
        self._under_way.discard(order.uid)
        if order.uid in self._overdue:
            self._overdue.discard(order.uid)
            self._send([order.uid])
        elif reply.status == 200 and order.briefly:
            self._pipeline.send((self._patch(_taken_back(order), term),))
        elif reply.status in (200, 404, 409, 422):
            return  # awake, or gone, or another pod by now (whose uid cannot be changed)
        elif not self._mandate.holds(term):
            return  # whoever leads now wakes it
        elif attempt < _ATTEMPTS and reply.may_pass:
            self._retry_later(order, term, attempt, reply)
        else:
            pod = f"{order.namespace}/{order.name}"
            facts = {"pod": pod, "answer": reply.answer}
            self._seldom.event(logging.WARNING, "pod not woken", reply.status, **facts)

    def _retry_later(self, order: WakeOrder, term: int, attempt: int, reply: Reply) -> None:
        if reply.status == 401:
            self._pipeline.renew()
        if order.uid in self._queued:
            return  # a newer one has its turn in a moment
        self._put_off[order.uid] = order
        pause_s = _PAUSE.delay_s(attempt, self._chance())
        self._pipeline.loop.call_later(pause_s, lambda: self._retry(order, term, attempt + 1))

    def _retry(self, order: WakeOrder, term: int, attempt: int) -> None:
        if self._put_off.get(order.uid) is order:
            del self._put_off[order.uid]
            self._pipeline.send((self._patch(order, term, attempt),))


def _taken_back(order: WakeOrder) -> WakeOrder:
    return replace(order, node="", refusal="", briefly=False)
