"""A small API server on loopback: real sockets, pods in a dictionary, misbehaviour on request."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import selectors
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import uvloop

from extender.kube.client import ApiClient
from extender.kube.config import ApiServer
from extender.kube.pipeline import Pipeline


class _Leaping(selectors.DefaultSelector):
    """Waits only briefly: what one end of a loopback socket writes, the other can read at once."""

    def __init__(self) -> None:
        super().__init__()
        self.leapt_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select()
        ready = super().select(min(timeout, 0.002))
        if not ready:
            self.leapt_s += max(0.0, timeout - 0.002)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer while no socket is ready."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def time(self) -> float:
        return super().time() + self._leaping.leapt_s


def play(
    scene: Coroutine[Any, Any, None],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> None:
    """Run a coroutine to its end, by default on the event loop of production."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scene)


Setting: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]


def scene(
    setting: Setting = nullcontext,
    /,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
    **options: Any,
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Decorate a coroutine test, which runs within *setting* in an event loop.

    Its positional-only parameters are what *setting* yields; all others come from pytest.
    """

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        parameters = inspect.signature(test).parameters.values()
        from_pytest = [each for each in parameters if each.kind is not each.POSITIONAL_ONLY]

        @functools.wraps(test)
        def run(**arguments: Any) -> None:
            async def play_test() -> None:
                async with setting(**options) as given:
                    await test(*(given or ()), **arguments)

            play(play_test(), new_loop)

        run.__signature__ = inspect.Signature(from_pytest)  # type: ignore[attr-defined]
        return run

    return decorate


@dataclass(slots=True)
class Request:
    method: str
    path: str
    body: dict[str, object]
    headers: dict[str, str]
    connection: int


@dataclass(slots=True)
class StoredPod:
    uid: str
    node: str = ""
    deleting: bool = False
    gates: list[dict[str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        metadata: dict[str, object] = {"uid": self.uid}
        if self.deleting:
            metadata["deletionTimestamp"] = "2026-11-15T00:00:00Z"
        return {
            "metadata": metadata,
            "spec": {"nodeName": self.node, "schedulingGates": self.gates},
        }


#: A scripted answer: a status, or a kind of misbehaviour.
HANG_UP = "hang up"  # close the connection without effect or answer
DO_AND_HANG_UP = "do and hang up"  # take effect, then close without an answer
NEVER = "never"  # keep the connection open and never answer


class LoopbackServer:
    """Binds and returns pods; `script` overrides the answers to the next requests."""

    def __init__(self) -> None:
        self.pods: dict[str, StoredPod] = {}
        self.objects: dict[str, object] = {}
        #: Names of the nodes that a list by name finds.
        self.nodes: list[str] = []
        self.requests: list[Request] = []
        self.script: deque[int | str] = deque()
        #: Pod -> the status that answers every request for it.
        self.refused: dict[str, int] = {}
        #: The `Retry-After` header of every scripted status, in seconds.
        self.retry_after = ""
        #: The message of every scripted status.
        self.words = "scripted"
        #: The machine-readable reason of every scripted status.
        self.cause = ""
        #: While it is cleared, requests that are `held` are neither executed nor answered.
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.connections = 0
        self.port = 0
        #: The API client of the last `connected` block.
        self.access: ApiClient
        #: Answers requests without a scripted answer.
        self.respond: Callable[[Request], tuple[int, object]] = self.answer
        #: The methods whose requests wait for `goes_on`.
        self.held = {"GET", "POST", "PATCH"}
        self._writers: set[asyncio.StreamWriter] = set()
        self._arrivals: asyncio.Condition = asyncio.Condition()

    def add_pod(self, name: str, **facts: object) -> StoredPod:
        pod = self.pods[f"team/{name}"] = StoredPod(uid=f"uid-{name}", **facts)  # type: ignore[arg-type]
        return pod

    def node_of(self, name: str) -> str:
        return self.pods[f"team/{name}"].node

    def asked(self, method: str) -> list[Request]:
        return [request for request in self.requests if request.method == method]

    def send_raw(self, data: bytes) -> None:
        """Write *data* on each connection."""
        for writer in self._writers:
            writer.write(data)

    def drop_connections(self) -> None:
        for writer in tuple(self._writers):
            writer.close()

    async def has_heard(self, requests: int) -> None:
        async with self._arrivals:
            await self._arrivals.wait_for(lambda: len(self.requests) >= requests)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self._writers.add(writer)
        try:
            while await self._serve_one(reader, writer, number):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> bool:
        request = await _read(reader, number)
        async with self._arrivals:
            self.requests.append(request)
            self._arrivals.notify_all()
        if request.method in self.held:
            await self.goes_on.wait()
        order = self.script.popleft() if self.script else self._refusal(request)
        if order == NEVER:
            await asyncio.Event().wait()
        if order == HANG_UP:
            return False
        status, body = (
            (order, {"message": self.words, "details": {"causes": [{"reason": self.cause}]}})
            if isinstance(order, int) and order
            else self.respond(request)
        )
        if order == DO_AND_HANG_UP:
            return False
        data = json.dumps(body).encode()
        more = f"Retry-After: {self.retry_after}\r\n" if order and self.retry_after else ""
        writer.write(
            b"HTTP/1.1 %d Word\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b"
            % (status, more.encode(), len(data), data)
        )
        await writer.drain()
        return True

    def _refusal(self, request: Request) -> int:
        return self.refused.get(request.path.removesuffix("/binding").rpartition("/")[2], 0)

    def answer(self, request: Request) -> tuple[int, object]:
        """Execute a request, and return the status and the body of its answer."""
        if request.path in self.objects:
            return 200, self.objects[request.path]
        parts = request.path.split("/")
        if request.path.startswith("/api/v1/nodes?fieldSelector="):
            return 200, {"items": [{} for name in self.nodes if f"%3D{name}&" in request.path]}
        if "pods" not in parts:
            return 404, {"message": "not found"}
        pod = self.pods.get(f"{parts[4]}/{parts[6]}")
        if pod is None:
            return 404, {"message": "not found"}
        return _VERBS[request.method](pod, request)


def _show(pod: StoredPod, request: Request) -> tuple[int, object]:
    return 200, pod.as_json()


def _bind(pod: StoredPod, request: Request) -> tuple[int, object]:
    metadata, target = request.body["metadata"], request.body["target"]
    assert isinstance(metadata, dict)
    assert isinstance(target, dict)
    assert target["kind"] == "Node"
    if metadata["uid"] != pod.uid or pod.node or pod.deleting or pod.gates:
        return 409, {"message": "Operation cannot be fulfilled"}
    pod.node = target["name"]
    return 201, {"kind": "Status", "status": "Success"}


def _patch(pod: StoredPod, request: Request) -> tuple[int, object]:
    metadata = request.body["metadata"]
    assert isinstance(metadata, dict)
    return (
        (200, pod.as_json())
        if metadata["uid"] == pod.uid
        else (422, {"message": "metadata.uid: field is immutable"})
    )


_VERBS: dict[str, Callable[[StoredPod, Request], tuple[int, object]]] = {
    "GET": _show,
    "POST": _bind,
    "PATCH": _patch,
}


async def _read(reader: asyncio.StreamReader, number: int) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = dict(line.split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, json.loads(body) if body else {}, headers, number)


@asynccontextmanager
async def loopback_server() -> AsyncIterator[LoopbackServer]:
    server = LoopbackServer()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        server.drop_connections()


@asynccontextmanager
async def connected(
    server: LoopbackServer, size: int = 4, silence_s: float = 5.0, check_after_s: float = 2.0
) -> AsyncIterator[Pipeline]:
    endpoint = ApiServer(host="127.0.0.1", port=server.port, token=lambda: "Bearer secret")
    server.access = ApiClient(endpoint)
    loop = asyncio.get_running_loop()
    pipeline = Pipeline(
        server.access, loop, size=size, silence_s=silence_s, check_after_s=check_after_s
    )
    try:
        yield pipeline
    finally:
        await pipeline.aclose()
