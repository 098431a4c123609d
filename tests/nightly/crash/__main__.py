"""`python -m tests.nightly.crash`: run the crash points, or the planted faults."""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.binaries import ControlPlaneUnavailable, ensure
from tests.cluster.control_plane import API_SERVER, SCHEDULER
from tests.cluster.processes import NeverReady
from tests.nightly.faults.planted import PLANTS

from .planted_cases import CASES, walk_planted
from .scenes import SCENES
from .table import figures, table
from .walk import Lanes, Try, choose, points_of, print_outcome

NEEDED = ("etcd", API_SERVER, SCHEDULER, "kwok", "kubectl")


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly.crash", description=__doc__)
    parser.add_argument("--sites", nargs="*", default=[], help="calls whose names contain these")
    parser.add_argument("--faults", nargs="*", default=[], help="faults whose names contain these")
    parser.add_argument("--scenes", nargs="*", default=[], help="only these scenes")
    parser.add_argument(
        "--limit", type=int, default=0, help="run at most so many points, chosen at random"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of that choice")
    parser.add_argument("--lanes", type=int, default=4, help="number of parallel control planes")
    parser.add_argument("--seconds", type=float, default=0, help="start no point after so long")
    parser.add_argument(
        "--planted", nargs="*", choices=tuple(PLANTS), help="run these planted faults"
    )
    parser.add_argument("--keep", type=Path, help="folder for the records of breaches")
    return parser


def main() -> int:
    wanted = arguments().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if wanted.keep is not None:
        wanted.keep.mkdir(parents=True, exist_ok=True)
    try:
        ensure(*NEEDED)
        with tempfile.TemporaryDirectory(prefix="gang-extender-") as folder:
            if wanted.planted is not None:
                return walk_planted(Path(folder), wanted.planted or list(CASES), wanted.keep)
            return walk(Path(folder), wanted)
    except (ControlPlaneUnavailable, NeverReady) as why:
        print(f"no control plane: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1


def walk(folder: Path, wanted: argparse.Namespace) -> int:
    """Run each scene without a fault, choose points, run them; return 1 if a rule was broken."""
    scenes = [each for each in SCENES if not wanted.scenes or each.name in wanted.scenes]
    began = time.monotonic()
    with Lanes(folder, wanted.lanes) as lanes:
        probed = lanes.run([Try(scene) for scene in scenes], print_outcome, keep=wanted.keep)
        for each in sorted(probed, key=lambda each: each.tried.scene.name):
            calls = ", ".join(f"{site} {count}" for site, count in sorted(each.calls.items()))
            print(f"{each.tried.scene.name} ({each.took_s:.1f} s): {calls}", flush=True)
        found = points_of(probed)
        chosen = choose(
            found,
            sites=wanted.sites,
            faults=wanted.faults,
            limit=wanted.limit,
            seed=wanted.seed,
        )
        print(f"{len(found)} points found, {len(chosen)} chosen (seed {wanted.seed})", flush=True)
        until = began + wanted.seconds if wanted.seconds else math.inf
        outcomes = lanes.run(chosen, print_outcome, keep=wanted.keep, until=until)
    print(f"\n{table(outcomes)}\n")
    print(figures(outcomes))
    print(f"total time {time.monotonic() - began:.0f} s")
    return int(any(each.breaches for each in [*probed, *outcomes]))


if __name__ == "__main__":
    sys.exit(main())
