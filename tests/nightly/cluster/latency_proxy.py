"""A proxy to the API server that delays requests.

Bytes to the server are delayed, in order; responses are not. So every call takes that much longer,
however many are in flight, and TLS stays end to end.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_CHUNK = 1 << 16


class LatencyProxy:
    """Listens on loopback during a `with` block."""

    def __init__(self, server: str, delay_s: float) -> None:
        there = urlsplit(server)
        self._there = (there.hostname or "127.0.0.1", there.port or 443)
        self._delay_s = delay_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="latency proxy", daemon=True)
        self._open = threading.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self.url = ""

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._open.wait(10), "the proxy does not listen"
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
            asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_CHUNK)
        )
        self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._open.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._close(server))
        self._loop.close()

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        connections = tuple(self._connections)
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes connections in its next iteration

    async def _serve(self, caller: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)
        try:
            response, request = await asyncio.open_connection(*self._there, limit=_CHUNK)
        except OSError:
            answer.close()
            return
        delayed: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        tasks = [
            asyncio.ensure_future(each)
            for each in (
                self._read(caller, delayed),
                self._send(delayed, request),
                _copy(response, answer),
            )
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in (request, answer):
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

    async def _read(
        self, caller: asyncio.StreamReader, delayed: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        with suppress(OSError):
            while data := await caller.read(_CHUNK):
                delayed.put_nowait((self._loop.time() + self._delay_s, data))

    async def _send(
        self, delayed: asyncio.Queue[tuple[float, bytes]], request: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while True:
                due, data = await delayed.get()
                await asyncio.sleep(due - self._loop.time())
                request.write(data)
                await request.drain()


async def _copy(response: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await response.read(_CHUNK):
            answer.write(data)
            await answer.drain()
