"""A client of the ports that sends and receives bytes, and the calls of kube-scheduler."""

from __future__ import annotations

import json
import socket
import ssl
from contextlib import suppress
from typing import Any

from tests.unit.web.conftest import World, bind_call, eventually

BOUND = b'{"Error":""}'
#: The headers of every call of kube-scheduler.
HEADERS = "Host: localhost\r\nContent-Type: application/json\r\n"


class Wire:
    """A client connection that sends and receives bytes."""

    def __init__(
        self, port: int, tls: ssl.SSLContext | None = None, receive: int | None = None
    ) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(20)
        if receive is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        self.socket.connect(("127.0.0.1", port))
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.socket.sendall(piece)

    def read(self, until: bytes) -> bytes:
        got = b""
        while not got.endswith(until):
            piece = self.socket.recv(65536)
            assert piece, f"closed after {got!r}"
            got += piece
        return got

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def reads_something(self) -> bool:
        return self.socket.recv(64) != b""

    def size_of_the_rest(self) -> int:
        """Read to the end and return the number of bytes."""
        size = 0
        with suppress(ConnectionError):
            while piece := self.socket.recv(1 << 20):
                size += len(piece)
        return size

    def ends_with_status(self) -> int | None:
        """Read to the end and return the status, or None if it was lost with the connection."""
        got = b""
        with suppress(ConnectionError):
            while piece := self.socket.recv(65536):
                got += piece
        return int(got.split()[1]) if got else None

    def finish(self) -> None:
        """Close the sending side; responses may still arrive."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()


def request(body: bytes, path: str = "filter", extra: str = "", method: str = "POST") -> bytes:
    head = f"{method} /{path} HTTP/1.1\r\n{HEADERS}Content-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def question(world: World, name: str = "web", gang: str | None = None) -> bytes:
    return json.dumps({"Pod": world.pod(name, gang), "NodeNames": ["node-0"]}).encode()


def bind(pod: Any) -> bytes:
    return request(json.dumps(bind_call(pod)).encode(), "bind")


def send_waiting_bind(world: World, wire: Wire, *, node: bool = True) -> None:
    """Send a bind that waits for the second member of its gang, on a new node if *node* is true."""
    if node:
        world.node("node-0")
    world.group("train", 2)
    pod = world.pod("train-0", "train")
    wire.send(request(json.dumps({"Pod": pod, "NodeNames": ["node-0"]}).encode()))
    wire.read(b"}")
    wire.send(bind(pod))
    eventually(lambda: world.runtime.core.permit.waiting_binds == 1)


def refused(world: World, reason: str) -> float:
    """Return the number of refusals with this reason on both ports."""
    registry = world.runtime.pages.metrics.registry
    name = "gang_extender_calls_refused_total"
    return sum(
        registry.get_sample_value(name, {"port": port, "reason": reason}) or 0.0
        for port in ("hooks", "operations")
    )
