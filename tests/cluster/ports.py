"""Free ports for programs of the tests, which no other test run chooses.

A killed program restarts on its port. Meanwhile the port is free, so another run that only checks
for free ports could take it and answer the callers of that program.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# Tests run with a fixed random seed, the same in parallel runs; ports must not depend on it.
_random = random.SystemRandom()
_ours: set[int] = set()
_lock_file: int | None = None


def free_ports(count: int) -> list[int]:
    """Choose free ports and keep them while this process runs.

    They are below the range of outgoing connections: a client that retries the port of a stopped
    server in that range may get the same port as its source, connect to itself, and keep the
    server from starting.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = _random.randrange(10_000, _first_outgoing_port())
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
    """Lock one byte of a file for the port; the kernel unlocks it when this process ends."""
    global _lock_file
    if port in _ours:
        return False
    if _lock_file is None:
        path = Path(tempfile.gettempdir()) / f"gang-extender-ports-{os.getuid()}"
        _lock_file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(_lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
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
