"""The compatibility matrix: every pinned minor is tried, told and written down."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import matrix
from .binaries import MODULES, NEEDED_BY_TESTS, ControlPlaneUnavailable, known
from .control_plane import SCHEDULER_FLAGS
from .extender_process import REPOSITORY
from .matrix import PROMISES, RIGHTS, minors, whole

PAGE = (REPOSITORY / "docs" / "compatibility.md").read_text()
RIGHTS_OF_THE_PAGE = PAGE.partition("\n## The rights\n")[2].partition("\n## ")[0]

ASKED = """
import os


def test_is_asked_for_the_minor():
    assert os.environ["TEST_KUBE_SCHEDULER"] == "{scheduler}"
    assert os.environ["TEST_KUBE_APISERVER"] == "{api_server}"
"""
RED = """
import pytest


def test_keeps_its_word():
    pass


def test_breaks_its_word():
    assert False


@pytest.mark.skip
def test_says_nothing():
    pass
"""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the matrix wanted to have, instead of building it."""
    wanted: list[str] = []
    monkeypatch.setattr(matrix, "ensure", lambda *names: wanted.extend(names))
    return wanted


def told(capfd: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The rows of the table that was printed, without the seconds."""
    rows = capfd.readouterr().out.rpartition(matrix.HEAD)[2].split("\n")[1:-1]
    return [row.strip("| ").split(" | ")[:5] for row in rows]


def test_every_folder_of_kubernetes_is_a_minor_of_the_matrix() -> None:
    folders = {minor.scheduler.folder for minor in minors().values()}

    assert folders == set(MODULES.glob("kubernetes*"))
    for minor in minors().values():
        assert minor.scheduler.folder.name in ("kubernetes", f"kubernetes-{minor.name}")


def test_the_matrix_has_no_gap() -> None:
    numbers = [int(name.removeprefix("1.")) for name in minors()]

    assert numbers == list(range(28, 38))


def test_a_minor_that_is_newer_than_the_default_runs_against_its_own_api_server() -> None:
    default = known()["kube-apiserver"]
    others = {name: minor for name, minor in minors().items() if minor.api_server != default}

    assert others.keys() == {"1.37"}
    assert others["1.37"].api_server.version == others["1.37"].scheduler.version
    assert others["1.37"].environment == {
        "TEST_KUBE_SCHEDULER": "kube-scheduler@1.37",
        "TEST_KUBE_APISERVER": "kube-apiserver@1.37",
    }


def test_the_rights_are_tried_on_the_oldest_the_default_and_the_newest_api_server() -> None:
    pinned, default = list(minors()), known()["kube-apiserver"].minor

    assert list(whole()) == [pinned[0], default, pinned[-1]]
    assert whole()["1.28"].environment == {
        "TEST_KUBE_SCHEDULER": "kube-scheduler@1.28",
        "TEST_KUBE_APISERVER": "kube-apiserver@1.28",
    }


def test_the_default_minor_is_the_one_of_all_other_tests() -> None:
    default = minors()[known()["kube-scheduler"].minor]

    assert default.environment == {
        "TEST_KUBE_SCHEDULER": "kube-scheduler",
        "TEST_KUBE_APISERVER": "kube-apiserver",
    }


def test_no_other_minor_is_built_for_the_tests() -> None:
    assert [name for name in NEEDED_BY_TESTS if "@" in name] == []


def test_every_promise_is_a_file_of_tests() -> None:
    tests = (*PROMISES, *RIGHTS)

    assert [path for path in tests if not (REPOSITORY / path).is_file()] == []


def test_the_tests_are_told_which_minor_to_run(
    built: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_asked.py"
    file.write_text(ASKED.format(scheduler="kube-scheduler@1.37", api_server="kube-apiserver@1.37"))
    minor = minors()["1.37"]

    assert matrix.run([minor], [file]) == 0

    assert built == ["kube-scheduler@1.37", "kube-apiserver@1.37"]
    assert told(capfd) == [
        ["1.37", minor.scheduler.version, minor.api_server.version, "1", "0"],
    ]


def test_a_test_that_was_skipped_counts_as_one_that_failed(
    built: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "test_red.py"
    file.write_text(RED)

    outcome = matrix.attempt(minors()["1.28"], [file])

    assert not outcome.is_green
    assert (outcome.passed, outcome.failed) == (1, 2)


def test_a_minor_is_red_where_nothing_ran(built: list[str], tmp_path: Path) -> None:
    outcome = matrix.attempt(minors()["1.28"], [tmp_path / "test_gone.py"])

    assert not outcome.is_green
    assert "pytest ended with 4" in outcome.row


def test_a_red_minor_does_not_end_the_matrix(
    built: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "test_asked.py"
    file.write_text(ASKED.format(scheduler="kube-scheduler@1.29", api_server="kube-apiserver"))
    wanted = [minors()[name] for name in ("1.28", "1.29")]

    assert matrix.run(wanted, [file]) == 1

    assert told(capfd) == [
        ["1.28", wanted[0].scheduler.version, wanted[0].api_server.version, "0", "1"],
        ["1.29", wanted[1].scheduler.version, wanted[1].api_server.version, "1", "0"],
    ]


def test_a_minor_that_cannot_be_built_does_not_end_the_matrix_either(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def unavailable(*names: str) -> None:
        raise ControlPlaneUnavailable(f"no proxy for {names[0]}")

    monkeypatch.setattr(matrix, "ensure", unavailable)

    assert matrix.run([minors()["1.28"], minors()["1.29"]], [tmp_path]) == 1

    said = capfd.readouterr()
    assert said.out.count("| 0 | not built |") == 4  # each once as it ended, once in the table
    assert "no proxy for kube-scheduler@1.29" in said.err


def test_the_page_has_every_pinned_minor_at_its_version_and_no_other() -> None:
    told = rows(PAGE.partition("\n## ")[0])

    assert told == versions(minors()), "run: make cluster-matrix, and write what it says"


def test_the_page_has_every_minor_that_the_rights_are_tried_on() -> None:
    told = rows(RIGHTS_OF_THE_PAGE)

    assert told == versions(whole()), "run: python -m tests.cluster matrix --rights, and write it"


@pytest.mark.parametrize(
    ("part", "files"),
    [(PAGE.partition("\n## ")[0], PROMISES), (RIGHTS_OF_THE_PAGE, RIGHTS)],
    ids=["promises", "rights"],
)
def test_the_page_counts_the_tests_that_there_are_or_says_how_many_came_later(
    part: str, files: tuple[str, ...]
) -> None:
    asked = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:xdist", *files]
    said = subprocess.run(asked, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    (later,) = re.findall(r"before (\d+) tests were added", part) or ["0"]
    there_are = len(re.findall(r"^tests/\S+::", said, re.MULTILINE))

    counts = re.findall(r"\| (\d+) of (\d+) \|", part)
    assert {int(of) + int(later) for _, of in counts} == {there_are}
    assert later == "0" or f"the files have {there_are} now" in part


def rows(part: str) -> list[tuple[str, ...]]:
    return re.findall(r"^\| (1\.\d+) \| (v\S+) \| (v\S+) \|", part, re.MULTILINE)


def versions(tried: dict[str, matrix.Minor]) -> list[tuple[str, ...]]:
    return [
        (minor.name, minor.scheduler.version, minor.api_server.version) for minor in tried.values()
    ]


def test_the_page_names_the_tests_that_were_run() -> None:
    told = [Path(path).name for path in (*PROMISES, *RIGHTS)]

    assert re.findall(r"^- `(test_\w+\.py)`", PAGE, re.MULTILINE) == told


def test_the_page_names_the_flags_that_a_minor_needs() -> None:
    for binary, flags in SCHEDULER_FLAGS.items():
        minor = binary.partition("@")[2]
        assert minor in minors()
        told = " ".join(PAGE.split())
        assert f"kube-scheduler {minor} needs `{' '.join(flags)}`" in told
