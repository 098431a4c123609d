"""A server with fixed responses, for every request or by path."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Mapping
from contextlib import closing

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class CannedServer:
    """Replaces an extender, or an API server with a response for each path."""

    def __init__(self) -> None:
        self.response = b"{}"
        self.by_path: Mapping[str, bytes] = {}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        # Closing alone does not wake a thread in accept.
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
            body = self.by_path.get(path, self.response)
            head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body)}"
            caller.sendall(head.encode() + b"\r\n\r\n" + body)
        except OSError:  # the client disconnected early
            pass


def _path(caller: socket.socket) -> str:
    """Read a whole request, else the client may not read the response; return its path."""
    request, size = b"", 1 << 16
    while len(request) < size and (piece := caller.recv(1 << 16)):
        request += piece
        head, end, _ = request.partition(b"\r\n\r\n")
        if end:
            length = _LENGTH.search(head + b"\r\n")
            size = len(head) + len(end) + (int(length[1]) if length else 0)
    return request.partition(b" ")[2].partition(b" ")[0].partition(b"?")[0].decode("latin-1")
