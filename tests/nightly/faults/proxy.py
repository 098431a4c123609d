"""An HTTP proxy that forwards requests and injects the faults of a script.

Requests of one connection are forwarded one after the other, as an API server handles pipelined
requests. If the caller closes its connection, the connection to the server is closed too.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, Self, TypeAlias, TypeVar

from tests.cluster.replicas import ROUND_S, stop_accepting
from tests.nightly.faults.fault_points import STATUSES, Call, Fault, Script, error_response
from tests.nightly.faults.framing import (
    LAST_CHUNK,
    Answer,
    ConnectionClosed,
    Request,
    frame,
    lines,
    read_answer_head,
    read_request,
    read_rest,
)

#: Returns the call site of a request, and the pod it is about.
Naming: TypeAlias = Callable[[Request], tuple[str, str]]
Pair: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
T = TypeVar("T")

SLOW_S = 1.5
#: How long a reordered event waits for the next one.
_SWAP_S = 1.0
_BUFFER = 1 << 26
_EVENT = re.compile(rb'^\{"type":"([A-Z]+)"')
_LIST_ENDS = b'"k8s.io/initial-events-end":"true"'
_NAME = re.compile(rb'"name":"([^"]+)"')
_AT_ONCE = struct.pack("ii", 1, 0)


class TrafficObserver(Protocol):
    """Is called for every request that is forwarded, and for its result."""

    def request_sent(self, request: Request) -> int:
        """Called when a request is forwarded; returns a number for it."""

    def response_received(
        self, number: int, request: Request, answer: Answer, *, delivered: bool
    ) -> None:
        """Called with its response, and whether it is *delivered* to the caller."""

    def connection_lost(self, number: int, *, by_caller: bool) -> None:
        """Called if the connection ended without a response."""


class NoObserver:
    """Ignores all calls."""

    def request_sent(self, request: Request) -> int:
        return 0

    def response_received(
        self, number: int, request: Request, answer: Answer, *, delivered: bool
    ) -> None:
        pass

    def connection_lost(self, number: int, *, by_caller: bool) -> None:
        pass


class ProxyLoop:
    """The event loop of all proxies, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxies", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def run(self, job: Coroutine[Any, Any, T]) -> T:
        """Run *job* on the loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(job, self._loop).result(30)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(_end_everything())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


async def _end_everything() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # The loop closes aborted connections in its next iteration.
    await asyncio.sleep(ROUND_S)


class Proxy:
    """Listens on one port and forwards to another."""

    def __init__(
        self,
        naming: Naming,
        upstream: Callable[[], int],
        *,
        tls: bool = False,
        kill: Callable[[], object] = lambda: None,
        answers_before_kill: bool = False,
        slow_s: float = SLOW_S,
        witness: TrafficObserver | None = None,
    ) -> None:
        """*upstream* returns the port to forward to; *kill* ends the extender.

        With *answers_before_kill* a response is delivered before the kill: the extender is the
        server of this proxy, not its client.
        """
        self.script = Script()
        self.port = 0
        self.name = naming
        self.kill = kill
        self.answers_before_kill = answers_before_kill
        self.slow_s = slow_s
        self.witness = witness or NoObserver()
        self._upstream = upstream
        self._tls = _trusting() if tls else None
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Listen on a port that the kernel chooses."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_BUFFER)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        if self._server is not None:
            await stop_accepting(self._server)
        for _ in range(2):
            self.abort_connections()
            # Then accepted connections are known, and aborted ones are closed.
            await asyncio.sleep(ROUND_S)

    def abort_connections(self) -> None:
        """Abort every connection; must run on the loop."""
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        connection = _CallerConnection(self, writer)
        try:
            await connection.serve(reader)
        except (ConnectionClosed, OSError):
            writer.transport.abort()
        finally:
            connection.disconnect()
            self._open.discard(writer)
            writer.close()

    async def connect(self) -> Pair:
        """Connect to the upstream server."""
        try:
            return await asyncio.open_connection(
                "127.0.0.1", self._upstream(), ssl=self._tls, limit=_BUFFER
            )
        except OSError as error:
            raise ConnectionClosed(f"no server: {error}") from error


class _CallerConnection:
    """One connection of a caller, with its connection to the server."""

    def __init__(self, proxy: Proxy, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._writer = writer
        self._server: Pair | None = None
        self._waiting: asyncio.Queue[Request | None] = asyncio.Queue()
        self._closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Forward requests until one side closes its connection."""
        reading = asyncio.create_task(self._read(reader))
        gone = asyncio.create_task(self._closed.wait())
        try:
            while (request := await self._waiting.get()) is not None:
                passing = asyncio.create_task(self._forward(request))
                await asyncio.wait({passing, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not passing.done():
                    passing.cancel()
                    with suppress(asyncio.CancelledError, ConnectionClosed, OSError):
                        await passing
                    return
                passing.result()
        finally:
            reading.cancel()
            gone.cancel()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionClosed, OSError, ValueError):
            while True:
                self._waiting.put_nowait(await read_request(reader))
        self._waiting.put_nowait(None)
        self._closed.set()

    def disconnect(self) -> None:
        if self._server is not None:
            self._server[1].transport.abort()
            self._server = None

    async def _forward(self, request: Request) -> None:
        script = self._proxy.script
        site, about = self._proxy.name(request)
        began = time.monotonic()
        occurrence, fault = script.take(site, about)
        status = 0
        try:
            status = await self._apply(request, fault, site)
        finally:
            took_s = time.monotonic() - began
            script.record(Call(site, occurrence, about, began, took_s, status, fault))

    async def _apply(self, request: Request, fault: Fault | None, site: str) -> int:
        if fault is Fault.KILL_BEFORE:
            self._proxy.kill()
            raise ConnectionClosed("killed before it was sent")
        if fault in STATUSES:
            self._writer.write(error_response(fault))
            await self._writer.drain()
            return STATUSES[fault][0]
        if fault in (Fault.TIMEOUT, Fault.SILENT):
            await self._closed.wait()
            raise ConnectionClosed("never answered")
        if fault in (Fault.RESET, Fault.CUT):
            self._reset()
            raise ConnectionClosed("reset")
        reader, answer = await self._send(request, fault)
        is_stream = not answer.is_whole
        return await self._answer(answer, reader, fault, site if is_stream else "")

    async def _send(
        self, request: Request, fault: Fault | None
    ) -> tuple[asyncio.StreamReader, Answer]:
        reader, writer = await self._connected()
        witness = self._proxy.witness
        number = witness.request_sent(request)
        try:
            writer.write(request.raw)
            await writer.drain()
            answer = await read_answer_head(reader)
            if "watch" not in request.query or answer.status != 200:
                answer = await read_rest(reader, answer, request.method)
        except (ConnectionClosed, OSError):
            witness.connection_lost(number, by_caller=False)
            raise
        except asyncio.CancelledError:
            witness.connection_lost(number, by_caller=True)
            raise
        is_lost = fault is Fault.KILL_AFTER and not self._proxy.answers_before_kill
        witness.response_received(
            number, request, answer, delivered=not (is_lost or fault is Fault.LOST)
        )
        return reader, answer

    async def _answer(
        self, answer: Answer, reader: asyncio.StreamReader, fault: Fault | None, stream: str
    ) -> int:
        if fault is Fault.SLOW:
            await asyncio.sleep(self._proxy.slow_s)
        if fault is Fault.LOST:
            self._reset()
            raise ConnectionClosed("response lost")
        if fault is Fault.KILL_AFTER and not self._proxy.answers_before_kill:
            self._proxy.kill()
            raise ConnectionClosed("killed before it received the response")
        self._writer.write(answer.raw)
        await self._writer.drain()
        if fault is Fault.KILL_AFTER:
            self._proxy.kill()
            raise ConnectionClosed("killed after it had answered")
        if stream:
            await _WatchStream(self._proxy, self._writer, self._closed, stream).forward(reader)
        if answer.head.is_last:
            raise ConnectionClosed("last response of this connection")
        return answer.status

    async def _connected(self) -> Pair:
        server = self._server
        if server is not None and (server[0].at_eof() or server[0].exception()):
            # The server was restarted.
            self.disconnect()
            server = None
        if server is None:
            server = self._server = await self._proxy.connect()
        return server

    def _reset(self) -> None:
        made = self._writer.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._writer.transport.abort()


class _WatchStream:
    """The events of one watch."""

    def __init__(
        self, proxy: Proxy, writer: asyncio.StreamWriter, gone: asyncio.Event, site: str
    ) -> None:
        self._proxy = proxy
        self._writer = writer
        self._gone = gone
        self._site = f"event-{site.partition('-')[2]}"
        #: An event that is delivered after the next one.
        self._held: bytes | None = None

    async def forward(self, reader: asyncio.StreamReader) -> None:
        """Forward events until the watch ends."""
        async for line in lines(reader):
            late, self._held = self._held, None
            if late is not None and _LIST_ENDS in line:
                # A listed object that is delivered after the end of the list counts as deleted:
                # no real watch sends that.
                self._writer.write(frame(late))
                late = None
            await self._forward_event(line)
            if late is not None:
                self._writer.write(frame(late))
            await self._writer.drain()
        self._writer.write(LAST_CHUNK)

    async def _forward_event(self, line: bytes) -> None:
        event = _EVENT.match(line)
        if event is None or event.group(1) == b"BOOKMARK":
            self._writer.write(frame(line))
            return
        name = _NAME.search(line)
        about = name.group(1).decode() if name else ""
        script = self._proxy.script
        occurrence, fault = script.take(self._site, about)
        script.record(Call(self._site, occurrence, about, time.monotonic(), 0.0, 200, fault))
        if fault is Fault.SILENT:
            await self._gone.wait()
            raise ConnectionClosed("silent until the caller gave up")
        if fault is Fault.CUT:
            raise ConnectionClosed("cut")
        if fault is Fault.KILL_BEFORE:
            self._proxy.kill()
            raise ConnectionClosed("killed before the event")
        if fault is Fault.REORDERED:
            # It is sent after the next one, or after a while.
            self._held = line
            asyncio.get_running_loop().call_later(_SWAP_S, self._send_held, line)
            return
        self._writer.write(frame(line))
        if fault is Fault.DUPLICATED:
            self._writer.write(frame(line))
        if fault is Fault.KILL_AFTER:
            await self._writer.drain()
            self._proxy.kill()
            raise ConnectionClosed("killed after the event")

    def _send_held(self, line: bytes) -> None:
        if self._held is line and not self._writer.is_closing():
            self._held = None
            self._writer.write(frame(line))


def _trusting() -> ssl.SSLContext:
    """Return a context that accepts any certificate: the server is a test's own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
