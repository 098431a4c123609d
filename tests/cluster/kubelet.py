"""Plays the kubelets for the pods of one namespace, with real processes where kwok has none.

Each pod that has a node is run from what was applied (`applied.py`). What its probes say is written
into its status, so that Deployments, budgets and Services see the truth; what ended is started
again; and a deleted pod is asked to end, given its grace, and let go. Left out: liveness, by which
a container that is silent would be restarted.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Self

from tests.cluster.applied import AppliedPod

from .api import ApiError, Object
from .control_plane import ControlPlane
from .lookout import Lookout
from .processes import NeverReady

#: How often pods are looked for and probes asked.
LOOK_S = 0.25


class Kubelet:
    """Runs the pods of *namespace*, from entering the block to leaving it."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._namespace = namespace
        self._lives: dict[str, threading.Thread] = {}
        self._lookout = Lookout(self._look, LOOK_S)
        #: What runs now, by the address of its pod.
        self.running: dict[str, AppliedPod] = {}
        #: Why containers did not start.
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        self._lookout.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._lookout.__exit__(*error)
        finally:
            for life in self._lives.values():
                life.join()

    def pods(self) -> list[AppliedPod]:
        """Those that run now, by name."""
        return sorted(self.running.values(), key=lambda pod: pod.name)

    def _look(self) -> None:
        for pod in self._plane.api.list("pods", self._namespace):
            self._take_up(pod)

    def _take_up(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if pod["spec"].get("nodeName") and uid not in self._lives:
            address = f"10.244.0.{len(self._lives) + 2}"
            life = threading.Thread(target=self._live, args=(pod, address), daemon=True)
            self._lives[uid] = life
            life.start()

    def _live(self, pod: Object, address: str) -> None:
        name = pod["metadata"]["name"]
        applied = AppliedPod(self._plane, pod)
        try:
            if self._start(applied):
                self.running[address] = applied
                self._keep_up(applied, address)
        finally:
            self.running.pop(address, None)
            applied.end()
        if not self._lookout.is_over:
            with suppress(ApiError):
                self._plane.api.delete("pods", name, self._namespace, grace_seconds=0)

    def _start(self, applied: AppliedPod) -> bool:
        """Try until it runs or is no longer wanted."""
        while self._is_wanted(applied):
            try:
                applied.mount()
                applied.start()
            except (ApiError, AssertionError, NeverReady) as problem:
                self.problems.append(f"{applied.name}: {problem}")
                applied.end()
                self._lookout.pause()
            else:
                return True
        return False

    def _keep_up(self, applied: AppliedPod, address: str) -> None:
        began, told = _now(), None
        while self._is_wanted(applied):
            ready = {each.container: each.probe("readinessProbe") for each in applied.containers}
            if ready != told:
                with suppress(ApiError):
                    self._tell(applied, _status(applied, address, began, ready))
                    told = ready
            self._lookout.pause()
            try:
                applied.keep_up()
            except NeverReady as problem:
                self.problems.append(f"{applied.name}: {problem}")

    def _tell(self, applied: AppliedPod, status: Object) -> None:
        about = {"status": status}
        self._plane.api.patch("pods", applied.name, about, self._namespace, subresource="status")

    def _is_wanted(self, applied: AppliedPod) -> bool:
        if self._lookout.is_over:
            return False
        with suppress(ApiError):
            pod = self._plane.api.find("pods", applied.name, self._namespace)
            return pod is not None and "deletionTimestamp" not in pod["metadata"]
        return True


def _status(applied: AppliedPod, address: str, began: str, ready: dict[str, bool]) -> Object:
    now = _now()
    conditions = {
        "PodScheduled": True,
        "Initialized": True,
        "ContainersReady": all(ready.values()),
        "Ready": all(ready.values()),
    }
    return {
        "phase": "Running",
        "startTime": began,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": kind, "status": str(holds), "lastTransitionTime": now}
            for kind, holds in conditions.items()
        ],
        "containerStatuses": [
            {
                "name": each.container,
                "image": each.image,
                "imageID": "",
                "ready": ready[each.container],
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": began}},
            }
            for each in applied.containers
        ],
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
