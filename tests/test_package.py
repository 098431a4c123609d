"""What we ship: the wheel, the image's recipe, and the version they carry."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import extender

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", str(folder)], cwd=ROOT, check=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    shipped = {name for name in wheel.namelist() if not name.startswith("gang_extender-")}
    tracked = subprocess.run(
        ["git", "ls-files", "extender"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()

    assert shipped == set(tracked)


def test_the_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    (points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))

    assert "gang-extender = extender.cli.main:main" in wheel.read(points).decode()


def test_the_wheel_carries_the_version_the_command_prints(wheel: zipfile.ZipFile) -> None:
    assert f"gang_extender-{extender.__version__}-" in str(wheel.filename)


def test_the_image_runs_as_an_ordinary_user() -> None:
    users = re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)

    assert users[-1] == "10001"
    assert DOCKERFILE.index("USER") < DOCKERFILE.index("ENTRYPOINT")


def test_the_image_installs_only_what_is_locked() -> None:
    installs = re.findall(r"pip install (.*)", DOCKERFILE)

    assert all(
        "--require-hashes" in each or "--no-deps" in each or "==" in each for each in installs
    )


def test_what_the_image_copies_exists() -> None:
    for sources in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
