"""Runs documented commands in a shell, in a folder that looks like a checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cluster.binaries import ensure
from tests.cluster.control_plane import MANIFESTS, ControlPlane
from tests.cluster.extender_process import REPOSITORY


class Shell:
    """A shell of the administrator of *plane*."""

    def __init__(self, plane: ControlPlane) -> None:
        self.home = plane.folder / "home"
        self.home.mkdir()
        (self.home / "manifests").symlink_to(MANIFESTS)
        tools = [ensure("kubectl")["kubectl"].parent, Path(sys.executable).parent]
        self._environment = {
            "HOME": str(self.home),
            "KUBECONFIG": str(plane.kubeconfig()),
            "PATH": os.pathsep.join([*map(str, tools), os.environ["PATH"]]),
            "PYTHONPATH": str(REPOSITORY),
        }

    def type(self, command: str) -> str:
        """Run one command and return its output; fails if it fails."""
        ran = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.home,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ran.returncode == 0, f"{command}: {ran.stderr}"
        return ran.stdout


def commands(page: Path, heading: str) -> list[str]:
    """Return the commands that a page shows under a heading, up to the next heading."""
    below = page.read_text().partition(f"\n{heading}\n")[2]
    text = re.split(r"^##+ ", below, maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(r"^ *```console\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
