"""How long kube-scheduler waits for an extender that does not answer, and when it retries.

The figures of docs/install.md, measured by a server in place of the extender.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import yaml
from click.testing import CliRunner

from extender.cli.main import main
from tests import objects
from tests.cluster.api import Api, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.train_gang import Pool
from tests.cluster.waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]

NAME = "unanswered-scheduler"
TIMEOUT_S = 120
#: A timer of another process may fire this much earlier.
SLACK_S = 0.2
#: What this machine may add to a time when it is busy.
LATE_S = 6


@dataclass(slots=True)
class Call:
    """One hook call, from its arrival until its response, or until the caller disconnects."""

    verb: str
    pod: str
    began: float
    ended: float = 0.0


@dataclass(slots=True)
class FakeExtender:
    """Records every call; a test defines the responses."""

    #: Verbs without a response. Otherwise filter passes every node, and the others return an error.
    silent: frozenset[str] = frozenset()
    #: Verbs that return status 500 at once.
    refused: frozenset[str] = frozenset()
    calls: list[Call] = field(default_factory=list)
    port: int = 0

    def ended(self, verb: str) -> list[Call]:
        return [call for call in tuple(self.calls) if call.verb == verb and call.ended]


@contextmanager
def listening(fake: FakeExtender) -> Iterator[FakeExtender]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            verb = self.path.rpartition("/")[2]
            pod = body["PodName"] if verb == "bind" else body["Pod"]["metadata"]["name"]
            call = Call(verb, pod, time.monotonic())
            fake.calls.append(call)
            if verb in fake.silent:
                # This returns when the caller closes the connection.
                self.rfile.read(1)
                self.close_connection = True
            else:
                self._answer(verb, body)
            call.ended = time.monotonic()

        def _answer(self, verb: str, body: Any) -> None:
            result = {"NodeNames": body.get("NodeNames"), "Error": ""}
            answer = json.dumps(result).encode()
            self.send_response(500 if verb in fake.refused else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        fake.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield fake
        server.shutdown()
        thread.join()


def config(plane: ControlPlane, fake: FakeExtender, *arguments: str) -> str:
    """Return the printed configuration for the fake extender."""
    about = [f"--url=http://127.0.0.1:{fake.port}", f"--scheduler-name={NAME}"]
    about += [f"--kubeconfig={plane.kubeconfig('scheduler')}", *arguments]
    ran = CliRunner().invoke(main, ["scheduler-config", *about])
    assert ran.exit_code == 0, ran.output
    return ran.output


def waiting(namespace: str, pool: Pool, count: int) -> list[Object]:
    about = {"scheduler": NAME, "node_selector": pool.selector}
    return [objects.pod(f"lone-{index}", namespace, **about) for index in range(count)]


def test_each_pod_takes_the_filter_timeout_if_filter_does_not_answer(
    plane: ControlPlane,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(1)
    with listening(FakeExtender(silent=frozenset({"filter"}))) as fake:
        text = config(plane, fake)
        (limit,) = {
            each["httpTimeout"]
            for each in yaml.safe_load(text)["extenders"]
            if "filterVerb" in each
        }
        assert limit == "2s"
        with plane.scheduler(text):
            create(*waiting(namespace, pool, 3))
            wait_for(
                lambda: len(fake.ended("filter")) >= 4, TIMEOUT_S, "filter was called for every pod"
            )
        calls = sorted(fake.ended("filter"), key=lambda call: call.began)

    assert len({call.pod for call in calls}) == 3
    for call, after in pairwise(calls[:4]):
        assert 2 - SLACK_S < call.ended - call.began < 2 + LATE_S
        # The next call begins when this one has timed out.
        assert after.began - call.began > 2 - SLACK_S


def test_unanswered_bind_ends_after_the_bind_timeout(
    plane: ControlPlane,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(1)
    with listening(FakeExtender(silent=frozenset({"bind"}))) as fake:
        with plane.scheduler(config(plane, fake, "--bind-timeout-s=4")):
            create(*waiting(namespace, pool, 2))
            wait_for(lambda: len(fake.ended("bind")) >= 2, TIMEOUT_S, "both timed out")
        first, second = sorted(fake.ended("bind"), key=lambda call: call.began)[:2]

    for call in (first, second):
        assert 4 - SLACK_S < call.ended - call.began < 4 + LATE_S
    # Binds wait in parallel: the second began before the end of the first.
    assert second.pod != first.pod
    assert second.began < first.ended


def test_pod_is_retried_with_a_backoff_of_up_to_ten_seconds(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(1)
    with listening(FakeExtender(refused=frozenset({"filter", "bind"}))) as fake:
        with plane.scheduler(config(plane, fake)):
            (pod,) = create(*waiting(namespace, pool, 1))
            wait_for(lambda: len(fake.ended("filter")) >= 7, TIMEOUT_S, "it was retried")
        began = [call.began for call in fake.ended("filter")]
        seen = api.get("pods", pod["metadata"]["name"], namespace)

    pauses = [after - before for before, after in pairwise(began)]
    for pause, least in zip(pauses, (1, 2, 4, 8, 10, 10), strict=False):
        assert pause > least - SLACK_S
    # It would be 32 without the maximum.
    assert pauses[5] < 10 + 2 * LATE_S
    assert objects.node_of(seen) is None
