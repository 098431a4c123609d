"""What a term brings and takes with it: binds are let in, and promises are forgotten.

Promises, holds and the plan belong to one term. Whoever leads next, we or another, plans anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from extender.leader.election import LeaderElection


class LetsBindsIn(Protocol):
    """Where binds wait."""

    def open(self) -> None:
        """Let binds in: we lead."""

    def lose_lease(self) -> None:
        """Refuse what waits and whatever comes; what was sent finishes."""

    def shut_down(self) -> Future[None]:
        """Refuse what waits and whatever comes; done when what was sent has finished."""


class Forgets(Protocol):
    """Knows something that holds for one term only."""

    def forget(self) -> None:
        """Forget it."""


class TermLifecycle:
    """Opens and clears up with every term; closes for good at the end."""

    def __init__(
        self,
        leadership: LeaderElection,
        binds: LetsBindsIn,
        *,
        forgetting: Sequence[Forgets],
        plan_soon: Callable[[], None],
        answer_s: float,
    ) -> None:
        """What was sent is waited for: by *answer_s* every binding has its outcome."""
        self._leadership = leadership
        self._binds = binds
        self._forgetting = forgetting
        self._plan_soon = plan_soon
        self._answer_s = answer_s
        self._is_draining = False
        leadership.on_change(begun=self._begun, ended=self._ended)

    def drain(self) -> None:
        """Refuse what waits, and whatever comes."""
        self._is_draining = True
        self._binds.shut_down()
        self._leadership.drain()

    async def close(self) -> None:
        """Wait for what was sent to the API server, then give the lease back.

        That goes before anything else ends: nothing is sent by now, and somebody waits.
        """
        sent = asyncio.wrap_future(self._binds.shut_down())
        await asyncio.wait({sent}, timeout=self._answer_s)
        await asyncio.to_thread(self._leadership.resign)

    def _begun(self) -> None:
        self._forget()  # what a pass that was under way has promised since
        if not self._is_draining:
            self._binds.open()
        self._plan_soon()

    def _ended(self) -> None:
        if not self._is_draining:
            self._binds.lose_lease()
        self._forget()

    def _forget(self) -> None:
        for each in self._forgetting:
            each.forget()
