"""Is the API server silent, or only one way to it?

A connection on which nothing comes back may be dead though the API server is well: a load balancer
forgot it, or a request was lost on the way. Whoever waits there would wait until the silence has
lasted as long as an API server may take. So after a shorter one a question goes another way; if
that is answered and the connection is silent still, it is broken off, and what it had under way is
looked up elsewhere.

It is only a suspicion: the API server may take long over just these requests. Broken off and sent
again they would take long again, for ever. So every time the next suspicion comes later, up to a
bound: a gang of which one binding was lost stands in part for as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from extender.kube.api.connection import Connection, Connector, Exchange, Reply

#: How long a connection may be silent before a question goes another way.
HUSH_S = 2.0
#: And at most, however often it was in vain: a gang should be whole within five.
LONGEST_S = 4.0
#: How long a suspicion makes us more patient.
REMEMBERED_S = 60.0


class Watchman:
    """Has a way of its own to the API server, opened when there is something to ask."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connect: Connector,
        question: Callable[[], bytes],
        *,
        silence_s: float,
        hush_s: float = HUSH_S,
    ) -> None:
        self._loop = loop
        self._question = question
        self._hush_s = hush_s
        self._patience_s = hush_s
        self._broke_off_at = float("-inf")
        self._way = Connection(loop, connect, silence_s=silence_s)

    @property
    def patience_s(self) -> float:
        """How long a connection may be silent just now before it is suspected."""
        if self._loop.time() - self._broke_off_at > REMEMBERED_S:
            self._patience_s = self._hush_s
        return self._patience_s

    def suspect(self, silent: Connection) -> None:
        """Ask another way, and break *silent* off if only it is."""
        since = silent.progress_at
        answered = partial(self._answered, silent, since)
        self._way.send((Exchange(self._question(), answered),))

    def _answered(self, silent: Connection, since: float, reply: Reply) -> None:
        if not reply.status or silent.progress_at != since:
            return
        now = self._loop.time()
        # Those that fell silent together are one suspicion.
        if now - self._broke_off_at > self._hush_s / 2:
            self._patience_s = min(2 * self.patience_s, max(self._hush_s, LONGEST_S))
            self._broke_off_at = now
        silent.break_off()

    async def aclose(self) -> None:
        """Break our own way."""
        await self._way.aclose()
