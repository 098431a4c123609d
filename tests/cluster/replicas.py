"""Two extenders behind one address, each on a cable of its own to the API server."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar

import urllib3

from tests.cluster.proxy import ROUND_S, let_nobody_in

from .components import answers
from .extender_process import Extender
from .lookout import Lookout

T = TypeVar("T")

#: How often it is looked who is labelled; so often, to see takeover itself.
_LOOK_S = 0.1


class Replica(Extender):
    """One of several: it has started when it could lead."""

    def is_ready(self) -> bool:
        return answers(f"{self.ops_url}/warmz")

    @property
    def leads(self) -> bool:
        return answers(f"{self.ops_url}/readyz")

    @property
    def stands_by(self) -> bool:
        """Whether it says that it does not lead."""
        try:
            return "standby: " in self.ask("/readyz", patience_s=2)[1]
        except urllib3.exceptions.HTTPError:
            return False


class Relay:
    """Listens, and leads every new connection to a port of its choice; for a `with` block."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0
        self._server: asyncio.Server | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        #: Of every connection, here and there.
        self._ends: set[asyncio.StreamWriter] = set()
        self._is_cut = False

    def choose(self) -> int | None:
        """The port that a connection made now leads to; None when nobody is there."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *error: object) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Let nothing through any more; nobody is told."""
        self._is_cut = True

    def mend(self) -> None:
        """Begin anew: what was said meanwhile is lost with the connections of before."""
        self._do(self._hang_up())
        self._is_cut = False

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
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
            task = self._loop.create_task(self._pour(source, sink))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _pour(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            try:
                while data := await source.read(65536):
                    if not self._is_cut:
                        sink.write(data)
                        await sink.drain()
            finally:
                self._ends.discard(sink)
                sink.close()

    async def _end(self) -> None:
        """Hang up on everybody, on those too who have only just come in."""
        assert self._server is not None
        await let_nobody_in(self._server)
        for _ in range(2):
            await self._hang_up()
            for writer in tuple(self._ends):
                writer.transport.abort()
            # Whoever was let in is served by then, and what was broken off closed by the loop.
            await asyncio.sleep(ROUND_S)

    async def _hang_up(self) -> None:
        pipes = tuple(self._pipes)
        for task in pipes:
            task.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)


class Cable(Relay):
    """The way to one port."""

    def __init__(self, to: int) -> None:
        super().__init__()
        self._to = to

    def choose(self) -> int:
        return self._to


class Service(Relay):
    """Leads every new connection to the pod that is labelled, and leaves those there are alone."""

    def __init__(self, pods: Mapping[str, Replica], labelled: Callable[[], list[str]]) -> None:
        super().__init__()
        self._pods = pods
        self._labelled = labelled
        self._ports: list[int] = []
        self._lookout = Lookout(self._follow, _LOOK_S)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def choose(self) -> int | None:
        return random.choice(self._ports) if self._ports else None

    def __enter__(self) -> Self:
        self._lookout.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        try:
            self._lookout.__exit__(*error)
        finally:
            super().__exit__(*error)

    def _follow(self) -> None:
        replicas = [self._pods[pod] for pod in self._labelled() if pod in self._pods]
        self._ports = [each.ports[0] for each in replicas if each.is_running]
