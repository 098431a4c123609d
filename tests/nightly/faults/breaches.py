"""Breaches of rules, and the bounds of the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.settings import Settings

from .record import API_SERVER, LEADERS_LINK


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The guarantees, and the tolerances."""

    #: How long a gang may be partial.
    whole_s: float = 5.0
    #: Additional time for each member, by the measured rate of bindings.
    each_binding_s: float = 0.0
    #: The maximum age of a change that a scheduler may not know yet.
    lag_s: float = 3.0
    #: The timeout of any hook: the longest that kube-scheduler is configured to wait.
    answer_s: float = 60.0
    #: kube-scheduler's timeout of each hook: if it disconnects then, the extender did not answer.
    told_s: Mapping[str, float] = field(default_factory=lambda: told_by(Settings()))
    #: A killed extender serves again within this time.
    ready_s: float = 5.0
    #: A gang that fits and still waits after so long without changes waits for ever.
    patience_s: float = 30.0
    #: Programs whose absence does not count for any rule, nor does `settle_s` after it.
    excusing: tuple[str, ...] = (API_SERVER,)
    #: Programs without which no gang can be completed or evicted.
    carrying: tuple[str, ...] = (API_SERVER, LEADERS_LINK)
    settle_s: float = 2.0


def told_by(settings: Settings) -> dict[str, float]:
    """Return kube-scheduler's timeout of each hook, by the printed configuration."""
    serial = dict.fromkeys(("filter", "prioritize", "preempt"), settings.filter_timeout_s)
    return {**serial, "bind": settings.bind_timeout_s}


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A broken rule: by what object, and when it was observed."""

    rule: str
    whose: str
    words: str
    at: float

    def __str__(self) -> str:
        return f"{self.rule}: {self.whose}: {self.words}"
