"""The estimate of when a gang starts: its value and its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.durations import clock, format_duration
from extender.forecast.durations import Duration
from extender.model.gang import GangKey

#: The number of gangs that are named; the others are counted.
NAMED = 3
#: What no estimate considers; shown with estimates where space allows.
NOT_COUNTED = "gangs that come later, failures, and gangs that end sooner or later than expected"


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a gang, which lets another start."""

    gang: GangKey
    at: float
    duration: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When a waiting gang starts, as far as is known at *now*."""

    gang: GangKey
    #: The time of the snapshot.
    now: float
    #: The estimated start, in seconds since the epoch; None when it is unknown.
    at: float | None = None
    #: A lower bound: the lookahead stopped there.
    not_before: float | None = None
    #: The gangs whose end it waits for, in the order of their ends.
    after: tuple[Ending, ...] = ()
    #: The number of other running gangs whose end is unknown.
    unknown: int = 0
    #: Why the start is unknown (a phrase); "" otherwise.
    because: str = ""

    @property
    def summary(self) -> str:
        """Return the estimate in two words."""
        if self.at is not None:
            return f"about {clock(self.at, self.now)}"
        if self.not_before is not None:
            return f"after {clock(self.not_before, self.now)}"
        return "unknown"

    @property
    def message(self) -> str:
        """Return the estimate with its reason."""
        if self.at is None and self.not_before is None:
            return f"unknown, because {self.because}"
        if self.at is None:
            until = clock(self.not_before or 0.0, self.now)
            return f"not before {until}; the estimate looks no further ahead"
        when = f"about {clock(self.at, self.now)} (in {format_duration(self.at - self.now)})"
        if not self.after:
            return f"{when}, when it is next in its queue"
        ends = "ends" if len(self.after) == 1 else "end"
        text = f"{when}, after {_listed(self.after)} {ends}; {_grounds(self.after)}"
        if not self.unknown:
            return text
        others = f"of {self.unknown} other gangs" if self.unknown > 1 else "of another gang"
        return f"{text}; the end {others} is unknown, so it may be sooner"


def _listed(endings: Sequence[Ending]) -> str:
    """Name the gangs that end last, which decide; count the others."""
    named = [str(each.gang) for each in endings[-NAMED:]]
    others = len(endings) - len(named)
    if others:
        named.append(f"{others} other{'' if others == 1 else 's'}")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _grounds(endings: Sequence[Ending]) -> str:
    """Return how long the named gangs are expected to run, grouped by equal durations."""
    named = endings[-NAMED:]
    by_words: dict[str, list[str]] = {}
    for each in named:
        by_words.setdefault(each.duration.text, []).append(str(each.gang))
    if len(by_words) == 1:
        subject = "it is" if len(named) == 1 else "they are"
        (words,) = by_words
        return f"{subject} expected to run {_plural(words, len(named))}"
    parts = [
        f"{' and '.join(gangs)} {'is' if len(gangs) == 1 else 'are'} expected to run"
        f" {_plural(words, len(gangs))}"
        for words, gangs in by_words.items()
    ]
    return ", ".join(parts)


def _plural(words: str, count: int) -> str:
    if count == 1:
        return words
    return words.replace("its annotation", "their annotations").replace(
        "its deadline", "their deadlines"
    )
