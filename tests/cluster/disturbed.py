"""What failed while the host had taken the processors away is played again, and that is told.

A machine that is not ours alone stands still now and then, and the kernel counts what its host
took. A promise of seconds cannot be held to seconds that were nobody's. So a test of real programs
that failed while more than a tenth of all processors was taken is played again, twice at most; one
that fails on a machine that had its processors has failed, and so has one that fails each time.

Nothing else is: no test within one process is timed, and what chaos and the walk over crash points
find is judged by rules that say themselves which of them time can excuse.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.calm import MUCH, taken_by_the_host

_AGAIN = 2
#: Under this name a report says what the host took.
TAKEN = "taken by the host"
_COUNTED = Path("/proc/stat").exists()

_HERE = Path(__file__).parent
_TIMED = (_HERE / "cluster", _HERE / "browser")
_JUDGED = ("test_chaos.py", "test_crash_points.py")

_begins = pytest.StashKey[tuple[int, int]]()


def _is_timed(item: pytest.Item) -> bool:
    return item.path.name not in _JUDGED and any(map(item.path.is_relative_to, _TIMED))


class Host:
    """What the host takes of the processors while a test runs."""

    def __init__(
        self,
        taken: Callable[[], tuple[int, int]] = taken_by_the_host,
        is_timed: Callable[[pytest.Item], bool] = _is_timed,
    ) -> None:
        self.is_timed = is_timed
        self._taken = taken if _COUNTED else lambda: (0, 0)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in filter(self.is_timed, items):
            is_disturbed = partial(self.is_disturbed, item)
            item.add_marker(pytest.mark.flaky(reruns=_AGAIN, condition=is_disturbed))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.stash[_begins] = self._taken()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            report.user_properties.append((TAKEN, f"{self.took(item):.0%}"))
        return report

    def is_disturbed(self, item: pytest.Item) -> bool:
        """Ask whether a failure of the test may be the machine's."""
        return self.took(item) > MUCH

    def took(self, item: pytest.Item) -> float:
        """Say what part of all processors the host took since the test began."""
        (stolen, passed), (stolen_now, passed_now) = item.stash[_begins], self._taken()
        return (stolen_now - stolen) / max(1, passed_now - passed)


def tell(reporter: pytest.TerminalReporter) -> None:
    """Name whatever was played again, and what the host took meanwhile."""
    again = reporter.stats.get("rerun", [])
    if again:
        reporter.section("played again: the host took the processors", yellow=True)
    for report in again:
        reporter.line(f"{dict(report.user_properties).get(TAKEN, '?')} taken: {report.nodeid}")
