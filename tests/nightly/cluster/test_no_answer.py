"""How long kube-scheduler waits for an extender that does not answer, and when it asks again.

The figures of docs/default-scheduler.md, taken where they are made: at the address it asks.
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
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.train_gang import Pool
from tests.cluster.waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]

NAME = "unanswered-scheduler"
LONG_S = 120
#: A timer may fire this much early by somebody else's clock.
SLACK_S = 0.2
#: What this machine may add to a time when it is busy.
LATE_S = 6


@dataclass(slots=True)
class Call:
    """One question, from when it was heard until whoever asked hung up or was answered."""

    verb: str
    pod: str
    began: float
    ended: float = 0.0


@dataclass(slots=True)
class Ear:
    """Hears every question; what it says is up to a test."""

    #: Verbs that nothing comes back to. Filter passes every node otherwise, all else is an error.
    silent: frozenset[str] = frozenset()
    #: Verbs that are answered with an error at once.
    refused: frozenset[str] = frozenset()
    calls: list[Call] = field(default_factory=list)
    port: int = 0

    def ended(self, verb: str) -> list[Call]:
        return [call for call in tuple(self.calls) if call.verb == verb and call.ended]


@contextmanager
def listening(ear: Ear) -> Iterator[Ear]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            verb = self.path.rpartition("/")[2]
            pod = body["PodName"] if verb == "bind" else body["Pod"]["metadata"]["name"]
            call = Call(verb, pod, time.monotonic())
            ear.calls.append(call)
            if verb in ear.silent:
                # Nothing more is sent to us: it reads the end when the other side hangs up.
                self.rfile.read(1)
                self.close_connection = True
            else:
                self._answer(verb, body)
            call.ended = time.monotonic()

        def _answer(self, verb: str, body: Any) -> None:
            said = {"NodeNames": body.get("NodeNames"), "Error": ""}
            answer = json.dumps(said).encode()
            self.send_response(500 if verb in ear.refused else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *told: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        ear.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield ear
        server.shutdown()
        thread.join()


def config(plane: ControlPlane, ear: Ear, *arguments: str) -> str:
    """What our command line prints, for the ear in place of an extender."""
    about = [f"--url=http://127.0.0.1:{ear.port}", f"--scheduler-name={NAME}"]
    about += [f"--kubeconfig={plane.kubeconfig('scheduler')}", *arguments]
    ran = CliRunner().invoke(main, ["scheduler-config", *about])
    assert ran.exit_code == 0, ran.output
    return ran.output


def waiting(namespace: str, pool: Pool, count: int) -> list[Object]:
    about = {"scheduler": NAME, "node_selector": pool.selector}
    return [objects.pod(f"lone-{index}", namespace, **about) for index in range(count)]


def test_where_nothing_comes_back_one_pod_after_the_other_takes_the_time_of_a_filter(
    plane: ControlPlane,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(1)
    with listening(Ear(silent=frozenset({"filter"}))) as ear:
        text = config(plane, ear)
        (limit,) = {
            each["httpTimeout"]
            for each in yaml.safe_load(text)["extenders"]
            if "filterVerb" in each
        }
        assert limit == "2s"
        with plane.scheduler(text):
            create(*waiting(namespace, pool, 3))
            wait_for(lambda: len(ear.ended("filter")) >= 4, LONG_S, "every pod was asked about")
        calls = sorted(ear.ended("filter"), key=lambda call: call.began)

    assert len({call.pod for call in calls}) == 3
    for call, after in pairwise(calls[:4]):
        assert 2 - SLACK_S < call.ended - call.began < 2 + LATE_S
        # The next one is asked about when this one has been given up, not before.
        assert after.began - call.began > 2 - SLACK_S


def test_a_bind_that_nothing_comes_back_to_is_given_up_after_the_time_of_a_bind(
    plane: ControlPlane,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(1)
    with listening(Ear(silent=frozenset({"bind"}))) as ear:
        with plane.scheduler(config(plane, ear, "--bind-timeout-s=4")):
            create(*waiting(namespace, pool, 2))
            wait_for(lambda: len(ear.ended("bind")) >= 2, LONG_S, "both were given up")
        first, second = sorted(ear.ended("bind"), key=lambda call: call.began)[:2]

    for call in (first, second):
        assert 4 - SLACK_S < call.ended - call.began < 4 + LATE_S
    # Binds wait beside each other: the second did not have to wait for the end of the first.
    assert second.pod != first.pod
    assert second.began < first.ended


def test_a_pod_is_asked_about_again_after_pauses_that_double_up_to_ten_seconds(
    plane: ControlPlane,
    api: Api,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    page = (REPOSITORY / "docs" / "default-scheduler.md").read_text()
    assert "tried again after 1, 2, 4, 8, 10 seconds, and every 10 from then on" in page
    pool = nodes(1)
    with listening(Ear(refused=frozenset({"filter", "bind"}))) as ear:
        with plane.scheduler(config(plane, ear)):
            (pod,) = create(*waiting(namespace, pool, 1))
            wait_for(lambda: len(ear.ended("filter")) >= 7, LONG_S, "it was asked about for long")
        began = [call.began for call in ear.ended("filter")]
        seen = api.get("pods", pod["metadata"]["name"], namespace)

    pauses = [after - before for before, after in pairwise(began)]
    for pause, least in zip(pauses, (1, 2, 4, 8, 10, 10), strict=False):
        assert pause > least - SLACK_S
    # It would be 32 if it went on doubling.
    assert pauses[5] < 10 + 2 * LATE_S
    assert objects.node_of(seen) is None
