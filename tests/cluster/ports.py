"""Ports for programs beside the tests: nobody listens there, no other run of tests chooses them.

A program that was killed comes back on its port. While it is away nobody listens there, so whoever
chooses a port by looking alone may take that very one, and answer its callers in its place.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# Tests run with a fixed random seed each, the same one in parallel runs; ports must not follow it.
_chance = random.SystemRandom()
_ours: set[int] = set()
_book: int | None = None


def free_ports(count: int) -> list[int]:
    """Choose ports that nobody listens on, and keep them for as long as this process runs.

    Below the range that the kernel hands to outgoing connections: a client that knocks again and
    again on the port of a stopped server in that range may be given this very port to call from,
    be connected to itself, and keep the server from coming back.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = _chance.randrange(10_000, _first_outgoing_port())
        if _is_free(port) and _reserve(port):
            ports.append(port)
    return ports


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _reserve(port: int) -> bool:
    """One byte of one file is locked per port; the kernel gives it back when this process ends."""
    global _book
    if port in _ours:
        return False
    if _book is None:
        path = Path(tempfile.gettempdir()) / f"gang-extender-ports-{os.getuid()}"
        _book = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(_book, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _ours.add(port)
    return True


def _first_outgoing_port() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        first = 32_768
    return first if first > 11_000 else 32_768
