"""Records what the real kube-scheduler sends: `python -m tests.unit.hooks.wire.record`.

A small proxy stands between kube-scheduler and the extender, and writes down one call of each
kind with the answer it got. Run it again for a new minor of Kubernetes and look at the diff.
"""

from __future__ import annotations

import json
import tempfile
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests import objects
from tests.cluster.control_plane import ControlPlane
from tests.cluster.observer import bound
from tests.cluster.reported import wait_until_refused
from tests.cluster.waiting import wait_for

HERE = Path(__file__).parent


class RecordedCalls:
    """The calls so far, by verb and pod."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.calls: list[tuple[str, bytes, bytes]] = []

    def find(self, verb: str, pod: str) -> tuple[bytes, bytes]:
        """Give the last call of *verb* for *pod*, and the answer."""
        needle = json.dumps(pod).encode()
        found = [(c, a) for v, c, a in self.calls if v == verb and needle in c]
        assert found, f"no {verb} for {pod} among {[v for v, _, _ in self.calls]}"
        return found[-1]


def serve(tape: RecordedCalls) -> ThreadingHTTPServer:
    """Forwards calls from kube-scheduler to the extender."""

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = urllib.request.Request(
                tape.target + self.path, body, {"Content-Type": "application/json"}, method="POST"
            )
            with urllib.request.urlopen(request, timeout=60) as reply:
                answer = reply.read()
            tape.calls.append((self.path.strip("/"), body, answer))
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    """Record."""
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        plane.install()
        with plane.extender() as extender:
            tape = RecordedCalls(extender.url)
            server = serve(tape)
            url = f"http://127.0.0.1:{server.server_port}"
            # With a preference, so that prioritize is asked, too; the extender has none.
            config = plane.scheduler_config(extender, "--prefer=pack").replace(extender.url, url)
            with plane.scheduler(config):
                play(plane)
            keep("filter-ordinary", *tape.find("filter", "ordinary"))
            keep("filter-member", *tape.find("filter", "train-0"))
            keep("prioritize-ordinary", *tape.find("prioritize", "ordinary"))
            keep("bind-ordinary", *tape.find("bind", "ordinary"))
            keep("filter-without-group", *tape.find("filter", "orphan"))
            keep("preempt-important", *tape.find("preempt", "important"))
            whole = config.replace("nodeCacheCapable: true", "nodeCacheCapable: false")
            with plane.scheduler(whole):
                call_with_whole_nodes(plane)
            keep("filter-whole-nodes", *tape.find("filter", "whole"))
            server.shutdown()
            server.server_close()


def play(plane: ControlPlane) -> None:
    """Make kube-scheduler send every kind of call once."""
    api = plane.api
    api.create(objects.namespace("wire"), objects.priority_class("high", 1000))
    api.create(*(objects.node(f"node-{index}", cpu="2") for index in range(2)))
    plane.wait_until_nodes_are_ready(["node-0", "node-1"])
    api.create(objects.pod("ordinary", "wire", cpu="2"))
    wait_for(lambda: len(bound(api, "wire")) == 1, 10, "ordinary is bound")
    api.create(objects.pod_group("train", "wire", 2))
    api.create(*objects.pods(2, "train", "wire", gang="train", cpu="1"))
    wait_for(lambda: len(bound(api, "wire")) == 3, 10, "train is bound")
    api.delete("pods", "train-0", "wire", grace_seconds=0)
    api.delete("pods", "train-1", "wire", grace_seconds=0)
    api.create(objects.pod("orphan", "wire", gang="nobody"))
    wait_until_refused(api, "wire", "orphan", "PodGroupMissing")
    api.create(objects.pod("second", "wire", cpu="2"))
    wait_for(lambda: len(bound(api, "wire")) == 2, 10, "the nodes are full")
    api.create(objects.pod("important", "wire", cpu="2", priority="high"))
    wait_for(lambda: "important" in bound(api, "wire"), 20, "a pod was preempted")


def call_with_whole_nodes(plane: ControlPlane) -> None:
    """Make a kube-scheduler without nodeCacheCapable send its calls once."""
    api = plane.api
    api.create(objects.node("node-2", cpu="2"))
    plane.wait_until_nodes_are_ready(["node-2"])
    api.create(objects.pod("whole", "wire", cpu="2"))
    wait_for(lambda: "whole" in bound(api, "wire"), 10, "whole is bound")


def keep(name: str, call: bytes, answer: bytes) -> None:
    """Write a call and its answer side by side, as they were sent."""
    for kind, text in (("call", call), ("answer", answer)):
        pretty = json.dumps(json.loads(text), indent=1)
        (HERE / f"{name}.{kind}.json").write_text(pretty + "\n")


if __name__ == "__main__":
    main()
