"""The hooks of the real server with a large cluster: response times and CPU.

`gang-extender serve` watches a canned API server. A raw socket calls filter as kube-scheduler does,
one call after the other: on an idle server, while binds wait, during many changes and full cycles
(750 of 1,000 gangs never fit), and during what-if requests and pages of waiting gangs.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count as count_up
from pathlib import Path
from typing import Any

import yaml

from extender.settings import flag
from tests.bench.bench_cache import canned_api, percentile, send_changes
from tests.bench.bench_gangs import cpu_s, family
from tests.bench.canned_api import GANG, Size, pod
from tests.certificates import Wallet
from tests.cluster.extender_process import Extender

WAITING_BINDS = (1_000, 5_000, 10_000)  # the last is the limit (--max-holds)
NAMES = 500  # offered by kube-scheduler with 5,000 nodes
#: On a page that is still being computed, or must be requested again.
_UNFINISHED = (b"data-unfinished", b"busy with")


class Caller:
    """One keep-alive connection, like that of kube-scheduler."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")

    def ask(self, verb: str, body: bytes) -> bytes:
        """Send a call and return the answer."""
        self.send(verb, body)
        return self.read()

    def send(self, path: str, body: bytes) -> None:
        """Send a call; without a body it is a GET."""
        method = "POST" if body else "GET"
        head = f"{method} /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/json\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def close(self) -> None:
        self._socket.close()

    def read(self) -> bytes:
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._socket.recv(65536)
        head, _, answer = got.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        while len(answer) < length:
            answer += self._socket.recv(65536)
        return answer


class FilterCalls:
    """Calls filter many times and prints a row of figures."""

    def __init__(self, serving: Serving, size: Size, calls: int) -> None:
        self._serving = serving
        self._extender = extender = serving.extender
        self._calls = calls
        self._hooks, self._ops = serving.caller(), Caller(extender.ports[1])
        self.names = [f"node-{number:05d}" for number in range(NAMES)]
        waiting = [json.loads(pod(size, size.pods - 1 - number)) for number in range(200)]
        self._members = [self._call(each) for each in waiting]
        self._single = [self._call(single_pod(waiting[0]))]

    def show(self, what: str, *, single: bool = False, for_s: float = 0.0) -> None:
        """Call filter for the members of waiting gangs in turn, or for a single pod."""
        bodies = self._single if single else self._members
        self._show(what, self._hooks, "filter", bodies, for_s)

    def show_new_connections(self, what: str) -> None:
        """Call filter for the single pod, each time over a new connection."""
        (body,), times = self._single, []
        before = cpu_s(self._extender)
        for _ in range(self._calls // 10):
            began = time.perf_counter()
            caller = self._serving.caller()
            caller.ask("filter", body)
            times.append(time.perf_counter() - began)
            caller.close()
        self._print(what, times, cpu_s(self._extender) - before)

    def show_healthz(self, what: str) -> None:
        """Call the liveness probe."""
        self._show(what, self._ops, "healthz", [b""])

    def _show(
        self, what: str, caller: Caller, path: str, bodies: list[bytes], for_s: float = 0.0
    ) -> None:
        times: list[float] = []
        before, end = cpu_s(self._extender), time.perf_counter() + for_s
        while len(times) < self._calls or time.perf_counter() < end:
            began = time.perf_counter()
            caller.ask(path, bodies[len(times) % len(bodies)])
            times.append(time.perf_counter() - began)
        self._print(what, times, cpu_s(self._extender) - before)

    @staticmethod
    def _print(what: str, times: list[float], spent_s: float) -> None:
        cpu_ms = spent_s * 1000 / len(times)
        p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
        print(f"{what:44} {p50:5.2f} ms {p99:5.2f} ms {cpu_ms:6.2f} ms", flush=True)

    def _call(self, pod: Any) -> bytes:
        return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": self.names}).encode()


@dataclass(frozen=True, slots=True)
class Serving:
    """A running server, and how to connect to its hooks."""

    extender: Extender
    #: The port of the canned API server.
    api: int
    tls: ssl.SSLContext | None

    def caller(self) -> Caller:
        """Connect as kube-scheduler does."""
        return Caller(self.extender.ports[0], self.tls)


class WhatIfRequests(threading.Thread):
    """Requests a new what-if and the page of a waiting gang in turn, as fast as possible."""

    def __init__(self, port: int, size: Size) -> None:
        super().__init__(daemon=True)
        self._ops = Caller(port)
        self._waiting = [json.loads(pod(size, size.pods - 1 - at * GANG)) for at in range(50)]
        self._ends = threading.Event()
        self.answers = 0

    def run(self) -> None:
        for number in count_up():
            about = self._waiting[number % len(self._waiting)]["metadata"]
            group = about["annotations"]["scheduling.k8s.io/group-name"]
            for path in (
                f"whatif?name=new-{number}&namespace=team-1&cpu=1&members=20",
                f"gangs/{about['namespace']}/{group}",
            ):
                while self._is_unfinished(path):
                    if self._ends.wait(0.2):
                        return
                self.answers += 1
            if self._ends.is_set():
                return

    def _is_unfinished(self, path: str) -> bool:
        page = self._ops.ask(path, b"")
        return any(word in page for word in _UNFINISHED)

    def end(self) -> None:
        """Stop, and close the connection."""
        self._ends.set()
        self.join()
        self._ops.close()


def main(
    size: Size, calls: int, *, tls: bool = False, brief: bool = False, whatif: bool = False
) -> None:
    """Measure a cluster in which all waiting pods fit, then one in which most never fit."""
    print(f"{'':44} {'p50':>8} {'p99':>8} {'CPU/call':>9}")
    if whatif:
        show_whatif(replace(size, waiting_cpu=20), calls, tls=tls)
        return
    with serving(size, tls=tls) as served:
        extender, filters = served.extender, FilterCalls(served, size, calls)
        filters.show("filter, single pod, idle", single=True)
        filters.show("filter, gang member, idle")
        filters.show_new_connections("filter, single pod, a new connection each")
        if brief:
            return
        filters.show_healthz("/healthz, no bind waits")
        for wanted in WAITING_BINDS:
            with ExitStack() as connections:
                count = make_binds_wait(connections, served, size, wanted)
                filters.show(f"filter, single pod, {count} binds wait", single=True)
                filters.show_healthz(f"/healthz, {count} binds wait")
                print(f"{'':44} {resident_mb(extender):.0f} MB resident", flush=True)
    crowded = replace(size, waiting_cpu=20)
    with serving(crowded, tls=tls) as served:
        extender, filters = served.extender, FilterCalls(served, crowded, calls)
        before = cycles(extender)
        send_changes(served.api, 2000, 240_000)
        filters.show("filter, gang member, full cycles run", for_s=20)
        count, seconds = (b - a for a, b in zip(before, cycles(extender), strict=True))
        each_ms = seconds / max(count, 1) * 1000
        print(f"{'':44} {count:.0f} cycles meanwhile, {each_ms:.0f} ms each", flush=True)


def show_whatif(size: Size, calls: int, *, tls: bool) -> None:
    """Measure twice without and with what-if requests."""
    with serving(size, tls=tls) as served:
        filters = FilterCalls(served, size, calls)
        for _ in range(2):
            filters.show("filter, gang member, no what-if", for_s=10)
            requests = WhatIfRequests(served.extender.ports[1], size)
            requests.start()
            filters.show("filter, gang member, one what-if after another", for_s=20)
            requests.end()
            print(f"{'':44} {requests.answers} answers meanwhile", flush=True)


@contextmanager
def serving(size: Size, *, tls: bool = False) -> Iterator[Serving]:
    """Run the server with a canned API server."""
    with canned_api(size) as api, tempfile.TemporaryDirectory() as folder:
        kubeconfig = write_kubeconfig(Path(folder), api)
        # Ten thousand bind calls one by one take longer than a bind waits by default.
        timeouts = ("--hold-s=120", "--bind-timeout-s=150", "--reservation-s=120")
        wallet = Wallet(Path(folder) / "tls") if tls else None
        files = (
            f"{flag(name)}={path}" for name, path in (wallet.options if wallet else {}).items()
        )
        arguments = (*timeouts, *files)
        extender = Extender("bench", Path(folder), kubeconfig=kubeconfig, arguments=arguments)
        extender.start_s = 120
        began = time.monotonic()
        with extender:
            took = time.monotonic() - began
            print(f"{size.nodes} nodes, {size.pods} pods: ready in {took:.1f} s", flush=True)
            yield Serving(extender, api, wallet.kube_scheduler() if wallet else None)


def make_binds_wait(connections: ExitStack, served: Serving, size: Size, wanted: int) -> int:
    """Call bind for all but the last member of gangs until *wanted* binds wait.

    Every call offers other nodes, like kube-scheduler: ten thousand pods do not fit on 500.
    """
    filter_caller, count = served.caller(), 0
    nodes_twice = [f"node-{index % size.nodes:05d}" for index in range(2 * size.nodes)]
    for number in range(size.pods - size.waiting, size.pods):
        if number % GANG == GANG - 1:
            continue
        member = json.loads(pod(size, number))
        first = number * NAMES % size.nodes
        names = nodes_twice[first : first + NAMES]
        body = json.dumps({"Pod": member, "Nodes": None, "NodeNames": names}).encode()
        nodes = json.loads(filter_caller.ask("filter", body))["NodeNames"]
        if len(nodes) != 1:
            continue
        about = member["metadata"]
        call = {"PodName": about["name"], "PodNamespace": about["namespace"]}
        call |= {"PodUID": about["uid"], "Node": nodes[0]}
        caller = served.caller()
        connections.callback(caller.close)
        caller.send("bind", json.dumps(call).encode())
        count += 1
        if count == wanted:
            break
    return served.extender.waiting_binds


def cycles(extender: Extender) -> tuple[float, float]:
    """Return the number of cycles and their total seconds."""
    count = extender.metric("gang_extender_cycle_seconds_count", step="plan")
    steps = ("snapshot", "plan", "publish", "report")
    return count, sum(extender.metric("gang_extender_cycle_seconds_sum", step=s) for s in steps)


def resident_mb(extender: Extender) -> float:
    """Return the memory of the worker."""
    worker = list(family(extender.pid))[-1]
    pages = int(Path(f"/proc/{worker}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def single_pod(member: Any) -> Any:
    """Return the same pod without a gang."""
    metadata = {**member["metadata"], "name": "single", "uid": "single", "annotations": {}}
    return {**member, "metadata": {**metadata, "ownerReferences": []}}


def write_kubeconfig(folder: Path, port: int) -> Path:
    """Write a kubeconfig with the canned API server."""
    path = folder / "kubeconfig"
    cluster = {"name": "canned", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "canned", "context": {"cluster": "canned", "user": "canned"}}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [cluster],
                "users": [{"name": "canned", "user": {"token": "x"}}],
                "contexts": [context],
                "current-context": "canned",
            }
        )
    )
    return path


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--waiting", type=int, default=20_000)
    parser.add_argument("--calls", type=int, default=3_000)
    parser.add_argument("--tls", action="store_true", help="hooks over mutual TLS")
    parser.add_argument("--brief", action="store_true", help="only the idle server")
    parser.add_argument("--whatif", action="store_true", help="only the effect of what-if requests")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    main(
        Size(given.nodes, given.pods, given.waiting),
        given.calls,
        tls=given.tls,
        brief=given.brief,
        whatif=given.whatif,
    )
