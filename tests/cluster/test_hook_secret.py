"""The hook secret on the real kube-scheduler: it is sent with calls, and appears nowhere else."""

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
from .train_gang import Pool
from .waiting import wait_for

SECRET = "0123456789-abcdefghij_~."
OWN = "--scheduler-name=secret-scheduler"
#: The scheduler name of the pods.
OURS = {"scheduler": "secret-scheduler"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "hook-secret"
    made.write_text(SECRET)
    return made


class RecordingServer:
    """A server in place of an extender: it records the Authorization headers and refuses all."""

    def __init__(self) -> None:
        self.received: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.received.append(self.headers.get("Authorization", ""))
                self.rfile.read(int(self.headers["Content-Length"]))
                answer = json.dumps({"Error": "refused by the test"}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *words: object) -> None:
                """Log nothing."""

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


def events_and_pods(api: Api, namespace: str) -> str:
    """Return all events and pods of the namespace as text."""
    return json.dumps([*api.list("events", namespace), *api.list("pods", namespace)])


def test_kube_scheduler_sends_the_secret_with_every_call_and_writes_it_into_no_event(
    plane: ControlPlane, api: Api, namespace: str, nodes: Callable[..., Pool], file: Path
) -> None:
    server, pool = RecordingServer(), nodes(1)
    config = plane.scheduler_config(server, OWN, f"--hook-secret-file={file}")  # type: ignore[arg-type]
    selector = pool.selector
    with plane.scheduler(config):
        with server.listening():
            api.create(objects.pod("called", namespace, node_selector=selector, **OURS))
            wait_for(
                lambda: "refused by the test" in events_and_pods(api, namespace),
                60,
                "it was called",
            )
        # Without a server, its event has the URL.
        api.create(objects.pod("unanswered", namespace, node_selector=selector, **OURS))
        wait_for(
            lambda: server.url[7:] in events_and_pods(api, namespace), 60, "the event has the URL"
        )

    encoded = base64.b64encode(f"{hook_secret.USER}:{SECRET}".encode()).decode()
    assert set(server.received) == {f"Basic {encoded}"}
    assert SECRET not in events_and_pods(api, namespace)


def test_pair_with_a_shared_secret_starts_gangs(
    plane: ControlPlane, api: Api, namespace: str, nodes: Callable[..., Pool], file: Path
) -> None:
    pool, flag = nodes(2), f"--hook-secret-file={file}"
    with (
        plane.extender(OWN, flag) as extender,
        plane.scheduler(plane.scheduler_config(extender, OWN, flag)),
    ):
        api.create(objects.pod_group("train", namespace, 2))
        like = {"gang": "train", "node_selector": pool.selector, **OURS}
        api.create(*objects.pods(2, "train", namespace, **like))
        wait_for(
            lambda: all(objects.node_of(pod) for pod in api.list("pods", namespace)),
            60,
            "the gang has started",
        )
