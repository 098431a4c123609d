"""`python -m tests.nightly.cluster`: minors, falling leaders, attacks, chaos."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import TypeAlias

from tests.cluster import candidates, takeovers
from tests.cluster.api import ApiError
from tests.cluster.binaries import NEEDED_BY_TESTS, ControlPlaneUnavailable, ensure
from tests.cluster.control_plane import ControlPlane
from tests.cluster.processes import NeverReady
from tests.nightly.faults.planted import PLANTS
from tests.nightly.faults.record import Record
from tests.nightly.faults.stepped_clock import PLANTED

from . import chaos, siege
from .matrix import RIGHTS, Minor, minors, run, whole

Among: TypeAlias = Callable[[ControlPlane], AbstractContextManager[candidates.Candidates]]


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    tried = commands.add_parser("matrix", help="run the promises on every minor, print a table")
    tried.add_argument("minors", nargs="*", help="only these, as in 1.28 (default: all pinned)")
    tried.add_argument("--rights", action="store_true", help="those of the rights alone")
    over = commands.add_parser("takeovers", help="let leaders fall, and measure what follows")
    over.add_argument("--rounds", type=int, default=10, help="of each kind")
    over.add_argument("--lease", choices=("own", "scheduler"), default="own", help="whose")
    over.add_argument("--kinds", nargs="*", choices=takeovers.KINDS, default=takeovers.KINDS)
    over.add_argument("--seed", type=int, default=None, help="of when leaders fall")
    over.add_argument("--retry-period", default=candidates.RETRY_PERIOD, help="of kube-scheduler")
    laid = commands.add_parser("siege", help="attack beside arriving gangs, and measure those")
    laid.add_argument("--seconds", type=float, default=60, help="of each attack")
    laid.add_argument("--attack", action="append", default=[], help="whose name has this; or load")
    laid.add_argument("--without-us", action="store_true", help="on kube-scheduler alone")
    laid.add_argument(
        "--without-admission",
        action="store_true",
        help="without the policies of manifests/admission",
    )
    laid.add_argument(
        "--patience", type=float, default=0, help="minutes to wait for a host that takes little"
    )
    wild = commands.add_parser("chaos", help="everything at once, by chance, judged from outside")
    wild.add_argument("--seconds", type=float, default=600, help="before everything is mended")
    wild.add_argument("--seed", type=int, default=None, help="of an earlier run, to play it again")
    wild.add_argument(
        "--lanes", nargs="+", choices=chaos.LANE_NAMES, default=chaos.LANE_NAMES,
        help="only these: without machines nothing is killed, and nothing that leaks is wiped out",
    )  # fmt: skip
    wild.add_argument("--planted", choices=PLANTS, help="a check of ours to take out")
    wild.add_argument("--record", type=Path, default=Path("build/chaos"), help="folder to keep it")
    return parser


def main() -> int:
    parser = arguments()
    wanted = parser.parse_args()
    try:
        if wanted.command == "matrix":
            return try_out(chosen(wanted.minors, parser), rights_alone=wanted.rights)
        if wanted.command == "takeovers":
            among = (
                candidates.behind_a_service
                if wanted.lease == "own"
                else partial(candidates.in_pairs, retry_period=wanted.retry_period)
            )
            seed = secrets.randbelow(10**6) if wanted.seed is None else wanted.seed
            return take_over(among, tuple(wanted.kinds), wanted.rounds, seed)
        if wanted.command == "chaos":
            seed = secrets.randbelow(10**6) if wanted.seed is None else wanted.seed
            if wanted.planted:
                os.environ[PLANTED] = wanted.planted
            return run_wild(seed, wanted.seconds, wanted.record, wanted.lanes)
        tried_on = partial(
            siege.besieged,
            without_us=wanted.without_us,
            admission=not wanted.without_admission,
            patience_s=60 * wanted.patience,
        )
        return besiege(named(wanted.attack, parser), wanted.seconds, tried_on)
    except (ControlPlaneUnavailable, NeverReady) as why:
        print(f"no control plane: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1


def chosen(names: list[str], parser: argparse.ArgumentParser) -> list[Minor]:
    """The minors of these names, all where there are none; an unknown one ends the program."""
    pinned = minors()
    if unknown := [name for name in names if name not in pinned]:
        parser.error(f"no module pins {', '.join(unknown)}; there are {', '.join(pinned)}")
    return [pinned[name] for name in names or pinned]


def try_out(wanted: list[Minor], *, rights_alone: bool) -> int:
    """Hold every minor to the promises, and those with an API server of their own to the rights."""
    ended = 0 if rights_alone else run(wanted)
    complete = [whole()[minor.name] for minor in wanted if minor.name in whole()]
    return run(complete, RIGHTS) | ended if complete else ended


def take_over(among: Among, kinds: tuple[str, ...], count: int, seed: int) -> int:
    """Play rounds, tell each, and print the table; 1 when a promise was broken."""
    print(f"leaders fall by --seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ensure(*NEEDED_BY_TESTS)
    played: list[takeovers.Round] = []
    with ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="gang-extender-"))
        plane = running.enter_context(ControlPlane(Path(folder) / "cluster"))
        plane.install()
        for each in takeovers.rounds(running.enter_context(among(plane)), kinds, count, seed):
            played.append(each)
            broken = "; ".join(each.broken) or "all held"
            print(
                f"{each.kind}: the other leads after {each.takeover_s:.1f} s, next start after"
                f" {each.start_s:.1f} s, longest in part {each.partial_s:.2f} s: {broken}",
                flush=True,
            )
    print(f"\n{takeovers.table(played)}")
    return int(any(each.broken for each in played))


def named(parts: list[str], parser: argparse.ArgumentParser) -> list[siege.Attack]:
    """The attacks whose names contain one of these, all where there are none."""
    found = siege.chosen(parts)
    if not found:
        parser.error("there are only: " + "; ".join(each.name for each in siege.attacks()))
    return found


def besiege(
    wanted: list[siege.Attack],
    seconds: float,
    tried_on: Callable[[Path], AbstractContextManager[siege.Siege]],
) -> int:
    """Attack in one minute after the other, and print the table; 1 when a bound was broken."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ensure(*NEEDED_BY_TESTS)
    minutes: list[siege.Minute] = []
    failed: list[str] = []
    with ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="gang-extender-"))
        laid = running.enter_context(tried_on(Path(folder) / "cluster"))
        for attack in siege.in_order(wanted):
            try:
                for minute in laid.tried(attack, seconds, minutes):
                    print(siege.table(minutes).splitlines()[-1], *minute.restarts, flush=True)
            except (AssertionError, ApiError) as why:
                failed.append(f"{attack.name}: could not be tried: {why}")
                print(failed[-1], flush=True)
    print(f"\n{siege.table(minutes)}\n")
    complaints = [*siege.complaints(minutes), *failed]
    print("\n".join(complaints) or "all held")
    return int(bool(complaints))


def run_wild(seed: int, seconds: float, folder: Path, lanes: Collection[str]) -> int:
    """Play the script of a seed, keep its record and logs, and tell it; 1 when something broke."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ensure(*chaos.PROGRAMS)
    print(f"seed {seed}", flush=True)
    kept = folder.resolve() / f"seed-{seed}-{int(time.time())}"
    record = Record()
    with chaos.staged(kept / "cluster", record) as candidates:
        played = chaos.play(candidates, record, seed, seconds, lanes)
    record.save(kept / "record.jsonl")
    print(f"{chaos.told(played)}\nkept in {kept}")
    return int(bool(played.broken or played.slow))


if __name__ == "__main__":
    sys.exit(main())
