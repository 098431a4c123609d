"""Our own lease: taken, renewed, lost, given back; by clocks that differ and servers that stall."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extender.errors import ApiError
from extender.leader.lease import LeaseTiming
from extender.ports import Lease

from .simulation import Contender, Stage

SPANS = LeaseTiming()


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made


@pytest.fixture
def a(stage: Stage) -> Contender:
    return stage.add("a")


@pytest.fixture
def b(stage: Stage, a: Contender) -> Contender:
    """A standby of *a*, which leads."""
    stage.run(1, a)
    return stage.add("b")


def test_the_first_replica_creates_the_lease_and_leads(stage: Stage, a: Contender) -> None:
    stage.run(1, a)

    assert a.leads
    assert a.told == ["begun"]
    lease = stage.server.lease
    assert lease is not None
    assert (lease.holder, lease.duration_s, lease.transitions) == ("a", 15, 0)
    assert lease.acquired == lease.renewed == "1970-01-12T13:46:40.000000Z"


def test_a_leader_keeps_renewing_and_a_standby_names_the_leader(
    stage: Stage, a: Contender, b: Contender
) -> None:
    stage.run(60, a, b)

    assert a.told == ["begun"]
    assert (a.succession.readiness(), b.succession.readiness()) == ([], ["standby: a leads"])
    assert b.told == b.sent == []
    assert 25 <= len(stage.server.writes) <= 32


def test_a_replica_that_is_not_warm_does_not_acquire_the_lease(stage: Stage, a: Contender) -> None:
    a.is_warm = False
    stage.run(20, a)
    assert stage.server.lease is None

    a.is_warm = True
    stage.run(2, a)
    assert a.leads


def test_after_a_crash_the_other_replica_takes_over_when_the_lease_expires(
    stage: Stage, a: Contender, b: Contender
) -> None:
    stage.run(4, a, b)
    died_at = stage.seconds
    while not b.leads:
        stage.run(0.1, b)

    assert SPANS.renew_s < stage.seconds - died_at <= SPANS.duration_s + SPANS.poll_s + 0.2
    lease = stage.server.lease
    assert lease is not None
    assert (lease.holder, lease.transitions) == ("b", 1)


def test_a_released_lease_is_acquired_at_once(stage: Stage, a: Contender, b: Contender) -> None:
    stage.run(4, a, b)
    a.succession.resign()
    a.keeper.release()
    a.work_off()
    assert stage.server.lease is not None
    assert (stage.server.lease.holder, stage.server.lease.duration_s) == ("", 1)

    stage.run(SPANS.poll_s + 0.2, b)
    assert b.leads
    assert a.told == ["begun", "ended"]


def test_a_leader_that_resigned_never_leads_again(stage: Stage, a: Contender) -> None:
    stage.run(1, a)
    a.succession.resign()
    stage.run(5, a)

    assert not a.leads
    assert a.told == ["begun", "ended"]


def test_only_the_holder_releases_the_lease(stage: Stage, a: Contender, b: Contender) -> None:
    stage.run(2, a, b)
    b.keeper.release()

    assert stage.server.lease is not None
    assert stage.server.lease.holder == "a"


def test_an_unreachable_server_ends_the_term_before_others_may_acquire_the_lease(
    stage: Stage, a: Contender, b: Contender
) -> None:
    stage.run(4, a, b)
    stage.let(a, lines=100)
    renewed_at = stage.seconds
    while a.leads:
        a.trouble = "lose"
        stage.run(0.1, a)
    a.work_off()

    assert stage.seconds - renewed_at <= SPANS.renew_s + 0.2
    assert a.told == ["begun", "ended"]
    assert a.succession.readiness() == ["standby: no known replica leads (lost on the way)"]


def test_a_lost_response_does_not_end_the_term_if_the_next_read_shows_our_lease(
    stage: Stage, a: Contender
) -> None:
    stage.run(4, a)
    a.trouble = "answer"
    stage.run(8, a)

    assert a.told == ["begun"]


def test_a_leader_suspended_for_half_a_minute_sends_nothing_when_it_resumes(
    stage: Stage, a: Contender, b: Contender
) -> None:
    stage.run(4, a, b)
    frozen_at = stage.seconds
    stage.run(30, b)
    assert b.leads

    a.act()
    stage.run(10, a, b)

    assert max(a.sent) <= frozen_at
    assert a.told == ["begun", "ended"]
    assert a.succession.readiness() == ["standby: b leads"]


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_step_of_the_wall_clock_changes_nothing(
    stage: Stage, a: Contender, b: Contender, step_s: float
) -> None:
    stage.run(4, a, b)
    a.wall_is_off_by = step_s
    stage.run(30, a, b)
    b.wall_is_off_by = -step_s
    stage.run(30, a, b)

    assert a.told == ["begun"]
    assert b.told == []


def test_a_deleted_lease_still_counts_for_a_standby_that_read_it(
    stage: Stage, a: Contender, b: Contender
) -> None:
    stage.run(4, a, b)
    stage.server.lease = None
    stage.run(3, b)
    assert not b.leads

    stage.run(5, a, b)
    assert a.leads
    assert stage.server.lease is not None


def test_a_leader_whose_lease_was_given_to_another_ends_its_term_with_the_next_renewal(
    stage: Stage, a: Contender
) -> None:
    stage.run(4, a)
    renewals = len(stage.server.writes)
    while len(stage.server.writes) == renewals:
        stage.run(0.1, a)
    lease = stage.server.lease
    assert lease is not None
    stage.server.write(type(lease)(holder="x", duration_s=15, renewed="now", version=lease.version))
    stage.run(SPANS.retry_s + 0.2, a)

    assert a.told == ["begun", "ended"]
    assert a.succession.readiness() == ["standby: x leads"]


def test_conflicting_lease_writes_are_not_retried_without_pause(stage: Stage, a: Contender) -> None:
    stage.run(4, a)
    asked, write = 0, stage.server.write

    def overtaken(_: Lease) -> Lease:
        nonlocal asked
        asked += 1
        raise ApiError("somebody has written since", status=409)

    stage.server.write = overtaken  # type: ignore[method-assign]
    stage.run(SPANS.renew_s - 1, a)
    stage.server.write = write  # type: ignore[method-assign]
    stage.run(2, a)

    assert asked < 12
    assert a.leads


def test_a_late_renewal_begins_a_new_term(stage: Stage, a: Contender) -> None:
    stage.run(4, a)
    number = a.term.current()
    stage.advance(SPANS.renew_s + 1)
    stage.run(5, a)

    assert a.told == ["begun", "ended", "begun"]
    assert a.term.current() == number + 1
    assert not a.term.holds(number)
