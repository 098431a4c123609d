"""Times that do not count: without the API server no binding can be sent or undone."""

from __future__ import annotations

from collections.abc import Iterable

from .record import API_SERVER, Away, Back, Record


class Spans:
    """Spans of time that are excluded from measured times."""

    def __init__(self, spans: Iterable[tuple[float, float]] = ()) -> None:
        merged: list[tuple[float, float]] = []
        for start, end in sorted(spans):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        self._spans = merged

    @classmethod
    def of(cls, record: Record, who: Iterable[str] = (API_SERVER,), settle_s: float = 0.0) -> Spans:
        """Return the spans in which one of *who* did not answer, and *settle_s* after each."""
        spans, names = [], set(who)
        since: dict[str, float] = {}
        for moment in record:
            if isinstance(moment, Away) and moment.who in names:
                since.setdefault(moment.who, moment.at)
            elif isinstance(moment, Back) and moment.who in since:
                spans.append((since.pop(moment.who), moment.at + settle_s))
        return cls([*spans, *((start, record.ended_at) for start in since.values())])

    @property
    def total_s(self) -> float:
        return sum(end - start for start, end in self._spans)

    def counted_s(self, start: float, end: float) -> float:
        """Return the time from *start* to *end* without the spans."""
        out = sum(max(0.0, min(end, b) - max(start, a)) for a, b in self._spans)
        return max(0.0, end - start - out)

    def back_from(self, at: float, seconds: float) -> float:
        """Return the time before *at* since which *seconds* count."""
        for start, end in reversed(self._spans):
            if start >= at:
                continue
            end = min(end, at)
            if at - end >= seconds:
                break
            seconds -= at - end
            at = start
        return at - seconds
