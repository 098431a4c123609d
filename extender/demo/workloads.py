"""The workloads of the demo: create pods, recreate lost ones, and end the work of gangs."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from extender.demo import objects
from extender.demo.cluster import Object, SimCluster

#: The time a controller takes to recreate a lost pod.
_RECREATE_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """A job: *size* identical pods, at least *min_member* of them at once."""

    name: str
    queue: str
    size: int
    min_member: int
    requests: Mapping[str, str]
    #: Seconds of work once the minimum is on nodes; None until `end` is called.
    lasts_s: float | None = None


@dataclass(slots=True)
class _Gang:
    """A gang that has not ended."""

    job: DemoJob
    created_pods: int = 0
    pods: dict[str, bool] = field(default_factory=dict)
    #: The number of the period of work; callbacks of an earlier period are ignored.
    period: int = 0
    is_working: bool = False


class DemoWorkloads:
    """Own all submitted gangs; a thread runs the delayed calls."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._gangs: dict[str, _Gang] = {}
        #: The number of evicted pods by gang.
        self.evicted: Counter[str] = Counter()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="workloads", daemon=True)

    @property
    def gangs(self) -> list[DemoJob]:
        """Return the submitted jobs that have not ended."""
        with self._changed:
            return [state.job for state in self._gangs.values()]

    def start(self) -> None:
        """Start the thread."""
        self._cluster.listen(self._handle)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; the gangs stay as they are."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
        self._thread.join()

    def submit(self, *jobs: DemoJob) -> None:
        """Create the gangs, and their pods in turn: one of each gang, then the next of each."""
        with self._changed:
            for job in jobs:
                self._gangs[job.name] = _Gang(job)
        for job in jobs:
            self._cluster.create(objects.pod_group(job.name, job.min_member, job.queue))
        for number in range(max((job.size for job in jobs), default=0)):
            for job in jobs:
                if number < job.size:
                    self._create_pod(job.name)

    def end(self, name: str) -> None:
        """Delete a gang with all its pods."""
        with self._changed:
            state = self._gangs.pop(name, None)
            # Forgotten first, so that the deleted pods are not recreated.
        for pod in state.pods if state is not None else ():
            self._cluster.delete("Pod", objects.NAMESPACE, pod)
        self._cluster.delete("PodGroup", objects.NAMESPACE, name)

    def end_all(self) -> None:
        """Delete all gangs, waiting ones first, so that none starts for a moment."""
        with self._changed:
            names = sorted(self._gangs, key=lambda name: self._gangs[name].is_working)
        for name in names:
            self.end(name)

    def _create_pod(self, gang: str) -> None:
        with self._changed:
            state = self._gangs.get(gang)
            if state is None:
                return
            name = f"{gang}-{state.created_pods}"
            state.created_pods += 1
            state.pods[name] = False
        self._cluster.create(objects.pod(name, gang, state.job.requests))
        with self._changed:
            has_ended = self._gangs.get(gang) is not state
        if has_ended:  # while its pod was created
            self._cluster.delete("Pod", objects.NAMESPACE, name)

    # ── pod events ────────────────────────────────────────────────────────────────────────

    def _handle(self, verb: str, manifest: Object) -> None:
        if manifest["kind"] != "Pod":
            return
        name, has_node = manifest["metadata"]["name"], bool(manifest["spec"].get("nodeName"))
        with self._changed:
            state = self._gangs.get(objects.gang_of(manifest))
            if state is None or name not in state.pods:
                return
            if verb == "DELETED":
                self._pod_deleted(state, name, has_node=has_node)
            elif has_node:
                state.pods[name] = True
            self._update(state)

    def _pod_deleted(self, state: _Gang, name: str, *, has_node: bool) -> None:
        del state.pods[name]
        self.evicted[state.job.name] += has_node
        self._call_later(_RECREATE_S, partial(self._create_pod, state.job.name))

    def _update(self, state: _Gang) -> None:
        """Start or interrupt the work of a gang."""
        is_working = sum(state.pods.values()) >= state.job.min_member
        if is_working == state.is_working:
            return
        state.is_working = is_working
        state.period += 1
        if is_working and state.job.lasts_s is not None:
            self._call_later(state.job.lasts_s, partial(self._end_work, state, state.period))

    def _end_work(self, state: _Gang, period: int) -> None:
        if state.is_working and state.period == period:
            self.end(state.job.name)

    # ── time ──────────────────────────────────────────────────────────────────────────────

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (time.monotonic() + seconds, next(self._order), callback))
        self._changed.notify()

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            callback()

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next delayed call; None after `stop`. The caller runs it unlocked."""
        with self._changed:
            while not self._is_stopped:
                wait = self._calls[0][0] - time.monotonic() if self._calls else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._calls)[2]
                self._changed.wait(wait)
        return None
