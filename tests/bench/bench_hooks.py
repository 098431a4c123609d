"""The hooks of the real server over a large mirrored cluster: how quick, how dear, how steady.

`gang-extender serve` mirrors a canned API server; a raw socket asks filter as kube-scheduler
does, one call after the other: with nothing else to do, while changes pour in and cycles run
without pause, and while a thousand binds are held.
"""

from __future__ import annotations

import argparse
import json
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from tests.bench.bench_cache import _pour, canned_api, percentile
from tests.bench.bench_gangs import cpu_s
from tests.bench.canned_api import GANG, Size, pod
from tests.cluster.extender_process import Extender

HELD = 1000
NAMES = 500  # what kube-scheduler offers at 5,000 nodes


class Caller:
    """One keep-alive connection, as kube-scheduler has it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, verb: str, body: bytes) -> bytes:
        """Send a call and read its answer."""
        self.send(verb, body)
        return self.read()

    def send(self, verb: str, body: bytes) -> None:
        head = f"POST /{verb} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
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


def main(size: Size, calls: int) -> None:
    """Measure and print."""
    with ExitStack() as running:
        api = running.enter_context(canned_api(size))
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        extender = Extender("bench", folder, kubeconfig=write_kubeconfig(folder, api))
        extender.start_s = 120
        began = time.monotonic()
        running.enter_context(extender)
        print(f"{size.nodes} nodes, {size.pods} pods: ready in {time.monotonic() - began:.1f} s")
        caller = Caller(extender.ports[0])
        names = [f"node-{number:05d}" for number in range(NAMES)]
        waits = [json.loads(pod(size, size.pods - 1 - number)) for number in range(200)]
        ordinary = ordinary_pod(waits[0])
        print(f"{'filter':40} {'p50':>8} {'p99':>8} {'CPU/call':>9}")
        show("ordinary pod, idle", extender, caller, [ordinary], names, calls)
        show("gang members, idle", extender, caller, waits, names, calls)
        with ExitStack() as held:
            count = hold(held, extender, size, names)
            show(f"ordinary pod, {count} binds held", extender, caller, [ordinary], names, calls)
        _pour(api, 2000, 60_000)
        show("gang members, 2,000 changes/s and cycles", extender, caller, waits, names, calls)


def hold(held: ExitStack, extender: Extender, size: Size, names: list[str]) -> int:
    """Bring all but the last member of as many gangs to the barrier as make a thousand binds."""
    asker, count = Caller(extender.ports[0]), 0
    for number in range(size.pods - size.waiting, size.pods):
        if number % GANG == GANG - 1:
            continue
        member = json.loads(pod(size, number))
        body = json.dumps({"Pod": member, "Nodes": None, "NodeNames": names}).encode()
        nodes = json.loads(asker.ask("filter", body))["NodeNames"]
        if len(nodes) != 1:
            continue
        about = member["metadata"]
        call = {"PodName": about["name"], "PodNamespace": about["namespace"]}
        call |= {"PodUID": about["uid"], "Node": nodes[0]}
        caller = Caller(extender.ports[0])
        held.callback(caller.close)
        caller.send("bind", json.dumps(call).encode())
        count += 1
        if count == HELD:
            break
    return count


def show(
    what: str,
    extender: Extender,
    caller: Caller,
    pods: list[Any],
    names: list[str],
    calls: int,
) -> None:
    """Ask *calls* times about *pods* in turn and print a line."""
    bodies = [
        json.dumps({"Pod": each, "Nodes": None, "NodeNames": names}).encode() for each in pods
    ]
    times = []
    before = cpu_s(extender)
    for number in range(calls):
        began = time.perf_counter()
        caller.ask("filter", bodies[number % len(bodies)])
        times.append(time.perf_counter() - began)
    cpu_ms = (cpu_s(extender) - before) * 1000 / calls
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    print(f"{what:40} {p50:5.2f} ms {p99:5.2f} ms {cpu_ms:6.2f} ms", flush=True)


def ordinary_pod(member: Any) -> Any:
    """The same pod without a gang."""
    metadata = {**member["metadata"], "name": "ordinary", "uid": "ordinary", "annotations": {}}
    return {**member, "metadata": {**metadata, "ownerReferences": []}}


def write_kubeconfig(folder: Path, port: int) -> Path:
    """Point at the canned API server."""
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
    given = parser.parse_args()
    main(Size(given.nodes, given.pods, given.waiting), given.calls)
