"""What a term brings and takes with it."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, cast

from extender.leader.election import LeaderElection
from extender.leader.term_lifecycle import TermLifecycle


class Witness:
    """Everybody the office speaks to; writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.sent: Future[None] = Future()
        self.office = TermLifecycle(
            cast(LeaderElection, self),
            self,
            resetting=(self,),
            plan_soon=lambda: self.told.append("plan"),
            timeout_s=0.05,
        )

    def on_change(self, *, begun: Any, ended: Any) -> None:
        self.begun, self.ended = begun, ended

    def open(self) -> None:
        self.told.append("open")

    def lose_lease(self) -> None:
        self.told.append("lose")

    def shut_down(self) -> Future[None]:
        self.told.append("shut down")
        return self.sent

    def forget(self) -> None:
        self.told.append("forget")

    def drain(self) -> None:
        self.told.append("leadership drains")

    def resign(self) -> None:
        self.told.append("resign")


def test_a_term_begins_without_reservations_and_accepts_binds() -> None:
    seen = Witness()
    seen.begun()

    assert seen.told == ["forget", "open", "plan"]


def test_the_end_of_a_term_refuses_waiting_binds_and_drops_reservations() -> None:
    seen = Witness()
    seen.ended()

    assert seen.told == ["lose", "forget"]


def test_a_term_that_begins_while_draining_accepts_no_binds() -> None:
    seen = Witness()
    seen.office.drain()
    seen.begun()
    seen.ended()

    assert seen.told == ["shut down", "leadership drains", "forget", "plan", "forget"]


def test_the_lease_is_released_after_requests_in_flight_have_finished() -> None:
    seen = Witness()

    async def close() -> None:
        asyncio.get_running_loop().call_later(0.01, seen.sent.set_result, None)
        await seen.office.close()

    asyncio.run(close())
    assert seen.sent.done()
    assert seen.told == ["shut down", "resign"]


def test_the_lease_is_released_though_the_api_server_does_not_answer() -> None:
    seen = Witness()
    asyncio.run(seen.office.close())

    assert seen.told == ["shut down", "resign"]
