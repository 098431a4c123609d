"""What the proxies do to calls, seen from both ends."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.cluster.faults import Fault, FaultPoint, Script, site_of
from tests.cluster.framing import ConnectionClosed, Request, frame, read_request
from tests.cluster.proxy import Proxy, ProxyLoop

BOUND = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}"
WATCH = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
PATH = "/api/v1/namespaces/a/pods/train-0/binding"
POST = f"POST {PATH} HTTP/1.1\r\ncontent-length: 2\r\n\r\n{{}}".encode()


def event(name: str, kind: str = "ADDED") -> bytes:
    return json.dumps({"type": kind, "object": {"name": name}}, separators=(",", ":")).encode()


class Behind:
    """An API server that takes every binding, and a watch that tells of three pods."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.lost = 0
        self.delay_s = 0.0
        self.told = [event("a"), event("b"), event("c")]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await read_request(reader)
                self.heard.append(request.path)
                if self.delay_s:
                    await asyncio.wait_for(reader.read(1), self.delay_s)
                    self.lost += 1
                    return
                if "watch" in request.query:
                    # Cut where no line ends, as servers do.
                    text = b"\n".join([*self.told, b""])
                    writer.write(WATCH + frame(text[:9]) + frame(text[9:]))
                else:
                    writer.write(BOUND)
                await writer.drain()
        except ConnectionClosed:
            pass
        finally:
            writer.close()


@contextmanager
def between(behind: Behind, *points: FaultPoint, **options: object) -> Iterator[Proxy]:
    async def listen() -> asyncio.Server:
        return await asyncio.start_server(behind.serve, "127.0.0.1", 0)

    async def end(server: asyncio.Server) -> None:
        await proxy.close()
        server.close()

    def naming(request: Request) -> tuple[str, str]:
        return site_of(request.method, request.path, request.query), ""

    with ProxyLoop() as board:
        server = board.run(listen())
        port = int(server.sockets[0].getsockname()[1])
        proxy = Proxy(naming, lambda: port, slow_s=0.2, **options)  # type: ignore[arg-type]
        proxy.script = Script(points)
        board.run(proxy.listen())
        yield proxy
        board.run(end(server))


def call(proxy: Proxy, request: bytes = POST, *, enough: bytes = b"{}", wait_s: float = 3) -> bytes:
    """Send and read until *enough* was read; what was read if the other side hung up."""
    with closing(socket.create_connection(("127.0.0.1", proxy.port), timeout=wait_s)) as made:
        made.sendall(request)
        said = b""
        while enough not in said:
            try:
                piece = made.recv(1 << 16)
            except ConnectionError:
                return said + b"<reset>"
            except TimeoutError:
                return said + b"<silence>"
            if not piece:
                return said + b"<end>"
            said += piece
        return said


def bind(fault: Fault) -> FaultPoint:
    return FaultPoint("bind", 1, fault)


def test_what_no_script_names_passes_unchanged() -> None:
    behind = Behind()
    with between(behind) as proxy:
        assert call(proxy) == BOUND
        assert call(proxy) == BOUND
    assert behind.heard == [PATH, PATH]
    assert [(c.site, c.occurrence, c.status) for c in proxy.script.calls] == [
        ("bind", 1, 201),
        ("bind", 2, 201),
    ]


def test_requests_sent_back_to_back_are_answered_in_order_and_only_the_named_one_fails() -> None:
    behind = Behind()
    with between(behind, FaultPoint("bind", 2, Fault.CONFLICT)) as proxy:
        said = call(proxy, POST * 3, enough=b"}HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}")
    assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"201", b"409", b"201"]
    assert len(behind.heard) == 2
    assert [str(each) for each in proxy.script.reached] == ["bind#2 409"]


def test_a_chunked_request_passes_whole() -> None:
    request = (
        f"POST {PATH} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{{\r\n1\r\n}}\r\n0\r\n\r\n"
    )
    with between(Behind()) as proxy:
        assert call(proxy, request.encode()) == BOUND


@pytest.mark.parametrize(
    "fault", [Fault.TOO_MANY, Fault.MISSING, Fault.INTERNAL, Fault.UNAVAILABLE]
)
def test_a_refusal_is_the_proxys_own_and_nothing_is_sent_on(fault: Fault) -> None:
    behind = Behind()
    with between(behind, bind(fault)) as proxy:
        said = call(proxy, enough=b'"code": ' + fault.value.encode())
    assert said.startswith(b"HTTP/1.1 " + fault.value.encode())
    assert (b"retry-after: 1" in said) is (fault is Fault.TOO_MANY)
    assert behind.heard == []


def test_a_timeout_sends_nothing_on_and_says_nothing() -> None:
    behind = Behind()
    with between(behind, bind(Fault.TIMEOUT)) as proxy:
        assert call(proxy, wait_s=0.3) == b"<silence>"
    assert behind.heard == []


def test_a_reset_sends_nothing_on_and_a_lost_answer_comes_after_the_deed() -> None:
    behind = Behind()
    with between(behind, bind(Fault.RESET), FaultPoint("bind", 2, Fault.LOST)) as proxy:
        assert call(proxy) == b"<reset>"
        assert behind.heard == []
        assert call(proxy) == b"<reset>"
        assert behind.heard == [PATH]


def test_a_slow_answer_comes_late_and_whole() -> None:
    with between(Behind(), bind(Fault.SLOW)) as proxy:
        began = time.monotonic()
        assert call(proxy) == BOUND
        assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("fault", [Fault.KILL_BEFORE, Fault.KILL_AFTER])
def test_a_kill_comes_before_the_call_is_sent_or_before_its_answer_is_told(fault: Fault) -> None:
    behind = Behind()
    killed: list[int] = []
    with between(behind, bind(fault), kill=lambda: killed.append(len(behind.heard))) as proxy:
        assert call(proxy) in (b"<reset>", b"<end>")
    assert killed == [0 if fault is Fault.KILL_BEFORE else 1]


def test_whoever_is_behind_and_dies_after_its_answer_has_been_heard() -> None:
    killed: list[int] = []
    point = bind(Fault.KILL_AFTER)
    options = {"kill": lambda: killed.append(1), "answers_before_kill": True}
    with between(Behind(), point, **options) as proxy:
        assert call(proxy) == BOUND
    assert killed == [1]


def test_a_caller_who_hangs_up_is_hung_up_on_behind() -> None:
    behind = Behind()
    behind.delay_s = 5
    with between(behind) as proxy:
        assert call(proxy, wait_s=0.2) == b"<silence>"
        deadline = time.monotonic() + 3
        while not behind.lost and time.monotonic() < deadline:
            time.sleep(0.01)
    assert behind.lost == 1


ASK = b"GET /api/v1/pods?watch=1 HTTP/1.1\r\n\r\n"


def names(said: bytes) -> str:
    return "".join(part[:1].decode() for part in said.split(b'"name":"')[1:])


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
def test_what_a_watch_tells_is_spoilt_event_by_event(fault: Fault | None, told: str) -> None:
    points = [FaultPoint("event-pods", 2, fault)] if fault else []
    with between(Behind(), *points) as proxy:
        said = call(proxy, ASK, enough=b"never", wait_s=0.4)
    assert names(said) == told
    ends = {None: b"<silence>", Fault.SILENT: b"<silence>", Fault.DUPLICATED: b"<silence>"}
    assert said.endswith(ends.get(fault, b"<silence>" if fault is Fault.REORDERED else b"<end>"))


def test_no_object_of_a_list_comes_after_the_end_of_the_list() -> None:
    behind = Behind()
    marks = b'{"metadata":{"name":"end","annotations":{"k8s.io/initial-events-end":"true"}}}'
    behind.told.insert(2, b'{"type":"BOOKMARK","object":' + marks + b"}")
    with between(behind, FaultPoint("event-pods", 2, Fault.REORDERED)) as proxy:
        assert names(call(proxy, ASK, enough=b'"c"', wait_s=3)) == "abec"


def test_an_event_that_waits_for_a_next_one_does_not_wait_for_ever() -> None:
    with between(Behind(), FaultPoint("event-pods", 3, Fault.REORDERED)) as proxy:
        assert names(call(proxy, ASK, enough=b'"c"', wait_s=3)) == "abc"
