"""What happens at the begin and the end of a term, when the extender ends, and its thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

from extender.clock import SystemClock
from extender.leader.election import LeaderElection, LeaseThread
from extender.leader.fencing import Term
from extender.leader.lease import LeaseTiming, LeaseTracker, OwnLease
from extender.leader.term_lifecycle import TermLifecycle
from extender.metrics import Metrics
from extender.ports import Lease
from tests.unit.leader.test_runtime import LeaseDouble
from tests.unit.web.conftest import eventually


class Recorder:
    """All collaborators of the lifecycle; records the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.in_flight: Future[None] = Future()
        self.lifecycle = TermLifecycle(
            cast(LeaderElection, self),
            self,
            resetting=(self,),
            plan_soon=lambda: self.calls.append("plan"),
            timeout_s=0.05,
        )

    def on_change(self, *, begun: Any, ended: Any) -> None:
        self.begun, self.ended = begun, ended

    def open(self) -> None:
        self.calls.append("open")

    def lose_lease(self) -> None:
        self.calls.append("lose")

    def shut_down(self) -> Future[None]:
        self.calls.append("shut down")
        return self.in_flight

    def forget(self) -> None:
        self.calls.append("forget")

    def drain(self) -> None:
        self.calls.append("leadership drains")

    def resign(self) -> None:
        self.calls.append("resign")


def test_a_term_begins_without_reservations_and_accepts_binds() -> None:
    recorder = Recorder()
    recorder.begun()

    assert recorder.calls == ["forget", "open", "plan"]


def test_the_end_of_a_term_refuses_waiting_binds_and_drops_reservations() -> None:
    recorder = Recorder()
    recorder.ended()

    assert recorder.calls == ["lose", "forget"]


def test_a_term_that_begins_while_draining_accepts_no_binds() -> None:
    recorder = Recorder()
    recorder.lifecycle.drain()
    recorder.begun()
    recorder.ended()

    assert recorder.calls == ["shut down", "leadership drains", "forget", "plan", "forget"]


def test_the_lease_is_released_after_requests_in_flight_have_finished() -> None:
    recorder = Recorder()

    async def close() -> None:
        asyncio.get_running_loop().call_later(0.01, recorder.in_flight.set_result, None)
        await recorder.lifecycle.close()

    asyncio.run(close())
    assert recorder.in_flight.done()
    assert recorder.calls == ["shut down", "resign"]


def test_the_lease_is_released_though_the_api_server_does_not_answer() -> None:
    recorder = Recorder()
    asyncio.run(recorder.lifecycle.close())

    assert recorder.calls == ["shut down", "resign"]


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
