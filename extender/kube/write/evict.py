"""Evictions: pods are told why, all of them, and then asked to leave through the Eviction API.

All are told before the first one leaves: should we fall in the middle, whoever leads next sees on
those who are still there that they were to go (`evictions/remnants.py`).

The API server checks the uid and the PodDisruptionBudgets. A budget that says no is asked again
a few times, because budgets recover as pods come back; then the pod is reported as blocked and
the plan chooses another.
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
from extender.kube.client import RateLimitedWorkers, is_conflict
from extender.kube.connection import Reply
from extender.kube.decode import pods
from extender.kube.pipeline import Pipeline, pod_path
from extender.kube.write.bind import pod_in
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
#: Between attempts while a budget, or the API server itself, asks for patience.
PAUSE = Backoff(0.25, 1.0)
ATTEMPTS = 5
#: How long the first answer is waited for. Those who leave together are a gang in part until the
#: last one has left, and asking twice does no harm; a slow API server has all its time after that.
FIRST_S = 3.0
LATER_S = 15.0
_LEAVING = EvictOutcome(EvictResult.LEAVING)
_GONE = EvictOutcome(EvictResult.GONE, "the pod is gone, or another one by now")
_STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(slots=True, eq=False)
class _Departure:
    """One order on its way, with the term in which it was given."""

    order: EvictOrder
    term: int
    outcome: Future[EvictOutcome] = field(default_factory=Future)
    is_there: bool = False
    trouble: Exception | None = None


class ApiEvictor(RateLimitedWorkers):
    """The `Evictor` of the real cluster."""

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        """Send *orders* and give one future for each, in order.

        What is not sent because its term is over was called back, like what we stop with.
        """
        term = self._mandate.current()
        if self._stopping.is_set() or not term:
            return [_called_back() for _ in orders]
        departures = [_Departure(order, term) for order in orders]
        others = Semaphore(max(0, len(departures) - 1))
        call_back = _once_for(departures)
        for each in departures:
            self._have_done(partial(self._tell, each, departures, others), call_back)
        return [each.outcome for each in departures]

    def _have_done(self, step: Callable[[], None], call_back: Callable[[], None]) -> None:
        """Let a worker do *step*; if we stop before it has begun, its orders are called back."""

        def look(done: Future[None]) -> None:
            if done.cancelled():
                call_back()

        try:
            self._workers.submit(step).add_done_callback(look)
        except RuntimeError:  # we have stopped
            call_back()

    def _tell(self, one: _Departure, together: Sequence[_Departure], others: Semaphore) -> None:
        """Mark one of those who leave together; whoever is the last to do so lets them all go."""
        try:
            self._wait(self._pace.acquire())
            self._must_hold(one.term)
            one.is_there = self._mark(one.order, leaving=True)
        except Exception as why:
            one.trouble = why
        if not others.acquire(blocking=False):
            for each in together:
                self._have_done(partial(self._settle, each), _once_for([each]))

    def _settle(self, one: _Departure) -> None:
        if not one.outcome.set_running_or_notify_cancel():
            if one.is_there:
                self._mark(one.order, leaving=False)
            return
        try:
            one.outcome.set_result(self._carry_out(one))
        except Exception as error:
            if isinstance(error, NotLeader):
                facts = _facts(one.order, str(error))
                event(log, logging.WARNING, "eviction called back", **facts)
                one.outcome.set_exception(CancelledError())
            else:
                one.outcome.set_exception(error)

    def _carry_out(self, one: _Departure) -> EvictOutcome:
        if one.trouble is not None:
            raise one.trouble
        if not one.is_there:
            return _GONE
        self._must_hold(one.term)
        outcome = self._ask_until_answered(one.order, one.term)
        if outcome.result in (EvictResult.BLOCKED, EvictResult.FAILED):
            facts = _facts(one.order, outcome.message)
            event(log, logging.WARNING, "eviction did not happen", **facts)
            self._mark(one.order, leaving=False)
        return outcome

    def _mark(self, order: EvictOrder, *, leaving: bool) -> bool:
        """Write on the pod that it is to be disrupted, or not after all; False when it is gone.

        Job controllers read this: a pod that was pushed out does not count as a failure.
        """
        condition = {
            "type": "DisruptionTarget",
            "status": "True" if leaving else "False",
            "reason": "PreemptionByScheduler",
            "message": order.why if leaving else "it could not be evicted and stays",
            "lastTransitionTime": timestamp(time.time()),
        }
        patch = {"metadata": {"uid": order.uid}, "status": {"conditions": [condition]}}
        try:
            self._access.request(
                "PATCH",
                pod_path(order.namespace, order.name, "/status"),
                patch,
                content_type=_STRATEGIC,
            )
        except NotFound:
            return self._is_there(order)
        except NotLeader:
            raise
        except ApiError as error:
            # Evicting by a uid that does not match would keep the API server busy for 10 s.
            if is_conflict(error):
                return error.status == 409 and self._is_there(order)
            # The mark is a courtesy; the eviction itself decides.
            event(log, logging.WARNING, "pod not marked", **_facts(order, str(error)))
        return True

    def _ask_until_answered(self, order: EvictOrder, term: int) -> EvictOutcome:
        for attempt in range(1, ATTEMPTS):
            outcome, final = self._ask(order, FIRST_S if attempt == 1 else LATER_S)
            if final:
                return outcome
            self._wait(PAUSE.delay_s(attempt))
            self._must_hold(term)
        return self._ask(order, LATER_S)[0]

    def _ask(self, order: EvictOrder, wait_s: float) -> tuple[EvictOutcome, bool]:
        """Ask once; the flag says that asking again changes nothing."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": order.name, "namespace": order.namespace},
            "deleteOptions": {"preconditions": {"uid": order.uid}},
        }
        try:
            self._access.request(
                "POST",
                pod_path(order.namespace, order.name, "/eviction"),
                eviction,
                wait_s=wait_s,
            )
        except NotFound as error:
            if not self._is_there(order):
                return _GONE, True
            # Nobody would ask again, and its room would be awaited for ever.
            return EvictOutcome(EvictResult.FAILED, _said(error)), False
        except NamespaceTerminating:
            return _LEAVING, True  # like everybody in a namespace that is being deleted
        except NotLeader:
            raise
        except ApiError as error:
            return self._refused(order, error)
        return _LEAVING, True

    def _refused(self, order: EvictOrder, error: ApiError) -> tuple[EvictOutcome, bool]:
        # 409 is another uid, or a budget that changed under the API server's hands: the pod tells.
        if error.status == 409 and not self._is_there(order):
            return _GONE, True
        unheard = error.status in (0, 401)
        result = EvictResult.FAILED if unheard else EvictResult.BLOCKED
        # 403 is a webhook's, or that of an API server that has not read the roles yet.
        patient = unheard or error.status in (403, 409, 429) or error.status >= 500
        return EvictOutcome(result, _said(error)), not patient

    def _is_there(self, order: EvictOrder) -> bool:
        try:
            body = self._access.request("GET", pod_path(order.namespace, order.name))
        except NotFound:
            return False
        except ApiError:
            return True
        return pods.uid(body) == order.uid


def _once_for(departures: Sequence[_Departure]) -> Callable[[], None]:
    """Give what calls *departures* back: each of their steps may ask for it when we stop."""
    first = Semaphore()

    def call_back() -> None:
        if first.acquire(blocking=False):
            for each in departures:
                each.outcome.cancel()

    return call_back


def _called_back() -> Future[EvictOutcome]:
    future: Future[EvictOutcome] = Future()
    future.cancel()
    return future


def _said(error: ApiError) -> str:
    """Give the API server's own words, without the request they answer."""
    return str(error).partition(f": {error.status}: ")[2] or str(error)


def _facts(order: EvictOrder, why: str) -> dict[str, object]:
    return {"pod": f"{order.namespace}/{order.name}", "why": why}


#: How often a pod is asked for before it counts as one that stays; some three seconds in all.
ROLLBACK_ATTEMPTS = 5
_PAUSE = Backoff(0.2, 1.0)


class ApiPartialBindRollback:
    """The barrier's `TakesBack` of the real cluster: asks the API server who owns the pods."""

    def __init__(
        self,
        pipeline: Pipeline,
        evictor: Evictor,
        *,
        chance: Callable[[], float] = random.random,
        mandate: Fencing | None = None,
    ) -> None:
        self._mandate = mandate or AlwaysLeader()
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
        """Ask all of them to leave, or none when one would never come again; then it *stays*.

        So it does where a budget keeps one: the others have left, and what helps is that they come.
        """
        term = self._mandate.current()

        def decide(heard: Sequence[tuple[EvictOrder, Reply]]) -> None:
            if self._may_leave(gang, heard, term):
                leaves(gang)
                standing = [order for order, reply in heard if not _is_on_no_node(order, reply)]
                for each in self._evictor.evict(standing):
                    each.add_done_callback(left)
            else:
                stays(gang)

        def left(asked: Future[EvictOutcome]) -> None:
            if _has_stayed(asked):
                sentence = "gang bound in part stays in part: a pod could not be evicted"
                event(log, logging.ERROR, sentence, gang=gang)
                stays(gang)

        self._pipeline.run(lambda: self._ask(orders, decide))

    def _ask(
        self,
        orders: Sequence[EvictOrder],
        decide: Callable[[Sequence[tuple[EvictOrder, Reply]]], None],
    ) -> None:
        heard: list[tuple[EvictOrder, Reply]] = []
        if not orders:
            decide(heard)  # all of them are done, or have left

        def hear(order: EvictOrder, reply: Reply) -> None:
            heard.append((order, reply))
            if len(heard) == len(orders):
                decide(heard)

        for order in orders:
            self._look(order, partial(hear, order))

    def _look(self, order: EvictOrder, hear: Callable[[Reply], None], attempt: int = 1) -> None:
        """Ask for a pod; again while nothing is said of it: nobody takes the gang back later."""

        def answered(reply: Reply) -> None:
            is_told = reply.status == 404 or pod_in(reply) is not None
            if is_told or attempt == ROLLBACK_ATTEMPTS:
                hear(reply)
                return
            again = partial(self._look, order, hear, attempt + 1)
            self._pipeline.loop.call_later(_PAUSE.delay_s(attempt, self._chance()), again)

        request = self._pipeline.frame(b"GET", pod_path(order.namespace, order.name))
        self._pipeline.request(request, answered)

    def _may_leave(
        self, gang: GangKey, heard: Sequence[tuple[EvictOrder, Reply]], term: int
    ) -> bool:
        """Say whether nobody of them has to stay."""
        if not self._mandate.holds(term):
            # Somebody else may have completed it meanwhile; its time begins anew with each term.
            event(log, logging.WARNING, "gang bound in part is not taken back", gang=gang)
            return False
        stays = [f"{each.namespace}/{each.name}" for each, said in heard if not _may_go(each, said)]
        if stays:
            sentence = "gang bound in part stays: not every pod has a controller"
            event(log, logging.ERROR, sentence, gang=gang, pods=sorted(stays)[:50])
            return False
        event(log, logging.WARNING, "gang bound in part is taken back", gang=gang)
        return True


def _has_stayed(asked: Future[EvictOutcome]) -> bool:
    """Ask whether a pod was asked to leave in vain; what was called back was not asked."""
    if asked.cancelled() or isinstance(asked.exception(), CancelledError):
        return False
    if asked.exception() is not None:
        return True
    return asked.result().result in (EvictResult.BLOCKED, EvictResult.FAILED)


def _is_on_no_node(order: EvictOrder, reply: Reply) -> bool:
    """Ask whether a binding of which nobody knew did not happen: then it waits, and may."""
    pod = pod_in(reply)
    return pod is not None and pod.metadata.uid == order.uid and not pod.spec.node_name


def _may_go(order: EvictOrder, reply: Reply) -> bool:
    """Ask whether a pod is gone already, or will be made anew; in doubt it stays."""
    if reply.status == 404:
        return True
    pod = pod_in(reply)
    if pod is None:
        return False
    about = pod.metadata
    owners = about.owner_references or ()
    return about.uid != order.uid or any(owner.controller for owner in owners)
