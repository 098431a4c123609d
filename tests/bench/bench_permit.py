"""CPU for each pod whose bind waits and is sent: permit, binder and pipelined TLS connections.

    python -m tests.bench.bench_permit [pods] [gang size]

The API server is another process, which answers 201 at once; its CPU does not count.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import random
from typing import cast

import uvloop

from extender.clock import LoopTimer, SystemClock
from extender.kube.client import ApiClient
from extender.kube.config import ApiServer
from extender.kube.pipeline import Pipeline
from extender.kube.write.bind import ApiBinder
from extender.model.gang import GangKey
from extender.permit.machine import StateMachine
from extender.permit.runner import PermitRunner
from extender.permit.timeouts import Timeouts
from tests.doubles import Call, ManualReader, RecordingObserver, RecordingUndo
from tests.unit.permit.world import World

_ANSWER = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 85\r\n\r\n"
_ANSWER += (
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201      }\n'
)
_CERTIFICATE = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
_CERTIFICATE += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
_CERTIFICATE += ["-keyout", "server.key", "-out", "server.crt"]


class _Server(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(_ANSWER * data.count(b"POST /"))


def _serve(folder: str, port: multiprocessing.Queue[int]) -> None:
    async def main() -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(f"{folder}/server.crt", f"{folder}/server.key")
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Server, "127.0.0.1", 0, ssl=context)
        port.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


async def _measure(port: int, ca: Path, pods: int, size: int) -> tuple[float, float]:
    loop = asyncio.get_running_loop()
    tls = ssl.create_default_context(cafile=str(ca))
    access = ApiClient(
        ApiServer(host="127.0.0.1", port=port, tls=tls, token=lambda: "Bearer " + "x" * 900)
    )
    pipeline = Pipeline(access, loop)
    world = World()
    world.add_node("n-1")
    reader = ManualReader()
    reader.at_once = True
    permit = PermitRunner(
        StateMachine(world, Timeouts(), chance=random),
        binder=ApiBinder(pipeline),
        groups=reader,
        ledger=world,
        undo=RecordingUndo(),
        timer=LoopTimer(loop),
        clock=SystemClock(),
        observer=RecordingObserver(),
    )
    best = (float("inf"), 0.0)
    for round_ in range(5):
        world.pods.clear()
        world.gangs.clear()
        names = []
        for number in range(pods // size):
            gang = GangKey(f"team/g-{round_}-{number}")
            world.add_group(size, gang)
            names.append([world.add_pod(f"{round_}-{number}-{i}", gang) for i in range(size)])
        world.pods_of = lambda key: ()  # type: ignore[method-assign]
        world.scheduled = lambda key: 0  # type: ignore[method-assign]
        cpu, started = time.process_time(), time.monotonic()
        for uids in names:
            waiting = [Call(permit, uid) for uid in uids]
            answers = await asyncio.gather(*map(asyncio.wrap_future, waiting))
            assert not any(answers), set(answers)
        spent = time.process_time() - cpu
        best = min(best, (spent / pods * 1e6, pods / (time.monotonic() - started)))
    await pipeline.aclose()
    return best


def main() -> None:
    pods, size = (int(each) for each in (*sys.argv[1:], "2000", "20")[:2])
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(_CERTIFICATE, cwd=folder, check=True, capture_output=True)
        port: multiprocessing.Queue[int] = multiprocessing.Queue()
        server = multiprocessing.Process(target=_serve, args=(folder, port), daemon=True)
        server.start()
        ca = Path(folder) / "server.crt"
        micros, rate = uvloop.run(_measure(port.get(timeout=10), ca, pods, size))
        print(f"{pods} pods in gangs of {size}: {micros:.0f} us CPU per pod, {rate:.0f} pods/s")
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
