"""Creates gangs at a steady rate and deletes each after a while, whatever happens to the others.

Or ordinary pods, one at a time, which must not wait for gangs.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from tests import objects
from tests.cluster.api import ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.observer import BindObserver
from tests.cluster.waiting import wait_for

SIZE = 4
PODS_PER_S = 20.0
#: How long a gang runs once it is whole.
_RUNS_S = 2.0
#: Timeout for starts after the last gang.
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Started:
    """The results of a stream."""

    #: For each gang that started whole: the time from creating its last pod to its last bind.
    seconds: list[float] = field(default_factory=list)
    created: int = 0
    #: The number of pods; 1 for ordinary pods.
    size: int = SIZE
    #: The time when each of those was created.
    created_at: list[float] = field(default_factory=list)

    def only(self, is_meant: Callable[[float], bool]) -> Started:
        """Return only the gangs that started and whose creation time satisfies *is_meant*."""
        both = zip(self.seconds, self.created_at, strict=True)
        meant = [(took, at) for took, at in both if is_meant(at)]
        return Started([took for took, _ in meant], len(meant), self.size, [at for _, at in meant])

    @property
    def pods(self) -> int:
        return self.size * len(self.seconds)

    @property
    def created_pods(self) -> int:
        return self.size * self.created

    @property
    def missing(self) -> int:
        """Return the number of gangs that did not start, or not whole."""
        return self.created - len(self.seconds)

    def quantile(self, part: float) -> float:
        """Return the time within which *part* of the gangs started; infinite without gangs."""
        ordered = sorted(self.seconds)
        return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else math.inf


class Stream:
    """Gangs of *size*, ordinary pods if it is one; for one `run`."""

    def __init__(
        self,
        plane: ControlPlane,
        namespace: str,
        selector: Mapping[str, str],
        pods_per_s: float = PODS_PER_S,
        size: int = SIZE,
    ) -> None:
        self._api = plane.api
        self._observer: BindObserver = plane.binds(namespace)
        self._namespace = namespace
        self._selector = selector
        self._size = size
        self._every_s = size / pods_per_s
        #: The time when the last pod of each gang was created.
        self._complete_at: dict[str, float] = {}
        self._gone: set[str] = set()

    def run(
        self, seconds: float, more_s: Callable[[Started], float] = lambda so_far: 0.0
    ) -> Started:
        """Create gangs for *seconds*, and wait until they have started.

        *more_s* may then ask for more, which are created at the same rate without a pause, in which
        other pods could use the capacity.
        """
        wanted, arrived = self._in(seconds), 0
        ends = threading.Event()
        with self._observer, ThreadPoolExecutor(8) as threads:
            deleting = threading.Thread(target=self._delete_finished, args=(ends,), daemon=True)
            deleting.start()
            try:
                began = time.monotonic()
                requests = []
                while arrived < wanted:
                    # At a fixed rate, not after the previous request.
                    ends.wait(max(0.0, began + arrived * self._every_s - time.monotonic()))
                    requests.append(threads.submit(self._create, f"gang-{arrived}"))
                    arrived += 1
                    if arrived == wanted and (more := more_s(self._started(arrived))):
                        wanted += self._in(more)
                for each in requests:
                    each.result()
                with suppress(AssertionError):
                    wait_for(lambda: len(self._whole()) == arrived, _TIMEOUT_S, "all have started")
            finally:
                ends.set()
                deleting.join()
            return self._started(arrived)

    def _in(self, seconds: float) -> int:
        return max(1, round(seconds / self._every_s))

    def _started(self, arrived: int) -> Started:
        # A gang may be bound before the response to its last pod is read.
        both = [
            (self._complete_at[name], at)
            for name, at in self._whole().items()
            if name in self._complete_at
        ]
        took = [max(0.0, at - came) for came, at in both]
        return Started(took, arrived, self._size, [came for came, _ in both])

    def _create(self, name: str) -> None:
        is_gang = self._size > 1
        pods = objects.pods(
            self._size,
            name,
            self._namespace,
            gang=name if is_gang else None,
            node_selector=self._selector,
        )
        groups = [objects.pod_group(name, self._namespace, self._size)] if is_gang else []
        self._api.create(*groups, *pods)
        self._complete_at[name] = time.monotonic()

    def _whole(self) -> dict[str, float]:
        """Return the time of the last bind of each whole gang."""
        seen: dict[str, list[float]] = defaultdict(list)
        for bind in self._observer.binds:
            seen[bind.pod.rpartition("-")[0]].append(bind.at)
        return {name: max(at) for name, at in seen.items() if len(at) == self._size}

    def _delete_finished(self, ends: threading.Event) -> None:
        """Delete gangs that have run long enough."""
        with ThreadPoolExecutor(4) as threads:
            while not ends.wait(0.25):
                started_before = time.monotonic() - _RUNS_S
                whole = self._whole()
                due = [
                    name
                    for name, at in whole.items()
                    if at < started_before and name not in self._gone
                ]
                self._gone.update(due)
                for name in due:
                    threads.submit(self._end, name)

    def _end(self, name: str) -> None:
        for number in range(self._size):
            with suppress(ApiError):
                self._api.delete("pods", f"{name}-{number}", self._namespace, grace_seconds=0)
        if self._size == 1:
            return
        with suppress(ApiError):
            self._api.delete(objects.POD_GROUPS, name, self._namespace)
