"""The lease of kube-scheduler: followed, never written."""

from __future__ import annotations

from typing import Any

import pytest

from extender.leader.lease import FollowedLease, LeaseTiming
from extender.ports import Lease

from .simulation import Replica, Simulation

TIMING = LeaseTiming()
SCHEDULER_A = "a_0b5d"
SCHEDULER_B = "b_77aa"


def follow(leases: Any, name: str, timing: Any, clock: Any, tracker: Any, **_: Any) -> Any:
    return FollowedLease(leases, name, timing, clock, tracker)


class Schedulers:
    """The kube-schedulers; the holder of the lease renews it every two seconds."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.holder = ""

    def write(self, duration_s: float = 15.0) -> None:
        lease = self._simulation.server.lease
        self._simulation.server.write(
            Lease(
                holder=self.holder,
                duration_s=duration_s,
                renewed=f"{self._simulation.seconds:.6f}",
                version=lease.version if lease else "",
            )
        )

    def run(self, seconds: float, *running: Replica) -> None:
        until = self._simulation.seconds + seconds
        while self._simulation.seconds < until:
            self.write()
            self._simulation.run(min(2.0, until - self._simulation.seconds), *running)

    def hand_over(self, holder: str) -> None:
        """Release the lease, and let the other kube-scheduler acquire it at once."""
        self.holder = ""
        self.write(duration_s=1)
        self.holder = holder
        self.write()


@pytest.fixture
def a(simulation: Simulation) -> Replica:
    return simulation.add("a", lease_keeper=follow)


@pytest.fixture
def b(simulation: Simulation) -> Replica:
    return simulation.add("b", lease_keeper=follow)


@pytest.fixture
def schedulers(simulation: Simulation) -> Schedulers:
    made = Schedulers(simulation)
    made.holder = SCHEDULER_A
    return made


def test_the_extender_leads_while_its_kube_scheduler_leads(
    simulation: Simulation, schedulers: Schedulers, a: Replica, b: Replica
) -> None:
    schedulers.run(30, a, b)

    assert a.changes == ["begun"]
    assert b.changes == []
    assert b.tracker.why_not_ready() == [f"standby: {SCHEDULER_A} leads"]


def test_a_lease_without_an_observed_change_gives_no_term(
    simulation: Simulation, schedulers: Schedulers, a: Replica
) -> None:
    schedulers.write()
    simulation.run(60, a)

    assert a.changes == []


def test_a_lease_that_is_no_longer_renewed_ends_the_term_before_it_expires(
    simulation: Simulation, schedulers: Schedulers, a: Replica
) -> None:
    schedulers.run(10, a)
    schedulers.write()
    died_at = simulation.seconds
    while a.leads:
        simulation.run(0.1, a)

    assert simulation.seconds - died_at <= TIMING.renew_s + 0.2


def test_a_write_without_a_new_renew_time_is_not_a_renewal(
    simulation: Simulation, schedulers: Schedulers, a: Replica
) -> None:
    schedulers.run(10, a)
    for _ in range(20):
        lease = simulation.server.lease
        assert lease is not None
        simulation.server.write(lease)
        simulation.run(1, a)

    assert not a.leads


def test_a_released_and_acquired_lease_is_followed_within_two_reads(
    simulation: Simulation, schedulers: Schedulers, a: Replica, b: Replica
) -> None:
    schedulers.run(10, a, b)
    simulation.run(TIMING.poll_s, a, b)
    schedulers.hand_over(SCHEDULER_B)
    # It ends with its kube-scheduler, or at its next read.
    simulation.run(TIMING.poll_s, a)
    schedulers.run(2 * TIMING.poll_s, a, b)

    assert a.changes == ["begun", "ended"]
    assert b.changes == ["begun"]


def test_a_follower_that_cannot_read_the_lease_stops_leading_soon(
    simulation: Simulation, schedulers: Schedulers, a: Replica
) -> None:
    schedulers.run(10, a)
    cut_off_at = simulation.seconds
    while a.leads:
        a.fault = "lose"
        simulation.run(0.1, a)

    assert simulation.seconds - cut_off_at <= TIMING.fresh_s + 0.2


@pytest.mark.parametrize("response_delay_s", [1.0, 2.0, 2.3])
def test_a_slow_api_server_does_not_end_the_term(
    simulation: Simulation, schedulers: Schedulers, a: Replica, b: Replica, response_delay_s: float
) -> None:
    a.response_delay_s = b.response_delay_s = response_delay_s
    schedulers.run(60, a, b)

    assert (a.changes, b.changes) == (["begun"], [])


def test_a_follower_that_cannot_read_the_lease_says_why(
    simulation: Simulation, schedulers: Schedulers, a: Replica
) -> None:
    a.fault = "lose"
    schedulers.run(0.5, a)

    assert a.tracker.why_not_ready() == [
        "standby: no known replica leads (lost on the way)",
    ]

    schedulers.run(10, a)

    assert a.tracker.why_not_ready() == []


def test_a_follower_that_was_suspended_does_not_act_after_its_term(
    simulation: Simulation, schedulers: Schedulers, a: Replica
) -> None:
    schedulers.run(10, a)
    suspended_at = simulation.seconds
    simulation.advance(30)
    a.act()

    assert max(a.sent) <= suspended_at


def test_only_the_complete_host_name_matches(
    simulation: Simulation, schedulers: Schedulers, a: Replica
) -> None:
    for holder in ("a-2_0b5d", "ab_0b5d", "a", "0b5d_a"):
        schedulers.holder = holder
        schedulers.run(6, a)

    assert a.changes == []
