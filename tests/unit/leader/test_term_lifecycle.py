"""What happens at the begin and the end of a term, and when the extender ends."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, cast

from extender.leader.election import LeaderElection
from extender.leader.term_lifecycle import TermLifecycle


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
