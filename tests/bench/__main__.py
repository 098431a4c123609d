"""`make bench`: every budget, measured one after the other; name some to run only those."""

from __future__ import annotations

import subprocess
import sys

BENCHES = {
    "plan": "one cycle over a large cluster",
    "hostile": "one cycle over what a tenant may write to make it long",
    "cache": "the mirror: cold start, memory, changes, snapshots",
    "hooks": "filter over a large cluster",
    "memory": "what the server takes, by the size of the cluster",
    "mandate": "asking for a term before every bind",
    "gangs": "gangs end to end beside the plain kube-scheduler",
}


def main(wanted: list[str]) -> int:
    """Run the benches in processes of their own, so that none inherits another's memory."""
    unknown = [name for name in wanted if name not in BENCHES]
    if unknown:
        print(f"no bench {unknown[0]}; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    for name in wanted or BENCHES:
        print(f"\n== {name}: {BENCHES[name]}", flush=True)
        ran = subprocess.run([sys.executable, "-m", f"tests.bench.bench_{name}"])
        if ran.returncode:
            return ran.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
