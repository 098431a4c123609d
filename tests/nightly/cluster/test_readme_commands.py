"""The commands of docs/install.md for a run by hand, with free ports, start a gang."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests import objects
from tests.cluster.binaries import ensure
from tests.cluster.components import answers
from tests.cluster.control_plane import SCHEDULER, ControlPlane
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.processes import Program
from tests.cluster.waiting import wait_for
from tests.nightly.cluster.applied import Ports

from .shell import commands

INSTALL = REPOSITORY / "docs" / "install.md"
SCHEDULER_PORT = 10259


class ShownCommand(Program):
    """A command of the manual, run by a shell that execs it."""

    def __init__(
        self, line: str, home: Path, logs: Path, is_ready: Callable[[], bool] | None = None
    ) -> None:
        tools = [ensure(SCHEDULER)[SCHEDULER].parent, Path(sys.executable).parent]
        super().__init__(
            line.split()[0],
            logs,
            {
                "HOME": str(home),
                "PATH": os.pathsep.join([*map(str, tools), os.environ["PATH"]]),
                "PYTHONPATH": str(REPOSITORY),
            },
        )
        self._environment.pop("KUBECONFIG", None)
        self._line = line
        self._home = home
        self._is_ready = is_ready or (lambda: self.is_running)

    def command(self) -> list[str | Path]:
        return ["bash", "-c", f"cd {self._home} && exec {self._line}"]

    def is_ready(self) -> bool:
        return self._is_ready()


def test_gang_starts_with_the_three_commands_of_the_manual(
    new_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    plane, ports, home = new_plane(), Ports(), tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    (home / ".kube" / "config").write_text(plane.kubeconfig().read_text())
    serve, configure, schedule = map(ports.moved, commands(INSTALL, "## Run by hand"))
    plane.api.create(objects.node("node-0"))
    plane.wait_until_nodes_are_ready(["node-0"])
    gang = objects.pod_group("train", "default", min_member=2)
    plane.api.create(gang, *objects.pods(2, "train", "default", gang="train"))

    def bound() -> int:
        return sum(bool(objects.node_of(pod)) for pod in plane.api.list("pods", "default"))

    extender = ShownCommand(
        serve, home, plane.logs, lambda: answers(f"http://127.0.0.1:{ports[8889]}/readyz")
    )
    # Only its port is not in the manual.
    own_port = f"{schedule} --secure-port {ports[SCHEDULER_PORT]}"
    config = ShownCommand(configure, home, plane.logs, (home / "gang-scheduler.yaml").exists)
    scheduler = ShownCommand(own_port, home, plane.logs)
    plane.programs += [extender, config, scheduler]
    with extender, config:
        wait_for(lambda: not config.is_running, 60, "the configuration is written")
        with scheduler:
            wait_for(lambda: bound() == 2, 120, "the gang is bound", seeing=bound)
