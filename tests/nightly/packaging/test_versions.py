"""One version, written once, wherever it shows."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import extender

ROOT = Path(__file__).parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
MANIFESTS = ROOT / "manifests"


def made(target: str, *variables: str) -> str:
    """What `make` would do."""
    ran = subprocess.run(
        ["make", "--dry-run", "--always-make", target, *variables],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return ran.stdout


def test_the_command_carries_the_version_of_the_project() -> None:
    assert extender.__version__ == VERSION


def test_no_other_file_of_the_package_says_a_version() -> None:
    for path in (ROOT / "extender").rglob("*.py"):
        assert f'"{VERSION}"' not in path.read_text(), path


def test_the_image_is_tagged_with_the_version_and_manifests_name_a_tag_that_it_has() -> None:
    tags = set(re.findall(r"--tag gang-extender:(\S+)", made("image")))
    text = "\n".join(path.read_text() for path in (MANIFESTS / "overlays").rglob("*.yaml"))
    named = re.findall(r"image: gang-extender:(\S+)", text)
    named += re.findall(r"name: gang-extender, newTag: ([^}\s]+)", text)

    assert VERSION in tags
    assert named
    assert set(named) <= tags


def test_charts_carry_it_too() -> None:
    charts = [yaml.safe_load(path.read_text()) for path in MANIFESTS.rglob("Chart.yaml")]

    assert {each[key] for each in charts for key in ("version", "appVersion")} <= {VERSION}


def test_a_tag_of_another_version_releases_nothing() -> None:
    ran = subprocess.run(
        ["make", "release-version", "TAG=v9.9.9"], cwd=ROOT, capture_output=True, text=True
    )

    assert ran.returncode != 0
    assert f"the tag is v9.9.9, the tree is v{VERSION}" in ran.stdout


@pytest.mark.parametrize(
    ("changelog", "refusal"),
    [
        ("## Unreleased\n\n- a thing\n", "CHANGELOG.md has no section"),
        ("## Unreleased\n\n## 0.0.1 - 2026-01-01\n\n- a thing\n", "CHANGELOG.md has no section"),
        (f"## Unreleased\n\n## {VERSION}0 - 2026-01-01\n\n- a thing\n", "has no section"),
        (f"## Unreleased\n\n## {VERSION} - 2026-01-01\n\n## 0.0.1 - 2026-01-01\n\n- a\n", "empty"),
        (f"## Unreleased\n\n## {VERSION} - 2026-01-01\n\n", "empty"),
        (f"## Unreleased\n\n## {VERSION} - 2026-01-01\n\n### Added\n\n- a thing\n", ""),
    ],
    ids=["none", "another", "one like it", "nothing in it", "nothing in the last", "there"],
)
def test_nothing_is_released_of_which_the_changelog_does_not_tell(
    tmp_path: Path, changelog: str, refusal: str
) -> None:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog}")

    ran = subprocess.run(
        ["make", "release-version", f"TAG=v{VERSION}"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip

    assert (ran.returncode == 0) == (refusal == "")
    assert refusal in ran.stdout


def test_a_release_is_looked_at_before_it_is_published() -> None:
    steps = made("publish", f"TAG=v{VERSION}")

    assert 0 < steps.index("CHANGELOG.md has no section") < steps.index("gh release create")


def test_the_changelog_has_only_the_sections_that_it_promises() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    releases = re.findall(r"^## (.*)$", text, re.M)
    kinds = set(re.findall(r"^### (.*)$", text, re.M))

    assert releases[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", each) for each in releases[1:])
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
