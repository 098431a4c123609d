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
_REMAKE_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    """What somebody wants to run: *size* pods alike, *least* of them at once."""

    name: str
    queue: str
    size: int
    least: int
    each: Mapping[str, str]
    #: Seconds of work once the minimum is on nodes; None is until somebody ends it.
    lasts_s: float | None = None


@dataclass(slots=True)
class _Work:
    """A gang that its owner has not ended."""

    wish: DemoJob
    made: int = 0
    pods: dict[str, bool] = field(default_factory=dict)
    #: Number of the stretch of work; what was set for an earlier one is void.
    stretch: int = 0
    is_working: bool = False


class DemoWorkloads:
    """Owns every gang that is submitted here; a thread of its own sees to what is due."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._works: dict[str, _Work] = {}
        #: Pods that others made leave, by gang.
        self.evicted: Counter[str] = Counter()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._stirred = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="tenants", daemon=True)

    @property
    def gangs(self) -> list[DemoJob]:
        """Give those that were submitted and have not ended."""
        with self._stirred:
            return [work.wish for work in self._works.values()]

    def start(self) -> None:
        """Begin."""
        self._cluster.listen(self._hear)
        self._thread.start()

    def stop(self) -> None:
        """End; the gangs stay as they are."""
        with self._stirred:
            self._is_over = True
            self._stirred.notify()
        self._thread.join()

    def submit(self, *wishes: DemoJob) -> None:
        """Create the gangs, their pods by turns: one of each, then the next of each."""
        with self._stirred:
            for wish in wishes:
                self._works[wish.name] = _Work(wish)
        for wish in wishes:
            self._cluster.create(objects.pod_group(wish.name, wish.least, wish.queue))
        for number in range(max((wish.size for wish in wishes), default=0)):
            for wish in wishes:
                if number < wish.size:
                    self._make_pod(wish.name)

    def end(self, name: str) -> None:
        """Take a gang away with all its pods; its work is done."""
        with self._stirred:
            work = self._works.pop(name, None)
            # Forgotten first: what is deleted now is not made anew.
        for pod in work.pods if work is not None else ():
            self._cluster.delete("Pod", objects.NAMESPACE, pod)
        self._cluster.delete("PodGroup", objects.NAMESPACE, name)

    def end_all(self) -> None:
        """Take every gang away, those that wait first: nobody takes the room for a moment."""
        with self._stirred:
            names = sorted(self._works, key=lambda name: self._works[name].is_working)
        for name in names:
            self.end(name)

    def _make_pod(self, gang: str) -> None:
        with self._stirred:
            work = self._works.get(gang)
            if work is None:
                return
            name = f"{gang}-{work.made}"
            work.made += 1
            work.pods[name] = False
        self._cluster.create(objects.pod(name, gang, work.wish.each))
        with self._stirred:
            is_wanted = self._works.get(gang) is work
        if not is_wanted:  # ended while its pod was made
            self._cluster.delete("Pod", objects.NAMESPACE, name)

    # ── what happens to pods ──────────────────────────────────────────────────────────────

    def _hear(self, verb: str, thing: Object) -> None:
        if thing["kind"] != "Pod":
            return
        name, has_node = thing["metadata"]["name"], bool(thing["spec"].get("nodeName"))
        with self._stirred:
            work = self._works.get(objects.gang_of(thing))
            if work is None or name not in work.pods:
                return
            if verb == "DELETED":
                self._lost(work, name, has_node=has_node)
            elif has_node:
                work.pods[name] = True
            self._judge(work)

    def _lost(self, work: _Work, name: str, *, has_node: bool) -> None:
        del work.pods[name]
        self.evicted[work.wish.name] += has_node
        self._later(_REMAKE_S, partial(self._make_pod, work.wish.name))

    def _judge(self, work: _Work) -> None:
        """Begin or break off the work of a gang."""
        works = sum(work.pods.values()) >= work.wish.least
        if works == work.is_working:
            return
        work.is_working = works
        work.stretch += 1
        if works and work.wish.lasts_s is not None:
            self._later(work.wish.lasts_s, partial(self._ends, work, work.stretch))

    def _ends(self, work: _Work, stretch: int) -> None:
        if work.is_working and work.stretch == stretch:
            self.end(work.wish.name)

    # ── time ──────────────────────────────────────────────────────────────────────────────

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), do))
        self._stirred.notify()

    def _run(self) -> None:
        while (do := self._next()) is not None:
            do()

    def _next(self) -> Callable[[], None] | None:
        """Wait for what is due next; None when it is over. Done without the lock: it acts."""
        with self._stirred:
            while not self._is_over:
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    return heapq.heappop(self._due)[2]
                self._stirred.wait(wait)
        return None
