"""Contenders stopped anywhere for any time: never do two lead at once, nor send without leading.

Faults are planted to see that the referee would notice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from extender.leader.lease import OwnLease
from extender.ports import Lease
from tests.strategies import examples

from .simulation import Contender, Overlap, Stage

STEPS = 600
#: Clocks that do not run alike: a tenth is far more than any machine shows.
RATES = (0.95, 1.0, 1.05)


class CountsFromTheAnswer(OwnLease):
    """Counts its term from when it heard that the renewal was taken."""

    def _write(self, lease: Lease) -> None:
        renewed = self._tracker.renewed
        spans, clock = self._timing, self._clock

        def later(_: float, leader: str) -> None:
            renewed(clock.monotonic() + spans.renew_s, leader)

        self._tracker.renewed = later  # type: ignore[method-assign]
        try:
            super()._write(lease)
        finally:
            self._tracker.renewed = renewed  # type: ignore[method-assign]


class LeavesNoMargin(OwnLease):
    """Acts for as long as its lease lasts, and a little longer."""

    def __init__(self, *rest: Any, **facts: Any) -> None:
        super().__init__(*rest, **facts)
        renewed, spans = self._tracker.renewed, self._timing

        def longer(until: float, leader: str) -> None:
            renewed(until - spans.renew_s + 1.1 * spans.duration_s, leader)

        self._tracker.renewed = longer  # type: ignore[method-assign]


class BelievesWhatIsWritten(OwnLease):
    """Judges another's lease by the time written in it."""

    def _remaining_s(self) -> float:
        if self._observed is None or self._observed.holder in ("", self._identity):
            return 0.0
        return float(self._observed.renewed) + self._observed.duration_s - self._clock.now()

    def _timestamp(self) -> str:
        return str(self._clock.now())


class WritesOverOthers(OwnLease):
    """Takes a lease that has run out as it is by then, not as it was seen."""

    def _write(self, lease: Lease) -> None:
        now = self._leases._stage.server.lease  # type: ignore[attr-defined]
        super()._write(Lease(transitions=lease.transitions, version=now.version if now else ""))


def play(seed: int, keeper: Callable[..., Any] = OwnLease) -> list[Contender]:
    """Let chance decide who goes on, how far, what is lost and how much time passes."""
    chance = random.Random(seed)
    with Stage() as stage:
        contenders = [
            stage.add(name, keeper=keeper, rate=chance.choice(RATES)) for name in ("a", "b", "c")
        ]
        for each in contenders:
            each.wall_is_off_by = chance.choice((-100.0, 0.0, 0.0, 100.0))
        for _ in range(STEPS):
            each = chance.choice(contenders)
            luck = chance.random()
            if luck < 0.05:
                each.trouble = chance.choice(("lose", "answer"))
            elif luck < 0.1:
                stage.advance(chance.choice((4.0, 9.0, 16.0, 30.0)))
            elif luck < 0.5:
                stage.advance(chance.choice((0.001, 0.1, 1.0)))
            elif luck < 0.9:
                stage.let(each, lines=chance.choice((1, 3, 100, 100)))
            else:
                each.wall_is_off_by += chance.choice((-50.0, 0.0, 0.0, 50.0))
            if luck > 0.3:
                each.work_off()
            each.act()
            stage.look()
        return contenders


def test_no_two_replicas_lead_at_once() -> None:
    stories, terms = examples(60), 0
    for seed in range(stories):
        print("seed", seed)  # shown with a failure
        terms += sum(each.told.count("begun") for each in play(seed))

    assert terms > 3 * stories, "nothing could overlap"


@pytest.mark.parametrize("keeper", [LeavesNoMargin, BelievesWhatIsWritten, WritesOverOthers])
def test_the_referee_detects_planted_faults(keeper: Callable[..., Any]) -> None:
    def is_seen(seed: int) -> bool:
        try:
            play(seed, keeper)
        except Overlap:
            return True
        return False

    assert any(map(is_seen, range(60)))


def freeze_after_a_renewal_was_taken(keeper: Callable[..., Any]) -> list[Contender]:
    with Stage() as stage:
        a, b = stage.add("a", keeper=keeper), stage.add("b", keeper=keeper)
        stage.run(4, a, b)
        renewals = len(stage.server.writes)
        while len(stage.server.writes) == renewals:
            stage.let(a)
            stage.advance(0.01)
        stage.run(9, b)
        stage.let(a, lines=100)
        a.work_off()
        stage.run(10, b)
        return [a, b]


def test_a_slow_response_does_not_prolong_the_term() -> None:
    a, b = freeze_after_a_renewal_was_taken(OwnLease)

    assert b.told == ["begun"]
    assert a.told[-1] == "begun"  # it lasted a moment more, and is over without its noticing
    assert not a.leads


def test_the_referee_detects_a_term_counted_from_the_response() -> None:
    with pytest.raises(Overlap):
        freeze_after_a_renewal_was_taken(CountsFromTheAnswer)
