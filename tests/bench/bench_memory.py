"""Memory of the server, by the size of the cluster: `python -m tests.bench.bench_memory`.

The real server watches a canned API server and runs one cycle. Memory is that of all its processes,
shared pages once: the figure to compare with the limit of a container. Unlike times, it does not
depend on other load of the machine.
"""

from __future__ import annotations

import argparse
import urllib.request
from pathlib import Path

from tests.bench.bench_gangs import family
from tests.bench.bench_hooks import cycles, serving
from tests.bench.canned_api import Size
from tests.cluster.extender_process import Extender
from tests.cluster.waiting import wait_for

#: A fifth of the pods wait, in gangs of twenty.
SIZES = (Size(10, 100, 20), Size(100, 2_000, 400), Size(500, 10_000, 2_000))
LARGE = (Size(1_000, 20_000, 4_000), Size(2_000, 50_000, 10_000), Size(5_000, 100_000, 20_000))


def main(sizes: tuple[Size, ...]) -> None:
    """Print a row for each size."""
    print(f"{'nodes':>6} {'pods':>8} {'waiting':>8} {'now MB':>8} {'peak MB':>8} {'dumped MB':>10}")
    for size in sizes:
        with serving(size) as served:
            extender = served.extender
            wait_for(lambda extender=extender: cycles(extender)[0] >= 1, 300, "a plan was made")
            now, peak = proportional_mb(extender), peak_mb(extender)
            url = f"http://127.0.0.1:{extender.ports[1]}/api/v1/snapshot"
            urllib.request.urlopen(url, timeout=300).read()
            figures = f"{now:8.0f} {peak:8.0f} {peak_mb(extender):10.0f}"
            print(f"{size.nodes:6} {size.pods:8} {size.waiting:8} {figures}", flush=True)


def proportional_mb(extender: Extender) -> float:
    """Return the memory of the server now, shared pages once."""
    kilobytes = 0
    for pid in family(extender.pid):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes / 1024


def peak_mb(extender: Extender) -> float:
    """Return the largest memory so far: what the worker has freed since is added."""
    worker = list(family(extender.pid))[-1]
    lines = Path(f"/proc/{worker}/status").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines)
    most, now = (int(facts[name].split()[0]) for name in ("VmHWM", "VmRSS"))
    return proportional_mb(extender) + (most - now) / 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="up to 5,000 nodes, 100,000 pods")
    main((*SIZES, *LARGE) if parser.parse_args().large else SIZES)
