"""A canned API server of a large cluster: lists, pages, watches and changes on request.

All objects are made before the port is printed, so that serving them costs little and only the
reader is measured. It runs as its own process: `python -m tests.bench.canned_api`.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

GANG = 20
VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
BOOKMARK = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the cluster; *waiting* of the pods have no node and request *waiting_cpu*."""

    nodes: int
    pods: int
    waiting: int
    waiting_cpu: int = 2


def template() -> dict[str, Any]:
    """Return a realistic pod: 4 KB, most of which no scheduler reads."""
    managed = {f"f:{field}": {} for field in ("image", "name", "resources", "env", "volumeMounts")}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "~OWNER~", "uid": "~OWNER~"}
    requests = {"cpu": "~CPU~", "memory": "4Gi"}
    return {
        "metadata": {
            "name": "~NAME~",
            "generateName": "~OWNER~-",
            "namespace": "team-~TEAM~",
            "uid": "00000000-0000-4000-8000-~UID~",
            "resourceVersion": "~VERSION~",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "~OWNER~", "batch.kubernetes.io/job-name": "~OWNER~"},
            "annotations": {
                "scheduling.k8s.io/group-name": "~GROUP~",
                "kubectl.kubernetes.io/default-container": "main",
                "prometheus.io/scrape": "true",
            },
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            "managedFields": [
                {"manager": name, "operation": "Update", "fieldsV1": {"f:spec": managed}}
                for name in ("kube-controller-manager", "kube-scheduler", "kubelet")
            ],
        },
        "spec": {
            "schedulerName": "~SCHEDULER~",
            "nodeName": "~NODE~",
            "priority": 0,
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/team/trainer:2026.1",
                    "command": ["python", "-m", "train", "--epochs", "90"],
                    "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(30)],
                    "resources": {"requests": requests, "limits": requests},
                    "volumeMounts": [{"name": "kube-api-access-~UID~", "mountPath": "/var/run"}],
                }
            ],
            "volumes": [
                {
                    "name": "kube-api-access-~UID~",
                    "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
                }
            ],
            "tolerations": [
                {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute"}
                for taint in ("not-ready", "unreachable")
            ],
        },
        "status": {
            "phase": "~PHASE~",
            "podIP": "10.0.0.1",
            "conditions": [
                {"type": word, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for word in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {
                    "name": "main",
                    "ready": True,
                    "restartCount": 0,
                    "image": "registry.example/team/trainer:2026.1",
                    "imageID": "registry.example/team/trainer@sha256:" + "0" * 64,
                    "allocatedResources": requests,
                    "resources": {"requests": requests, "limits": requests},
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }


@cache
def _cut() -> list[str]:
    """Return the template split at its marks: even elements are text, odd ones are marks."""
    return json.dumps(template(), separators=(",", ":")).split("~")


def pod(size: Size, number: int, *, version: int = 1, phase: str = "") -> bytes:
    """Return pod *number*: most are gang members, some are of another scheduler, the last wait."""
    waits = number >= size.pods - size.waiting
    owner = f"job-{number // GANG}"
    marks = {
        "NAME": f"{owner}-{number % GANG}",
        "OWNER": owner,
        "TEAM": str(number // GANG % 50),
        "UID": f"{number:012d}",
        "CPU": str(size.waiting_cpu if waits else 2),
        "VERSION": str(version),
        "GROUP": owner,
        "SCHEDULER": "default-scheduler" if number // GANG % 10 == 9 else "gang-scheduler",
        "NODE": "" if waits else f"node-{number % size.nodes:05d}",
        "PHASE": phase or ("Pending" if waits else "Running"),
    }
    parts = list(_cut())
    parts[1::2] = [marks[mark] for mark in parts[1::2]]
    return "".join(parts).encode()


def node(number: int) -> bytes:
    """Return a node with a realistic status."""
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "900Gi"}
    name = f"node-{number:05d}"
    return json.dumps(
        {
            "metadata": {
                "name": name,
                "uid": name,
                "resourceVersion": "1",
                "labels": {"kubernetes.io/hostname": name, "zone": f"zone-{number % 3}"},
            },
            "spec": {},
            "status": {
                "allocatable": capacity,
                "capacity": capacity,
                "conditions": [{"type": "Ready", "status": "True"}],
                "images": [
                    {"names": [f"registry.example/image-{n}@sha256:{'0' * 64}"], "sizeBytes": n}
                    for n in range(40)
                ],
            },
        }
    ).encode()


def group(number: int) -> bytes:
    """Return the PodGroup of twenty pods."""
    meta = {"name": f"job-{number}", "namespace": f"team-{number % 50}", "uid": f"g{number}"}
    spec = {"minMember": GANG, "queue": f"queue-{number % 10}"}
    return json.dumps({"metadata": meta | {"resourceVersion": "1"}, "spec": spec}).encode()


def _named(prefix: str, count: int, **rest: Any) -> list[bytes]:
    return [
        json.dumps({"metadata": {"name": f"{prefix}-{n}", "resourceVersion": "1"}, **rest}).encode()
        for n in range(count)
    ]


class Server(ThreadingHTTPServer):
    """The objects of the cluster, and how many changes are still to be sent."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, size: Size) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.size = size
        #: Every object of every resource that is installed, by path.
        self.objects = {
            "/api/v1/pods": [pod(size, number) for number in range(size.pods)],
            "/api/v1/nodes": [node(number) for number in range(size.nodes)],
            "/api/v1/namespaces": _named("team", 50),
            "/apis/scheduling.k8s.io/v1/priorityclasses": [],
            "/apis/policy/v1/poddisruptionbudgets": [],
            f"{VOLCANO}/podgroups": [group(number) for number in range(size.pods // GANG)],
            f"{VOLCANO}/queues": _named("queue", 10, spec={"weight": 1}),
        }
        self.rate = 0
        self.left = 0
        self.has_changes = threading.Event()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing about readers that were killed."""

    def changes(self) -> Iterator[bytes]:
        """Yield pods that change from Running to Unknown and back, at the requested rate."""
        sent, running = 0, self.size.pods - self.size.waiting
        while True:
            self.has_changes.wait()
            began = time.monotonic()
            done = 0
            while self.left > 0:
                due = int((time.monotonic() - began) * self.rate) - done
                for _ in range(min(due, self.left)):
                    number = sent * 7919 % running
                    phase = ("Unknown", "Running")[sent // running % 2]
                    yield pod(self.size, number, version=sent + 2, phase=phase)
                    sent += 1
                    done += 1
                    self.left -= 1
                time.sleep(0.002)
            self.has_changes.clear()


class Handler(BaseHTTPRequestHandler):
    """Answers the lists, watches and writes of the extender."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        objects = self.server.objects.get(url.path)
        if objects is None:
            self._answer(404, b'{"message":"not installed"}')
        elif "watch" in query:
            self._stream(url.path, objects, whole="sendInitialEvents" in query)
        else:
            self._answer(200, _page(objects, query))

    def do_PATCH(self) -> None:
        """Accept status, wake-ups and events, and ignore them."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(200, b"{}")

    def do_POST(self) -> None:
        if not self.path.startswith("/changes"):
            self.do_PATCH()
            return
        query = parse_qs(urlsplit(self.path).query)
        self.server.rate = int(query["rate"][0])
        self.server.left = int(query["count"][0])
        self.server.has_changes.set()
        self._answer(200, b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, path: str, objects: list[bytes], *, whole: bool) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            if whole:
                # One chunk for every event, several to a write, as Go's buffers make it.
                for begin in range(0, len(objects), 16):
                    chunks = [_chunk(b"ADDED", each) for each in objects[begin : begin + 16]]
                    self.wfile.write(b"".join(chunks))
                end = {"metadata": {"resourceVersion": "1", "annotations": BOOKMARK}}
                self.wfile.write(_chunk(b"BOOKMARK", json.dumps(end).encode()))
            if path == "/api/v1/pods":
                for each in self.server.changes():
                    self.wfile.write(_chunk(b"MODIFIED", each))
            threading.Event().wait()
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the parent's name)
        """Print nothing."""


def _page(objects: list[bytes], query: dict[str, str]) -> bytes:
    begin = int(query.get("continue", 0))
    end = begin + int(query.get("limit", len(objects)))
    more = b',"continue":"%d"' % end if end < len(objects) else b""
    head = b'{"metadata":{"resourceVersion":"1"' + more + b'},"items":['
    return head + b",".join(objects[begin:end]) + b"]}"


def _chunk(kind: bytes, item: bytes) -> bytes:
    line = b'{"type":"' + kind + b'","object":' + item + b"}\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--waiting", type=int, default=0)
    parser.add_argument("--waiting-cpu", type=int, default=2)
    given = parser.parse_args()
    server = Server(Size(given.nodes, given.pods, given.waiting, given.waiting_cpu))
    print(server.server_port, flush=True)
    sys.setswitchinterval(0.0005)
    server.serve_forever()


if __name__ == "__main__":
    main()
