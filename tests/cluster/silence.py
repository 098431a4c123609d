"""One extender and the kube-schedulers that ask it, or do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests import objects

from .api import Api
from .components import Scheduler
from .control_plane import ControlPlane
from .extender_process import Extender
from .stage import Pool
from .waiting import wait_for

LIVING, MORTAL, NOBODY = "silence-living", "silence-mortal", "silence-nobody"
OURS = [f"--scheduler-name={name}" for name in (LIVING, MORTAL, NOBODY)]
UNHEARD = "gang_extender_pods_without_scheduler"


@dataclass
class Scene:
    """One extender, asked by two kube-schedulers; a third name nobody serves."""

    api: Api
    extender: Extender
    mortal: Scheduler
    namespace: str
    pool: Pool

    def create_gang(self, name: str, size: int, scheduler: str, **rest: Any) -> None:
        group = {key: rest.pop(key) for key in ("queue",) if key in rest}
        least = rest.pop("minimum", size)
        self.api.create(objects.pod_group(name, self.namespace, least, **group))
        facts = {"node_selector": self.pool.selector, "scheduler": scheduler, "cpu": "1", **rest}
        self.api.create(*objects.pods(size, name, self.namespace, gang=name, **facts))

    def delete_gang(self, name: str) -> None:
        for pod in self.api.list("pods", self.namespace):
            if pod["metadata"]["name"].startswith(f"{name}-"):
                self.api.delete("pods", pod["metadata"]["name"], self.namespace, grace_seconds=0)

    def running(self, name: str) -> int:
        pods = self.api.list("pods", self.namespace)
        mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
        return sum(bool(objects.node_of(pod)) for pod in mine)

    def refused(self, name: str) -> int:
        pods = self.api.list("pods", self.namespace)
        mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
        return sum(bool(pod["status"].get("conditions")) for pod in mine)

    def wait_until_running(self, name: str, size: int, seconds: float) -> None:
        wait_for(
            lambda: self.running(name) == size,
            seconds,
            f"{size} pods of {name} run",
            seeing=lambda: (self.running(name), self.told(name)),
        )

    def told(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            self.extender.page(f"/api/v1/gangs/{self.namespace}/{name}")
        )
        return answer

    def wait_until_told(self, name: str, reason: str, seconds: float = 30) -> None:
        wait_for(
            lambda: self.told(name).get("reason") == reason,
            seconds,
            f"{name} waits for {reason}",
            seeing=lambda: self.told(name),
        )

    def unheard(self, scheduler: str) -> float:
        return self.extender.metric(UNHEARD, scheduler=scheduler)


@contextmanager
def played(plane: ControlPlane, api: Api, namespace: str, pool: Pool) -> Iterator[Scene]:
    with plane.extender(*OURS) as extender:
        living, mortal = (
            plane.scheduler(plane.scheduler_config(extender, f"--scheduler-name={name}"))
            for name in (LIVING, MORTAL)
        )
        with living, mortal:
            yield Scene(api, extender, mortal, namespace, pool)
