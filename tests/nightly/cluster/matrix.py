"""The compatibility tests on every minor of kube-scheduler that `modules/` pins.

They run against the API server of the default folder, which is newer than most: the version skew
policy allows one minor, but the APIs that the extender uses are the same in all of them. A newer
minor has its own API server. Tests of the API server itself, the permissions, run where a folder
has one: the oldest, the default and the newest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.cluster.binaries import Binary, ControlPlaneUnavailable, ensure, known
from tests.cluster.extender_process import REPOSITORY

#: The tests for every minor; the first checks that the selected minor runs.
COMPATIBILITY = (
    "tests/cluster/test_hooks.py",
    "tests/cluster/test_gangs.py",
    "tests/cluster/test_races.py",
    "tests/cluster/test_reservations.py",
)

PERMISSIONS = (
    "tests/nightly/cluster/test_permissions.py",
    "tests/cluster/test_hooks.py",
)

HEAD = """\
| minor | kube-scheduler | kube-apiserver | passed | failed | seconds |
|---|---|---|---|---|---|"""

#: Parallel control planes, one test file on each.
_SPREAD = ("-p", "no:randomly", "-n", "3", "--dist", "loadfile")

NOT_PASSED = ("failure", "error", "skipped")


@dataclass(frozen=True, slots=True)
class Minor:
    """A kube-scheduler and its API server."""

    name: str
    scheduler: Binary
    api_server: Binary

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that make the tests use these two."""
        return {
            "TEST_KUBE_SCHEDULER": self.scheduler.name,
            "TEST_KUBE_APISERVER": self.api_server.name,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results on one minor; *trouble* says why there are none."""

    minor: Minor
    passed: int = 0
    failed: int = 0
    seconds: float = 0
    trouble: str = ""

    @property
    def all_passed(self) -> bool:
        """Return whether all tests passed, and there were any."""
        return self.passed > 0 and not self.failed and not self.trouble

    @property
    def row(self) -> str:
        """Return a row of the table."""
        versions = f"{self.minor.scheduler.version} | {self.minor.api_server.version}"
        failed = self.trouble or str(self.failed)
        return f"| {self.minor.name} | {versions} | {self.passed} | {failed} | {self.seconds:.0f} |"


def minors() -> dict[str, Minor]:
    """Return every pinned minor by its name, oldest first."""
    default = known()["kube-apiserver"]
    return {
        minor.name: minor
        if _age(minor.name) > _age(default.minor)
        else Minor(minor.name, minor.scheduler, default)
        for minor in _all_minors()
    }


def with_own_api_server() -> dict[str, Minor]:
    """Return every minor with pinned kube-scheduler and API server, oldest first."""
    return {
        minor.name: minor
        for minor in _all_minors()
        if minor.api_server.minor == minor.scheduler.minor
    }


def _all_minors() -> list[Minor]:
    """Return each minor with its own API server, or with the default one."""
    binaries = known()
    found = []
    for binary in binaries.values():
        command, _, minor = binary.name.partition("@")
        if command == "kube-scheduler":
            own = binaries.get(f"kube-apiserver@{minor}", binaries["kube-apiserver"])
            found.append(Minor(binary.minor, binary, own))
    return sorted(found, key=lambda minor: _age(minor.name))


def _age(minor: str) -> list[int]:
    return [int(number) for number in minor.split(".")]


def run(wanted: Iterable[Minor], tests: Sequence[str | Path] = COMPATIBILITY) -> int:
    """Run the tests on every minor, and print the table; return 0 if all passed."""
    outcomes = []
    for minor in wanted:
        against = minor.api_server.version
        print(f"kube-scheduler {minor.scheduler.version}, kube-apiserver {against}", flush=True)
        outcomes.append(attempt(minor, tests))
        print(outcomes[-1].row, flush=True)
    print("", HEAD, *(outcome.row for outcome in outcomes), sep="\n", flush=True)
    return 0 if outcomes and all(outcome.all_passed for outcome in outcomes) else 1


def attempt(minor: Minor, tests: Sequence[str | Path]) -> Outcome:
    """Run *tests* on one minor; build it first if it is missing."""
    try:
        ensure(minor.scheduler.name, minor.api_server.name)
    except ControlPlaneUnavailable as why:
        print(why, file=sys.stderr)
        return Outcome(minor=minor, trouble="not built")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gang-extender-matrix-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *_SPREAD, *tests]
        environment = {**os.environ, **minor.environment}
        ended = subprocess.run(command, cwd=REPOSITORY, env=environment).returncode
        seconds = time.monotonic() - began
        if not report.exists():
            return Outcome(minor=minor, seconds=seconds, trouble=f"pytest ended with {ended}")
        passed, failed = _counted(report)
    trouble = f"pytest ended with {ended}" if ended and not failed else ""
    return Outcome(minor=minor, passed=passed, failed=failed, seconds=seconds, trouble=trouble)


def _counted(report: Path) -> tuple[int, int]:
    """Return how many tests passed, and how many did not, skipped ones included."""
    cases = ElementTree.parse(report).iter("testcase")  # noqa: S314 - pytest has just written it
    not_passed = [any(case.find(end) is not None for end in NOT_PASSED) for case in cases]
    return not_passed.count(False), not_passed.count(True)
