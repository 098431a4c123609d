"""One extender, and kube-schedulers that call it or stop to call it."""

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
from .train_gang import Pool
from .waiting import wait_for

LIVE, KILLED, UNSERVED = "liveness-live", "liveness-killed", "liveness-unserved"
OURS = [f"--scheduler-name={name}" for name in (LIVE, KILLED, UNSERVED)]
WITHOUT_SCHEDULER = "gang_extender_pods_without_scheduler"


@dataclass
class SchedulerScene:
    """One extender that two kube-schedulers call; no kube-scheduler serves a third name."""

    api: Api
    extender: Extender
    killable: Scheduler
    namespace: str
    pool: Pool

    def create_gang(self, name: str, size: int, scheduler: str, **rest: Any) -> None:
        group = {key: rest.pop(key) for key in ("queue",) if key in rest}
        minimum = rest.pop("minimum", size)
        self.api.create(objects.pod_group(name, self.namespace, minimum, **group))
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
            seeing=lambda: (self.running(name), self.explanation(name)),
        )

    def explanation(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            self.extender.page(f"/api/v1/gangs/{self.namespace}/{name}")
        )
        return answer

    def wait_until_reported(self, name: str, reason: str, seconds: float = 30) -> None:
        wait_for(
            lambda: self.explanation(name).get("reason") == reason,
            seconds,
            f"{name} waits for {reason}",
            seeing=lambda: self.explanation(name),
        )

    def pods_without_scheduler(self, scheduler: str) -> float:
        return self.extender.metric(WITHOUT_SCHEDULER, scheduler=scheduler)


@contextmanager
def running_scene(
    plane: ControlPlane, api: Api, namespace: str, pool: Pool
) -> Iterator[SchedulerScene]:
    with plane.extender(*OURS) as extender:
        living, mortal = (
            plane.scheduler(plane.scheduler_config(extender, f"--scheduler-name={name}"))
            for name in (LIVE, KILLED)
        )
        with living, mortal:
            yield SchedulerScene(api, extender, mortal, namespace, pool)
