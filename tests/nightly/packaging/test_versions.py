"""The version is defined once, and a release refuses a tag of another version."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import extender

ROOT = Path(__file__).parents[3]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
MANIFESTS = ROOT / "manifests"
OVERLAYS = sorted((MANIFESTS / "overlays").glob("*/kustomization.yaml"))
RELEASE = ROOT / ".github" / "workflows" / "release.yml"


def overlay_images() -> list[dict[str, str]]:
    return [image for path in OVERLAYS for image in yaml.safe_load(path.read_text())["images"]]


def check_tag(tree: Path, tag: str) -> subprocess.CompletedProcess[str]:
    """Run the first script of the release, as GitHub runs it."""
    job = yaml.safe_load(RELEASE.read_text())["jobs"]["version"]
    (script,) = (step["run"] for step in job["steps"] if "run" in step)
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tree, env={**os.environ, "GITHUB_REF_NAME": tag}, capture_output=True, text=True,
    )  # fmt: skip


def test_command_has_the_version_of_the_project() -> None:
    assert extender.__version__ == VERSION


def test_no_other_file_of_the_package_has_a_version() -> None:
    for path in (ROOT / "extender").rglob("*.py"):
        assert f'"{VERSION}"' not in path.read_text(), path


def test_charts_have_the_version() -> None:
    charts = [yaml.safe_load(path.read_text()) for path in MANIFESTS.rglob("Chart.yaml")]

    assert {each[key] for each in charts for key in ("version", "appVersion")} == {VERSION}


def test_overlays_have_the_tag_of_the_manual() -> None:
    built = set(re.findall(r"docker build --tag \S+:(\S+)", (ROOT / "docs/install.md").read_text()))
    named = {each["newTag"] for each in overlay_images() if each["name"] == "gang-extender"}

    assert named == built != set()


def test_every_other_image_has_a_digest() -> None:
    base = re.findall(r"^FROM (?!base)(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    values = yaml.safe_load((MANIFESTS / "chart" / "values.yaml").read_text())
    overlays = [each["digest"] for each in overlay_images() if each["name"] != "gang-extender"]
    # BuildKit, the emulator and the scanner have no `uses:`, so zizmor does not check them.
    release = re.findall(r"(?:image[:=]|SCANNER:) ?(\S+/\S+)", RELEASE.read_text())

    assert (len(base), len(overlays), len(release)) == (1, 1, 3)
    for image in (*base, *overlays, *release, values["kubeScheduler"]["image"]["tag"]):
        assert re.search(r"sha256:[0-9a-f]{64}$", image), image


def test_tag_of_another_version_is_refused() -> None:
    ran = check_tag(ROOT, "v9.9.9")

    assert ran.returncode != 0
    assert f"the tag is v9.9.9, the tree is v{VERSION}" in ran.stdout


@pytest.mark.parametrize(
    ("changelog", "refused"),
    [
        ("## Unreleased\n\n- a thing\n", True),
        ("## Unreleased\n\n## 0.0.1 - 2026-01-01\n\n- a thing\n", True),
        (f"## Unreleased\n\n## {VERSION}0 - 2026-01-01\n\n- a thing\n", True),
        (f"## Unreleased\n\n## {VERSION} - 2026-01-01\n\n## 0.0.1 - 2026-01-01\n\n- a\n", True),
        (f"## Unreleased\n\n## {VERSION} - 2026-01-01\n\n", True),
        (f"## Unreleased\n\n## {VERSION} - 2026-01-01\n\n### Added\n\n- a thing\n", False),
    ],
    ids=["none", "another", "longer", "empty between two", "empty at the end", "complete"],
)
def test_version_without_an_entry_in_the_changelog_is_refused(
    tmp_path: Path, changelog: str, refused: bool
) -> None:
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{changelog}")

    ran = check_tag(tmp_path, f"v{VERSION}")

    assert (ran.returncode != 0) == refused
    assert ("CHANGELOG.md has no entries" in ran.stdout) == refused


def test_changelog_has_only_the_sections_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    releases = re.findall(r"^## (.*)$", text, re.M)
    kinds = set(re.findall(r"^### (.*)$", text, re.M))

    assert releases[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", each) for each in releases[1:])
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
