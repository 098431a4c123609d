"""The wheel has the package, its command and its version, and is reproducible."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import extender

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", str(folder)], cwd=ROOT, check=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_wheel_has_exactly_the_tracked_files_of_the_package(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if not name.startswith("gang_extender-")}
    tracked = subprocess.run(
        ["git", "ls-files", "extender"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()

    assert names == set(tracked)


def test_wheel_installs_the_command_and_has_its_version(wheel: zipfile.ZipFile) -> None:
    (points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))

    assert "gang-extender = extender.cli.main:main" in wheel.read(points).decode()
    assert f"gang_extender-{extender.__version__}-" in str(wheel.filename)


def test_same_tree_in_another_folder_gives_the_same_wheel(tmp_path: Path) -> None:
    built = []
    for place, moment in (("one", 1_600_000_000), ("two", 1_700_000_000)):
        tree = tmp_path / place
        tree.mkdir()
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, tree)
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "extender", tree / "extender", ignore=ignore)
        for path in tree.rglob("*"):
            os.utime(path, (moment, moment))
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", "dist"],
            cwd=tree, env={**os.environ, "SOURCE_DATE_EPOCH": "1650000000"}, check=True,
        )  # fmt: skip
        (wheel,) = (tree / "dist").glob("*.whl")
        built.append(wheel.read_bytes())

    assert built[0] == built[1]
