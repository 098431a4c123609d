"""The promises on every minor of kube-scheduler that `modules/` pins, one minor after the other.

They run against the API server of the default folder, which is newer than most: Kubernetes allows a
scheduler only one minor of lag, but what we ask of either has not changed in all of them. A minor
that is newer than that brings its own. What depends on the API server itself, our rights, is tried
where a folder brings one: on the oldest, the default and the newest.
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

#: What every minor is held to; the first sees to it that the minor asked for is the one that runs.
PROMISES = (
    "tests/cluster/test_versions.py",
    "tests/cluster/test_gangs.py",
    "tests/cluster/test_hooks.py",
    "tests/cluster/test_waiting_bind_races.py",
    "tests/cluster/test_binding_races.py",
    "tests/cluster/test_timeouts.py",
    "tests/cluster/test_crash.py",
    "tests/cluster/test_many_gangs.py",
    "tests/cluster/test_reservations.py",
)

RIGHTS = (
    "tests/nightly/cluster/test_rights.py",
    "tests/cluster/test_hook_secret.py",
)

HEAD = """\
| minor | kube-scheduler | kube-apiserver | passed | failed | seconds |
|---|---|---|---|---|---|"""

#: Control planes side by side, and a file on one of them.
_SPREAD = ("-p", "no:randomly", "-n", "3", "--dist", "loadfile")

UNHAPPY_ENDS = ("failure", "error", "skipped")


@dataclass(frozen=True, slots=True)
class Minor:
    """A kube-scheduler, and the API server that it runs against."""

    name: str
    scheduler: Binary
    api_server: Binary

    @property
    def environment(self) -> dict[str, str]:
        """What makes the tests run these two."""
        return {
            "TEST_KUBE_SCHEDULER": self.scheduler.name,
            "TEST_KUBE_APISERVER": self.api_server.name,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the tests went on one minor; *trouble* says why there was nothing to count."""

    minor: Minor
    passed: int = 0
    failed: int = 0
    seconds: float = 0
    trouble: str = ""

    @property
    def is_green(self) -> bool:
        """Whether something passed and nothing did not."""
        return self.passed > 0 and not self.failed and not self.trouble

    @property
    def row(self) -> str:
        """One line of the table."""
        versions = f"{self.minor.scheduler.version} | {self.minor.api_server.version}"
        failed = self.trouble or str(self.failed)
        return f"| {self.minor.name} | {versions} | {self.passed} | {failed} | {self.seconds:.0f} |"


def minors() -> dict[str, Minor]:
    """Every pinned minor by its name, oldest first."""
    default = known()["kube-apiserver"]
    return {
        minor.name: minor
        if _age(minor.name) > _age(default.minor)
        else Minor(minor.name, minor.scheduler, default)
        for minor in _with_the_nearest()
    }


def whole() -> dict[str, Minor]:
    """Every minor of which both a kube-scheduler and an API server are pinned, oldest first."""
    return {
        minor.name: minor
        for minor in _with_the_nearest()
        if minor.api_server.minor == minor.scheduler.minor
    }


def _with_the_nearest() -> list[Minor]:
    """Each minor with its own API server where there is one, else with the default."""
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


def run(wanted: Iterable[Minor], tests: Sequence[str | Path] = PROMISES) -> int:
    """Try every minor, whatever came of those before, and print the table; 0 if all are green."""
    outcomes = []
    for minor in wanted:
        against = minor.api_server.version
        print(f"kube-scheduler {minor.scheduler.version}, kube-apiserver {against}", flush=True)
        outcomes.append(attempt(minor, tests))
        print(outcomes[-1].row, flush=True)
    print("", HEAD, *(outcome.row for outcome in outcomes), sep="\n", flush=True)
    return 0 if outcomes and all(outcome.is_green for outcome in outcomes) else 1


def attempt(minor: Minor, tests: Sequence[str | Path]) -> Outcome:
    """Run *tests* on one minor, building it first where it is not there yet."""
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
    """How many tests passed, and how many did not: one that was skipped has promised nothing."""
    cases = ElementTree.parse(report).iter("testcase")  # noqa: S314 - pytest has just written it
    unhappy = [any(case.find(end) is not None for end in UNHAPPY_ENDS) for case in cases]
    return unhappy.count(False), unhappy.count(True)
