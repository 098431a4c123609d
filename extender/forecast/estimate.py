"""When a gang will start, and on what ground: one value, and the one form of words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from extender.durations import clock, format_duration
from extender.forecast.durations import Duration
from extender.model.gang import GangKey

#: So many gangs are named; the others are counted.
NAMED = 3
#: What no estimate counts; told with each where there is room for it.
NOT_COUNTED = "gangs that come later, failures, and gangs that end sooner or later than expected"


@dataclass(frozen=True, slots=True)
class Ending:
    """A gang that ends before another can start."""

    gang: GangKey
    at: float
    duration: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """When a waiting gang starts, as far as can be told at *now*."""

    gang: GangKey
    #: When it was worked out, and of what moment.
    now: float
    #: About when, in seconds since the epoch; None when nobody can tell.
    at: float | None = None
    #: It starts no sooner; so far was looked ahead, and no further.
    not_before: float | None = None
    #: Those whose end it waits for, who ends first comes first.
    after: tuple[Ending, ...] = ()
    #: So many gangs run beside those of which nobody knows when they end.
    unknown: int = 0
    #: Why nobody can tell (a phrase), empty where there is a moment.
    because: str = ""

    @property
    def brief(self) -> str:
        """Say it in two words."""
        if self.at is not None:
            return f"about {clock(self.at, self.now)}"
        if self.not_before is not None:
            return f"after {clock(self.not_before, self.now)}"
        return "unknown"

    @property
    def words(self) -> str:
        """Say it with its ground."""
        if self.at is None and self.not_before is None:
            return f"unknown, because {self.because}"
        if self.at is None:
            until = clock(self.not_before or 0.0, self.now)
            return f"not before {until}; it was not looked further ahead"
        when = f"about {clock(self.at, self.now)} (in {format_duration(self.at - self.now)})"
        if not self.after:
            return f"{when}, when its turn comes"
        ends = "ends" if len(self.after) == 1 else "end"
        said = f"{when}, after {_listed(self.after)} {ends}; {_grounds(self.after)}"
        if not self.unknown:
            return said
        others = f"of {self.unknown} other gangs" if self.unknown > 1 else "of another gang"
        return f"{said}; nobody knows the end {others}, so it may be sooner"


def _listed(endings: Sequence[Ending]) -> str:
    """Name those who end last, for they decide; count the others."""
    named = [str(each.gang) for each in endings[-NAMED:]]
    others = len(endings) - len(named)
    if others:
        named.append(f"{others} other{'' if others == 1 else 's'}")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _grounds(endings: Sequence[Ending]) -> str:
    """Say how long those that are named are expected to run; together where it is the same."""
    named = endings[-NAMED:]
    by_words: dict[str, list[str]] = {}
    for each in named:
        by_words.setdefault(each.duration.words, []).append(str(each.gang))
    if len(by_words) == 1:
        who = "it is" if len(named) == 1 else "they are"
        (words,) = by_words
        return f"{who} expected to run {_plural(words, len(named))}"
    said = [
        f"{' and '.join(gangs)} {'is' if len(gangs) == 1 else 'are'} expected to run"
        f" {_plural(words, len(gangs))}"
        for words, gangs in by_words.items()
    ]
    return ", ".join(said)


def _plural(words: str, count: int) -> str:
    if count == 1:
        return words
    return words.replace("its annotation", "their annotations").replace(
        "its deadline", "their deadlines"
    )
