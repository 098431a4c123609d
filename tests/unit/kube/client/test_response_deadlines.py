"""Responses that trickle, or never end, while a thread waits for them."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest

from extender.errors import NoResponse
from extender.kube.client import LONGEST, ApiClient
from extender.kube.config import ApiServer

#: The response of a peer to one request, piece by piece.
Response = Callable[[], Iterator[bytes]]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
WAIT_S = 0.15


class Peer:
    """Answers requests on any connection with one response after the other."""

    def __init__(self, responses: Sequence[Response]) -> None:
        self._responses = iter(responses)
        self._is_over = False
        self._lines: list[socket.socket] = []
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.threads = [threading.Thread(target=self._listen)]
        self.threads[0].start()

    def _listen(self) -> None:
        while True:
            line, _ = self.listener.accept()
            if self._is_over:
                line.close()
                return
            self.connections += 1
            self._lines.append(line)
            thread = threading.Thread(target=self._serve, args=(line,))
            self.threads.append(thread)
            thread.start()

    def _serve(self, line: socket.socket) -> None:
        with line:
            try:
                while line.recv(65536):
                    for piece in next(self._responses)():
                        line.sendall(piece)
            except OSError:
                pass  # the client has closed the connection

    def close(self) -> None:
        self._is_over = True
        socket.create_connection(("127.0.0.1", self.port)).close()
        for line in self._lines:
            with suppress(OSError):  # its thread has closed it
                line.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()
        self.listener.close()


@contextmanager
def client_of(*responses: Response) -> Iterator[tuple[ApiClient, Peer]]:
    peer = Peer(responses)
    access = ApiClient(ApiServer(host="127.0.0.1", port=peer.port))
    try:
        yield access, peer
    finally:
        peer.close()


def at_once(data: bytes) -> Response:
    return lambda: iter([data])


def trickling(begin: bytes, piece: bytes, end: bytes) -> Response:
    """A response that arrives slowly but completely."""

    def response() -> Iterator[bytes]:
        yield begin
        for _ in range(60):
            time.sleep(WAIT_S / 10)
            yield piece
        yield end

    return response


TRICKLING = {
    "head": trickling(b"HTTP/1.1 200 OK\r\nx: ", b"y", b"\r\ncontent-length: 2\r\n\r\nok"),
    "informational": trickling(b"", b"HTTP/1.1 100 Continue\r\n\r\n", OK),
    "body": trickling(b"HTTP/1.1 200 OK\r\ncontent-length: 62\r\n\r\n", b"y", b"ok"),
    "chunks": trickling(CHUNKED, b"1\r\ny\r\n", b"0\r\n\r\n"),
    "line of a chunk": trickling(CHUNKED + b"2;", b"y", b"\r\nok\r\n0\r\n\r\n"),
    "after the last chunk": trickling(CHUNKED + b"2\r\nok\r\n0\r\n", b"x: y\r\n", b"\r\n"),
}


@pytest.mark.parametrize("response", TRICKLING.values(), ids=TRICKLING)
def test_a_trickling_response_times_out(
    response: Response,
) -> None:
    with client_of(response) as (access, _), pytest.raises(NoResponse, match="timed out"):
        access.request("GET", "/x", wait_s=WAIT_S)


def test_a_watch_that_has_begun_may_trickle() -> None:
    response = TRICKLING["chunks"]
    with (
        client_of(response) as (access, _),
        access.open("GET", "/x", read_s=3 * WAIT_S) as response,
    ):
        assert b"".join(response.stream(1 << 16)) == b"y" * 60


def test_a_watch_that_does_not_begin_times_out() -> None:
    with client_of(TRICKLING["head"]) as (access, _), pytest.raises(NoResponse, match="timed out"):
        access.open("GET", "/x", read_s=WAIT_S)


@pytest.mark.parametrize("is_chunked", [True, False])
def test_an_endless_response_is_given_up(is_chunked: bool) -> None:
    piece = b"y" * (1 << 20)
    sent: list[int] = []

    def response() -> Iterator[bytes]:
        yield CHUNKED if is_chunked else b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\n"
        for _ in range(100):
            yield b"%x\r\n%b\r\n" % (len(piece), piece) if is_chunked else piece
            sent.append(len(piece))

    with client_of(response) as (access, _), pytest.raises(NoResponse, match="longer than"):
        access.request("GET", "/x")
    assert sum(sent) < 2 * LONGEST


@pytest.mark.parametrize("is_chunked", [True, False])
def test_a_truncated_response_is_an_error(is_chunked: bool) -> None:
    short = CHUNKED + b"9\r\nok" if is_chunked else OK.replace(b": 2", b": 9")

    def response() -> Iterator[bytes]:
        yield short
        raise OSError

    with client_of(response) as (access, _), pytest.raises(NoResponse, match="broke off"):
        access.request("GET", "/x")


def test_an_unrequested_content_encoding_is_not_decoded() -> None:
    packed = gzip.compress(b" " * 1_000_000)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    with client_of(at_once(head + packed)) as (access, _):
        assert access.request("GET", "/x") == packed


def test_an_informational_response_is_an_error_and_the_next_request_gets_its_own() -> None:
    other = OK.replace(b"ok", b"b!")
    with client_of(at_once(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK), at_once(other)) as (
        access,
        _,
    ):
        with pytest.raises(NoResponse, match="103"):
            access.request("GET", "/a")

        assert access.request("GET", "/b") == b"b!"


def test_a_connection_is_reused_after_each_complete_response() -> None:
    answers = [
        OK,
        CHUNKED + b"2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\nno",
        OK,
    ]
    with client_of(*map(at_once, answers)) as (access, peer):
        received = [access.response("GET", "/x") for _ in answers]
        connections = peer.connections

    assert received == [
        (200, b"ok"),
        (200, b"ok"),
        (200, b""),
        (204, b""),
        (500, b"no"),
        (200, b"ok"),
    ]
    assert connections == 1
