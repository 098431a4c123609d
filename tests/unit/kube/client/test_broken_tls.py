"""A broken TLS connection does not break other connections of the same thread."""

from __future__ import annotations

import os
import socket
import ssl
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from extender.errors import NoResponse
from extender.kube.client import ApiClient
from extender.kube.config import ApiServer
from extender.tls.issue import Authority

HERE = "127.0.0.1"
BREAKS = "/breaks"
#: More than the buffers of two sockets hold.
MUCH = 20_000_000
#: Close at once and reset the connection.
RESET = struct.pack("ii", 1, 0)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Break off, while the body is still being written to us."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.close_connection = True
        os.close(self.connection.detach())

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args: Any) -> None:
        """Keep quiet."""


class Api(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__((HERE, 0), Handler)
        self._context = context
        self.connections = 0

    def get_request(self) -> tuple[socket.socket, Any]:
        plain, address = super().get_request()
        self.connections += 1
        return self._context.wrap_socket(plain, server_side=True), address

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet: it breaks connections on purpose."""


@pytest.fixture
def authority() -> Authority:
    return Authority.new("the cluster's CA", 9)


@pytest.fixture
def api(authority: Authority, tmp_path: Path) -> Iterator[Api]:
    pair = authority.for_server([HERE], 5)
    (tmp_path / "crt").write_bytes(pair.certificate)
    (tmp_path / "key").write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    with Api(context) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def access(api: Api, authority: Authority) -> ApiClient:
    tls = ssl.create_default_context(cadata=authority.pair.certificate.decode())
    return ApiClient(ApiServer(host=HERE, port=api.server_address[1], tls=tls, server_name=HERE))


def open_several(access: ApiClient, count: int) -> None:
    """Open *count* connections and leave them idle."""
    answers = [access.open("GET", "/", read_s=10) for _ in range(count)]
    for answer in answers:
        assert answer.read() == b"{}"


def test_the_next_request_uses_an_intact_connection(access: ApiClient, api: Api) -> None:
    open_several(access, 3)
    with pytest.raises(NoResponse):
        access.request("POST", BREAKS, "x" * MUCH)
    # Another thread makes the connection that takes the place of the broken one, and keeps it.
    with ThreadPoolExecutor(1) as elsewhere:
        answer = elsewhere.submit(access.open, "GET", "/", read_s=10).result()
    assert api.connections == 4

    for _ in range(3):
        assert access.request("GET", "/") == b"{}"
    assert api.connections == 4
    answer.close()
