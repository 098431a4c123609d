"""`python -m tests.nightly.cluster`: compatibility matrix, takeovers, siege and chaos."""

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
from .matrix import PERMISSIONS, Minor, minors, run, with_own_api_server

MakeCandidates: TypeAlias = Callable[[ControlPlane], AbstractContextManager[candidates.Candidates]]


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    tried = commands.add_parser(
        "matrix", help="run the compatibility tests on every minor, print a table"
    )
    tried.add_argument("minors", nargs="*", help="minors as in 1.28 (default: all pinned)")
    tried.add_argument("--rights", action="store_true", help="only the tests of permissions")
    over = commands.add_parser("takeovers", help="let leaders fail, and measure takeovers")
    over.add_argument("--rounds", type=int, default=10, help="rounds of each kind")
    over.add_argument("--lease", choices=("own", "scheduler"), default="own", help="whose lease")
    over.add_argument("--kinds", nargs="*", choices=takeovers.KINDS, default=takeovers.KINDS)
    over.add_argument("--seed", type=int, default=None, help="seed of the moments of failure")
    over.add_argument(
        "--retry-period", default=candidates.RETRY_PERIOD, help="retryPeriod of kube-scheduler"
    )
    laid = commands.add_parser("siege", help="attack while gangs arrive, and measure their start")
    laid.add_argument("--seconds", type=float, default=60, help="duration of each attack")
    laid.add_argument(
        "--attack", action="append", default=[], help="attacks with this in their name; or load"
    )
    laid.add_argument(
        "--without-us", action="store_true", help="kube-scheduler without an extender"
    )
    laid.add_argument(
        "--without-admission",
        action="store_true",
        help="without the policies of manifests/admission",
    )
    laid.add_argument(
        "--patience",
        type=float,
        default=0,
        help="minutes to spend on repeats while the host takes processors",
    )
    disorder = commands.add_parser(
        "chaos", help="random faults of all kinds, checked by an observer"
    )
    disorder.add_argument("--seconds", type=float, default=600, help="duration of the faults")
    disorder.add_argument("--seed", type=int, default=None, help="seed of a run to repeat")
    disorder.add_argument(
        "--lanes", nargs="+", choices=chaos.LANE_NAMES, default=chaos.LANE_NAMES,
        help="only these lanes; without machines nothing is killed, so leaks stay visible",
    )  # fmt: skip
    disorder.add_argument("--planted", choices=PLANTS, help="a check of the extender to disable")
    disorder.add_argument(
        "--record", type=Path, default=Path("build/chaos"), help="folder for the record"
    )
    return parser


def main() -> int:
    parser = arguments()
    wanted = parser.parse_args()
    try:
        if wanted.command == "matrix":
            return run_matrix(chosen(wanted.minors, parser), only_permissions=wanted.rights)
        if wanted.command == "takeovers":
            make = (
                candidates.behind_a_service
                if wanted.lease == "own"
                else partial(candidates.in_pairs, retry_period=wanted.retry_period)
            )
            seed = secrets.randbelow(10**6) if wanted.seed is None else wanted.seed
            return run_takeovers(make, tuple(wanted.kinds), wanted.rounds, seed)
        if wanted.command == "chaos":
            seed = secrets.randbelow(10**6) if wanted.seed is None else wanted.seed
            if wanted.planted:
                os.environ[PLANTED] = wanted.planted
            return run_chaos(seed, wanted.seconds, wanted.record, wanted.lanes)
        made = partial(
            siege.siege_on,
            without_us=wanted.without_us,
            admission=not wanted.without_admission,
            patience_s=60 * wanted.patience,
        )
        return run_siege(named(wanted.attack, parser), wanted.seconds, made)
    except (ControlPlaneUnavailable, NeverReady) as why:
        print(f"no control plane: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 1


def chosen(names: list[str], parser: argparse.ArgumentParser) -> list[Minor]:
    """Return the minors of these names, all without names; exit if one is unknown."""
    pinned = minors()
    if unknown := [name for name in names if name not in pinned]:
        parser.error(f"no module pins {', '.join(unknown)}; there are {', '.join(pinned)}")
    return [pinned[name] for name in names or pinned]


def run_matrix(wanted: list[Minor], *, only_permissions: bool) -> int:
    """Run the tests on each minor; test permissions on those with their own API server."""
    ended = 0 if only_permissions else run(wanted)
    complete = [
        with_own_api_server()[minor.name] for minor in wanted if minor.name in with_own_api_server()
    ]
    return run(complete, PERMISSIONS) | ended if complete else ended


def run_takeovers(make: MakeCandidates, kinds: tuple[str, ...], count: int, seed: int) -> int:
    """Run rounds, print each and the table; return 1 if a guarantee was missed."""
    print(f"--seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ensure(*NEEDED_BY_TESTS)
    played: list[takeovers.Round] = []
    with ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="gang-extender-"))
        plane = running.enter_context(ControlPlane(Path(folder) / "cluster"))
        plane.install()
        for each in takeovers.rounds(running.enter_context(make(plane)), kinds, count, seed):
            played.append(each)
            broken = "; ".join(each.broken) or "all guarantees held"
            print(
                f"{each.kind}: the other leads after {each.takeover_s:.1f} s, next start after"
                f" {each.start_s:.1f} s, longest in part {each.partial_s:.2f} s: {broken}",
                flush=True,
            )
    print(f"\n{takeovers.table(played)}")
    return int(any(each.broken for each in played))


def named(parts: list[str], parser: argparse.ArgumentParser) -> list[siege.Attack]:
    """Return the attacks whose names contain one of these, all without names."""
    found = siege.chosen(parts)
    if not found:
        parser.error("there are only: " + "; ".join(each.name for each in siege.attacks()))
    return found


def run_siege(
    wanted: list[siege.Attack],
    seconds: float,
    made: Callable[[Path], AbstractContextManager[siege.Siege]],
) -> int:
    """Run the attacks one after the other, and print the table; return 1 if a bound was missed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ensure(*NEEDED_BY_TESTS)
    minutes: list[siege.Minute] = []
    failed: list[str] = []
    with ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory(prefix="gang-extender-"))
        laid = running.enter_context(made(Path(folder) / "cluster"))
        for attack in siege.in_order(wanted):
            try:
                for minute in laid.tried(attack, seconds, minutes):
                    print(siege.table(minutes).splitlines()[-1], *minute.restarts, flush=True)
            except (AssertionError, ApiError) as why:
                failed.append(f"{attack.name}: could not run: {why}")
                print(failed[-1], flush=True)
    print(f"\n{siege.table(minutes)}\n")
    complaints = [*siege.complaints(minutes), *failed]
    print("\n".join(complaints) or "all guarantees held")
    return int(bool(complaints))


def run_chaos(seed: int, seconds: float, folder: Path, lanes: Collection[str]) -> int:
    """Run the script of a seed, keep its record and logs, print it; return 1 if a rule broke."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    ensure(*chaos.PROGRAMS)
    print(f"seed {seed}", flush=True)
    kept = folder.resolve() / f"seed-{seed}-{int(time.time())}"
    record = Record()
    with chaos.cluster(kept / "cluster", record) as candidates:
        played = chaos.run_script(candidates, record, seed, seconds, lanes)
    record.save(kept / "record.jsonl")
    print(f"{chaos.summary(played)}\nkept in {kept}")
    return int(bool(played.broken or played.late))


if __name__ == "__main__":
    sys.exit(main())
