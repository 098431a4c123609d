"""Two extenders behind one address, each with its own connection to the API server."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar

import urllib3

from .components import answers
from .extender_process import Extender
from .polling import Poller

T = TypeVar("T")

#: Interval for reading the leader label; short, so that it adds little to a takeover.
_POLL_S = 0.1
#: Time for the event loop to run what is scheduled.
ROUND_S = 0.01


async def stop_accepting(server: asyncio.Server) -> None:
    """Close *server* without losing a connection that it is accepting."""
    for each in server.sockets:
        asyncio.get_running_loop().remove_reader(each.fileno())
    # A server that is closed while it accepts a connection leaks it.
    await asyncio.sleep(ROUND_S)
    server.close()


class Replica(Extender):
    """One of several extenders: it has started when it could lead."""

    def is_ready(self) -> bool:
        return answers(f"{self.ops_url}/warmz")

    @property
    def leads(self) -> bool:
        return answers(f"{self.ops_url}/readyz")

    @property
    def is_standby(self) -> bool:
        """Return whether it reports that it does not lead."""
        try:
            return "standby: " in self.get("/readyz", timeout_s=2)[1]
        except urllib3.exceptions.HTTPError:
            return False


class PortForward:
    """Listens, and forwards every new connection to a port that it chooses; for a `with` block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        #: Both sides of every connection.
        self._ends: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._silent: set[asyncio.StreamWriter] = set()

    def choose(self) -> int | None:
        """Return the port for a new connection, None if there is none."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Drop all data from now on; connections stay open."""
        self._is_cut = True

    def silence(self) -> None:
        """Drop all data of the open connections; later ones work."""
        self._silent |= self._ends

    def restore(self) -> None:
        """Close all connections, and forward data again."""
        self._run(self._close_all())
        self._is_cut = False

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        port = self.choose()
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port or 1)
        except OSError:
            self._ends.discard(writer)
            writer.close()
            return
        self._ends.add(back)
        for source, sink in ((reader, back), (there, writer)):
            task = self._loop.create_task(self._copy(source, sink))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            try:
                while data := await source.read(65536):
                    if not self._is_cut and sink not in self._silent:
                        sink.write(data)
                        await sink.drain()
            finally:
                self._ends.discard(sink)
                sink.close()

    async def _end(self) -> None:
        """Close all connections, also those that are being accepted."""
        assert self._server is not None
        await stop_accepting(self._server)
        for _ in range(2):
            await self._close_all()
            for writer in tuple(self._ends):
                writer.transport.abort()
            # Then accepted connections are known, and aborted ones are closed.
            await asyncio.sleep(ROUND_S)

    async def _close_all(self) -> None:
        pipes = tuple(self._pipes)
        for task in pipes:
            task.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)


class ServerLink(PortForward):
    """Forwards to one port."""

    def __init__(self, to: int) -> None:
        super().__init__()
        self._to = to

    def choose(self) -> int:
        return self._to


class Service(PortForward):
    """Forwards every new connection to the pod with the leader label; open connections stay."""

    def __init__(self, pods: Mapping[str, Replica], labelled: Callable[[], list[str]]) -> None:
        super().__init__()
        self._pods = pods
        self._labelled = labelled
        self._ports: list[int] = []
        self._rng = random.Random(0)
        self._poller = Poller(self._read_labels, _POLL_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def choose(self) -> int | None:
        return self._rng.choice(self._ports) if self._ports else None

    def __enter__(self) -> Self:
        self._poller.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        try:
            self._poller.__exit__(*error)
        finally:
            super().__exit__(*error)

    def _read_labels(self) -> None:
        replicas = [self._pods[pod] for pod in self._labelled() if pod in self._pods]
        self._ports = [each.ports[0] for each in replicas if each.is_running]
