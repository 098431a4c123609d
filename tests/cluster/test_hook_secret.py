"""The secret of the hooks and the real kube-scheduler: it is sent, and told to nobody else."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from extender.tls import hook_secret
from tests import objects

from .api import Api
from .control_plane import ControlPlane
from .stage import Pool
from .waiting import wait_for

SECRET = "0123456789-abcdefghij_~."
OWN = "--scheduler-name=secretive-scheduler"
#: Whose pods those are.
OURS = {"scheduler": "secretive-scheduler"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "hook-secret"
    made.write_text(SECRET)
    return made


class Ear:
    """Stands where an extender would be, hears what is sent, and refuses everything."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        ear = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                ear.heard.append(self.headers.get("Authorization", ""))
                self.rfile.read(int(self.headers["Content-Length"]))
                answer = json.dumps({"Error": "nobody gets in"}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *words: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def listening(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def said(api: Api, namespace: str) -> str:
    """All that anybody can read of what went wrong."""
    return json.dumps([*api.list("events", namespace), *api.list("pods", namespace)])


def test_kube_scheduler_sends_it_with_every_call_and_writes_it_into_no_event(
    plane: ControlPlane, api: Api, namespace: str, nodes: Callable[..., Pool], file: Path
) -> None:
    ear, pool = Ear(), nodes(1)
    config = plane.scheduler_config(ear, OWN, f"--hook-secret-file={file}")  # type: ignore[arg-type]
    selector = pool.selector
    with plane.scheduler(config):
        with ear.listening():
            api.create(objects.pod("asked", namespace, node_selector=selector, **OURS))
            wait_for(lambda: "nobody gets in" in said(api, namespace), 60, "it was asked")
        # And while nobody answers, which it says with the URL.
        api.create(objects.pod("unanswered", namespace, node_selector=selector, **OURS))
        wait_for(lambda: ear.url[7:] in said(api, namespace), 60, "it says whom it cannot reach")

    told = base64.b64encode(f"{hook_secret.USER}:{SECRET}".encode()).decode()
    assert set(ear.heard) == {f"Basic {told}"}
    assert SECRET not in said(api, namespace)


def test_a_pair_that_shares_one_starts_gangs(
    plane: ControlPlane, api: Api, namespace: str, nodes: Callable[..., Pool], file: Path
) -> None:
    pool, told = nodes(2), f"--hook-secret-file={file}"
    with (
        plane.extender(OWN, told) as extender,
        plane.scheduler(plane.scheduler_config(extender, OWN, told)),
    ):
        api.create(objects.pod_group("train", namespace, 2))
        like = {"gang": "train", "node_selector": pool.selector, **OURS}
        api.create(*objects.pods(2, "train", namespace, **like))
        wait_for(
            lambda: all(objects.node_of(pod) for pod in api.list("pods", namespace)),
            60,
            "the gang has started",
        )
