"""Begin and end of a term: accept or refuse binds, and drop the state of the previous term.

Reservations, waiting binds and the plan belong to one term. The next leader plans anew, also when
it is this replica.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from extender.leader.election import LeaderElection


class AcceptsBinds(Protocol):
    """The runner of the waiting binds."""

    def open(self) -> None:
        """Accept binds: we lead."""

    def lose_lease(self) -> None:
        """Refuse waiting and new binds; bindings in flight finish."""

    def shut_down(self) -> Future[None]:
        """Refuse waiting and new binds; the future is done when no binding is in flight."""


class TermState(Protocol):
    """Has state that belongs to one term."""

    def forget(self) -> None:
        """Drop that state."""


class TermLifecycle:
    """Accepts binds while a term lasts and resets the state of each; refuses all after `drain`."""

    def __init__(
        self,
        election: LeaderElection,
        binds: AcceptsBinds,
        *,
        resetting: Sequence[TermState],
        plan_soon: Callable[[], None],
        timeout_s: float,
    ) -> None:
        """`close` waits for bindings in flight: within *timeout_s* each has its outcome."""
        self._election = election
        self._binds = binds
        self._resetting = resetting
        self._plan_soon = plan_soon
        self._timeout_s = timeout_s
        self._is_draining = False
        election.on_change(begun=self._begun, ended=self._ended)

    def drain(self) -> None:
        """Refuse waiting and new binds."""
        self._is_draining = True
        self._binds.shut_down()
        self._election.drain()

    async def close(self) -> None:
        """Wait for the bindings in flight, then release the lease.

        This comes before all other parts stop: no further binding is sent, and another replica
        waits for the lease.
        """
        sent = asyncio.wrap_future(self._binds.shut_down())
        await asyncio.wait({sent}, timeout=self._timeout_s)
        await asyncio.to_thread(self._election.resign)

    def _begun(self) -> None:
        self._forget()  # a cycle that was running may have made reservations since
        if not self._is_draining:
            self._binds.open()
        self._plan_soon()

    def _ended(self) -> None:
        if not self._is_draining:
            self._binds.lose_lease()
        self._forget()

    def _forget(self) -> None:
        for each in self._resetting:
            each.forget()
