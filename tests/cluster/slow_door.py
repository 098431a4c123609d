"""A way to the API server on which whatever is asked takes its time to get there.

Bytes towards the server are kept for a while, in order; answers come back at once. So every call
takes so much longer, however many are on their way, and TLS stays between the two ends.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_CHUNK = 1 << 16


class SlowDoor:
    """Listens on loopback from entering the block to leaving it."""

    def __init__(self, server: str, delay_s: float) -> None:
        there = urlsplit(server)
        self._there = (there.hostname or "127.0.0.1", there.port or 443)
        self._delay_s = delay_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="slow door", daemon=True)
        self._open = threading.Event()
        self._guests: set[asyncio.Task[None]] = set()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._open.wait(10), "the slow door did not open"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    def _run(self) -> None:
        server = self._loop.run_until_complete(
            asyncio.start_server(self._let_in, "127.0.0.1", 0, limit=_CHUNK)
        )
        self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._open.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._close(server))
        self._loop.close()

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        guests = tuple(self._guests)
        for guest in guests:
            guest.cancel()
        await asyncio.gather(*guests, return_exceptions=True)
        await asyncio.sleep(0)  # connections that were closed take leave of the loop

    async def _let_in(self, asks: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        guest = asyncio.current_task()
        assert guest is not None
        self._guests.add(guest)
        guest.add_done_callback(self._guests.discard)
        try:
            hears, ask = await asyncio.open_connection(*self._there, limit=_CHUNK)
        except OSError:
            answer.close()
            return
        kept: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        tasks = [
            asyncio.ensure_future(each)
            for each in (self._keep(asks, kept), self._hand_on(kept, ask), _copy(hears, answer))
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in (ask, answer):
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    async def _keep(
        self, asks: asyncio.StreamReader, kept: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        with suppress(OSError):
            while data := await asks.read(_CHUNK):
                kept.put_nowait((self._loop.time() + self._delay_s, data))

    async def _hand_on(
        self, kept: asyncio.Queue[tuple[float, bytes]], ask: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while True:
                due, data = await kept.get()
                await asyncio.sleep(due - self._loop.time())
                ask.write(data)
                await ask.drain()


async def _copy(hears: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await hears.read(_CHUNK):
            answer.write(data)
            await answer.drain()
