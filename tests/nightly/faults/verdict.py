"""The verdict on what was recorded, by rules that trust none of the parts they judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import calls, rooms, waits, wholeness
from .breaches import Bounds, Breach
from .calls import Calls
from .record import RESTED, Asked, Killed, Line, Moment, Promised, Ready, Record
from .rooms import Rooms
from .spans import Spans
from .wholeness import Wholeness

#: Every rule there is.
RULES = (
    wholeness.RULE, wholeness.BY_US, rooms.TWICE, rooms.FULL, rooms.UNKNOWN, rooms.CLOSED,
    rooms.CEILING, rooms.SHUT, rooms.LEAK, waits.RULE, calls.UNANSWERED, calls.LOST, calls.UNTRUE,
)  # fmt: skip


class Return(NamedTuple):
    """A program that was killed serves again."""

    who: str
    killed_at: float
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What did not hold, and figures of what was judged: a verdict on nothing is suspect."""

    breaches: Sequence[Breach] = ()
    #: Rules of which the record has nothing to judge.
    unjudged: frozenset[str] = frozenset()
    #: Gangs that lost members to others; they would be whole with them.
    apart: Sequence[str] = ()
    pods_bound: int = 0
    gangs_started: int = 0
    calls_asked: int = 0
    #: The longest that a gang stood in part while it started, and that a hook was not answered.
    longest_partial_s: float = 0.0
    longest_answer_s: float = 0.0
    #: From SIGKILL until it served again.
    returns: Sequence[Return] = field(default_factory=tuple)

    def __bool__(self) -> bool:
        """Whether everything held."""
        return not self.breaches

    def table(self) -> str:
        """Tell every rule with how often it was broken, as Markdown, and then each breach."""
        broken = Counter(breach.rule for breach in self.breaches)
        told = ((r, "not judged" if r in self.unjudged else str(broken[r])) for r in RULES)
        rows = ["| rule | breaches |", "|---|---|", *(f"| {rule} | {how} |" for rule, how in told)]
        return "\n".join([*rows, *(["", *map(str, self.breaches)] if self.breaches else [])])

    def figures(self) -> str:
        """Say in one line what was judged."""
        return (
            f"{self.gangs_started} gangs started, {self.pods_bound} pods bound,"
            f" {self.calls_asked} hook calls seen, {len(self.apart)} gangs lost members to others;"
            f" longest in part {self.longest_partial_s:.2f} s,"
            f" longest answer {self.longest_answer_s:.1f} s"
        )


def judge(record: Record, bounds: Bounds | None = None) -> Verdict:
    """Judge a record by every rule."""
    bounds = bounds or Bounds()
    spans = Spans.of(record, bounds.excusing, bounds.settle_s)
    carried = Spans.of(record, bounds.carrying, bounds.settle_s)
    whole, room, hooks = (
        Wholeness(bounds, carried),
        Rooms(bounds, spans),
        Calls(bounds, spans, carried),
    )
    whole.judge(record)
    world = room.judge(record)
    hooks.judge(record)
    found = [
        *whole.breaches,
        *room.breaches,
        *hooks.breaches,
        *waits.judge(record, world, bounds, spans),
        *(each for rest in _rests(record) for each in _judge_rest(rest, bounds, spans)),
    ]
    return Verdict(
        breaches=sorted(found, key=lambda breach: breach.at),
        unjudged=_unjudged(record),
        apart=sorted(whole.apart),
        pods_bound=room.bound,
        gangs_started=whole.started,
        calls_asked=len(record.of(Asked)),
        longest_partial_s=whole.longest_s,
        longest_answer_s=hooks.longest_s,
        returns=returns(record),
    )


def _rests(record: Record) -> Iterator[Record]:
    """Give what had been noted each time that all came to rest."""
    noted: list[Moment] = []
    for moment in record:
        if isinstance(moment, Line) and moment.text == RESTED:
            yield Record([*noted, Line(at=moment.at, text="so far")])
        noted.append(moment)


def _judge_rest(record: Record, bounds: Bounds, spans: Spans) -> Iterator[Breach]:
    room = Rooms(bounds, spans)
    world = room.judge(record)
    yield from (each for each in room.breaches if each.rule == rooms.LEAK)
    yield from waits.judge(record, world, bounds, spans)


def _unjudged(record: Record) -> frozenset[str]:
    """Give the rules that need moments which nobody noted."""
    hooks = () if record.of(Asked) else (calls.UNANSWERED, calls.LOST, calls.UNTRUE)
    return frozenset((*hooks, *(() if record.of(Promised) else (rooms.LEAK,))))


def returns(record: Record) -> list[Return]:
    """Give how long each took from SIGKILL until it served again.

    A kill that is noted until whoever died is gone began with its first note; whoever is killed
    once more before it served is timed from then.
    """
    found, since = [], dict[str, float]()
    for moment in record:
        if isinstance(moment, Killed):
            began_at = since.get(moment.who, moment.at) if moment.still else moment.at
            since[moment.who] = began_at
        elif isinstance(moment, Ready) and moment.who in since:
            killed_at = since.pop(moment.who)
            found.append(Return(moment.who, killed_at, moment.at - killed_at))
    return found
