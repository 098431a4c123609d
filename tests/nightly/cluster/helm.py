"""The real Helm, at the version our module pins, on the chart of this checkout."""

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
    """What Helm said when it would not."""


def helm(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """Run Helm; gives its output."""
    # It keeps files in the home directory otherwise, and finds clusters there.
    with TemporaryDirectory() as home:
        environment = {"HOME": home, "KUBECONFIG": str(kubeconfig or Path(home) / "nowhere")}
        command = [ensure("helm")["helm"], *arguments]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        # It also tells of every link that it followed.
        said = [line for line in ran.stderr.splitlines() if not line.startswith("level=INFO")]
        raise HelmRefused("\n".join(said))
    return ran.stdout


def template(
    values: Mapping[str, object] | None = None,
    *more: str | Path,
    chart: Path = CHART,
    namespace: str = HOME,
) -> str:
    """Give what the chart makes of *values*, with its CRDs."""
    given = [f"--set-json={name}={json.dumps(value)}" for name, value in (values or {}).items()]
    where = ("--namespace", namespace, "--include-crds")
    return helm("template", RELEASE, chart, *where, *given, *more)


def objects_of(text: str) -> list[Object]:
    """Read the objects of a manifest."""
    return [thing for thing in yaml.safe_load_all(text) if thing]
