"""The verdict on a record, by rules that do not use any part of the extender."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from . import bindings, calls, partial_gangs, waits
from .bindings import Bindings
from .breaches import Bounds, Breach
from .calls import Calls
from .excluded_spans import Spans
from .partial_gangs import Wholeness
from .record import RESTED, Asked, Killed, Line, Moment, Promised, Ready, Record

#: All rules.
RULES = (
    partial_gangs.RULE, partial_gangs.BY_US, bindings.TWICE, bindings.FULL, bindings.UNKNOWN,
    bindings.CLOSED, bindings.CEILING, bindings.SHUT, bindings.LEAK, waits.RULE, calls.UNANSWERED,
    calls.LOST, calls.UNTRUE,
)  # fmt: skip


class Return(NamedTuple):
    """A killed program serves again."""

    who: str
    killed_at: float
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The breaches, and figures of what was checked, to detect a verdict on nothing."""

    breaches: Sequence[Breach] = ()
    #: Rules that the record has nothing for.
    unjudged: frozenset[str] = frozenset()
    #: Gangs that are partial because others deleted members.
    apart: Sequence[str] = ()
    pods_bound: int = 0
    gangs_started: int = 0
    calls_asked: int = 0
    #: The longest time that a starting gang was partial, and that a hook call took.
    longest_partial_s: float = 0.0
    longest_answer_s: float = 0.0
    #: Restarts after SIGKILL.
    returns: Sequence[Return] = field(default_factory=tuple)

    def __bool__(self) -> bool:
        """Return whether no rule was broken."""
        return not self.breaches

    def table(self) -> str:
        """Return a Markdown table of all rules with the number of breaches, then each breach."""
        broken = Counter(breach.rule for breach in self.breaches)
        counts = ((r, "not judged" if r in self.unjudged else str(broken[r])) for r in RULES)
        rows = [
            "| rule | breaches |",
            "|---|---|",
            *(f"| {rule} | {how} |" for rule, how in counts),
        ]
        return "\n".join([*rows, *(["", *map(str, self.breaches)] if self.breaches else [])])

    def figures(self) -> str:
        """Return a line about what was checked."""
        return (
            f"{self.gangs_started} gangs started, {self.pods_bound} pods bound,"
            f" {self.calls_asked} hook calls seen, {len(self.apart)} gangs lost members to others;"
            f" longest in part {self.longest_partial_s:.2f} s,"
            f" longest answer {self.longest_answer_s:.1f} s"
        )


def judge(record: Record, bounds: Bounds | None = None) -> Verdict:
    """Check a record by every rule."""
    bounds = bounds or Bounds()
    spans = Spans.of(record, bounds.excusing, bounds.settle_s)
    carried = Spans.of(record, bounds.carrying, bounds.settle_s)
    whole, room, hooks = (
        Wholeness(bounds, carried),
        Bindings(bounds, spans),
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
    """Yield the record up to each pause."""
    noted: list[Moment] = []
    for moment in record:
        if isinstance(moment, Line) and moment.text == RESTED:
            yield Record([*noted, Line(at=moment.at, text="so far")])
        noted.append(moment)


def _judge_rest(record: Record, bounds: Bounds, spans: Spans) -> Iterator[Breach]:
    room = Bindings(bounds, spans)
    world = room.judge(record)
    yield from (each for each in room.breaches if each.rule == bindings.LEAK)
    yield from waits.judge(record, world, bounds, spans)


def _unjudged(record: Record) -> frozenset[str]:
    """Return the rules that need moments that the record lacks."""
    hooks = () if record.of(Asked) else (calls.UNANSWERED, calls.LOST, calls.UNTRUE)
    return frozenset((*hooks, *(() if record.of(Promised) else (bindings.LEAK,))))


def returns(record: Record) -> list[Return]:
    """Return the time of each restart, from SIGKILL until ready.

    A repeated record of a kill keeps the first time; another kill before it was ready starts the
    time again.
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
