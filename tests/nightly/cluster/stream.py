"""Gangs that arrive at a steady pace, whatever becomes of those before; each ends after a while.

Or ordinary pods, one at a time: who belongs to no gang must not wait for those who do.
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
#: How long after the last arrival a gang may still start.
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Started:
    """What became of all gangs of a stream."""

    #: How long each took that started whole: from the answer to its last pod to its last bind.
    seconds: list[float] = field(default_factory=list)
    arrived: int = 0
    #: Pods of each; one is no gang.
    size: int = SIZE
    #: When each of those came.
    came_at: list[float] = field(default_factory=list)

    def those(self, is_meant: Callable[[float], bool]) -> Started:
        """Only those who started and of whom the moment they came says so."""
        both = zip(self.seconds, self.came_at, strict=True)
        meant = [(took, at) for took, at in both if is_meant(at)]
        return Started([took for took, _ in meant], len(meant), self.size, [at for _, at in meant])

    @property
    def pods(self) -> int:
        return self.size * len(self.seconds)

    @property
    def arrived_pods(self) -> int:
        return self.size * self.arrived

    @property
    def missing(self) -> int:
        """Gangs that did not start, or not whole."""
        return self.arrived - len(self.seconds)

    def quantile(self, part: float) -> float:
        """That part of the gangs took at most so long; for ever if there were none."""
        ordered = sorted(self.seconds)
        return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else math.inf


class Stream:
    """Gangs of *size* in a namespace of their own, ordinary pods if that is one; one `run`."""

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
        #: When the last pod of each gang was there.
        self._complete_at: dict[str, float] = {}
        self._gone: set[str] = set()

    def run(
        self, seconds: float, more_s: Callable[[Started], float] = lambda so_far: 0.0
    ) -> Started:
        """Let gangs arrive for so long, and wait for those that have arrived.

        Whoever looks at them then may want *more_s*: those come at the same pace, without a pause
        in which others could take what all that arrive before them had left no room for.
        """
        wanted, arrived = self._in(seconds), 0
        ends = threading.Event()
        with self._observer, ThreadPoolExecutor(8) as clerks:
            leaving = threading.Thread(target=self._let_go, args=(ends,), daemon=True)
            leaving.start()
            try:
                began = time.monotonic()
                handed_in = []
                while arrived < wanted:
                    # The next one comes when it is due, not when there is time for it.
                    ends.wait(max(0.0, began + arrived * self._every_s - time.monotonic()))
                    handed_in.append(clerks.submit(self._hand_in, f"gang-{arrived}"))
                    arrived += 1
                    if arrived == wanted and (more := more_s(self._started(arrived))):
                        wanted += self._in(more)
                for each in handed_in:
                    each.result()
                with suppress(AssertionError):
                    wait_for(lambda: len(self._whole()) == arrived, _PATIENCE_S, "all have started")
            finally:
                ends.set()
                leaving.join()
            return self._started(arrived)

    def _in(self, seconds: float) -> int:
        return max(1, round(seconds / self._every_s))

    def _started(self, arrived: int) -> Started:
        # One may be whole before the answer to its last pod has been read.
        both = [
            (self._complete_at[name], at)
            for name, at in self._whole().items()
            if name in self._complete_at
        ]
        took = [max(0.0, at - came) for came, at in both]
        return Started(took, arrived, self._size, [came for came, _ in both])

    def _hand_in(self, name: str) -> None:
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
        """When the last member of each gang that is whole was seen on a node."""
        seen: dict[str, list[float]] = defaultdict(list)
        for bind in self._observer.binds:
            seen[bind.pod.rpartition("-")[0]].append(bind.at)
        return {name: max(at) for name, at in seen.items() if len(at) == self._size}

    def _let_go(self, ends: threading.Event) -> None:
        """Delete whoever has run long enough."""
        with ThreadPoolExecutor(4) as clerks:
            while not ends.wait(0.25):
                ripe = time.monotonic() - _RUNS_S
                whole = self._whole()
                due = [name for name, at in whole.items() if at < ripe and name not in self._gone]
                self._gone.update(due)
                for name in due:
                    clerks.submit(self._end, name)

    def _end(self, name: str) -> None:
        for number in range(self._size):
            with suppress(ApiError):
                self._api.delete("pods", f"{name}-{number}", self._namespace, grace_seconds=0)
        if self._size == 1:
            return
        with suppress(ApiError):
            self._api.delete(objects.POD_GROUPS, name, self._namespace)
