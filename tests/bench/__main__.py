"""`make bench`: runs every benchmark, or those named in the arguments."""

from __future__ import annotations

import subprocess
import sys

BENCHES = {
    "plan": "one cycle over a large cluster",
    "hostile": "one cycle over objects that a tenant writes to make it long",
    "cache": "the cache: cold start, memory, changes, snapshots",
    "hooks": "filter over a large cluster",
    "memory": "memory of the server, by the size of the cluster",
    "fencing": "checking the term before every bind",
    "gangs": "gangs end to end, compared with the plain kube-scheduler",
}


def main(names: list[str]) -> int:
    """Run each benchmark in its own process, so that none inherits memory from another."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no benchmark {unknown[0]}; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    for name in names or BENCHES:
        print(f"\n== {name}: {BENCHES[name]}", flush=True)
        ran = subprocess.run([sys.executable, "-m", f"tests.bench.bench_{name}"])
        if ran.returncode:
            return ran.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
