"""A recording of a run on a real control plane replays without a difference."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests import objects

from .api import Api
from .control_plane import ControlPlane
from .extender_process import Extender
from .observer import bound
from .train_gang import Pool
from .waiting import wait_for


def replayed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "extender", "replay", str(folder), *words],
        capture_output=True,
        text=True,
        check=False,
    )


def written(extender: Extender) -> float:
    return extender.metric("gang_extender_recorded_cycles_total", outcome="written")


def test_recording_replays_without_a_difference(
    plane: ControlPlane, api: Api, namespace: str, nodes: Callable[..., Pool], tmp_path: Path
) -> None:
    folder = tmp_path / "recording"
    pool = nodes(2, cpu="4")
    with (
        plane.extender(f"--record={folder}") as extender,
        plane.scheduler(plane.scheduler_config(extender)),
    ):
        for name in ("red", "blue"):
            api.create(objects.pod_group(name, namespace, 5))
            api.create(
                *objects.pods(5, name, namespace, gang=name, node_selector=pool.selector, cpu="1")
            )
        wait_for(lambda: len(bound(api, namespace)) == 5, 20, "one of the two gangs runs")
        first = bound(api, namespace)
        for pod in first:
            api.delete("pods", pod, namespace)
        wait_for(
            lambda: len({*bound(api, namespace)} - {*first}) == 5, 30, "then the other one runs"
        )
        wait_for(lambda: written(extender) >= 3, 20, "three cycles are recorded")
        extender.kill()  # recorded cycles survive a crash

    ran = replayed(folder)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no decision differs" in ran.stdout
    assert json.loads(replayed(folder, "-o", "json").stdout)["cycles"] >= 3
