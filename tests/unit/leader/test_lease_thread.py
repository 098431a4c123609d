"""The thread that keeps the lease: it survives stumbles, and gives the lease back at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from extender.clock import SystemClock
from extender.leader.election import LeaseThread
from extender.leader.fencing import Term
from extender.leader.lease import LeaseTiming, LeaseTracker, OwnLease
from extender.metrics import Metrics
from extender.ports import Lease
from tests.unit.leader.test_runtime import LeaseDouble
from tests.unit.web.conftest import eventually

SPANS = LeaseTiming(duration_s=2.0, renew_s=1.0, retry_s=0.02)


class AtOnce:
    """An event loop that has always time."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        callback()


class Office:
    """A campaign for one lease."""

    def __init__(self, leases: LeaseDouble) -> None:
        self.term = Term(SystemClock.monotonic)
        succession = LeaseTracker(self.term, AtOnce(), Metrics())
        keeper = OwnLease(leases, "here_1", SPANS, SystemClock(), succession, is_warm=lambda: True)
        self.campaign = LeaseThread(keeper, succession, retry_s=0.01)


def test_the_lease_is_released_after_the_term_has_ended() -> None:
    leases = LeaseDouble()
    office = Office(leases)
    led_while_given_back: list[bool] = []
    write = leases.write

    def witness(lease: Lease) -> Lease:
        if not lease.holder:
            led_while_given_back.append(bool(office.term.current()))
        return write(lease)

    leases.write = witness  # type: ignore[method-assign]
    office.campaign.start()
    eventually(lambda: bool(office.term.current()))
    office.campaign.release()

    assert led_while_given_back == [False]
    assert leases.lease is not None
    assert leases.lease.holder == ""


def test_releasing_twice_or_before_the_start_does_nothing() -> None:
    office = Office(LeaseDouble())
    office.campaign.release()
    office.campaign.release()

    assert not office.term.current()


def test_the_thread_continues_after_an_unexpected_error() -> None:
    leases = LeaseDouble()
    office = Office(leases)
    read, stumbled = leases.read, threading.Event()

    def stumble() -> Lease | None:
        if not stumbled.is_set():
            stumbled.set()
            raise RuntimeError("a bug")
        return read()

    leases.read = stumble  # type: ignore[method-assign]
    office.campaign.start()
    eventually(lambda: bool(office.term.current()))
    office.campaign.release()

    assert stumbled.is_set()
