"""The lease of the kube-scheduler beside us: followed, never written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from extender.leader.lease import FollowedLease, LeaseTiming
from extender.ports import Lease

from .simulation import Contender, Stage

SPANS = LeaseTiming()
BESIDE_A = "a_0b5d"
BESIDE_B = "b_77aa"


def follow(leases: Any, name: str, spans: Any, clock: Any, succession: Any, **_: Any) -> Any:
    return FollowedLease(leases, name, spans, clock, succession)


class Schedulers:
    """Whoever of the kube-schedulers holds the lease renews it every two seconds."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.holder = ""

    def write(self, duration_s: float = 15.0) -> None:
        lease = self._stage.server.lease
        self._stage.server.write(
            Lease(
                holder=self.holder,
                duration_s=duration_s,
                renewed=f"{self._stage.seconds:.6f}",
                version=lease.version if lease else "",
            )
        )

    def run(self, seconds: float, *running: Contender) -> None:
        until = self._stage.seconds + seconds
        while self._stage.seconds < until:
            self.write()
            self._stage.run(min(2.0, until - self._stage.seconds), *running)

    def hand_over(self, holder: str) -> None:
        """Give it back in order, and let the other take it at once."""
        self.holder = ""
        self.write(duration_s=1)
        self.holder = holder
        self.write()


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made


@pytest.fixture
def a(stage: Stage) -> Contender:
    return stage.add("a", keeper=follow)


@pytest.fixture
def b(stage: Stage) -> Contender:
    return stage.add("b", keeper=follow)


@pytest.fixture
def schedulers(stage: Stage) -> Schedulers:
    made = Schedulers(stage)
    made.holder = BESIDE_A
    return made


def test_the_extender_leads_while_its_kube_scheduler_leads(
    stage: Stage, schedulers: Schedulers, a: Contender, b: Contender
) -> None:
    schedulers.run(30, a, b)

    assert a.told == ["begun"]
    assert b.told == []
    assert b.succession.readiness() == [f"standby: {BESIDE_A} leads"]


def test_a_lease_without_an_observed_change_gives_no_term(
    stage: Stage, schedulers: Schedulers, a: Contender
) -> None:
    schedulers.write()
    stage.run(60, a)

    assert a.told == []


def test_a_lease_that_is_no_longer_renewed_ends_the_term_before_it_expires(
    stage: Stage, schedulers: Schedulers, a: Contender
) -> None:
    schedulers.run(10, a)
    schedulers.write()
    died_at = stage.seconds
    while a.leads:
        stage.run(0.1, a)

    assert stage.seconds - died_at <= SPANS.renew_s + 0.2


def test_a_write_without_a_new_renew_time_is_not_a_renewal(
    stage: Stage, schedulers: Schedulers, a: Contender
) -> None:
    schedulers.run(10, a)
    for _ in range(20):
        lease = stage.server.lease
        assert lease is not None
        stage.server.write(lease)
        stage.run(1, a)

    assert not a.leads


def test_a_released_and_acquired_lease_is_followed_within_two_reads(
    stage: Stage, schedulers: Schedulers, a: Contender, b: Contender
) -> None:
    schedulers.run(10, a, b)
    stage.run(SPANS.poll_s, a, b)
    schedulers.hand_over(BESIDE_B)
    stage.run(SPANS.poll_s, a)  # it is told by its scheduler's going away, or by its next look
    schedulers.run(2 * SPANS.poll_s, a, b)

    assert a.told == ["begun", "ended"]
    assert b.told == ["begun"]


def test_a_follower_that_cannot_read_the_lease_stops_leading_soon(
    stage: Stage, schedulers: Schedulers, a: Contender
) -> None:
    schedulers.run(10, a)
    cut_off_at = stage.seconds
    while a.leads:
        a.trouble = "lose"
        stage.run(0.1, a)

    assert stage.seconds - cut_off_at <= SPANS.fresh_s + 0.2


@pytest.mark.parametrize("answers_in_s", [1.0, 2.0, 2.3])
def test_a_slow_api_server_does_not_end_the_term(
    stage: Stage, schedulers: Schedulers, a: Contender, b: Contender, answers_in_s: float
) -> None:
    a.answers_in_s = b.answers_in_s = answers_in_s
    schedulers.run(60, a, b)

    assert (a.told, b.told) == (["begun"], [])


def test_a_follower_that_cannot_read_the_lease_says_why(
    stage: Stage, schedulers: Schedulers, a: Contender
) -> None:
    a.trouble = "lose"
    schedulers.run(0.5, a)

    assert a.succession.readiness() == [
        "standby: no known replica leads (lost on the way)",
    ]

    schedulers.run(10, a)

    assert a.succession.readiness() == []


def test_a_follower_that_was_suspended_does_not_act_after_its_term(
    stage: Stage, schedulers: Schedulers, a: Contender
) -> None:
    schedulers.run(10, a)
    frozen_at = stage.seconds
    stage.advance(30)
    a.act()

    assert max(a.sent) <= frozen_at


def test_only_the_complete_host_name_matches(
    stage: Stage, schedulers: Schedulers, a: Contender
) -> None:
    for holder in ("a-2_0b5d", "ab_0b5d", "a", "0b5d_a"):
        schedulers.holder = holder
        schedulers.run(6, a)

    assert a.told == []
