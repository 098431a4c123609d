"""Replicas suspended at any line for any time: no two lead at once or send without a lease.

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

from .simulation import Overlap, Replica, Simulation

STEPS = 600
#: Clocks that run at different rates: a tenth is far more than any machine shows.
RATES = (0.95, 1.0, 1.05)


class LeavesNoMargin(OwnLease):
    """Acts for as long as its lease lasts, and a little longer."""

    def __init__(self, *rest: Any, **facts: Any) -> None:
        super().__init__(*rest, **facts)
        renewed, timing = self._tracker.renewed, self._timing

        def longer(until: float, leader: str) -> None:
            renewed(until - timing.renew_s + 1.1 * timing.duration_s, leader)

        self._tracker.renewed = longer  # type: ignore[method-assign]


class WritesOverOthers(OwnLease):
    """Overwrites an expired lease at its current version, not at the version it read."""

    def _write(self, lease: Lease) -> None:
        now = self._leases.simulation.server.lease  # type: ignore[attr-defined]
        super()._write(Lease(transitions=lease.transitions, version=now.version if now else ""))


def play(seed: int, lease_keeper: Callable[..., Any] = OwnLease) -> list[Replica]:
    """Choose at random which replica runs, how far, what is lost and how much time passes."""
    chance = random.Random(seed)
    with Simulation() as simulation:
        replicas = [
            simulation.add(name, lease_keeper=lease_keeper, rate=chance.choice(RATES))
            for name in ("a", "b", "c")
        ]
        for each in replicas:
            each.wall_offset_s = chance.choice((-100.0, 0.0, 0.0, 100.0))
        for _ in range(STEPS):
            each = chance.choice(replicas)
            roll = chance.random()
            if roll < 0.05:
                each.fault = chance.choice(("lose", "answer"))
            elif roll < 0.1:
                simulation.advance(chance.choice((4.0, 9.0, 16.0, 30.0)))
            elif roll < 0.5:
                simulation.advance(chance.choice((0.001, 0.1, 1.0)))
            elif roll < 0.9:
                simulation.step(each, lines=chance.choice((1, 3, 100, 100)))
            else:
                each.wall_offset_s += chance.choice((-50.0, 0.0, 0.0, 50.0))
            if roll > 0.3:
                each.run_callbacks()
            each.act()
            simulation.check()
        return replicas


def test_no_two_replicas_lead_at_once() -> None:
    stories, terms = examples(60), 0
    for seed in range(stories):
        print("seed", seed)  # shown with a failure
        terms += sum(each.changes.count("begun") for each in play(seed))

    assert terms > 3 * stories, "nothing could overlap"


@pytest.mark.parametrize("lease_keeper", [LeavesNoMargin, WritesOverOthers])
def test_the_referee_detects_planted_faults(lease_keeper: Callable[..., Any]) -> None:
    def is_seen(seed: int) -> bool:
        try:
            play(seed, lease_keeper)
        except Overlap:
            return True
        return False

    assert any(map(is_seen, range(60)))


def test_a_slow_response_does_not_prolong_the_term() -> None:
    with Simulation() as simulation:
        a, b = simulation.add("a"), simulation.add("b")
        simulation.run(4, a, b)
        renewals = len(simulation.server.writes)
        while len(simulation.server.writes) == renewals:
            simulation.step(a)
            simulation.advance(0.01)
        simulation.run(9, b)
        simulation.step(a, lines=100)
        a.run_callbacks()
        simulation.run(10, b)

        assert b.changes == ["begun"]
        assert a.changes[-1] == "begun"  # it lasted a moment longer; the end is not noticed yet
        assert not a.leads
