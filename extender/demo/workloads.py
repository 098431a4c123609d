"""Whoever owns the gangs of an embedded cluster: makes pods, lost ones anew, and ends the work."""

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

#: How long a controller takes to make a new pod for one that is lost.
_RECREATE_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """What somebody wants to run: *size* pods alike, *least* of them at once."""

    name: str
    queue: str
    size: int
    min_member: int
    requests: Mapping[str, str]
    #: Seconds of work once the minimum is on nodes; None is until somebody ends it.
    lasts_s: float | None = None


@dataclass(slots=True)
class _Gang:
    """A gang that its owner has not ended."""

    job: DemoJob
    created_pods: int = 0
    pods: dict[str, bool] = field(default_factory=dict)
    #: Number of the stretch of work; what was set for an earlier one is void.
    stretch: int = 0
    is_working: bool = False


class DemoWorkloads:
    """Owns every gang that is submitted here; a thread of its own sees to what is due."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._gangs: dict[str, _Gang] = {}
        #: Pods that others made leave, by gang.
        self.evicted: Counter[str] = Counter()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="tenants", daemon=True)

    @property
    def gangs(self) -> list[DemoJob]:
        """Give those that were submitted and have not ended."""
        with self._changed:
            return [work.job for work in self._gangs.values()]

    def start(self) -> None:
        """Begin."""
        self._cluster.listen(self._handle)
        self._thread.start()

    def stop(self) -> None:
        """End; the gangs stay as they are."""
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def submit(self, *wishes: DemoJob) -> None:
        """Create the gangs, their pods by turns: one of each, then the next of each."""
        with self._changed:
            for wish in wishes:
                self._gangs[wish.name] = _Gang(wish)
        for wish in wishes:
            self._cluster.create(objects.pod_group(wish.name, wish.min_member, wish.queue))
        for number in range(max((wish.size for wish in wishes), default=0)):
            for wish in wishes:
                if number < wish.size:
                    self._create_pod(wish.name)

    def end(self, name: str) -> None:
        """Take a gang away with all its pods; its work is done."""
        with self._changed:
            work = self._gangs.pop(name, None)
            # Forgotten first: what is deleted now is not made anew.
        for pod in work.pods if work is not None else ():
            self._cluster.delete("Pod", objects.NAMESPACE, pod)
        self._cluster.delete("PodGroup", objects.NAMESPACE, name)

    def end_all(self) -> None:
        """Take every gang away, those that wait first: nobody takes the room for a moment."""
        with self._changed:
            names = sorted(self._gangs, key=lambda name: self._gangs[name].is_working)
        for name in names:
            self.end(name)

    def _create_pod(self, gang: str) -> None:
        with self._changed:
            work = self._gangs.get(gang)
            if work is None:
                return
            name = f"{gang}-{work.created_pods}"
            work.created_pods += 1
            work.pods[name] = False
        self._cluster.create(objects.pod(name, gang, work.job.requests))
        with self._changed:
            is_wanted = self._gangs.get(gang) is work
        if not is_wanted:  # ended while its pod was made
            self._cluster.delete("Pod", objects.NAMESPACE, name)

    # ── what happens to pods ──────────────────────────────────────────────────────────────

    def _handle(self, verb: str, thing: Object) -> None:
        if thing["kind"] != "Pod":
            return
        name, has_node = thing["metadata"]["name"], bool(thing["spec"].get("nodeName"))
        with self._changed:
            work = self._gangs.get(objects.gang_of(thing))
            if work is None or name not in work.pods:
                return
            if verb == "DELETED":
                self._pod_deleted(work, name, has_node=has_node)
            elif has_node:
                work.pods[name] = True
            self._update(work)

    def _pod_deleted(self, work: _Gang, name: str, *, has_node: bool) -> None:
        del work.pods[name]
        self.evicted[work.job.name] += has_node
        self._call_later(_RECREATE_S, partial(self._create_pod, work.job.name))

    def _update(self, work: _Gang) -> None:
        """Begin or break off the work of a gang."""
        works = sum(work.pods.values()) >= work.job.min_member
        if works == work.is_working:
            return
        work.is_working = works
        work.stretch += 1
        if works and work.job.lasts_s is not None:
            self._call_later(work.job.lasts_s, partial(self._end_work, work, work.stretch))

    def _end_work(self, work: _Gang, stretch: int) -> None:
        if work.is_working and work.stretch == stretch:
            self.end(work.job.name)

    # ── time ──────────────────────────────────────────────────────────────────────────────

    def _call_later(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._calls, (time.monotonic() + seconds, next(self._order), do))
        self._changed.notify()

    def _run(self) -> None:
        while (do := self._next()) is not None:
            do()

    def _next(self) -> Callable[[], None] | None:
        """Wait for what is due next; None when it is over. Done without the lock: it acts."""
        with self._changed:
            while not self._is_over:
                wait = self._calls[0][0] - time.monotonic() if self._calls else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._calls)[2]
                self._changed.wait(wait)
        return None
