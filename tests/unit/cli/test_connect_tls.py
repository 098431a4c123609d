"""Calling an operations port over TLS."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.cli.connect import Address, get_document
from extender.errors import InvalidInput
from extender.settings import Settings
from extender.tls.server import operations_certificates
from tests.certificates import Wallet


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"asked": "%b"}' % self.path.encode())

    def log_message(self, *_: object) -> None: ...


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Ignore clients that do not trust the certificate."""


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    wallet = Wallet(tmp_path)
    pair = {f"ops_{name}": path for name, path in wallet.options.items() if "tls" in name}
    certificates = operations_certificates(Settings(**pair))
    assert certificates is not None
    with Server(("127.0.0.1", 0), Handler) as server:
        server.socket = certificates.in_force().wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_untrusted_ca_is_reported_with_the_remedy(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not trusted here.* SSL_CERT_FILE"):
        get_document(Address(url), dict, "plan")


def test_the_ca_in_ssl_cert_file_is_trusted(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))

    assert get_document(Address(url), dict, "plan") == {"asked": "/api/v1/plan"}
