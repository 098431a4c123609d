"""Estimates for pages: one lookahead for all requests, and pauses between lookaheads."""

from __future__ import annotations

from dataclasses import replace

from extender.forecast.forecaster import REST, Forecaster
from extender.model.gang import GangKey
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from tests.unit.forecast.test_lookahead import HOUR, NOW, running, seen, waiting

NEXT = GangKey("lab/next")


class FakeClock:
    """A stopped clock, and a CPU time that grows by a second with every call."""

    def __init__(self) -> None:
        self.worked = self.now = 0.0

    def spent(self) -> float:
        self.worked += 1.0
        return self.worked


def forecaster(clock: FakeClock) -> Forecaster:
    return Forecaster(
        lambda: policy_parser.DEFAULT,
        seconds=10.0,
        spent=clock.spent,
        monotonic=lambda: clock.now,
    )


def passed(lasts_s: float) -> tuple[Snapshot, Plan]:
    snapshot = seen(running("lab/a", "n1", "n2", lasts_s=lasts_s), waiting("lab/next", 2))
    return snapshot, make_plan(snapshot, policy_parser.DEFAULT)


def at(asked: Forecaster, last: tuple[Snapshot, Plan], key: GangKey = NEXT) -> float | None:
    told = asked.estimate(*last, key)
    assert told is not None
    return told.at


def test_a_new_plan_is_used_for_estimates_only_after_a_pause() -> None:
    clock = FakeClock()
    asked, first, second = forecaster(clock), passed(HOUR), passed(2 * HOUR)

    assert at(asked, first) == NOW + HOUR
    clock.now = REST - 0.1
    assert at(asked, second) == NOW + HOUR  # still the result of the first lookahead
    clock.now = REST
    assert at(asked, second) == NOW + 2 * HOUR


def test_one_lookahead_answers_for_all_gangs_of_a_plan() -> None:
    clock = FakeClock()
    asked, last = forecaster(clock), passed(HOUR)
    at(asked, last)
    worked = clock.worked

    at(asked, last)

    assert clock.worked == worked


def test_a_new_gang_is_estimated_in_spite_of_the_pause() -> None:
    clock = FakeClock()
    asked, (snapshot, plan) = forecaster(clock), passed(HOUR)
    at(asked, (snapshot, plan))
    late = waiting("lab/zlate", 1)
    newer = replace(snapshot, gangs={**snapshot.gangs, late.key: late})

    assert at(asked, (newer, make_plan(newer, policy_parser.DEFAULT)), GangKey("lab/zlate")) is None


def test_a_stream_of_new_gangs_does_not_keep_the_forecaster_busy() -> None:
    clock = FakeClock()
    asked, last = forecaster(clock), passed(HOUR)
    at(asked, last)
    words = []
    for number in range(20):
        late = waiting(f"lab/zlate-{number:02}", 1)
        snapshot = replace(last[0], gangs={**last[0].gangs, late.key: late})
        last = (snapshot, make_plan(snapshot, policy_parser.DEFAULT))
        told = asked.estimate(*last, late.key)
        assert told is not None
        words.append(told.message)

    assert clock.worked <= 2 * 10.0 + 2
    assert words[-1].startswith(
        "unknown, because it did not wait at the time of the last estimate; the next one is in"
    )

    clock.now = 2 * 10.0 * REST
    told = asked.estimate(*last, GangKey("lab/zlate-19"))
    assert told is not None
    assert "looked ahead last" not in told.message
