"""Stands between two programs, passes on what they say, and spoils what a script names.

Requests of one connection are passed on one after the other, as an API server takes them: those
that were sent back to back wait in line. A caller that hangs up is hung up on at the other end.
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

from .faults import STATUSES, Call, Fault, Script, written
from .framing import (
    LAST_CHUNK,
    Answer,
    Hangup,
    Request,
    frame,
    lines,
    read_answer_head,
    read_request,
    read_rest,
)

#: Says of a request which site it is, and whom it is about.
Naming: TypeAlias = Callable[[Request], tuple[str, str]]
Pair: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]
T = TypeVar("T")

SLOW_S = 1.5
#: How long an event waits for the next one, to come after it.
_SWAP_S = 1.0
_BUFFER = 1 << 26
_TOLD = re.compile(rb'^\{"type":"([A-Z]+)"')
_LIST_ENDS = b'"k8s.io/initial-events-end":"true"'
_NAME = re.compile(rb'"name":"([^"]+)"')
_AT_ONCE = struct.pack("ii", 1, 0)
#: In that time a loop has done what it was about to do.
ROUND_S = 0.01


class Witness(Protocol):
    """Hears what reached whoever is behind, and what came of it."""

    def sent(self, request: Request) -> int:
        """Hear of a request that is sent on; gives it a number."""

    def answered(self, number: int, request: Request, answer: Answer, *, told: bool) -> None:
        """Hear of its answer, and whether the caller is *told*."""

    def cut_off(self, number: int, *, by_caller: bool) -> None:
        """Hear that it ended without one."""


class Unseen:
    """Nobody looks."""

    def sent(self, request: Request) -> int:
        return 0

    def answered(self, number: int, request: Request, answer: Answer, *, told: bool) -> None:
        pass

    def cut_off(self, number: int, *, by_caller: bool) -> None:
        pass


class Switchboard:
    """The thread in which proxies live."""

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
        """Do something there, and wait for it."""
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
    # Connections that were broken off are closed by the loop, in its next round.
    await asyncio.sleep(ROUND_S)


async def let_nobody_in(server: asyncio.Server) -> None:
    """Close *server* so that nobody is forgotten who has only just come in."""
    for each in server.sockets:
        asyncio.get_running_loop().remove_reader(each.fileno())
    # A server that is closed while it lets somebody in forgets him.
    await asyncio.sleep(ROUND_S)
    server.close()


class Proxy:
    """One port here, one there."""

    def __init__(
        self,
        naming: Naming,
        upstream: Callable[[], int],
        *,
        tls: bool = False,
        kill: Callable[[], object] = lambda: None,
        answers_before_kill: bool = False,
        slow_s: float = SLOW_S,
        witness: Witness | None = None,
    ) -> None:
        """*upstream* names the port behind us; *kill* ends our process.

        With *answers_before_kill* the answer of whoever is killed after it is passed on: it is
        the one behind us that dies, not the one before us.
        """
        self.script = Script()
        self.port = 0
        self.name = naming
        self.kill = kill
        self.answers_before_kill = answers_before_kill
        self.slow_s = slow_s
        self.witness = witness or Unseen()
        self._upstream = upstream
        self._tls = _trusting() if tls else None
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Begin, on a port of the kernel's choice."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_BUFFER)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """End, and hang up on everybody."""
        if self._server is not None:
            await let_nobody_in(self._server)
        for _ in range(2):
            self.hang_up()
            # Whoever was let in is served by then, and what was broken off closed by the loop.
            await asyncio.sleep(ROUND_S)

    def hang_up(self) -> None:
        """Break every connection; only in the thread of the switchboard."""
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        talk = _Talk(self, writer)
        try:
            await talk.serve(reader)
        except (Hangup, OSError):
            writer.transport.abort()
        finally:
            talk.hang_up()
            self._open.discard(writer)
            writer.close()

    async def connect(self) -> Pair:
        """Open a connection to whoever is behind us."""
        try:
            return await asyncio.open_connection(
                "127.0.0.1", self._upstream(), ssl=self._tls, limit=_BUFFER
            )
        except OSError as error:
            raise Hangup(f"nobody behind us: {error}") from error


class _Talk:
    """One connection of a caller, with the one behind it."""

    def __init__(self, proxy: Proxy, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._writer = writer
        self._behind: Pair | None = None
        self._waiting: asyncio.Queue[Request | None] = asyncio.Queue()
        self._gone = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Pass on until one of the two hangs up."""
        reading = asyncio.create_task(self._read(reader))
        gone = asyncio.create_task(self._gone.wait())
        try:
            while (request := await self._waiting.get()) is not None:
                passing = asyncio.create_task(self._pass_on(request))
                await asyncio.wait({passing, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not passing.done():
                    passing.cancel()
                    with suppress(asyncio.CancelledError, Hangup, OSError):
                        await passing
                    return
                passing.result()
        finally:
            reading.cancel()
            gone.cancel()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with suppress(Hangup, OSError, ValueError):
            while True:
                self._waiting.put_nowait(await read_request(reader))
        self._waiting.put_nowait(None)
        self._gone.set()

    def hang_up(self) -> None:
        if self._behind is not None:
            self._behind[1].transport.abort()
            self._behind = None

    async def _pass_on(self, request: Request) -> None:
        script = self._proxy.script
        site, about = self._proxy.name(request)
        began = time.monotonic()
        occurrence, fault = script.take(site, about)
        status = 0
        try:
            status = await self._play(request, fault, site)
        finally:
            took_s = time.monotonic() - began
            script.note(Call(site, occurrence, about, began, took_s, status, fault))

    async def _play(self, request: Request, fault: Fault | None, site: str) -> int:
        if fault is Fault.KILL_BEFORE:
            self._proxy.kill()
            raise Hangup("killed before it was sent")
        if fault in STATUSES:
            self._writer.write(written(fault))
            await self._writer.drain()
            return STATUSES[fault][0]
        if fault in (Fault.TIMEOUT, Fault.SILENT):
            await self._gone.wait()
            raise Hangup("never answered")
        if fault in (Fault.RESET, Fault.CUT):
            self._reset()
            raise Hangup("reset")
        reader, answer = await self._ask(request, fault)
        is_stream = not answer.is_whole
        return await self._answer(answer, reader, fault, site if is_stream else "")

    async def _ask(
        self, request: Request, fault: Fault | None
    ) -> tuple[asyncio.StreamReader, Answer]:
        reader, writer = await self._connected()
        witness = self._proxy.witness
        number = witness.sent(request)
        try:
            writer.write(request.raw)
            await writer.drain()
            answer = await read_answer_head(reader)
            if "watch" not in request.query or answer.status != 200:
                answer = await read_rest(reader, answer, request.method)
        except (Hangup, OSError):
            witness.cut_off(number, by_caller=False)
            raise
        except asyncio.CancelledError:
            witness.cut_off(number, by_caller=True)
            raise
        is_silent_end = fault is Fault.KILL_AFTER and not self._proxy.answers_before_kill
        witness.answered(number, request, answer, told=not (is_silent_end or fault is Fault.LOST))
        return reader, answer

    async def _answer(
        self, answer: Answer, reader: asyncio.StreamReader, fault: Fault | None, stream: str
    ) -> int:
        if fault is Fault.SLOW:
            await asyncio.sleep(self._proxy.slow_s)
        if fault is Fault.LOST:
            self._reset()
            raise Hangup("answered, and nobody was told")
        if fault is Fault.KILL_AFTER and not self._proxy.answers_before_kill:
            self._proxy.kill()
            raise Hangup("killed before it was told")
        self._writer.write(answer.raw)
        await self._writer.drain()
        if fault is Fault.KILL_AFTER:
            self._proxy.kill()
            raise Hangup("killed after it had answered")
        if stream:
            await _Telling(self._proxy, self._writer, self._gone, stream).tell(reader)
        if answer.head.is_last:
            raise Hangup("the last answer of this connection")
        return answer.status

    async def _connected(self) -> Pair:
        behind = self._behind
        if behind is not None and (behind[0].at_eof() or behind[0].exception()):
            # It has been restarted since.
            self.hang_up()
            behind = None
        if behind is None:
            behind = self._behind = await self._proxy.connect()
        return behind

    def _reset(self) -> None:
        made = self._writer.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._writer.transport.abort()


class _Telling:
    """What a watch tells, event by event."""

    def __init__(
        self, proxy: Proxy, writer: asyncio.StreamWriter, gone: asyncio.Event, site: str
    ) -> None:
        self._proxy = proxy
        self._writer = writer
        self._gone = gone
        self._heard = f"heard-{site.partition('-')[2]}"
        #: An event that is to come after the next one.
        self._held: bytes | None = None

    async def tell(self, reader: asyncio.StreamReader) -> None:
        """Pass on what is told until it ends."""
        async for line in lines(reader):
            late, self._held = self._held, None
            if late is not None and _LIST_ENDS in line:
                # Nobody could tell an object of the list that comes after its end from one that
                # was deleted before: no watch brings that.
                self._writer.write(frame(late))
                late = None
            await self._hear(line)
            if late is not None:
                self._writer.write(frame(late))
            await self._writer.drain()
        self._writer.write(LAST_CHUNK)

    async def _hear(self, line: bytes) -> None:
        told = _TOLD.match(line)
        if told is None or told.group(1) == b"BOOKMARK":
            self._writer.write(frame(line))
            return
        name = _NAME.search(line)
        about = name.group(1).decode() if name else ""
        script = self._proxy.script
        occurrence, fault = script.take(self._heard, about)
        script.note(Call(self._heard, occurrence, about, time.monotonic(), 0.0, 200, fault))
        if fault is Fault.SILENT:
            await self._gone.wait()
            raise Hangup("silent until it was given up")
        if fault is Fault.CUT:
            raise Hangup("cut")
        if fault is Fault.KILL_BEFORE:
            self._proxy.kill()
            raise Hangup("killed before it heard")
        if fault is Fault.SWAPPED:
            # The next one lets it go; if none comes, time does.
            self._held = line
            asyncio.get_running_loop().call_later(_SWAP_S, self._let_go, line)
            return
        self._writer.write(frame(line))
        if fault is Fault.TWICE:
            self._writer.write(frame(line))
        if fault is Fault.KILL_AFTER:
            await self._writer.drain()
            self._proxy.kill()
            raise Hangup("killed after it had heard")

    def _let_go(self, line: bytes) -> None:
        if self._held is line and not self._writer.is_closing():
            self._held = None
            self._writer.write(frame(line))


def _trusting() -> ssl.SSLContext:
    """Whoever tests knows whom he has started."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
