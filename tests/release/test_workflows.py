"""The workflows of the forge: well formed, pinned, with few rights, and made of our own words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.pythons import MINORS

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EVERY = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def read(path: Path) -> dict[str, Any]:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    return workflow


def jobs(path: Path) -> list[dict[str, Any]]:
    return list(read(path)["jobs"].values())


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in jobs(path) for step in job.get("steps", [])]


@EVERY
def test_it_runs_nothing_but_targets_of_the_makefile(path: Path) -> None:
    words = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)

    for step in steps(path):
        if "run" in step:
            program, *targets = (word for word in step["run"].split() if "=" not in word)
            assert program == "make"
            assert set(targets) <= set(words)


@EVERY
def test_every_action_is_pinned_by_its_commit(path: Path) -> None:
    used = [each["uses"] for each in (*steps(path), *jobs(path)) if "uses" in each]

    assert used
    for action in used:
        assert action.startswith("./") or re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action)


@EVERY
def test_it_may_only_read_unless_a_job_says_what_more_it_needs(path: Path) -> None:
    assert read(path)["permissions"] == {"contents": "read"}
    for job in jobs(path):
        assert set(job.get("permissions", {})) <= {"contents", "packages"}


@EVERY
def test_it_ends_by_itself_and_does_not_run_beside_itself(path: Path) -> None:
    assert "group" in read(path)["concurrency"]
    for job in jobs(path):
        assert "uses" in job or job["timeout-minutes"] <= 90


@EVERY
def test_a_checkout_leaves_no_credentials_behind(path: Path) -> None:
    for step in steps(path):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_every_python_is_checked() -> None:
    matrix = read(ROOT / ".github/workflows/checks.yml")["jobs"]["unit"]["strategy"]["matrix"]

    assert tuple(matrix["python"]) == MINORS


def test_nothing_is_published_before_all_checks_passed_and_advisories_were_looked_for() -> None:
    released = read(ROOT / ".github/workflows/release.yml")["jobs"]
    callable_ones = {name: job["uses"] for name, job in released.items() if "uses" in job}

    assert callable_ones == {
        "checks": "./.github/workflows/checks.yml",
        "audit": "./.github/workflows/audit.yml",
    }
    assert set(released["image"]["needs"]) == set(callable_ones)
    assert released["files"]["needs"] == "image"
    looked = [step.get("run") for step in steps(ROOT / ".github/workflows/audit.yml")]
    assert looked[-1] == "make audit"
