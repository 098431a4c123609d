"""Those who want to stall the extender, or make it large: each goes on until it is stopped."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TypeAlias

#: One attack on a port; it may be called again and again.
Attack: TypeAlias = Callable[[int, threading.Event], None]

_CHUNK = b"a" * 65536
_BIND = b'{"PodName":"p","PodNamespace":"kube-system","PodUID":"u","Node":"no-such-node"}'


def endless_headers(port: int, stop: threading.Event) -> None:
    with _connected(port) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nX-Long: ")
        while not stop.is_set():
            line.sendall(_CHUNK)


def endless_path(port: int, stop: threading.Event) -> None:
    with _connected(port) as line:
        line.sendall(b"GET /")
        while not stop.is_set():
            line.sendall(_CHUNK)


def many_headers(port: int, stop: threading.Event) -> None:
    with _connected(port) as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\n")
        while not stop.is_set():
            line.sendall(b"a:b\r\n" * 10_000)


def endless_body(port: int, stop: threading.Event) -> None:
    with _connected(port) as line:
        line.sendall(
            b"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        while not stop.is_set():
            line.sendall(b"1\r\n \r\n" * 10_000)


def large_bodies_never_finished(port: int, stop: threading.Event) -> None:
    with ExitStack() as lines:
        for _ in range(40):
            line = lines.enter_context(_connected(port))
            line.sendall(
                b"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 4000000\r\n\r\n"
            )
            with suppress(OSError):
                line.sendall(b" " * 3_900_000)
        stop.wait(0.2)


def drips(port: int, stop: threading.Event) -> None:
    with ExitStack() as lines:
        slow = [lines.enter_context(_connected(port)) for _ in range(100)]
        for each in slow:
            each.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        while not stop.wait(0.1):
            for each in slow:
                each.sendall(b"a")


def a_crowd(port: int, stop: threading.Event) -> None:
    with ExitStack() as lines:
        for _ in range(800):
            if not stop.is_set():
                lines.enter_context(_connected(port))
        stop.wait(0.2)


def snapshots(port: int, stop: threading.Event) -> None:
    with _connected(port) as line:
        while not stop.is_set():
            line.sendall(b"GET /api/v1/snapshot HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while line.recv(1 << 20) and not stop.is_set():
                pass
            return


def snapshots_nobody_reads(port: int, stop: threading.Event) -> None:
    with ExitStack() as lines:
        for _ in range(50):
            line = lines.enter_context(_connected(port))
            line.sendall(b"GET /api/v1/snapshot HTTP/1.1\r\nHost: x\r\n\r\n")
        stop.wait(1)


def probes_without_pause(port: int, stop: threading.Event) -> None:
    with _connected(port) as line:
        while not stop.is_set():
            line.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            line.recv(65536)


def pipelined(port: int, stop: threading.Event) -> None:
    """A filter sent right behind a bind, before that is answered."""
    while not stop.is_set():
        with _connected(port) as line:
            line.sendall(_call("bind", _BIND) + _call("filter", b"{}"))
            _hear(line)


def browser_binds(port: int, stop: threading.Event) -> None:
    """What a page could make somebody's browser send: no JSON, an Origin, a foreign name."""
    while not stop.is_set():
        for headers in (
            b"Host: rebound.example\r\nContent-Type: application/json\r\n",
            b"Host: localhost\r\nOrigin: http://evil.example\r\nContent-Type: application/json\r\n",
            b"Host: localhost\r\nContent-Type: text/plain\r\n",
            b"Host: localhost\r\nContent-Type: application/json\r\n",
        ):
            with _connected(port) as line:
                line.sendall(_call("bind", _BIND, headers))
                _hear(line)


def upgrades(port: int, stop: threading.Event) -> None:
    while not stop.is_set():
        for wanted in (b"h2c", b"websocket", b"TLS/1.0"):
            with _connected(port) as line:
                line.sendall(
                    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: "
                    + wanted
                    + b"\r\n\r\n"
                    + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                )
                _hear(line)


def half_closed(port: int, stop: threading.Event) -> None:
    """Peers that say they have said all, in the middle of it or after it."""
    while not stop.is_set():
        for sent in (_call("bind", _BIND), _call("bind", _BIND)[:-9], b"GET /readyz HTTP/1.1\r\n"):
            with _connected(port) as line:
                line.sendall(sent)
                line.shutdown(socket.SHUT_WR)
                _hear(line)


@contextmanager
def under(attack: Attack, port: int, times: int = 4) -> Iterator[None]:
    """Let so many do the same while the block runs, each anew whenever it is put out."""
    stop = threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            with suppress(OSError):
                attack(port, stop)

    crowd = [threading.Thread(target=go_on, daemon=True) for _ in range(times)]
    for each in crowd:
        each.start()
    try:
        yield
    finally:
        stop.set()
        for each in crowd:
            each.join()


@contextmanager
def _connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        yield line


def _call(
    verb: str,
    body: bytes,
    headers: bytes = b"Host: localhost\r\nContent-Type: application/json\r\n",
) -> bytes:
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    return b"POST /%s HTTP/1.1\r\n" % verb.encode() + headers + length + body


def _hear(line: socket.socket) -> None:
    """Read what is answered, to its end or for a second."""
    line.settimeout(1)
    with suppress(OSError):
        while line.recv(65536):
            pass


#: What is tried on which port, by name.
ON_HOOKS: dict[str, Attack] = {
    "endless headers": endless_headers,
    "endless path": endless_path,
    "many headers": many_headers,
    "endless body": endless_body,
    "large bodies never finished": large_bodies_never_finished,
    "a byte now and then": drips,
    "a crowd": a_crowd,
    "a filter behind a bind": pipelined,
    "binds from a browser": browser_binds,
    "upgrades": upgrades,
    "half-closed peers": half_closed,
}
ON_OPERATIONS: dict[str, Attack] = {
    "endless headers": endless_headers,
    "endless path": endless_path,
    "many headers": many_headers,
    "a byte now and then": drips,
    "a crowd": a_crowd,
    "snapshots": snapshots,
    "answers nobody reads": snapshots_nobody_reads,
    "probes without pause": probes_without_pause,
    "upgrades": upgrades,
    "half-closed peers": half_closed,
}
