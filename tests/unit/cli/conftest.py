"""An extender's operations port for the commands that read it, on a real socket."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from flask import Flask
from werkzeug.serving import make_server

from extender.findings.finding import Finding
from extender.planner import policy_parser
from extender.status.history import GangHistory
from extender.web.api import Api
from tests.builders import NOW


@pytest.fixture
def history() -> GangHistory:
    """Record a cycle here and the commands show it."""
    return GangHistory()


@pytest.fixture
def findings() -> list[Sequence[Finding] | None]:
    """Put findings into the first item; None until a plan was checked."""
    return [None]


@pytest.fixture
def ops_url(history: GangHistory, findings: list[Sequence[Finding] | None]) -> Iterator[str]:
    app = Flask(__name__)
    ops = Api(history, lambda: policy_parser.DEFAULT, lambda: NOW, lambda: findings[0])
    app.register_blueprint(ops.blueprint())
    app.add_url_rule("/readyz", view_func=lambda: "ok\n")
    with serve(app) as url:
        yield url


@contextmanager
def serve(app: Flask) -> Iterator[str]:
    """Serve *app* inside the block, at the yielded URL."""
    server = make_server("127.0.0.1", 0, app)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the clusters and extenders of this machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [*os.environ]:
        if name.startswith("GANG_EXTENDER_") or name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
            monkeypatch.delenv(name)
