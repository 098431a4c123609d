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
