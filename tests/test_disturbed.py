"""Only what failed on a machine that was taken away is played again, and it is said."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import disturbed

REPOSITORY = Path(__file__).parent.parent
CONFTEST = """
from itertools import count

from tests import disturbed

moments = count()


def taken():
    moment = next(moments)
    return moment * {stolen}, moment * 100


def pytest_configure(config):
    config.pluginmanager.register(disturbed.Host(taken, lambda item: True))


def pytest_terminal_summary(terminalreporter):
    disturbed.tell(terminalreporter)
"""
TEST = """
from itertools import count

times = count(1)


def test_the_machine():
    assert next(times) > {fails}
"""


def played(folder: Path, *, stolen: int, fails: int) -> tuple[int, str]:
    """Run a test that fails so often, on a machine whose host takes so much between two looks."""
    (folder / "conftest.py").write_text(CONFTEST.format(stolen=stolen))
    (folder / "test_it.py").write_text(TEST.format(fails=fails))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", folder, folder],
        cwd=folder,
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def test_who_fails_on_a_machine_that_has_its_processors_has_failed(tmp_path: Path) -> None:
    code, said = played(tmp_path, stolen=9, fails=1)

    assert code == 1, said
    assert "1 failed" in said
    assert "played again" not in said


def test_who_fails_while_the_host_takes_much_is_played_again_and_that_is_told(
    tmp_path: Path,
) -> None:
    code, said = played(tmp_path, stolen=40, fails=2)

    assert code == 0, said
    assert "1 passed, 2 rerun" in said
    assert "played again: the host took the processors" in said
    assert said.count("40% taken: test_it.py::test_the_machine") == 2


@pytest.mark.parametrize("fails", [3, 9])
def test_who_fails_each_time_has_failed_whatever_the_host_took(tmp_path: Path, fails: int) -> None:
    code, said = played(tmp_path, stolen=40, fails=fails)

    assert code == 1, said
    assert "1 failed, 2 rerun" in said


@pytest.mark.parametrize(
    ("place", "may"),
    [
        ("cluster/test_gangs.py", True),
        ("browser/test_demo_form.py", True),
        ("cluster/test_chaos.py", False),
        ("cluster/test_crash_points.py", False),
        ("holds/test_races.py", False),
    ],
)
def test_only_tests_of_real_programs_are_ever_played_again(place: str, may: bool) -> None:
    path = Path(__file__).parent / place
    assert path.exists()

    assert disturbed.Host().is_timed(SimpleNamespace(path=path)) == may


def test_who_passes_is_played_once_whatever_the_host_takes(tmp_path: Path) -> None:
    code, said = played(tmp_path, stolen=40, fails=0)

    assert code == 0, said
    assert "1 passed in" in said
