"""Servers that are not an extender, for commands that are given the wrong address."""

from __future__ import annotations

import gzip
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from extender.tls.issue import Authority

Handler = Callable[[socket.socket], None]


def _answer(head: str, body: bytes = b"", *, length: int | None = None) -> Handler:
    size = f"Content-Length: {len(body) if length is None else length}\r\n"
    whole = f"HTTP/1.1 {head}\r\n{size}\r\n".encode() + body

    def handle(caller: socket.socket) -> None:
        caller.recv(65536)
        caller.sendall(whole)

    return handle


def _endless(caller: socket.socket) -> None:
    caller.recv(65536)
    caller.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
    while True:
        caller.sendall(b"1," * 32768)


def _drip(begin: bytes, drop: bytes) -> Handler:
    def handle(caller: socket.socket) -> None:
        caller.recv(65536)
        caller.sendall(begin)
        gone = threading.Event()
        while True:
            caller.sendall(drop)
            gone.wait(0.01)

    return handle


def _continue(caller: socket.socket) -> None:
    caller.recv(65536)
    while True:
        caller.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def _silent(caller: socket.socket) -> None:
    with suppress(OSError):
        caller.settimeout(60)
        while caller.recv(65536):
            pass


def _close(caller: socket.socket) -> None:
    caller.recv(65536)


_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"
#: Servers that send so slowly that no size limit ends them.
SLOW: dict[str, Handler] = {
    "a slow answer": _drip(_OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "endless headers": _drip(_OK + b"X: ", b"a"),
    "an endless chunk": _drip(_CHUNKED, b"0"),
    "endless trailers": _drip(_CHUNKED + b"0\r\n", b"a: b\r\n"),
    "continues without end": _continue,
}

#: Name -> how the server answers, and a part of the error message.
WRONG_SERVERS: dict[str, tuple[Handler, str]] = {
    "the port of the hooks": (
        _answer("404 Not Found", b'{"Error": "no such hook: /api"}'),
        "is the port of the hooks",
    ),
    "a page": (_answer("200 OK", b"<html>hello</html>"), "is not an extender"),
    "a page that is not there": (_answer("404 Not Found", b"<html>"), "is not an extender"),
    "another API": (_answer("404 Not Found", b'{"message": "x"}'), "is not an extender"),
    "a redirect": (
        _answer("302 Found\r\nLocation: http://127.0.0.1:1/"),
        "is not an extender",
    ),
    "a failure": (_answer("500 Oh", b"oh"), "is not an extender"),
    "a failure in JSON": (_answer("500 Oh", b'{"error": "x"}'), "is not an extender"),
    "an authenticating server": (_answer("401 Unauthorized", b"{}"), "is not an extender"),
    "nothing": (_answer("200 OK"), "is not an extender"),
    "a number": (_answer("200 OK", b"7"), "is not an extender"),
    "a list": (_answer("200 OK", b"[[1]]"), "extender"),
    "an empty object": (
        _answer("200 OK", b"{}"),
        "is not an extender of this version: Object missing required field `generation`",
    ),
    "objects of another shape": (
        _answer("200 OK", b'{"generation": 1, "gangs": [1]}'),
        "is not an extender of this version: Expected `object`, got `int` - at `$.gangs[0]`",
    ),
    "bytes in a text": (_answer("200 OK", b'{"idle": {"\xff": ""}}'), "is not an extender"),
    "bytes in an error": (
        _answer("401 Unauthorized", b'{"error": "\xff"}'),
        "is not an extender",
    ),
    "an API without plans": (
        _answer("404 Not Found", b'{"error": "no such page"}'),
        "is not an extender of this version: it has no plan",
    ),
    "very deep brackets": (_answer("200 OK", b"[" * 500_000), "is not an extender"),
    "bytes": (_answer("200 OK", bytes(range(256))), "is not an extender"),
    "a compressed answer": (
        _answer("503 Oh\r\nContent-Encoding: gzip", gzip.compress(b'{"error": "unpacked"}')),
        "is not an extender",
    ),
    "half an answer": (_answer("200 OK", b"{", length=99), "broke"),
    "an endless answer": (_endless, "an answer without end"),
    **{name: (handler, "an answer without end") for name, handler in SLOW.items()},
    "silence": (_silent, "no extender answers"),
    "a closed connection": (_close, "connection broke"),
    "another protocol": (lambda caller: caller.sendall(b"SSH-2.0-x\r\n"), "not speak plain HTTP"),
    "a standby": (
        _answer("503 Later", b'{"error": "b leads; call it instead"}'),
        "cannot answer: b leads; call it instead",
    ),
}


RIGHT_SERVER = _answer("200 OK", b'{"generation": 1}')


@contextmanager
def serving(handler: Handler, tls: Path | None = None) -> Iterator[int]:
    """Yield the port at which *handler* answers, over TLS with the pair in *tls*."""
    server = socket.create_server(("127.0.0.1", 0))
    context: ssl.SSLContext | None = None
    if tls is not None:
        authority = Authority.new("wrong servers", 1)
        pair = authority.for_server(["127.0.0.1"], 1)
        (tls / "ca.crt").write_bytes(authority.pair.certificate)
        (tls / "pair.pem").write_bytes(pair.certificate + pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "pair.pem")
    callers: list[threading.Thread] = []
    lines: list[socket.socket] = []

    def answer(caller: socket.socket) -> None:
        with suppress(OSError), caller:
            if context is not None:
                with context.wrap_socket(caller, server_side=True) as wrapped:
                    handler(wrapped)
            else:
                handler(caller)
                with suppress(OSError):
                    caller.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                caller, _ = server.accept()
                lines.append(caller)
                callers.append(threading.Thread(target=answer, args=(caller,), daemon=True))
                callers[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        accepting.join()
        for line in lines:  # a client that has given up may not have disconnected yet
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for each in callers:
            each.join(10)
