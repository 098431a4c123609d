"""Fuzzes every edge, or the named ones; failing inputs are kept as files.

    python -m tests.nightly.fuzz [--seed N] [--count N | --seconds N] [EDGE ...]

Without --seed it draws a new seed, and prints it. Exit code 1 if an input failed.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import sys

from tests.nightly.fuzz.edges import EDGES, new
from tests.nightly.fuzz.running import Find, keep, run

_SECONDS = 60.0


def main(words: list[str] | None = None) -> int:
    """Run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.nightly.fuzz", description="Fuzz edges.")
    parser.add_argument("edges", nargs="*", metavar="EDGE", help=f"any of {', '.join(EDGES)}")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--count", type=int, default=None, help="inputs for each edge")
    parser.add_argument("--seconds", type=float, default=None, help="for each edge")
    given = parser.parse_args(words)
    if unknown := set(given.edges) - set(EDGES):
        parser.error(f"no such edge: {', '.join(sorted(unknown))}; there are {', '.join(EDGES)}")
    seed = secrets.randbelow(10**9) if given.seed is None else given.seed
    seconds = given.seconds or (None if given.count else _SECONDS)
    found = 0
    for name in given.edges or EDGES:
        found += _fuzz(name, seed, given.count, seconds)
    return 1 if found else 0


def _fuzz(name: str, seed: int, count: int | None, seconds: float | None) -> int:
    with new(name) as edge:

        def report(find: Find) -> None:
            print(f"  FOUND  {find.objection}", flush=True)
            if (path := keep(find, edge)) is not None:
                print(f"         kept as {path}", flush=True)

        ran = run(edge, seed, count=count, seconds=seconds, report=report)
    print(
        f"{name:<12} seed {seed}: {ran.count} inputs, {ran.size >> 10} KB,"
        f" {ran.seconds:.0f} s, found {len(ran.finds)}",
        flush=True,
    )
    return len(ran.finds)


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    sys.exit(main())
