"""Attacks that try to stall the extender or to exhaust its memory; each runs until stopped."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

#: One attack on a port; it may be called repeatedly.
Attack: TypeAlias = Callable[["Target", threading.Event], None]

#: Another client address than that of the test, since new connections are limited per address. On
#: Linux all of 127/8 is this machine.
ADDRESS = "127.0.0.3" if sys.platform == "linux" else "127.0.0.1"

_CHUNK = b"a" * 65536
_BIND = b'{"PodName":"p","PodNamespace":"kube-system","PodUID":"u","Node":"no-such-node"}'


class _CountingSocket(socket.socket):
    """A connection that counts its traffic."""

    done: Done

    def sendall(self, data: bytes, flags: int = 0) -> None:  # type: ignore[override]
        rest = memoryview(data)
        while rest:
            sent = self.send(rest, flags)
            self.done.add(sent=sent)
            rest = rest[sent:]

    def recv(self, size: int, flags: int = 0) -> bytes:
        data = super().recv(size, flags)
        self.done.add(received=len(data), ended=not data)
        return data


@dataclass
class Done:
    """What the attackers did so far."""

    connections: int = 0
    #: Bytes that they sent and received.
    sent: int = 0
    received: int = 0
    #: How often the server closed a connection.
    ended: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, **more: int) -> None:
        with self._lock:
            for what, count in more.items():
                setattr(self, what, getattr(self, what) + count)


@dataclass(frozen=True)
class Target:
    """The attacked port."""

    port: int
    done: Done = field(default_factory=Done)

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with _CountingSocket() as line:
            line.done = self.done
            line.settimeout(10)
            if sys.platform == "linux":
                # The source port is chosen at connect: many more connections are possible then.
                line.setsockopt(socket.IPPROTO_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
            line.bind((ADDRESS, 0))
            line.connect(("127.0.0.1", self.port))
            self.done.add(connections=1)
            yield line


def endless_headers(target: Target, stop: threading.Event) -> None:
    with target.connected() as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\nX-Long: ")
        while not stop.is_set():
            line.sendall(_CHUNK)


def endless_path(target: Target, stop: threading.Event) -> None:
    with target.connected() as line:
        line.sendall(b"GET /")
        while not stop.is_set():
            line.sendall(_CHUNK)


def many_headers(target: Target, stop: threading.Event) -> None:
    with target.connected() as line:
        line.sendall(b"GET /healthz HTTP/1.1\r\n")
        while not stop.is_set():
            line.sendall(b"a:b\r\n" * 10_000)


def endless_body(target: Target, stop: threading.Event) -> None:
    with target.connected() as line:
        line.sendall(
            b"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        while not stop.is_set():
            line.sendall(b"1\r\n \r\n" * 10_000)


def large_bodies_never_finished(target: Target, stop: threading.Event) -> None:
    with ExitStack() as lines:
        for _ in range(40):
            line = lines.enter_context(target.connected())
            line.sendall(
                b"POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 4000000\r\n\r\n"
            )
            with suppress(OSError):
                line.sendall(b" " * 3_900_000)
        stop.wait(0.2)


def slow_bytes(target: Target, stop: threading.Event) -> None:
    """Connections that send a byte now and then; the limit per address may delay the next ones."""
    with ExitStack() as lines:
        try:
            slow = [lines.enter_context(target.connected()) for _ in range(100)]
            for each in slow:
                each.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
            while not stop.wait(0.1):
                for each in slow:
                    each.sendall(b"a")
        except OSError:
            stop.wait(2.0)
            raise


def many_connections(target: Target, stop: threading.Event) -> None:
    with ExitStack() as lines:
        for _ in range(800):
            if not stop.is_set():
                lines.enter_context(target.connected())
        stop.wait(0.2)


def connections_that_leave(target: Target, stop: threading.Event) -> None:
    """Connections that send a request and close before the response."""
    while not stop.is_set():
        with target.connected() as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")


def snapshots(target: Target, stop: threading.Event) -> None:
    with target.connected() as line:
        while not stop.is_set():
            line.sendall(b"GET /api/v1/snapshot HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while line.recv(1 << 20) and not stop.is_set():
                pass
            return


def unread_snapshots(target: Target, stop: threading.Event) -> None:
    with ExitStack() as lines:
        for _ in range(50):
            line = lines.enter_context(target.connected())
            line.sendall(b"GET /api/v1/snapshot HTTP/1.1\r\nHost: x\r\n\r\n")
        stop.wait(1)


def probes_without_pause(target: Target, stop: threading.Event) -> None:
    with target.connected() as line:
        while not stop.is_set():
            line.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
            line.recv(65536)


def pipelined(target: Target, stop: threading.Event) -> None:
    """A filter call sent behind a bind call, before the response."""
    while not stop.is_set():
        with target.connected() as line:
            line.sendall(_call("bind", _BIND) + _call("filter", b"{}"))
            _read_response(line)


def browser_binds(target: Target, stop: threading.Event) -> None:
    """What a web page could make a browser send: no JSON, an Origin, a foreign host name."""
    while not stop.is_set():
        for headers in (
            b"Host: rebound.example\r\nContent-Type: application/json\r\n",
            b"Host: localhost\r\nOrigin: http://evil.example\r\nContent-Type: application/json\r\n",
            b"Host: localhost\r\nContent-Type: text/plain\r\n",
            b"Host: localhost\r\nContent-Type: application/json\r\n",
        ):
            with target.connected() as line:
                line.sendall(_call("bind", _BIND, headers))
                _read_response(line)


def upgrades(target: Target, stop: threading.Event) -> None:
    while not stop.is_set():
        for wanted in (b"h2c", b"websocket", b"TLS/1.0"):
            with target.connected() as line:
                line.sendall(
                    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: "
                    + wanted
                    + b"\r\n\r\n"
                    + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                )
                _read_response(line)


def half_closed(target: Target, stop: threading.Event) -> None:
    """Peers that shut down writing, within a request or after it."""
    while not stop.is_set():
        for sent in (_call("bind", _BIND), _call("bind", _BIND)[:-9], b"GET /readyz HTTP/1.1\r\n"):
            with target.connected() as line:
                line.sendall(sent)
                line.shutdown(socket.SHUT_WR)
                _read_response(line)


@contextmanager
def under(attack: Attack, port: int, times: int = 4) -> Iterator[Done]:
    """Run *times* attackers during the block; each starts again when it is disconnected."""
    target, stop = Target(port), threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            try:
                attack(target, stop)
            except OSError:
                target.done.add(ended=1)

    threads = [threading.Thread(target=repeat, daemon=True) for _ in range(times)]
    for each in threads:
        each.start()
    try:
        yield target.done
    finally:
        stop.set()
        for each in threads:
            each.join()


def _call(
    verb: str,
    body: bytes,
    headers: bytes = b"Host: localhost\r\nContent-Type: application/json\r\n",
) -> bytes:
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    return b"POST /%s HTTP/1.1\r\n" % verb.encode() + headers + length + body


def _read_response(line: socket.socket) -> None:
    """Read the response to its end, or for a second."""
    line.settimeout(1)
    with suppress(OSError):
        while line.recv(65536):
            pass


#: The attacks on each port, by name.
ON_HOOKS: dict[str, Attack] = {
    "endless headers": endless_headers,
    "endless path": endless_path,
    "many headers": many_headers,
    "endless body": endless_body,
    "large bodies never finished": large_bodies_never_finished,
    "a byte now and then": slow_bytes,
    "a crowd": many_connections,
    "a filter behind a bind": pipelined,
    "binds from a browser": browser_binds,
    "upgrades": upgrades,
    "half-closed peers": half_closed,
}
ON_OPERATIONS: dict[str, Attack] = {
    "endless headers": endless_headers,
    "endless path": endless_path,
    "many headers": many_headers,
    "a byte now and then": slow_bytes,
    "a crowd": many_connections,
    "a crowd that asks and leaves": connections_that_leave,
    "snapshots": snapshots,
    "unread answers": unread_snapshots,
    "probes without pause": probes_without_pause,
    "upgrades": upgrades,
    "half-closed peers": half_closed,
}
