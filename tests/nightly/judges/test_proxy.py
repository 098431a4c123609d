"""The fault-injecting proxy, seen from both ends."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.nightly.faults.fault_points import Fault, FaultPoint, Script, site_of
from tests.nightly.faults.framing import ConnectionClosed, Request, frame, read_request
from tests.nightly.faults.proxy import Proxy, ProxyLoop

BOUND = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}"
WATCH = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
PATH = "/api/v1/namespaces/a/pods/train-0/binding"
POST = f"POST {PATH} HTTP/1.1\r\ncontent-length: 2\r\n\r\n{{}}".encode()


def event(name: str, kind: str = "ADDED") -> bytes:
    return json.dumps({"type": kind, "object": {"name": name}}, separators=(",", ":")).encode()


class FakeServer:
    """An API server that accepts every binding, and a watch with three events."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.lost = 0
        self.delay_s = 0.0
        self.events = [event("a"), event("b"), event("c")]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await read_request(reader)
                self.paths.append(request.path)
                if self.delay_s:
                    await asyncio.wait_for(reader.read(1), self.delay_s)
                    self.lost += 1
                    return
                if "watch" in request.query:
                    # Chunks do not end at lines, as in real servers.
                    text = b"\n".join([*self.events, b""])
                    writer.write(WATCH + frame(text[:9]) + frame(text[9:]))
                else:
                    writer.write(BOUND)
                await writer.drain()
        except ConnectionClosed:
            pass
        finally:
            writer.close()


@contextmanager
def between(server: FakeServer, *points: FaultPoint, **options: object) -> Iterator[Proxy]:
    async def listen() -> asyncio.Server:
        return await asyncio.start_server(server.serve, "127.0.0.1", 0)

    async def end(server: asyncio.Server) -> None:
        await proxy.close()
        server.close()

    def naming(request: Request) -> tuple[str, str]:
        return site_of(request.method, request.path, request.query), ""

    with ProxyLoop() as board:
        listening = board.run(listen())
        port = int(listening.sockets[0].getsockname()[1])
        proxy = Proxy(naming, lambda: port, slow_s=0.2, **options)  # type: ignore[arg-type]
        proxy.script = Script(points)
        board.run(proxy.listen())
        yield proxy
        board.run(end(listening))


def call(proxy: Proxy, request: bytes = POST, *, enough: bytes = b"{}", wait_s: float = 3) -> bytes:
    """Send, and read until *enough* was read, or the connection was closed."""
    with closing(socket.create_connection(("127.0.0.1", proxy.port), timeout=wait_s)) as made:
        made.sendall(request)
        data = b""
        while enough not in data:
            try:
                piece = made.recv(1 << 16)
            except ConnectionError:
                return data + b"<reset>"
            except TimeoutError:
                return data + b"<silence>"
            if not piece:
                return data + b"<end>"
            data += piece
        return data


def bind(fault: Fault) -> FaultPoint:
    return FaultPoint("bind", 1, fault)


def test_calls_without_a_fault_are_forwarded_unchanged() -> None:
    server = FakeServer()
    with between(server) as proxy:
        assert call(proxy) == BOUND
        assert call(proxy) == BOUND
    assert server.paths == [PATH, PATH]
    assert [(c.site, c.occurrence, c.status) for c in proxy.script.calls] == [
        ("bind", 1, 201),
        ("bind", 2, 201),
    ]


def test_pipelined_requests_are_answered_in_order() -> None:
    server = FakeServer()
    with between(server, FaultPoint("bind", 2, Fault.CONFLICT)) as proxy:
        data = call(proxy, POST * 3, enough=b"}HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}")
    assert [part[:3] for part in data.split(b"HTTP/1.1 ")[1:]] == [b"201", b"409", b"201"]
    assert len(server.paths) == 2
    assert [str(each) for each in proxy.script.reached] == ["bind#2 409"]


def test_chunked_request_is_forwarded() -> None:
    request = (
        f"POST {PATH} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{{\r\n1\r\n}}\r\n0\r\n\r\n"
    )
    with between(FakeServer()) as proxy:
        assert call(proxy, request.encode()) == BOUND


@pytest.mark.parametrize(
    "fault", [Fault.TOO_MANY, Fault.MISSING, Fault.INTERNAL, Fault.UNAVAILABLE]
)
def test_refused_call_is_not_forwarded(fault: Fault) -> None:
    server = FakeServer()
    with between(server, bind(fault)) as proxy:
        data = call(proxy, enough=b'"code": ' + fault.value.encode())
    assert data.startswith(b"HTTP/1.1 " + fault.value.encode())
    assert (b"retry-after: 1" in data) is (fault is Fault.TOO_MANY)
    assert server.paths == []


def test_timeout_forwards_and_answers_nothing() -> None:
    server = FakeServer()
    with between(server, bind(Fault.TIMEOUT)) as proxy:
        assert call(proxy, wait_s=0.3) == b"<silence>"
    assert server.paths == []


def test_reset_forwards_nothing_and_a_lost_answer_is_executed() -> None:
    server = FakeServer()
    with between(server, bind(Fault.RESET), FaultPoint("bind", 2, Fault.LOST)) as proxy:
        assert call(proxy) == b"<reset>"
        assert server.paths == []
        assert call(proxy) == b"<reset>"
        assert server.paths == [PATH]


def test_slow_answer_is_complete() -> None:
    with between(FakeServer(), bind(Fault.SLOW)) as proxy:
        began = time.monotonic()
        assert call(proxy) == BOUND
        assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER])
def test_kill_is_before_the_call_or_before_its_answer(fault: Fault) -> None:
    server = FakeServer()
    killed: list[int] = []
    with between(server, bind(fault), kill=lambda: killed.append(len(server.paths))) as proxy:
        assert call(proxy) in (b"<reset>", b"<end>")
    assert killed == [0 if fault is Fault.KILL_BEFORE else 1]


def test_answer_before_a_kill_of_the_server_is_delivered() -> None:
    killed: list[int] = []
    point = bind(Fault.KILL_AFTER)
    options = {"kill": lambda: killed.append(1), "answers_before_kill": True}
    with between(FakeServer(), point, **options) as proxy:
        assert call(proxy) == BOUND
    assert killed == [1]


def test_disconnect_of_the_caller_is_forwarded() -> None:
    server = FakeServer()
    server.delay_s = 5
    with between(server) as proxy:
        assert call(proxy, wait_s=0.2) == b"<silence>"
        deadline = time.monotonic() + 3
        while not server.lost and time.monotonic() < deadline:
            time.sleep(0.01)
    assert server.lost == 1


ASK = b"GET /api/v1/pods?watch=1 HTTP/1.1\r\n\r\n"


def names(data: bytes) -> str:
    return "".join(part[:1].decode() for part in data.split(b'"name":"')[1:])


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (None, "abc"),
        (Fault.DUPLICATED, "abbc"),
        (Fault.REORDERED, "acb"),
        (Fault.SILENT, "a"),
        (Fault.CUT, "a"),
        (Fault.KILL_BEFORE, "a"),
        (Fault.KILL_AFTER, "ab"),
    ],
)
def test_faults_of_single_watch_events(fault: Fault | None, told: str) -> None:
    points = [FaultPoint("event-pods", 2, fault)] if fault else []
    with between(FakeServer(), *points) as proxy:
        data = call(proxy, ASK, enough=b"never", wait_s=0.4)
    assert names(data) == told
    ends = {None: b"<silence>", Fault.SILENT: b"<silence>", Fault.DUPLICATED: b"<silence>"}
    assert data.endswith(ends.get(fault, b"<silence>" if fault is Fault.REORDERED else b"<end>"))


def test_no_object_of_a_list_comes_after_the_end_of_the_list() -> None:
    server = FakeServer()
    marks = b'{"metadata":{"name":"end","annotations":{"k8s.io/initial-events-end":"true"}}}'
    server.events.insert(2, b'{"type":"BOOKMARK","object":' + marks + b"}")
    with between(server, FaultPoint("event-pods", 2, Fault.REORDERED)) as proxy:
        assert names(call(proxy, ASK, enough=b'"c"', wait_s=3)) == "abec"


def test_reordered_last_event_is_delivered_after_a_while() -> None:
    with between(FakeServer(), FaultPoint("event-pods", 3, Fault.REORDERED)) as proxy:
        assert names(call(proxy, ASK, enough=b'"c"', wait_s=3)) == "abc"
