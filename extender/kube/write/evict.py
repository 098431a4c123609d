"""Evictions: all pods of a gang get the condition DisruptionTarget, then each is evicted.

All are marked before the first eviction: if this process dies in between, the next leader sees on
the remaining pods that they were to be evicted (`PartialEvictions` in `evictions/pending.py`).

The API server checks the uid and the PodDisruptionBudgets. An eviction that a budget refuses is
retried a few times, because budgets recover as pods come back. Then the pod is reported as blocked,
and the plan chooses another.

`ApiPartialBindRollback` evicts the bound pods of a gang that could not be bound completely.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from functools import partial
from threading import Semaphore

from extender.clock import timestamp
from extender.durations import Backoff
from extender.errors import ApiError, NamespaceTerminating, NotFound, NotLeader
from extender.kube.client import RateLimitedWorkers
from extender.kube.connection import Reply
from extender.kube.decode import pods
from extender.kube.errors import is_conflict
from extender.kube.pipeline import Pipeline, pod_path
from extender.kube.write.bind import pod_in
from extender.leader.fencing import FencingToken
from extender.logs import event
from extender.model.gang import GangKey
from extender.ports import (
    AlwaysLeader,
    Evictor,
    EvictOrder,
    EvictOutcome,
    EvictResult,
    Fencing,
)

log = logging.getLogger(__name__)
#: Between attempts after a refusal that may be temporary.
PAUSE = Backoff(0.25, 1.0)
ATTEMPTS = 5
#: The timeout of the first attempt. A gang is incomplete until its last pod is evicted, and a
#: second request does no harm; the later timeout is long enough for a slow API server.
FIRST_S = 3.0
LATER_S = 15.0
_LEAVING = EvictOutcome(EvictResult.LEAVING)
_GONE = EvictOutcome(EvictResult.GONE, "the pod is gone, or was replaced by another one")
_STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(slots=True, eq=False)
class _PendingEviction:
    """One order without an outcome yet."""

    order: EvictOrder
    fencing: FencingToken
    outcome: Future[EvictOutcome] = field(default_factory=Future)
    exists: bool = False
    error: Exception | None = None


class ApiEvictor(RateLimitedWorkers):
    """The `Evictor` of a real cluster."""

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        """Send *orders* and return one future for each, in order.

        An order that is not sent, because its term is over or we stop, has a cancelled future.
        """
        term = self._fencing.current()
        if self._stopping.is_set() or not term:
            return [_cancelled() for _ in orders]
        fencing = FencingToken(self._fencing, term)
        evictions = [_PendingEviction(order, fencing) for order in orders]
        unmarked = Semaphore(max(0, len(evictions) - 1))
        cancel = _cancel_once(evictions)
        for each in evictions:
            self._submit(partial(self._mark_and_submit, each, evictions, unmarked), cancel)
        return [each.outcome for each in evictions]

    def _submit(self, step: Callable[[], None], cancel: Callable[[], None]) -> None:
        """Run *step* in a worker; if we stop before it begins, its orders are cancelled."""

        def on_done(done: Future[None]) -> None:
            if done.cancelled():
                cancel()

        try:
            self._workers.submit(step).add_done_callback(on_done)
        except RuntimeError:  # we have stopped
            cancel()

    def _mark_and_submit(
        self, eviction: _PendingEviction, evictions: Sequence[_PendingEviction], unmarked: Semaphore
    ) -> None:
        """Mark one pod of a set; the step that marks the last one submits all evictions."""
        try:
            self._wait(self._rate.acquire())
            eviction.exists = self._set_condition(eviction, is_target=True)
        except Exception as error:
            eviction.error = error
        if not unmarked.acquire(blocking=False):
            for each in evictions:
                self._submit(partial(self._finish, each), _cancel_once([each]))

    def _finish(self, eviction: _PendingEviction) -> None:
        if not eviction.outcome.set_running_or_notify_cancel():
            if eviction.exists:
                self._set_condition(eviction, is_target=False)
            return
        try:
            eviction.outcome.set_result(self._evict(eviction))
        except Exception as error:
            if isinstance(error, NotLeader):
                facts = _facts(eviction.order, str(error))
                event(log, logging.WARNING, "eviction cancelled", **facts)
                eviction.outcome.set_exception(CancelledError())
            else:
                eviction.outcome.set_exception(error)

    def _evict(self, eviction: _PendingEviction) -> EvictOutcome:
        if eviction.error is not None:
            raise eviction.error
        if not eviction.exists:
            return _GONE
        outcome = self._request_with_retries(eviction)
        if outcome.result in (EvictResult.BLOCKED, EvictResult.FAILED):
            facts = _facts(eviction.order, outcome.message)
            event(log, logging.WARNING, "eviction failed", **facts)
            self._set_condition(eviction, is_target=False)
        return outcome

    def _set_condition(self, eviction: _PendingEviction, *, is_target: bool) -> bool:
        """Set the condition DisruptionTarget, or withdraw it; returns False when the pod is gone.

        Job controllers read this condition: an evicted pod need not count as a failure.
        """
        order = eviction.order
        condition = {
            "type": "DisruptionTarget",
            "status": "True" if is_target else "False",
            "reason": "PreemptionByScheduler",
            "message": order.why if is_target else "the pod could not be evicted",
            "lastTransitionTime": timestamp(time.time()),
        }
        patch = {"metadata": {"uid": order.uid}, "status": {"conditions": [condition]}}
        try:
            self._client.request(
                "PATCH",
                pod_path(order.namespace, order.name, "/status"),
                patch,
                content_type=_STRATEGIC,
                fencing=eviction.fencing,
            )
        except NotFound:
            return self._exists(order)
        except NotLeader:
            raise
        except ApiError as error:
            # An eviction with a uid that does not match occupies the API server for 10 s.
            if is_conflict(error):
                return error.status == 409 and self._exists(order)
            # The condition is only informative, and the eviction itself decides.
            event(log, logging.WARNING, "pod not marked", **_facts(order, str(error)))
        return True

    def _request_with_retries(self, eviction: _PendingEviction) -> EvictOutcome:
        for attempt in range(1, ATTEMPTS):
            outcome, final = self._request_once(eviction, FIRST_S if attempt == 1 else LATER_S)
            if final:
                return outcome
            self._wait(PAUSE.delay_s(attempt))
        return self._request_once(eviction, LATER_S)[0]

    def _request_once(self, eviction: _PendingEviction, wait_s: float) -> tuple[EvictOutcome, bool]:
        """Send one eviction; the flag says that a retry would change nothing."""
        order = eviction.order
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": order.name, "namespace": order.namespace},
            "deleteOptions": {"preconditions": {"uid": order.uid}},
        }
        try:
            self._client.request(
                "POST",
                pod_path(order.namespace, order.name, "/eviction"),
                body,
                wait_s=wait_s,
                fencing=eviction.fencing,
            )
        except NotFound as error:
            if not self._exists(order):
                return _GONE, True
            # The pod exists. As GONE it would not be evicted again, and its capacity never freed.
            return EvictOutcome(EvictResult.FAILED, _message(error)), False
        except NamespaceTerminating:
            return _LEAVING, True  # all pods of a terminating namespace are deleted
        except NotLeader:
            raise
        except ApiError as error:
            return self._outcome_of(order, error)
        return _LEAVING, True

    def _outcome_of(self, order: EvictOrder, error: ApiError) -> tuple[EvictOutcome, bool]:
        # 409 is another uid, or a budget that changed concurrently: the pod shows which.
        if error.status == 409 and not self._exists(order):
            return _GONE, True
        is_unanswered = error.status in (0, 401)
        result = EvictResult.FAILED if is_unanswered else EvictResult.BLOCKED
        # 403 comes from a webhook, or from an API server that has not read the roles yet.
        may_retry = is_unanswered or error.status in (403, 409, 429) or error.status >= 500
        return EvictOutcome(result, _message(error)), not may_retry

    def _exists(self, order: EvictOrder) -> bool:
        try:
            body = self._client.request("GET", pod_path(order.namespace, order.name))
        except NotFound:
            return False
        except ApiError:
            return True
        return pods.uid(body) == order.uid


def _cancel_once(evictions: Sequence[_PendingEviction]) -> Callable[[], None]:
    """Return a function that cancels *evictions* once: each of their steps may call it."""
    first = Semaphore()

    def cancel() -> None:
        if first.acquire(blocking=False):
            for each in evictions:
                each.outcome.cancel()

    return cancel


def _cancelled() -> Future[EvictOutcome]:
    future: Future[EvictOutcome] = Future()
    future.cancel()
    return future


def _message(error: ApiError) -> str:
    """Return the message of the API server, without the request."""
    return str(error).partition(f": {error.status}: ")[2] or str(error)


def _facts(order: EvictOrder, why: str) -> dict[str, object]:
    return {"pod": f"{order.namespace}/{order.name}", "why": why}


#: Attempts to read a pod before it counts as one to keep; about three seconds in all.
ROLLBACK_ATTEMPTS = 5
_PAUSE = Backoff(0.2, 1.0)


class ApiPartialBindRollback:
    """The `PartialGangEvictor` of a real cluster: reads the owners from the API server."""

    def __init__(
        self,
        pipeline: Pipeline,
        evictor: Evictor,
        *,
        chance: Callable[[], float] = random.random,
        fencing: Fencing | None = None,
    ) -> None:
        self._fencing = fencing or AlwaysLeader()
        self._pipeline = pipeline
        self._evictor = evictor
        self._chance = chance

    def evict_all(
        self,
        gang: GangKey,
        orders: Sequence[EvictOrder],
        *,
        leaves: Callable[[GangKey], None],
        stays: Callable[[GangKey], None],
    ) -> None:
        """Evict all pods, or none if one has no controller that recreates it; then call *stays*.

        *stays* is also called if a budget keeps one: the others are evicted, and the gang is
        complete only when they are recreated.
        """
        term = self._fencing.current()

        def decide(replies: Sequence[tuple[EvictOrder, Reply]]) -> None:
            if self._may_evict_all(gang, replies, term):
                leaves(gang)
                bound = [order for order, reply in replies if not _is_unbound(order, reply)]
                for each in self._evictor.evict(bound):
                    each.add_done_callback(on_evicted)
            else:
                stays(gang)

        def on_evicted(future: Future[EvictOutcome]) -> None:
            if _has_failed(future):
                sentence = "partly bound gang stays incomplete: a pod could not be evicted"
                event(log, logging.ERROR, sentence, gang=gang)
                stays(gang)

        self._pipeline.run(lambda: self._read_all(orders, decide))

    def _read_all(
        self,
        orders: Sequence[EvictOrder],
        decide: Callable[[Sequence[tuple[EvictOrder, Reply]]], None],
    ) -> None:
        replies: list[tuple[EvictOrder, Reply]] = []
        if not orders:
            decide(replies)  # all of them have terminated, or are deleted

        def collect(order: EvictOrder, reply: Reply) -> None:
            replies.append((order, reply))
            if len(replies) == len(orders):
                decide(replies)

        for order in orders:
            self._read(order, partial(collect, order))

    def _read(self, order: EvictOrder, collect: Callable[[Reply], None], attempt: int = 1) -> None:
        """Read a pod, with retries: there is no later attempt to roll back this gang."""

        def handle(reply: Reply) -> None:
            is_known = reply.status == 404 or pod_in(reply) is not None
            if is_known or attempt == ROLLBACK_ATTEMPTS:
                collect(reply)
                return
            again = partial(self._read, order, collect, attempt + 1)
            self._pipeline.loop.call_later(_PAUSE.delay_s(attempt, self._chance()), again)

        request = self._pipeline.frame(b"GET", pod_path(order.namespace, order.name))
        self._pipeline.request(request, handle)

    def _may_evict_all(
        self, gang: GangKey, replies: Sequence[tuple[EvictOrder, Reply]], term: int
    ) -> bool:
        """Return whether all pods may be evicted."""
        if not self._fencing.holds(term):
            # Another leader may have completed the gang; its timeout starts again with each term.
            event(log, logging.WARNING, "partly bound gang is not evicted", gang=gang)
            return False
        stays = [
            f"{each.namespace}/{each.name}"
            for each, reply in replies
            if not _may_evict(each, reply)
        ]
        if stays:
            sentence = "partly bound gang is not evicted: not every pod has a controller"
            event(log, logging.ERROR, sentence, gang=gang, pods=sorted(stays)[:50])
            return False
        event(log, logging.WARNING, "partly bound gang is evicted", gang=gang)
        return True


def _has_failed(future: Future[EvictOutcome]) -> bool:
    """Return whether an eviction failed; a cancelled one was not sent, and does not count."""
    if future.cancelled() or isinstance(future.exception(), CancelledError):
        return False
    if future.exception() is not None:
        return True
    return future.result().result in (EvictResult.BLOCKED, EvictResult.FAILED)


def _is_unbound(order: EvictOrder, reply: Reply) -> bool:
    """Return whether a binding in doubt had no effect: then the pod is pending, and may stay."""
    pod = pod_in(reply)
    return pod is not None and pod.metadata.uid == order.uid and not pod.spec.node_name


def _may_evict(order: EvictOrder, reply: Reply) -> bool:
    """Return whether a pod is deleted, or has a controller that recreates it; False in doubt."""
    if reply.status == 404:
        return True
    pod = pod_in(reply)
    if pod is None:
        return False
    metadata = pod.metadata
    owners = metadata.owner_references or ()
    return metadata.uid != order.uid or any(owner.controller for owner in owners)
