"""A kubelet for the pods of one namespace, with real processes.

It runs each scheduled pod from its manifest (`applied.py`), writes the results of the probes into
its status, so that Deployments, budgets and Services see them, restarts containers that end, and
stops a deleted pod gracefully before it removes it. It has no liveness probes.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime
from typing import Self

from tests.cluster.api import ApiError, Object
from tests.cluster.control_plane import ControlPlane
from tests.cluster.polling import Poller
from tests.cluster.processes import NeverReady
from tests.nightly.cluster.applied import AppliedPod

#: Interval for listing pods and probing.
POLL_S = 0.25


class Kubelet:
    """Runs the pods of *namespace* during a `with` block."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane = plane
        self._namespace = namespace
        self._threads: dict[str, threading.Thread] = {}
        self._poller = Poller(self._poll, POLL_S)
        #: The running pods by their addresses.
        self.running: dict[str, AppliedPod] = {}
        #: Errors of containers that did not start.
        self.problems: list[str] = []

    def __enter__(self) -> Self:
        self._poller.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._poller.__exit__(*error)
        finally:
            for thread in self._threads.values():
                thread.join()

    def pods(self) -> list[AppliedPod]:
        """Return the running pods by name."""
        return sorted(self.running.values(), key=lambda pod: pod.name)

    def _poll(self) -> None:
        for pod in self._plane.api.list("pods", self._namespace):
            self._start_if_scheduled(pod)

    def _start_if_scheduled(self, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        if pod["spec"].get("nodeName") and uid not in self._threads:
            address = f"10.244.0.{len(self._threads) + 2}"
            thread = threading.Thread(target=self._run, args=(pod, address), daemon=True)
            self._threads[uid] = thread
            thread.start()

    def _run(self, pod: Object, address: str) -> None:
        name = pod["metadata"]["name"]
        applied = AppliedPod(self._plane, pod)
        try:
            if self._start(applied):
                self.running[address] = applied
                self._maintain(applied, address)
        finally:
            self.running.pop(address, None)
            applied.end()
        if not self._poller.has_ended:
            with suppress(ApiError):
                self._plane.api.delete("pods", name, self._namespace, grace_seconds=0)

    def _start(self, applied: AppliedPod) -> bool:
        """Try until it runs, or is deleted."""
        while self._is_wanted(applied):
            try:
                applied.mount()
                applied.start()
            except (ApiError, AssertionError, NeverReady) as problem:
                self.problems.append(f"{applied.name}: {problem}")
                applied.end()
                self._poller.pause()
            else:
                return True
        return False

    def _maintain(self, applied: AppliedPod, address: str) -> None:
        began, written = _now(), None
        while self._is_wanted(applied):
            ready = {each.container: each.probe("readinessProbe") for each in applied.containers}
            if ready != written:
                with suppress(ApiError):
                    self._write_status(applied, _status(applied, address, began, ready))
                    written = ready
            self._poller.pause()
            try:
                applied.restart_ended()
            except NeverReady as problem:
                self.problems.append(f"{applied.name}: {problem}")

    def _write_status(self, applied: AppliedPod, status: Object) -> None:
        about = {"status": status}
        self._plane.api.patch("pods", applied.name, about, self._namespace, subresource="status")

    def _is_wanted(self, applied: AppliedPod) -> bool:
        if self._poller.has_ended:
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
