"""Runs the unit tests on every Python we promise that is here: `python -m release.pythons`.

Each has a virtual environment of its own, `.venv-3.x`, installed from the lock. What is not here
is said, not passed over; one that fails, or none at all, fails the whole.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MINORS = ("3.11", "3.12", "3.13", "3.14")
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
TESTS = ("-m", "pytest", "-q", "--ignore", "tests/cluster", "-p", "no:cacheprovider")


@dataclass(frozen=True, slots=True)
class Result:
    """How it went on one minor; *said* is pytest's last line, or what was missing."""

    minor: str
    said: str
    passed: bool
    found: bool = True


def minor_of(python: Path | str) -> str:
    """Ask a Python for its minor; empty where it does not run, as a shim of pyenv may not."""
    ask = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=60)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def find(named: Iterable[str] = ()) -> dict[str, Path]:
    """Find a Python of each minor: those that were named, then on PATH, then pyenv's."""
    candidates = [Path(each) for each in named]
    candidates += [Path(path) for each in MINORS if (path := shutil.which(f"python{each}"))]
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates += sorted(home.glob("versions/3.*/bin/python3.[0-9]*[0-9]"))
    found: dict[str, Path] = {}
    for candidate in candidates:
        minor = minor_of(candidate)
        if minor in MINORS:
            found.setdefault(minor, candidate)
    return found


def run_tests(minor: str, python: Path) -> Result:
    """Install from the lock and run the suite without the cluster."""
    environment = ROOT / f".venv-{minor}"
    inside = environment / "bin" / "python"
    steps: list[list[str | Path]] = [
        [inside, *PIP, "--require-hashes", "-r", "requirements-dev.lock"],
        [inside, *PIP, "--no-deps", "--no-build-isolation", "--editable", "."],
    ]
    if not inside.exists():
        steps.insert(0, [python, "-m", "venv", environment])
    for step in steps:
        if subprocess.run(step, cwd=ROOT).returncode != 0:  # noqa: S603
            return Result(minor, "could not be set up", passed=False)
    ran = subprocess.run([inside, *TESTS], cwd=ROOT, capture_output=True, text=True)  # noqa: S603
    if ran.returncode != 0:
        sys.stdout.write(ran.stdout)
    lines = ran.stdout.strip().splitlines() or [ran.stderr.strip()[-200:]]
    return Result(minor, lines[-1], passed=ran.returncode == 0)


def table(results: Iterable[Result]) -> str:
    """Tell all of it, a line each."""
    rows = [("PYTHON", "TESTS", "SAID")]
    for each in results:
        verdict = "passed" if each.passed else "failed" if each.found else "not here"
        rows.append((each.minor, verdict, re.sub(r"^=+ | =+$", "", each.said)))
    return "\n".join(f"{minor:<8}{verdict:<10}{said}".rstrip() for minor, verdict, said in rows)


def main(named: list[str]) -> int:
    """Run all there are; 0 only if there was one and none failed."""
    here = find(named)
    missing = "no such Python on PATH, in pyenv or in PYTHONS"
    results = [
        run_tests(minor, here[minor])
        if minor in here
        else Result(minor, missing, passed=False, found=False)
        for minor in MINORS
    ]
    sys.stdout.write(f"{table(results)}\n")
    ran = [each for each in results if each.found]
    return 0 if ran and all(each.passed for each in ran) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
