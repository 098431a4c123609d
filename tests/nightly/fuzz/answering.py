"""A server that says what it was told to say: to every question, or to one about a path."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping
from contextlib import closing

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class Answering:
    """Stands in for an extender, or for an API server by what it says at each path."""

    def __init__(self) -> None:
        self.told = b"{}"
        self.by_path: Mapping[str, bytes] = {}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # Closing alone wakes nobody who waits in accept.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _run(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            with closing(caller):
                self._answer(caller)

    def _answer(self, caller: socket.socket) -> None:
        try:
            path = _path(caller)
            told = self.by_path.get(path, self.told)
            head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(told)}"
            caller.sendall(head.encode() + b"\r\n\r\n" + told)
        except OSError:  # it did not want to hear all of it
            pass


def _path(caller: socket.socket) -> str:
    """Read a question to its end, else it might not hear the answer; give what it is about."""
    asked, size = b"", 1 << 16
    while len(asked) < size and (piece := caller.recv(1 << 16)):
        asked += piece
        head, end, _ = asked.partition(b"\r\n\r\n")
        if end:
            length = _LENGTH.search(head + b"\r\n")
            size = len(head) + len(end) + (int(length[1]) if length else 0)
    return asked.partition(b" ")[2].partition(b" ")[0].partition(b"?")[0].decode("latin-1")
