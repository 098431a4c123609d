"""The way on which every call takes its time, without any control plane."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from .slow_door import SlowDoor

DELAY_S = 0.2


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that says again what it hears, to one caller."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            heard, _ = listening.accept()
            with heard:
                while data := heard.recv(4096):
                    heard.sendall(data)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(timeout=10)


def test_what_is_asked_arrives_late_and_in_order_and_calls_do_not_wait_for_each_other(
    echo: str,
) -> None:
    said = b"".join(b"%d," % number for number in range(1000))
    with SlowDoor(echo, DELAY_S) as door:
        there = urlsplit(door.url)
        with socket.create_connection((there.hostname or "", there.port or 0), timeout=10) as ask:
            began = time.monotonic()
            for begin in range(0, len(said), 100):
                ask.sendall(said[begin : begin + 100])
            heard = b""
            while len(heard) < len(said):
                heard += ask.recv(4096)

    assert heard == said
    assert time.monotonic() - began >= DELAY_S


def test_who_is_not_there_is_not_reached(unused_tcp_port_of_nobody: int) -> None:
    with SlowDoor(f"https://127.0.0.1:{unused_tcp_port_of_nobody}", DELAY_S) as door:
        there = urlsplit(door.url)
        with socket.create_connection((there.hostname or "", there.port or 0), timeout=10) as ask:
            assert ask.recv(1) == b""


@pytest.fixture
def unused_tcp_port_of_nobody() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
