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


def test_whoever_is_first_creates_the_lease_and_leads(stage: Stage, a: Contender) -> None:
    stage.run(1, a)

    assert a.leads
    assert a.told == ["begun"]
    lease = stage.server.lease
    assert lease is not None
    assert (lease.holder, lease.duration_s, lease.transitions) == ("a", 15, 0)
    assert lease.acquired == lease.renewed == "1970-01-12T13:46:40.000000Z"


def test_a_leader_renews_for_ever_and_a_standby_says_who_leads(
    stage: Stage, a: Contender, b: Contender
) -> None:
    stage.run(60, a, b)

    assert a.told == ["begun"]
    assert (a.succession.readiness(), b.succession.readiness()) == ([], ["standby: a leads"])
    assert b.told == b.sent == []
    assert 25 <= len(stage.server.writes) <= 32


def test_who_knows_nothing_yet_does_not_stand(stage: Stage, a: Contender) -> None:
    a.is_warm = False
    stage.run(20, a)
    assert stage.server.lease is None

    a.is_warm = True
    stage.run(2, a)
    assert a.leads


def test_after_a_crash_the_other_takes_over_once_the_lease_has_run_out(
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


def test_what_was_given_back_is_taken_at_once(stage: Stage, a: Contender, b: Contender) -> None:
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


def test_only_the_holder_gives_it_back(stage: Stage, a: Contender, b: Contender) -> None:
    stage.run(2, a, b)
    b.keeper.release()

    assert stage.server.lease is not None
    assert stage.server.lease.holder == "a"


def test_a_server_that_does_not_answer_ends_the_term_before_others_may_take_it(
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


def test_a_lost_answer_costs_nothing_if_the_next_look_shows_the_lease_ours(
    stage: Stage, a: Contender
) -> None:
    stage.run(4, a)
    a.trouble = "answer"
    stage.run(8, a)

    assert a.told == ["begun"]


def test_a_leader_frozen_for_half_a_minute_sends_nothing_when_it_goes_on(
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


def test_a_deleted_lease_still_runs_for_whoever_saw_it(
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


def test_a_lease_that_others_write_to_all_the_time_is_not_fought_over(
    stage: Stage, a: Contender
) -> None:
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


def test_a_lease_that_was_renewed_late_begins_a_new_term_after_the_end_of_the_old(
    stage: Stage, a: Contender
) -> None:
    stage.run(4, a)
    number = a.term.current()
    stage.advance(SPANS.renew_s + 1)
    stage.run(5, a)

    assert a.told == ["begun", "ended", "begun"]
    assert a.term.current() == number + 1
    assert not a.term.holds(number)
