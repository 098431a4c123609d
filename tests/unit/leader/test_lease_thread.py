"""The thread that keeps the lease: it survives errors, and releases the lease at the end."""

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

TIMING = LeaseTiming(duration_s=2.0, renew_s=1.0, retry_s=0.02)


class ImmediateLoop:
    """An event loop that runs each callback at once."""

    def call_soon(self, callback: Callable[[], object]) -> None:
        callback()


class Candidate:
    """A lease thread with its term."""

    def __init__(self, leases: LeaseDouble) -> None:
        self.term = Term(SystemClock.monotonic)
        tracker = LeaseTracker(self.term, ImmediateLoop(), Metrics())
        lease_keeper = OwnLease(
            leases, "here_1", TIMING, SystemClock(), tracker, is_warm=lambda: True
        )
        self.thread = LeaseThread(lease_keeper, tracker, retry_s=0.01)


def test_the_lease_is_released_after_the_term_has_ended() -> None:
    leases = LeaseDouble()
    candidate = Candidate(leases)
    led_at_release: list[bool] = []
    write = leases.write

    def record(lease: Lease) -> Lease:
        if not lease.holder:
            led_at_release.append(bool(candidate.term.current()))
        return write(lease)

    leases.write = record  # type: ignore[method-assign]
    candidate.thread.start()
    eventually(lambda: bool(candidate.term.current()))
    candidate.thread.release()

    assert led_at_release == [False]
    assert leases.lease is not None
    assert leases.lease.holder == ""


def test_releasing_twice_or_before_the_start_does_nothing() -> None:
    candidate = Candidate(LeaseDouble())
    candidate.thread.release()
    candidate.thread.release()

    assert not candidate.term.current()


def test_the_thread_continues_after_an_unexpected_error() -> None:
    leases = LeaseDouble()
    candidate = Candidate(leases)
    read, failed = leases.read, threading.Event()

    def fail_once() -> Lease | None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("a bug")
        return read()

    leases.read = fail_once  # type: ignore[method-assign]
    candidate.thread.start()
    eventually(lambda: bool(candidate.term.current()))
    candidate.thread.release()

    assert failed.is_set()
