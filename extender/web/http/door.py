"""Where callers come in, a few at a time, with a bound on those who still show who they are.

Between a few and the next few the loop serves those who are in: asyncio itself would let in all
who stand outside, a thousand in a row, while kube-scheduler waits for an answer. And whoever has
connected and says nothing is not even shown to us for a while: the kernel keeps him. One who has
left by the time he is shown is put aside at once; of those a great many may stand before a caller.

Who rests between one handful and the next may be kept from everybody by those who ask, leave and
come again. So where shares are given a newcomer whose address has used up its own is sent away at
once, and costs those behind him hardly anything.

With TLS a connection is the port's only when its handshake is done. Until then it costs a file and
some memory, and whoever means no good stays there; so there are only so many at a time, and a
newcomer puts out whoever has been at it for the longest.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

from extender.timing.clock import Pace

#: kube-scheduler's filter entry gives up a call after two seconds; so slow is no handshake.
HANDSHAKE_S = 10.0
#: So many at a time: more than kube-scheduler has binds in flight when a large gang begins.
HANDSHAKES = 512
#: Of those who come in a crowd, so many are let in before the loop does something else.
_AT_ONCE = 8
#: And so many where the door rests between one handful and the next.
_AT_ONCE_WITH_REST = 32
#: And so many are looked at, of whom most may have left.
_LOOKED_AT = 64
#: And so many with a rest, of whom most may be sent away: a full house is seen in a few turns.
_LOOKED_AT_WITH_REST = 512
#: Newcomers of one address: a kubelet, a Prometheus and a browser come by the handful. A dozen
#: addresses at this pace are as many as come in where the door rests for 10 ms.
NEWCOMERS = 400
NEWCOMERS_PER_S = 200.0
#: Of so many addresses we know what they have used, of those who came last.
ADDRESSES = 1024
#: There are no files left: nobody can be let in, and asking again at once would only burn time.
_PAUSE_S = 0.1
_GOODBYE_S = 1.0
#: Who connected before the door is closed has asked by then.
_LAST_CALLERS_S = 0.03


class Shares:
    """Of every address so many newcomers at once, and then so many each second.

    By the whole address also where it is one of IPv6: a node has the first of the /64 of its pods,
    and its kubelet is not to pay for one of them.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        at_once: int = NEWCOMERS,
        per_s: float = NEWCOMERS_PER_S,
    ) -> None:
        self._pace = lru_cache(maxsize=ADDRESSES)(lambda address: Pace(per_s, at_once, monotonic))

    def take(self, address: str) -> bool:
        """Take one of the share of *address*, if there is one left."""
        return self._pace(address).may_go()


class Door:
    """Takes connections from *listening* to *connection*; everything happens on the loop."""

    def __init__(
        self,
        listening: socket.socket,
        connection: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        turned_away: Callable[[str, str, int], None],
        left: Callable[[str, int], None] = lambda caller, count: None,
        shares: Shares | None = None,
        *,
        handshakes: int = HANDSHAKES,
        handshake_s: float = HANDSHAKE_S,
    ) -> None:
        """Tell why how many are *turned_away* and how many *left*, and where the last came from."""
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._connection = connection
        self._tls = tls
        self._turned_away = turned_away
        self._left = left
        self._shares = shares
        self._handshakes = handshakes
        self._handshake_s = handshake_s
        #: Handshakes that are under way, the longest first.
        self._shaking: dict[asyncio.Task[None], socket.socket] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._rest_s = 0.0

    def open(self, backlog: int, silent_s: int, rest_s: float = 0.0) -> None:
        """Let callers in from now on, who says nothing after *silent_s*; rest after a handful."""
        self._rest_s = rest_s
        self._listening.setblocking(False)
        if silent_s:
            self._show(after_s=silent_s)
        self._listening.listen(backlog)
        self._loop.add_reader(self._listening, self._let_in)

    def show_everybody(self) -> None:
        """Let in from now on who has connected and says nothing yet."""
        self._show(after_s=0)

    async def close(self) -> None:
        """Let in whom the kernel let in, and nobody after; send away who still shakes hands.

        Without TLS he may have asked already: all he would hear is that the connection broke, and
        kube-scheduler would not know what became of a bind. One who has connected and is about to
        ask is kept by the kernel, and would be sent away with the door.
        """
        self.show_everybody()
        await asyncio.sleep(0 if self._tls else _LAST_CALLERS_S)
        for _ in range(0 if self._tls else self._handshakes):
            caller, _address = self._next()
            if caller is None:
                break
            self._begin(caller)
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()
        if self._tls:
            for caller in self._shaking.values():
                _hang_up(caller)
        if self._shaking:
            await asyncio.wait(self._shaking, timeout=_GOODBYE_S)

    def _show(self, *, after_s: int) -> None:
        """Let the kernel keep whoever has connected and says nothing for so long."""
        if sys.platform == "linux":
            self._listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, after_s)

    def _let_in(self) -> None:
        at_once, looked_at = _AT_ONCE, _LOOKED_AT
        if self._rest_s:
            at_once, looked_at = _AT_ONCE_WITH_REST, _LOOKED_AT_WITH_REST
        seen, whence = Counter[str](), dict[str, str]()
        while seen[""] < at_once and seen.total() < looked_at:
            caller, address = self._next()
            if caller is None:
                break
            why_not = self._why_not(caller, address)
            seen[why_not] += 1
            whence[why_not] = address
            if why_not:
                caller.close()
            else:
                self._begin(caller)
        if seen["left"]:
            self._left(whence["left"], seen["left"])
        if seen["crowd"]:
            self._turned_away("crowd", whence["crowd"], seen["crowd"])
        if self._rest_s and self._pause is None and (seen[""] or seen["crowd"]):
            self._rest(self._rest_s)

    def _why_not(self, caller: socket.socket, address: str) -> str:
        """Say in a word why a newcomer does not come in; empty when he does."""
        if _has_left(caller):
            return "left"
        if self._shares is not None and not self._shares.take(address):
            return "crowd"
        return ""

    def _next(self) -> tuple[socket.socket | None, str]:
        """Give who stands first at the door, and where from; None if there is nobody."""
        try:
            caller, address = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None, ""
        except OSError:
            self._rest(_PAUSE_S)
            return None, ""
        return caller, str(address[0])

    def _rest(self, seconds: float) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(seconds, self._go_on)

    def _begin(self, caller: socket.socket) -> None:
        while len(self._shaking) >= self._handshakes:
            longest = self._shaking.pop(next(iter(self._shaking)))
            self._turned_away("full", _where_from(longest), 1)
            _hang_up(longest)
        shaking = self._loop.create_task(self._shake(caller))
        self._shaking[shaking] = caller
        shaking.add_done_callback(self._done)

    def _go_on(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._let_in)

    def _done(self, shaking: asyncio.Task[None]) -> None:
        self._shaking.pop(shaking, None)

    async def _shake(self, caller: socket.socket) -> None:
        caller.setblocking(False)
        caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Why it failed is counted where TLS is spoken; here it has simply not come in.
        patience_s = self._handshake_s if self._tls else None
        with suppress(OSError):
            await self._loop.connect_accepted_socket(
                self._connection, caller, ssl=self._tls, ssl_handshake_timeout=patience_s
            )


def _has_left(caller: socket.socket) -> bool:
    """Ask whether somebody has hung up without a word: to let him in costs a task for nothing."""
    try:
        return not caller.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _hang_up(caller: socket.socket) -> None:
    """End a handshake as if the caller had: its transport owns the socket and closes it."""
    with suppress(OSError):
        caller.shutdown(socket.SHUT_RDWR)


def _where_from(caller: socket.socket) -> str:
    try:
        return str(caller.getpeername()[0])
    except OSError:
        return ""
