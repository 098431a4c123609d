"""Plants faults into the extender, to test that the rules detect them.

`short-silence` is no fault: it shortens a timeout of more than a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any


def unknown_is_failed() -> None:
    """A binding without a response counts as failed, without reading the pod."""
    from extender.kube.write import bind

    def count_as_failed(self: Any, pending: Any) -> None:
        if hasattr(self, "_finish"):
            self._finish(pending, bind.TIMED_OUT)
        else:
            pending.finish(bind.TIMED_OUT)

    _replace(bind.ApiBinder, "_read_pod", count_as_failed)


def one_short() -> None:
    """A gang starts with one member less than its minimum."""
    from extender.model.gang import PodGroup

    write = PodGroup.__init__

    def read_wrongly(self: Any, *, min_member: int = 1, **rest: Any) -> None:
        write(self, min_member=max(1, min_member - 1), **rest)

    _replace(PodGroup, "__init__", read_wrongly)


def never_given_back() -> None:
    """Reservations are never released."""
    from extender.cache.reservation_table import ReservationTable

    _replace(ReservationTable, "release", lambda *_: False)
    _replace(ReservationTable, "expire", lambda *_: 0)
    _replace(ReservationTable, "drop_unsettled", lambda *_: False)


def no_ceiling() -> None:
    """The capability of a queue is ignored."""
    from extender.model.queue import Queue

    write = Queue.__init__

    def read_wrongly(self: Any, **facts: Any) -> None:
        write(self, **{name: fact for name, fact in facts.items() if name != "capability"})

    _replace(Queue, "__init__", read_wrongly)


def hold_forgotten() -> None:
    """A waiting bind is never answered."""
    from extender.permit.runner import PermitRunner

    answer = PermitRunner._answer

    def forget(self: Any, order: Any) -> None:
        if order.waited_s < _WAITED_S:
            answer(self, order)

    _replace(PermitRunner, "_answer", forget)


def short_silence() -> None:
    """A silent watch is restarted after seconds."""
    from extender.kube.watch import Watch

    defaults = Watch.__init__.__kwdefaults__
    assert "limits" in (defaults or {}), "the limit has moved"
    defaults["limits"] = replace(defaults["limits"], silence_s=SHORT_SILENCE_S)


#: Less than --arrival-grace-s of the walk: a bind answered sooner did not wait for members.
_WAITED_S = 0.5
SHORT_SILENCE = "short-silence"
SHORT_SILENCE_S = 8.0

PLANTS: dict[str, Callable[[], None]] = {
    "unknown-is-failed": unknown_is_failed,
    "one-short": one_short,
    "never-given-back": never_given_back,
    "no-ceiling": no_ceiling,
    "hold-forgotten": hold_forgotten,
}


def _replace(where: Any, name: str, instead: Any) -> None:
    assert hasattr(where, name), f"{where} has no {name} ; plant the fault elsewhere"
    setattr(where, name, instead)


def plant(name: str) -> None:
    """Plant a fault into this process, before it starts."""
    {**PLANTS, SHORT_SILENCE: short_silence}[name]()
