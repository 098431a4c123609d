"""`make nightly`: the tests that take long, in parts.

    python -m tests.nightly [PART ...] [--minors 1.28 ...] [-- ARGUMENTS]

Every part runs, also after one has failed. The last lines show the result and the minutes of each
part; the exit code is 1 if one failed. Arguments after `--` go to the last command of the part, and
to others of the same program. Each command is printed before it runs: its seeds, and those that it
prints, reproduce the same cases.
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

#: Parallel control planes: their tests wait more than they compute.
_PLANES = "3"
#: Programs build their binaries; tests do not.
_BUILD = ["tests.cluster", "build"]
#: New random cases, and more of them; see tests/strategies.py.
_PROFILE = {"HYPOTHESIS_PROFILE": "nightly"}


def _seed() -> str:
    return str(secrets.randbelow(10**6))


def _pytest(*words: str, workers: str = "2", dist: str = "loadfile") -> list[str]:
    spread = ["-n", workers, "--dist", dist] if workers != "1" else []
    return ["pytest", *words, *spread]


def _planes(*paths: str, workers: str = _PLANES) -> list[list[str]]:
    return [_BUILD, _pytest(*paths, "-p", "no:randomly", workers=workers)]


_NIGHT = "tests/nightly/cluster"
#: Parts that are files of tests/nightly/cluster.
_PARTS_OF_CLUSTER = {
    "rights": ("permissions", "doctor_second_scheduler", "doctor_default_scheduler", "hardening"),
    "alerts": ("alerts",),
    "install": (
        *("install", "readme_commands", "chart", "chart_installed", "default_scheduler", "kubeadm"),
        *("exempt_namespaces", "uninstall"),
    ),
}


def _files(part: str) -> list[str]:
    return [f"{_NIGHT}/test_{name}.py" for name in _PARTS_OF_CLUSTER[part]]


def _others() -> list[str]:
    apart = {file for part in _PARTS_OF_CLUSTER for file in _files(part)}
    return [str(path) for path in sorted(Path(_NIGHT).glob("test_*.py")) if str(path) not in apart]


#: Part -> its commands, each the arguments of `python -m`.
PARTS: dict[str, Callable[[], list[list[str]]]] = {
    "generated": lambda: [
        _pytest(
            *("tests/unit", "tests/system", f"--hypothesis-seed={_seed()}", "--timeout=900"),
            dist="worksteal",
        )
    ],
    "docs": lambda: [_pytest("tests/nightly/docs")],
    "packaging": lambda: [_pytest("tests/nightly/packaging", "tests/nightly/chart")],
    "judges": lambda: [_BUILD, _pytest("tests/nightly/judges", "tests/nightly/attacks")],
    "fuzz": lambda: [_pytest("tests/nightly/fuzz"), ["tests.nightly.fuzz", "--seconds", "30"]],
    "soak": lambda: [
        _pytest("tests/nightly/soak"),
        ["tests.nightly.soak", "system", "2000"],
        ["tests.nightly.soak", "permit", "20000"],
    ],
    "mutations": lambda: [["tests.nightly.mutations"]],
    "browser": lambda: [_pytest("tests/nightly/browser", "-p", "no:randomly", workers="1")],
    "cluster": lambda: _planes("tests/cluster", *_others()),
    "rights": lambda: _planes(*_files("rights")),
    "alerts": lambda: _planes(*_files("alerts"), workers="1"),
    "install": lambda: _planes(*_files("install")),
    "takeovers": lambda: [
        ["tests.nightly.cluster", "takeovers", "--lease", lease, "--rounds", "2", "--seed", _seed()]
        for lease in ("own", "scheduler")
    ],
    "chaos": lambda: [["tests.nightly.cluster", "chaos", "--seconds", "600"]],
    "crash": lambda: [
        ["tests.nightly.crash", "--limit", "600", "--seed", _seed(), "--keep", "build/crash"]
    ],
    "siege": lambda: [["tests.nightly.cluster", "siege", "--seconds", "20", "--patience", "10"]],
    "matrix": lambda: [_BUILD, ["tests.nightly.cluster", "matrix"]],
}


def main() -> int:
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    rest = words[at + 1 :]
    parser = argparse.ArgumentParser(prog="python -m tests.nightly", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; or list")
    parser.add_argument("--minors", nargs="*", default=[], help="minors for the part matrix")
    given = parser.parse_args(words[:at])
    if given.parts == ["list"]:
        print("\n".join(PARTS))
        return 0
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if rest and len(given.parts) != 1:
        parser.error("arguments after -- are for one part: name it")
    results = [_run(name, [*given.minors, *rest]) for name in given.parts or PARTS]
    print("\n" + "\n".join(results))
    return int(any("failed" in result for result in results))


def _run(name: str, more: list[str]) -> str:
    """Run the commands of a part, and return a line with the result."""
    began, codes = time.monotonic(), []
    commands = PARTS[name]()
    for command in commands:
        command += more if command[0] == commands[-1][0] else []
    environment = {**_PROFILE, **os.environ}
    for command in commands:
        print(f"\n== {name}: python -m {' '.join(command)}", flush=True)
        ran = subprocess.run([sys.executable, "-m", *command], env=environment)
        codes.append(ran.returncode)
    ended = "failed" if any(codes) else "passed"
    return f"{name:<10} {ended}  {(time.monotonic() - began) / 60:5.1f} min"


if __name__ == "__main__":
    sys.exit(main())
