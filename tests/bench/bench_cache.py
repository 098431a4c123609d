"""Cost of the cache of a large cluster: `python -m tests.bench.bench_cache`.

A canned API server (another process) serves the cluster. Every measurement has its own process, so
that memory is not mixed. The same run lists the pods as typed objects of the official client, by
default a tenth of them, because that takes forty times as long.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from extender.cache.cluster import Cluster
from extender.cache.reservation_table import Stage
from extender.clock import SystemClock
from extender.kube.client import ApiClient
from extender.kube.config import ApiServer
from extender.kube.decode.pods import pod as decode_pod, to_pod
from extender.kube.watch import Watch
from extender.model.pod import PodUid

from .canned_api import Size, pod

SCHEDULERS = frozenset({"gang-scheduler"})
FILTERS = 3_000


@contextmanager
def canned_api(size: Size) -> Iterator[int]:
    arguments = [f"--nodes={size.nodes}", f"--pods={size.pods}", f"--waiting={size.waiting}"]
    arguments.append(f"--waiting-cpu={size.waiting_cpu}")
    command = [sys.executable, "-m", "tests.bench.canned_api", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


def resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 2**20


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def percentile(times: list[float], part: float) -> float:
    return sorted(times)[int(len(times) * part)] * 1000


def measure_typed(port: int, size: Size) -> dict[str, float]:
    """List the pods as typed objects of the official client."""
    from kubernetes.client import ApiClient, Configuration, CoreV1Api

    began, cpu = time.monotonic(), time.process_time()
    api = CoreV1Api(ApiClient(Configuration(host=f"http://127.0.0.1:{port}")))
    pods = api.list_pod_for_all_namespaces()
    return {
        "pods": len(pods.items),
        "list_s": time.monotonic() - began,
        "cpu_s": time.process_time() - cpu,
        "resident_mb": resident_mb(),
        "peak_mb": peak_mb(),
    }


def start_watch(port: int, *, streaming: bool) -> tuple[Watch, Cluster, dict[str, float]]:
    """Start cold and wait until the cache is ready."""
    sys.setswitchinterval(0.0002)  # as the server does
    clock = SystemClock()
    cluster = Cluster(clock)
    access = ApiClient(ApiServer(host="127.0.0.1", port=port))
    watch = Watch(access, cluster, clock, SCHEDULERS, streaming=streaming)
    began, cpu = time.monotonic(), time.process_time()
    watch.start()
    while cluster.why_not_ready():
        time.sleep(0.01)
    found = {"list_s": time.monotonic() - began, "cpu_s": time.process_time() - cpu}
    return watch, cluster, found | {"resident_mb": resident_mb(), "peak_mb": peak_mb()}


def measure_pages(port: int, size: Size) -> dict[str, float]:
    """Fill the cache with the whole cluster, listed page by page."""
    watch, _, found = start_watch(port, streaming=False)
    watch.stop()
    return found | {"pods": size.pods}


def measure_cache(port: int, size: Size) -> dict[str, float]:
    """Fill the cache with the whole cluster, and use it."""
    watch, cluster, found = start_watch(port, streaming=True)
    found |= {"pods": size.pods, "full_collection_ms": _time(gc.collect) * 1000}
    found |= measure_snapshots(cluster, size)
    found |= measure_filters(cluster, size, "quiet")
    found |= measure_changes(port, cluster, size)
    watch.stop()
    return found


def measure_snapshots(cluster: Cluster, size: Size) -> dict[str, float]:
    """Take the first one, one without changes, and one in which every waiting pod is reserved."""
    first = _time(lambda: cluster.snapshot(time.time()))
    again = [_time(lambda: cluster.snapshot(time.time())) for _ in range(50)]
    for number in range(size.pods - size.waiting, size.pods):
        uid = PodUid(f"00000000-0000-4000-8000-{number:012d}")
        key, seen = cluster.gang_of(uid), cluster.pod(uid)
        if key is not None and seen is not None:
            cluster.reservations.reserve(seen, key, f"node-{number % size.nodes:05d}", 0.0)
    reserved = _time(lambda: cluster.snapshot(time.time()))
    unchanged = [_time(lambda: cluster.snapshot(time.time())) for _ in range(20)]
    for key in list(cluster.snapshot(time.time()).gangs):
        cluster.reservations.expire(key)
    cluster.snapshot(time.time())
    return {
        "snapshot_first_ms": first * 1000,
        "snapshot_idle_ms": statistics.median(again) * 1000,
        "snapshot_all_reserved_ms": reserved * 1000,
        "snapshot_reservations_unchanged_ms": statistics.median(unchanged) * 1000,
    }


def measure_filters(cluster: Cluster, size: Size, when: str) -> dict[str, float]:
    """Read a pod, its gang and the free capacity of a node, as a filter call does."""
    body = pod(size, size.pods - 1)
    names = [f"node-{number % size.nodes:05d}" for number in range(FILTERS)]
    times = []
    for name in names:
        began = time.perf_counter()
        _filter(cluster, body, name)
        times.append(time.perf_counter() - began)
        time.sleep(0.001)
    return {
        f"filter_{when}_p50_ms": percentile(times, 0.5),
        f"filter_{when}_p99_ms": percentile(times, 0.99),
    }


def _filter(cluster: Cluster, body: bytes, node: str) -> None:
    seen, member = to_pod(decode_pod(body), schedulers=SCHEDULERS)
    cluster.reservations.of(seen.uid)
    cluster.group(member.key)
    cluster.scheduled(member.key)
    cluster.free(node)
    cluster.reservations.advance(seen.uid, Stage.FILTERED)


def measure_changes(port: int, cluster: Cluster, size: Size) -> dict[str, float]:
    """Apply 2,000 changes a second, with filters and a snapshot every 100 ms meanwhile."""
    rate, count = 2_000, 20_000
    before, cpu, began = cluster.generation, time.process_time(), time.monotonic()
    send_changes(port, rate, count)
    while cluster.generation < before + count:
        time.sleep(0.01)
        if time.monotonic() - began > 60:
            break
    took, spent = time.monotonic() - began, time.process_time() - cpu
    found = {
        "changes_per_s": (cluster.generation - before) / took,
        "change_cpu_us": spent / (cluster.generation - before) * 1e6,
    }
    cluster.snapshot(time.time())  # takes up the changes so far
    snapshots: list[float] = []
    stop = threading.Event()

    def plan() -> None:
        while not stop.wait(0.1):
            snapshots.append(_time(lambda: cluster.snapshot(time.time())))

    planning = threading.Thread(target=plan)
    planning.start()
    send_changes(port, rate, count)
    found |= measure_filters(cluster, size, "busy")
    stop.set()
    planning.join()
    return found | {
        "snapshot_busy_p50_ms": percentile(snapshots, 0.5),
        "snapshot_busy_max_ms": max(snapshots) * 1000,
    }


def send_changes(port: int, rate: int, count: int) -> None:
    """Let the canned API server send *count* changes, *rate* a second."""
    url = f"http://127.0.0.1:{port}/changes?rate={rate}&count={count}"
    urllib.request.urlopen(urllib.request.Request(url, method="POST")).read()


def _time(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


MEASURES = {"typed": measure_typed, "pages": measure_pages, "cache": measure_cache}


def measure_in_process(what: str, size: Size) -> dict[str, float]:
    with canned_api(size) as port:
        command = [sys.executable, "-m", "tests.bench.bench_cache", f"--measure={what}"]
        command += [f"--port={port}", f"--nodes={size.nodes}", f"--pods={size.pods}"]
        ran = subprocess.run(
            [*command, f"--waiting={size.waiting}"], stdout=subprocess.PIPE, check=True
        )
    found: dict[str, float] = json.loads(ran.stdout)
    return found


def report(size: Size, typed_pods: int) -> None:
    tenth = Size(min(size.nodes, typed_pods), typed_pods, 0)
    print(f"a pod is {len(pod(size, 0))} bytes of JSON, a cluster {size.nodes} nodes")
    line = "{:34} {:>9} {:>9} {:>9} {:>12} {:>9}"
    print(line.format("", "pods", "ready s", "CPU s", "resident MB", "peak MB"))
    rows = [
        ("official client, typed pods only", measure_in_process("typed", tenth)),
        ("cache of the same cluster", measure_in_process("cache", tenth)),
        ("cache, full size, by pages", measure_in_process("pages", size)),
        ("cache, full size, streamed", measure_in_process("cache", size)),
    ]
    for name, found in rows:
        figures = [found[key] for key in ("list_s", "cpu_s", "resident_mb", "peak_mb")]
        print(line.format(name, int(found["pods"]), *(f"{figure:.1f}" for figure in figures)))
    print()
    full = rows[-1][1]
    for name, figure in full.items():
        if name.endswith(("_ms", "_us", "_per_s")):
            print(f"{name:34} {figure:9.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--waiting", type=int, default=20_000)
    parser.add_argument("--typed-pods", type=int, default=10_000)
    parser.add_argument("--measure", choices=tuple(MEASURES), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    size = Size(given.nodes, given.pods, given.waiting)
    if given.measure:
        print(json.dumps(MEASURES[given.measure](given.port, size)))
    else:
        report(size, given.typed_pods)


if __name__ == "__main__":
    main()
