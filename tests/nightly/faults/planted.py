"""The extender with one of its checks taken out, to see whether anybody notices.

Beside the plants there is `quick-ears`, which takes nothing out: it shortens a wait of more than a
minute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any


def unknown_is_failed() -> None:
    """A binding without an answer is called failed, and nobody looks at the pod."""
    from extender.kube.write import bind

    def told_as_failed(self: Any, errand: Any) -> None:
        if hasattr(self, "_finish"):
            self._finish(errand, bind.TIMED_OUT)
        else:
            errand.finish(bind.TIMED_OUT)

    _replace(bind.ApiBinder, "_read_pod", told_as_failed)


def one_short() -> None:
    """A gang starts when one member less than its minimum has come."""
    from extender.model.gang import PodGroup

    write = PodGroup.__init__

    def read_wrongly(self: Any, *, min_member: int = 1, **rest: Any) -> None:
        write(self, min_member=max(1, min_member - 1), **rest)

    _replace(PodGroup, "__init__", read_wrongly)


def never_given_back() -> None:
    """Room that was promised is never free again."""
    from extender.cache.reservation_table import ReservationTable

    _replace(ReservationTable, "release", lambda *_: False)
    _replace(ReservationTable, "expire", lambda *_: 0)
    _replace(ReservationTable, "drop_unsettled", lambda *_: False)


def no_ceiling() -> None:
    """A queue is read as if it had no capability."""
    from extender.model.queue import Queue

    write = Queue.__init__

    def read_wrongly(self: Any, **facts: Any) -> None:
        write(self, **{name: fact for name, fact in facts.items() if name != "capability"})

    _replace(Queue, "__init__", read_wrongly)


def hold_forgotten() -> None:
    """A bind that was held is never answered."""
    from extender.permit.runner import PermitRunner

    answer = PermitRunner._answer

    def forget(self: Any, order: Any) -> None:
        if order.waited_s < _HELD_S:
            answer(self, order)

    _replace(PermitRunner, "_answer", forget)


def quick_ears() -> None:
    """No plant, but a shorter span: a watch that is silent is given up after seconds."""
    from extender.kube.reflector import Watch

    defaults = Watch.__init__.__kwdefaults__
    assert "limits" in (defaults or {}), "the span is elsewhere now"
    defaults["limits"] = replace(defaults["limits"], silence_s=QUICK_EARS_S)


#: Whoever was answered sooner did not wait for anybody: less than the walk's grace for who arrives.
_HELD_S = 0.5
QUICK_EARS = "quick-ears"
QUICK_EARS_S = 8.0

PLANTS: dict[str, Callable[[], None]] = {
    "unknown-is-failed": unknown_is_failed,
    "one-short": one_short,
    "never-given-back": never_given_back,
    "no-ceiling": no_ceiling,
    "hold-forgotten": hold_forgotten,
}


def _replace(where: Any, name: str, instead: Any) -> None:
    assert hasattr(where, name), f"{where} has no {name} to take out; plant it elsewhere"
    setattr(where, name, instead)


def plant(name: str) -> None:
    """Take a check out of this process, before it begins."""
    {**PLANTS, QUICK_EARS: quick_ears}[name]()
