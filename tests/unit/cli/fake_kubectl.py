"""A kubectl that answers from a folder: what the API server lists, and where a forward leads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_SCRIPT = """\
#!/bin/sh
echo "$@" >> {scene}/asked
case "$*" in
  *" -h"*) exit 0 ;;
esac
case "$*" in
  *get*) kind=get ;;
  *) kind=port-forward ;;
esac
if [ -e {scene}/silent ]; then exec sleep 600; fi
if [ -e {scene}/$kind.refused ]; then cat {scene}/$kind.refused >&2; exit 1; fi
if [ $kind = get ]; then
  case "$*" in
    *namespaces*) cat {scene}/here.json ;;
    *) cat {scene}/everywhere.json ;;
  esac
  exit 0
fi
echo $$ >> {scene}/pids
echo "Forwarding from 127.0.0.1:$(cat {scene}/port) -> 8889"
exec sleep 600
"""


class FakeKubectl:
    """The folder that it answers from; put *bin* on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self._scene = folder / "scene"
        for each in (self.bin, self._scene):
            each.mkdir()
        command = self.bin / "kubectl"
        command.write_text(_SCRIPT.format(scene=self._scene))
        command.chmod(0o755)
        self.list()
        self.list_everywhere()

    def list(self, *pods: dict[str, Any]) -> None:
        """Say which pods the extender's namespace has."""
        (self._scene / "here.json").write_text(json.dumps({"items": pods}))

    def list_everywhere(self, *pods: dict[str, Any]) -> None:
        """Say which pods all namespaces have."""
        (self._scene / "everywhere.json").write_text(json.dumps({"items": pods}))

    def answer(self, text: str) -> None:
        """Say what is listed, word for word."""
        (self._scene / "here.json").write_text(text)

    def lead_to(self, url: str) -> None:
        """Let a forwarded port be that of *url*."""
        (self._scene / "port").write_text(url.rpartition(":")[2])

    def refuse(self, kind: str, said: str) -> None:
        """Let `get` or `port-forward` fail."""
        (self._scene / f"{kind}.refused").write_text(said)

    def be_silent(self) -> None:
        """Never answer, as when a login is waited for."""
        (self._scene / "silent").touch()

    def asked(self) -> list[str]:
        """Give the words it was called with, each time."""
        path = self._scene / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def forwards(self) -> list[int]:
        """Give the processes that forwarded a port."""
        path = self._scene / "pids"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


def pod(
    name: str,
    *,
    leads: bool = False,
    ready: bool = True,
    phase: str = "Running",
    namespace: str = "gang-system",
    **metadata: Any,
) -> dict[str, Any]:
    """A pod of the extender, as the API server gives it."""
    labels = {"app.kubernetes.io/name": "gang-extender"}
    if leads:
        labels["gang-extender.io/leader"] = "true"
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels, **metadata},
        "spec": {
            "containers": [
                {"name": "kube-scheduler", "ports": [{"containerPort": 10259}]},
                {"name": "extender", "ports": [{"name": "ops", "containerPort": 8889}]},
            ]
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }
