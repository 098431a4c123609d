"""Our own lease: acquired, renewed, lost, released; with different clocks and slow servers."""

from __future__ import annotations

import pytest

from extender.errors import ApiError
from extender.leader.lease import LeaseTiming
from extender.ports import Lease

from .simulation import Replica, Simulation

TIMING = LeaseTiming()


@pytest.fixture
def a(simulation: Simulation) -> Replica:
    return simulation.add("a")


@pytest.fixture
def b(simulation: Simulation, a: Replica) -> Replica:
    """A standby beside the leader *a*."""
    simulation.run(1, a)
    return simulation.add("b")


def test_the_first_replica_creates_the_lease_and_leads(simulation: Simulation, a: Replica) -> None:
    simulation.run(1, a)

    assert a.leads
    assert a.changes == ["begun"]
    lease = simulation.server.lease
    assert lease is not None
    assert (lease.holder, lease.duration_s, lease.transitions) == ("a", 15, 0)
    assert lease.acquired == lease.renewed == "1970-01-12T13:46:40.000000Z"


def test_a_leader_keeps_renewing_and_a_standby_names_the_leader(
    simulation: Simulation, a: Replica, b: Replica
) -> None:
    simulation.run(60, a, b)

    assert a.changes == ["begun"]
    assert (a.tracker.why_not_ready(), b.tracker.why_not_ready()) == ([], ["standby: a leads"])
    assert b.changes == b.sent == []
    assert 25 <= len(simulation.server.writes) <= 32


def test_a_replica_that_is_not_warm_does_not_acquire_the_lease(
    simulation: Simulation, a: Replica
) -> None:
    a.is_warm = False
    simulation.run(20, a)
    assert simulation.server.lease is None

    a.is_warm = True
    simulation.run(2, a)
    assert a.leads


def test_after_a_crash_the_other_replica_takes_over_when_the_lease_expires(
    simulation: Simulation, a: Replica, b: Replica
) -> None:
    simulation.run(4, a, b)
    crashed_at = simulation.seconds
    while not b.leads:
        simulation.run(0.1, b)

    assert (
        TIMING.renew_s < simulation.seconds - crashed_at <= TIMING.duration_s + TIMING.poll_s + 0.2
    )
    lease = simulation.server.lease
    assert lease is not None
    assert (lease.holder, lease.transitions) == ("b", 1)


def test_a_released_lease_is_acquired_at_once(
    simulation: Simulation, a: Replica, b: Replica
) -> None:
    simulation.run(4, a, b)
    a.tracker.resign()
    a.lease_keeper.release()
    a.run_callbacks()
    assert simulation.server.lease is not None
    assert (simulation.server.lease.holder, simulation.server.lease.duration_s) == ("", 1)

    simulation.run(TIMING.poll_s + 0.2, b)
    assert b.leads
    assert a.changes == ["begun", "ended"]


def test_a_leader_that_resigned_never_leads_again(simulation: Simulation, a: Replica) -> None:
    simulation.run(1, a)
    a.tracker.resign()
    simulation.run(5, a)

    assert not a.leads
    assert a.changes == ["begun", "ended"]


def test_only_the_holder_releases_the_lease(simulation: Simulation, a: Replica, b: Replica) -> None:
    simulation.run(2, a, b)
    b.lease_keeper.release()

    assert simulation.server.lease is not None
    assert simulation.server.lease.holder == "a"


def test_an_unreachable_server_ends_the_term_before_others_may_acquire_the_lease(
    simulation: Simulation, a: Replica, b: Replica
) -> None:
    simulation.run(4, a, b)
    simulation.step(a, lines=100)
    renewed_at = simulation.seconds
    while a.leads:
        a.fault = "lose"
        simulation.run(0.1, a)
    a.run_callbacks()

    assert simulation.seconds - renewed_at <= TIMING.renew_s + 0.2
    assert a.changes == ["begun", "ended"]
    assert a.tracker.why_not_ready() == ["standby: no known replica leads (lost on the way)"]


def test_a_lost_response_does_not_end_the_term_if_the_next_read_shows_our_lease(
    simulation: Simulation, a: Replica
) -> None:
    simulation.run(4, a)
    a.fault = "answer"
    simulation.run(8, a)

    assert a.changes == ["begun"]


def test_a_leader_suspended_for_half_a_minute_sends_nothing_when_it_resumes(
    simulation: Simulation, a: Replica, b: Replica
) -> None:
    simulation.run(4, a, b)
    suspended_at = simulation.seconds
    simulation.run(30, b)
    assert b.leads

    a.act()
    simulation.run(10, a, b)

    assert max(a.sent) <= suspended_at
    assert a.changes == ["begun", "ended"]
    assert a.tracker.why_not_ready() == ["standby: b leads"]


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_step_of_the_wall_clock_changes_nothing(
    simulation: Simulation, a: Replica, b: Replica, step_s: float
) -> None:
    simulation.run(4, a, b)
    a.wall_offset_s = step_s
    simulation.run(30, a, b)
    b.wall_offset_s = -step_s
    simulation.run(30, a, b)

    assert a.changes == ["begun"]
    assert b.changes == []


def test_a_deleted_lease_still_counts_for_a_standby_that_read_it(
    simulation: Simulation, a: Replica, b: Replica
) -> None:
    simulation.run(4, a, b)
    simulation.server.lease = None
    simulation.run(3, b)
    assert not b.leads

    simulation.run(5, a, b)
    assert a.leads
    assert simulation.server.lease is not None


def test_a_leader_whose_lease_was_given_to_another_ends_its_term_with_the_next_renewal(
    simulation: Simulation, a: Replica
) -> None:
    simulation.run(4, a)
    renewals = len(simulation.server.writes)
    while len(simulation.server.writes) == renewals:
        simulation.run(0.1, a)
    lease = simulation.server.lease
    assert lease is not None
    simulation.server.write(
        type(lease)(holder="x", duration_s=15, renewed="now", version=lease.version)
    )
    simulation.run(TIMING.retry_s + 0.2, a)

    assert a.changes == ["begun", "ended"]
    assert a.tracker.why_not_ready() == ["standby: x leads"]


def test_conflicting_lease_writes_are_not_retried_without_pause(
    simulation: Simulation, a: Replica
) -> None:
    simulation.run(4, a)
    asked, write = 0, simulation.server.write

    def conflict(_: Lease) -> Lease:
        nonlocal asked
        asked += 1
        raise ApiError("the lease was written since", status=409)

    simulation.server.write = conflict  # type: ignore[method-assign]
    simulation.run(TIMING.renew_s - 1, a)
    simulation.server.write = write  # type: ignore[method-assign]
    simulation.run(2, a)

    assert asked < 12
    assert a.leads


def test_a_late_renewal_begins_a_new_term(simulation: Simulation, a: Replica) -> None:
    simulation.run(4, a)
    number = a.term.current()
    simulation.advance(TIMING.renew_s + 1)
    simulation.run(5, a)

    assert a.changes == ["begun", "ended", "begun"]
    assert a.term.current() == number + 1
    assert not a.term.holds(number)
