"""Rules about hook calls: every call is answered, and the response to a bind is true."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from .breaches import Bounds, Breach
from .excluded_spans import Spans
from .record import Answered, Asked, CutOff, Killed, Moment, PodBound, PodEnded, Record

UNANSWERED = "hold without an answer"
LOST = "bind that was lost"
UNTRUE = "bind that was told as failed"

#: The recorded time of a kill is inexact: calls may end before it, or reach the dying process.
_DYING_S = 1.0
#: A bound pod is observed at most so long after the end of the call.
_SEEN_S = 1.0
#: The proxy sees at least this part of the time that the caller waits.
_NEARLY = 0.9


@dataclass(frozen=True, slots=True)
class _Open:
    """A bind call: its node and its duration."""

    node: str
    since: float
    until: float

    @classmethod
    def of(cls, call: Asked, end: Moment | None) -> _Open:
        return cls(call.node, call.at, end.at if end else math.inf)

    def may_have_bound(self, bound: PodBound) -> bool:
        return self.node == bound.node and self.since <= bound.at <= self.until + _SEEN_S


@dataclass
class Calls:
    """Checks every hook call."""

    bounds: Bounds
    spans: Spans
    #: Times in which the extender could not answer.
    carried: Spans
    breaches: list[Breach] = field(default_factory=list)
    longest_s: float = 0.0

    def judge(self, record: Record) -> None:
        ends: dict[int, Moment] = {}
        for moment in record:
            if isinstance(moment, Answered | CutOff):
                ends.setdefault(moment.call, moment)
        bound = {moment.uid: moment for moment in reversed(record.of(PodBound))}
        gone = {moment.uid: moment.at for moment in record.of(PodEnded) if moment.how == "gone"}
        asked = record.of(Asked)
        binds: dict[str, list[Asked]] = {}
        for call in asked:
            if call.hook == "bind":
                binds.setdefault(call.uid, []).append(call)
        killed, ended_at = record.of(Killed), record.ended_at
        for call in asked:
            end = ends.get(call.call)
            self._judge_end(call, end, killed, ended_at)
            if isinstance(end, Answered) and call.hook == "bind":
                others = [each for each in binds[call.uid] if each is not call]
                if end.error and gone.get(call.uid, end.at) < end.at:
                    continue  # the pod was deleted, so it is not scheduled elsewhere
                other_calls = (_Open.of(each, ends.get(each.call)) for each in others)
                self._judge_truth(call, end, bound.get(call.uid), other_calls, ended_at)

    def _judge_end(
        self, call: Asked, end: Moment | None, killed: list[Killed], record_ends: float
    ) -> None:
        until = end.at if end else record_ends
        waited = self.spans.counted_s(call.at, until)
        self.longest_s = max(self.longest_s, waited if isinstance(end, Answered) else 0.0)
        # A call without a recorded replica may have been sent to any.
        died = any(
            each.who == (call.to or each.who) and call.at - _DYING_S <= each.at <= until + _DYING_S
            for each in killed
        )
        if died:
            return
        if isinstance(end, CutOff) and end.by_caller:
            waited_s = self.carried.counted_s(call.at, until)
            if waited_s > _NEARLY * self.bounds.told_s.get(call.hook, self.bounds.answer_s):
                words = f"kube-scheduler waited without a response for {waited_s:.1f} s"
                self._breach(UNANSWERED, call, words)
        elif isinstance(end, CutOff):
            self._breach(
                UNANSWERED, call, f"{call.to or 'the extender'} disconnected after {waited:.1f} s"
            )
        elif waited > self.bounds.answer_s:
            what = "answered" if end else "not answered"
            self._breach(UNANSWERED, call, f"{what} after {waited:.1f} s")

    def _judge_truth(
        self,
        call: Asked,
        end: Answered,
        bound: PodBound | None,
        others: Iterable[_Open],
        record_ends: float,
    ) -> None:
        is_there = bound is not None and bound.node == call.node
        was_success = end.status == 200 and not end.error
        if was_success and not is_there and record_ends - end.at > self.bounds.lag_s:
            self._breach(LOST, call, f"reported as bound to {call.node}, observed {_where(bound)}")
        if was_success or bound is None or not is_there:
            return
        is_ours = _Open.of(call, end).may_have_bound(bound)
        # Another call for the same node at that time may have bound it.
        beside = any(each.may_have_bound(bound) for each in others)
        is_excused = self.spans.counted_s(call.at, end.at) < end.at - call.at
        if is_ours and not beside and not is_excused:
            self._breach(UNTRUE, call, f"bound to {call.node}, reported: {end.error or end.status}")

    def _breach(self, rule: str, call: Asked, words: str) -> None:
        whose = f"{call.hook} of {call.uid or 'call ' + str(call.call)}"
        self.breaches.append(Breach(rule=rule, whose=whose, words=words, at=call.at))


def _where(bound: PodBound | None) -> str:
    return f"on {bound.node}" if bound else "nowhere"
