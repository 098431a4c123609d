"""A kubectl that answers from a directory: the listed pods, and the target of port forwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_SCRIPT = """\
#!/bin/sh
echo "$@" >> {folder}/calls
case "$*" in
  *" -h"*) exit 0 ;;
esac
case "$*" in
  *get*) kind=get ;;
  *) kind=port-forward ;;
esac
if [ -e {folder}/silent ]; then exec sleep 600; fi
if [ -e {folder}/$kind.refused ]; then cat {folder}/$kind.refused >&2; exit 1; fi
if [ $kind = get ]; then
  case "$*" in
    *namespaces*) cat {folder}/here.json ;;
    *) cat {folder}/everywhere.json ;;
  esac
  exit 0
fi
echo $$ >> {folder}/pids
echo "Forwarding from 127.0.0.1:$(cat {folder}/port) -> 8889"
exec sleep 600
"""


class FakeKubectl:
    """Writes the directory that it answers from; put *bin* on the PATH."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self._folder = folder / "kubectl"
        for each in (self.bin, self._folder):
            each.mkdir()
        command = self.bin / "kubectl"
        command.write_text(_SCRIPT.format(folder=self._folder))
        command.chmod(0o755)
        self.list()
        self.list_everywhere()

    def list(self, *pods: dict[str, Any]) -> None:
        """Set the pods of the extender's namespace."""
        (self._folder / "here.json").write_text(json.dumps({"items": pods}))

    def list_everywhere(self, *pods: dict[str, Any]) -> None:
        """Set the pods of all namespaces."""
        (self._folder / "everywhere.json").write_text(json.dumps({"items": pods}))

    def answer(self, text: str) -> None:
        """Set the exact output of a list."""
        (self._folder / "here.json").write_text(text)

    def forward_to(self, url: str) -> None:
        """Forward to the port of *url*."""
        (self._folder / "port").write_text(url.rpartition(":")[2])

    def refuse(self, kind: str, said: str) -> None:
        """Make `get` or `port-forward` fail."""
        (self._folder / f"{kind}.refused").write_text(said)

    def never_answer(self) -> None:
        """Never answer, as while it waits for a login."""
        (self._folder / "silent").touch()

    def calls(self) -> list[str]:
        """Return the arguments of each call."""
        path = self._folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def forwards(self) -> list[int]:
        """Return the ids of the processes that forwarded a port."""
        path = self._folder / "pids"
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
    """Make a pod of the extender as the API server returns it."""
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
