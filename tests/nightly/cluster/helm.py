"""Helm, at the pinned version, on the chart of this checkout."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from tests.cluster.api import Object
from tests.cluster.binaries import ensure
from tests.cluster.extender_process import REPOSITORY

CHART = REPOSITORY / "manifests" / "chart"
RELEASE = "gang-extender"
HOME = "gang-system"


class HelmRefused(Exception):
    """The error output of Helm."""


def helm(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """Run Helm; return its output."""
    # Otherwise it uses files and kubeconfigs of the home directory.
    with TemporaryDirectory() as home:
        environment = {"HOME": home, "KUBECONFIG": str(kubeconfig or Path(home) / "nowhere")}
        command = [ensure("helm")["helm"], *arguments]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        # It logs every symbolic link.
        lines = [line for line in ran.stderr.splitlines() if not line.startswith("level=INFO")]
        raise HelmRefused("\n".join(lines))
    return ran.stdout


def template(
    values: Mapping[str, object] | None = None,
    *more: str | Path,
    chart: Path = CHART,
    namespace: str = HOME,
) -> str:
    """Return the rendered chart with *values*, CRDs included."""
    given = [f"--set-json={name}={json.dumps(value)}" for name, value in (values or {}).items()]
    where = ("--namespace", namespace, "--include-crds")
    return helm("template", RELEASE, chart, *where, *given, *more)


def objects_of(text: str) -> list[Object]:
    """Return the objects of a manifest."""
    return [thing for thing in yaml.safe_load_all(text) if thing]
