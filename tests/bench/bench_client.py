"""The binder's pipelined client beside aiohttp: CPU and time of the client for each binding.

    pip install aiohttp && python -m tests.bench.bench_client [BINDINGS]

aiohttp is no dependency; this benchmark shows why. Another process answers every request at once,
so that only the client is measured. Both clients use 16 connections and uvloop, in turns.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from extender.kube.client import ApiClient
from extender.kube.config import ApiServer
from extender.kube.connection import PipelinedRequest, Reply
from extender.kube.pipeline import Pipeline

CONNECTIONS = 16
GANG = 50
TURNS = 5
PATH = "/api/v1/namespaces/team/pods/worker-0/binding"
BODY = b'{"target":{"kind":"Node","name":"node-1"},"metadata":{"name":"worker-0"}}'
ANSWER = (
    b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\n"
    b'content-length: 17\r\n\r\n{"kind":"Status"}'
)


class _Server(asyncio.Protocol):
    """Answers each request as soon as its body has arrived."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._rest = transport, b""

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        found = data.count(BODY)
        self._rest = data[data.rfind(BODY) + len(BODY) :] if found else data
        if found:
            self._transport.write(ANSWER * found)  # type: ignore[attr-defined]


def _serve(listening: socket.socket) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Server, sock=listening)
        await server.serve_forever()

    uvloop.run(run())


async def pipeline_client(port: int, bindings: int) -> None:
    """Send gangs of bindings over the pipeline."""
    loop = asyncio.get_running_loop()
    access = ApiClient(ApiServer(host="127.0.0.1", port=port, token=lambda: "Bearer secret"))
    pipeline = Pipeline(access, loop, size=CONNECTIONS)
    for _ in range(bindings // GANG):
        left, done = GANG, loop.create_future()

        def settle(reply: Reply, done: asyncio.Future[None] = done) -> None:
            nonlocal left
            assert reply.status == 201
            left -= 1
            if not left:
                done.set_result(None)

        pipeline.send(
            [PipelinedRequest(pipeline.frame(b"POST", PATH, BODY), settle) for _ in range(GANG)]
        )
        await done
    await pipeline.aclose()


async def aiohttp_client(port: int, bindings: int) -> None:
    """Send the same with aiohttp."""
    import aiohttp

    headers = {"authorization": "Bearer secret", "content-type": "application/json"}
    connector = aiohttp.TCPConnector(limit=CONNECTIONS)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        url = f"http://127.0.0.1:{port}{PATH}"

        async def bind() -> None:
            async with session.post(url, data=BODY) as reply:
                assert reply.status == 201
                await reply.read()

        for _ in range(bindings // GANG):
            await asyncio.gather(*(bind() for _ in range(GANG)))


def measure(
    client: Callable[[int, int], Awaitable[None]], port: int, bindings: int
) -> tuple[float, float]:
    """Return microseconds of CPU and of time for each binding."""
    cpu, began = time.process_time(), time.perf_counter()
    uvloop.run(client(port, bindings))  # type: ignore[arg-type]
    spent = (time.process_time() - cpu, time.perf_counter() - began)
    return spent[0] / bindings * 1e6, spent[1] / bindings * 1e6


def main() -> int:
    """Measure both in turns and print the medians."""
    bindings = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    try:
        import aiohttp
    except ImportError:
        print("aiohttp is not installed: pip install aiohttp", file=sys.stderr)
        return 2
    listening = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(listening,))
    server.start()
    port = listening.getsockname()[1]
    clients = {"pipeline": pipeline_client, f"aiohttp {aiohttp.__version__}": aiohttp_client}
    figures = {
        name: [measure(client, port, bindings) for _ in range(TURNS)]
        for name, client in clients.items()
    }
    server.terminate()
    for name, measured in figures.items():
        cpu, wall = (statistics.median(column) for column in zip(*measured, strict=True))
        print(f"{name}: {cpu:.0f} us of CPU and {wall:.0f} us for each binding, gangs of {GANG}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
