"""Takes a gang that was bound only in part off its nodes again, if that loses nothing.

There is no unbind: a pod leaves its node by leaving altogether. So only pods of a controller are
asked, which makes new ones in their place; if one of them has none, all stay.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial

from extender.kube.act.bind import pod_in
from extender.kube.api.connection import Reply
from extender.kube.api.pipeline import Pipeline, pod_path
from extender.logs import event
from extender.model.gang import GangKey
from extender.ports import (
    Evictor,
    EvictOrder,
    EvictOutcome,
    EvictResult,
    Mandate,
    OpenMandate,
)
from extender.timing.pause import Pause

log = logging.getLogger(__name__)

#: How often a pod is asked for before it counts as one that stays; some three seconds in all.
ATTEMPTS = 5
_PAUSE = Pause(0.2, 1.0)


class CautiousUndo:
    """The barrier's `TakesBack` of the real cluster: asks the API server who owns the pods."""

    def __init__(
        self,
        pipeline: Pipeline,
        evictor: Evictor,
        *,
        chance: Callable[[], float] = random.random,
        mandate: Mandate | None = None,
    ) -> None:
        self._mandate = mandate or OpenMandate()
        self._pipeline = pipeline
        self._evictor = evictor
        self._chance = chance

    def take_back(
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
            if is_told or attempt == ATTEMPTS:
                hear(reply)
                return
            again = partial(self._look, order, hear, attempt + 1)
            self._pipeline.loop.call_later(_PAUSE.after(attempt, self._chance()), again)

        request = self._pipeline.frame(b"GET", pod_path(order.namespace, order.name))
        self._pipeline.ask(request, answered)

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
