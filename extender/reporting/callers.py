"""What we hear of kube-scheduler, told to those who operate it: log, series and notes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from extender.hearing.hearing import Hearing
from extender.logs import Seldom, event
from extender.metrics import Metrics
from extender.model.caller import Caller, Voice
from extender.ports import Clock, WakeOrder, Waker

log = logging.getLogger(__name__)

#: Other extenders that we remember to have named.
_MOST_RIVALS = 100
_TROUBLES = (Voice.SILENT, Voice.ELSEWHERE)


class CallerNews:
    """Says once who falls silent and who is heard again, and as long as it lasts who is missing."""

    def __init__(self, hearing: Hearing, metrics: Metrics, clock: Clock) -> None:
        self._hearing = hearing
        self._metrics = metrics
        self._clock = clock
        self._troubled: set[str] = set()
        self._rivals: set[str] = set()
        self._seldom = Seldom(log)
        hearing.on_change(self._changed)
        metrics.rivals.set_function(self._count_rivals)
        for name in hearing.names:
            metrics.last_hook.labels(name).set_function(partial(self._asked_at, name))
            metrics.unheard_pods.labels(name).set_function(partial(hearing.overdue, name))

    def notes(self) -> list[str]:
        """Say who is missing, and where kube-scheduler asks another."""
        now = self._clock.now()
        return [
            f"scheduler {each.name}: {each.complaint(now)}"
            for each in self._hearing.callers().values()
            if each.voice in _TROUBLES or each.rival
        ]

    def counted(self, waker: Waker) -> Callable[[Sequence[WakeOrder]], None]:
        """Count what *waker* is ordered, and listen whether somebody comes."""

        def wake(orders: Sequence[WakeOrder]) -> None:
            self._metrics.wakes.inc(len(orders))
            for order in orders:
                self._hearing.woken(order.uid, order.nomination)
            waker.wake(orders)

        return wake

    def _count_rivals(self) -> float:
        return len({each.rival for each in self._hearing.callers().values()} - {""})

    def _asked_at(self, name: str) -> float:
        return self._hearing.callers()[name].asked_at

    def _changed(self, caller: Caller) -> None:
        if caller.rival and caller.rival not in self._rivals:
            # Tenants may write any name on their pods.
            if len(self._rivals) >= _MOST_RIVALS:
                self._rivals.clear()
            self._rivals.add(caller.rival)
            self._seldom.event(
                logging.WARNING,
                "another extender acts beside us",
                scheduler=caller.name,
                rival=caller.rival,
                why=caller.complaint(self._clock.now()),
            )
        if caller.voice in _TROUBLES:
            self._troubled.add(caller.name)
            said = (
                "kube-scheduler does not ask"
                if caller.voice is Voice.SILENT
                else "kube-scheduler asks another extender"
            )
            event(
                log,
                logging.WARNING,
                said,
                scheduler=caller.name,
                pods=self._hearing.overdue(caller.name),
                why=caller.complaint(self._clock.now()),
            )
        elif caller.name in self._troubled:
            self._troubled.discard(caller.name)
            event(log, logging.INFO, "kube-scheduler is heard again", scheduler=caller.name)
