"""The workflows of the forge, read by a linter that knows its language.

What they should be made of is in tests/release/test_workflows.py, which needs no linter.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .binaries import ensure
from .conftest import _ensure
from .extender_process import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


@pytest.fixture(scope="module", autouse=True)
def binaries(request: pytest.FixtureRequest) -> None:
    _ensure(request.config, "actionlint")


def lint(*files: Path) -> tuple[int, str]:
    """Run the linter; gives how it ended and what it found."""
    # Linters of other languages are used where they happen to be; here all should see the same.
    command = [ensure("actionlint")["actionlint"], "-shellcheck=", "-pyflakes=", "-no-color"]
    ran = subprocess.run([*command, *files], cwd=REPOSITORY, capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


def test_the_linter_finds_nothing() -> None:
    assert WORKFLOWS
    assert lint(*WORKFLOWS) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("needs: [checks, audit]", "needs: [chekcs, audit]", "chekcs"),
        ("${{ github.actor }}", "${{ github.actr }}", "actr"),
        ("    runs-on: ubuntu-24.04", "    run-on: ubuntu-24.04", "run-on"),
        ("packages: write", "packages: wirte", "wirte"),
    ],
    ids=["a job that is not there", "a field that is not there", "a misspelt key", "no such right"],
)
def test_the_linter_would_find_it(right: str, wrong: str, said: str, tmp_path: Path) -> None:
    text = (REPOSITORY / ".github" / "workflows" / "release.yml").read_text()
    assert right in text
    broken = tmp_path / "release.yml"
    broken.write_text(text.replace(right, wrong, 1))

    code, found = lint(broken)

    assert code == 1
    assert said in found
