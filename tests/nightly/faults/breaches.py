"""What a breach is, and the bounds by which it is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.settings import Settings

from .record import API_SERVER, LEADERS_CABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What we promise, and what nobody can."""

    #: As long as a gang may be bound in part.
    whole_s: float = 5.0
    #: And as much longer for each of its members, by the pace at which bindings were measured.
    each_binding_s: float = 0.0
    #: How old news may be that a scheduler has not heard yet.
    lag_s: float = 3.0
    #: A hook is answered within this: the longest time that kube-scheduler is told to wait.
    answer_s: float = 60.0
    #: How long kube-scheduler was told to wait for each hook: who hangs up then had no answer.
    told_s: Mapping[str, float] = field(default_factory=lambda: told_by(Settings()))
    #: Whoever was ended with SIGKILL serves again within this.
    ready_s: float = 5.0
    #: What fits and still waits after so long a quiet waits for ever.
    patience_s: float = 30.0
    #: Who, while away, stops the clock for all; and for how long after.
    excusing: tuple[str, ...] = (API_SERVER,)
    #: Without whom nobody can make a gang whole, nor send away what is left of it.
    carrying: tuple[str, ...] = (API_SERVER, LEADERS_CABLE)
    settle_s: float = 2.0


def told_by(settings: Settings) -> dict[str, float]:
    """Give how long kube-scheduler waits for each hook by the configuration that we print."""
    serial = dict.fromkeys(("filter", "prioritize", "preempt"), settings.filter_timeout_s)
    return {**serial, "bind": settings.bind_timeout_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A promise that did not hold: which, of whom, and when it was seen."""

    rule: str
    whose: str
    words: str
    at: float

    def __str__(self) -> str:
        return f"{self.rule}: {self.whose}: {self.words}"
