"""The hooks behind all doors: Flask, the ASGI edge and the hook port, on a simulated cluster."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from extender.settings import Settings
from extender.sim.cluster import SimCluster
from extender.sim.story import _node, _pod, _pod_group
from extender.web.app import create_app
from extender.web.hookport import HookPort
from extender.wiring import Runtime, SystemClock, embed, read_group

HOOKS, OPS = 8888, 8889
#: About a pod of ours; while there is no plan yet, the answer is that we are not ready.
_QUESTION = json.dumps({"Pod": _pod("early", None), "NodeNames": []}).encode()


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class World:
    """A runtime without server: its event loop runs in a thread, its cluster is simulated."""

    def __init__(self, config: str = "") -> None:
        self.cluster = SimCluster(read_group, SystemClock())
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        settings = Settings(
            listen=f"127.0.0.1:{HOOKS}", ops_listen=f"127.0.0.1:{OPS}", config=config
        )
        self.runtime: Runtime = embed(settings, self.loop, self.cluster)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.hook_port: int = self._listening.getsockname()[1]
        self.port = HookPort(self.runtime.hooks, self.loop)

    def __enter__(self) -> World:
        self._thread.start()
        self.runtime.start()
        self._wait_for(self.port.listen(self._listening))
        eventually(lambda: b"not ready" not in self.runtime.hooks.answer("filter", _QUESTION))
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.drain()
        self._wait_for(self.port.close(grace_s=5))
        self.runtime.stop()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop).result(20)

    def node(self, name: str, cpus: int = 4) -> None:
        self.cluster.create(_node(name, cpus))

    def group(self, name: str, min_member: int, namespace: str = "demo") -> None:
        made = _pod_group(name, min_member)
        made["metadata"]["namespace"] = namespace
        self.cluster.create(made)

    def pod(self, name: str, gang: str | None = None, scheduler: str = "gang-scheduler") -> Any:
        pod = _pod(name, gang)
        pod["spec"]["schedulerName"] = scheduler
        return self.cluster.create(pod)


Door = Callable[..., Reply]


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        yield made


@pytest.fixture(params=["flask", "asgi", "port"])
def call(request: pytest.FixtureRequest, world: World) -> Door:
    """Call a hook through one of the three doors: `call("filter", body)`."""
    doors = {"flask": through_flask, "asgi": through_asgi, "port": through_port}
    return doors[request.param](world)


def through_flask(world: World) -> Door:
    client = create_app(hooks=world.runtime.hooks).test_client()

    def call(verb: str, body: bytes | Any, method: str = "POST") -> Reply:
        reply = client.open(f"/{verb}", method=method, data=_bytes(body))
        return Reply(reply.status_code, reply.data)

    return call


def through_port(world: World) -> Door:
    def call(verb: str, body: bytes | Any, method: str = "POST") -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", world.hook_port, timeout=20)
        with closing(connection):
            connection.request(method, f"/{verb}", _bytes(body))
            reply = connection.getresponse()
            return Reply(reply.status, reply.read())

    return call


def through_asgi(world: World, port: int = HOOKS) -> Door:
    def call(verb: str, body: bytes | Any, method: str = "POST") -> Reply:
        conversation = _converse(world.runtime.edge, f"/{verb}", method, _bytes(body), port)
        return asyncio.run_coroutine_threadsafe(conversation, world.loop).result(20)

    return call


async def _converse(edge: Any, path: str, method: str, body: bytes, port: int) -> Reply:
    sent: list[dict[str, Any]] = []
    chunks = [body[i : i + 65536] for i in range(0, len(body), 65536)] or [b""]
    silence = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not chunks:
            await silence.wait()
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "root_path": "",
        "path": path,
        "query_string": b"",
        "headers": [],
        "server": ("127.0.0.1", port),
    }
    await edge(scope, receive, send)
    headers = dict(sent[0]["headers"])
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    assert int(headers[b"content-length"]) == len(answer)
    return Reply(sent[0]["status"], answer)


def eventually(is_true: Callable[[], bool]) -> None:
    """Wait for something that must come true soon."""
    end = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.01)


def _bytes(body: bytes | Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()
