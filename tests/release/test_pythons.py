"""`make pythons` runs on what is here, says what is not, and fails when it should."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from release import pythons
from release.pythons import MINORS, Result, find, main, table

ROOT = Path(__file__).parents[2]


def fake(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / name
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Python."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    return tmp_path


def test_a_python_is_found_by_its_name_on_path_in_pyenv_or_when_it_is_named(machine: Path) -> None:
    on_path = fake(machine / "bin", "python3.11", "echo 3.11")
    in_pyenv = fake(machine / "pyenv/versions/3.12.1/bin", "python3.12", "echo 3.12")
    named = fake(machine / "elsewhere", "python", "echo 3.14")

    assert find([str(named)]) == {"3.11": on_path, "3.12": in_pyenv, "3.14": named}


def test_a_shim_that_runs_nothing_and_an_older_python_do_not_count(machine: Path) -> None:
    fake(machine / "bin", "python3.12", "echo 'command not found' >&2; exit 127")
    fake(machine / "pyenv/versions/3.10.1/bin", "python3.10", "echo 3.10")

    assert find() == {}


def test_none_at_all_is_a_failure_and_names_those_that_are_missing(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 1

    told = capsys.readouterr().out
    assert re.findall(r"^(3\.\d+) +not here", told, re.M) == list(MINORS)


@pytest.mark.parametrize(("passes", "code"), [(True, 0), (False, 1)])
def test_one_that_fails_fails_the_whole_and_one_that_is_not_here_does_not(
    machine: Path, monkeypatch: pytest.MonkeyPatch, passes: bool, code: int
) -> None:
    fake(machine / "bin", "python3.11", "echo 3.11")
    fake(machine / "bin", "python3.13", "echo 3.13")

    def run_tests(minor: str, python: Path) -> Result:
        return Result(minor, "9 passed", passed=minor == "3.11" or passes)

    monkeypatch.setattr(pythons, "run_tests", run_tests)

    assert main([]) == code


def test_the_table_has_a_line_for_each() -> None:
    told = table([Result("3.11", "== 9 passed in 2s ==", True), Result("3.12", "x", False)])

    assert told.splitlines()[1:] == ["3.11    passed    9 passed in 2s", "3.12    failed    x"]


def test_the_pythons_are_those_that_the_package_says_it_runs_on() -> None:
    said = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())

    assert tuple(said) == MINORS
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in MINORS
