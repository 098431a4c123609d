"""A steady stream of gangs, and the binds that an external observer sees."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from itertools import count

from tests import objects

from .control_plane import ControlPlane
from .observer import BindObserver
from .waiting import wait_for

SIZE = 3
_EVERY_S = 0.5


class GangStream:
    """Creates one gang of three after the other during a `with` block."""

    def __init__(
        self, plane: ControlPlane, namespace: str, selector: dict[str, str], scheduler: str
    ) -> None:
        self._api = plane.api
        self._namespace = namespace
        self._selector = selector
        self._scheduler = scheduler
        self._numbers = count()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._create_gangs, daemon=True)
        self.observer: BindObserver = plane.binds(namespace)
        self.names: list[str] = []

    def __enter__(self) -> GangStream:
        self.observer.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
        self.observer.__exit__(None, None, None)

    def wait_for_a_start_after(self, moment: float, seconds: float) -> float:
        """Wait until a pod is bound later than *moment*; return the time of that bind."""

        def later() -> list[float]:
            return [bind.at for bind in self.observer.binds if bind.at > moment]

        return min(wait_for(later, seconds, "gangs start again"))

    def end(self, seconds: float = 90) -> None:
        """Create no more gangs, and wait until all have started."""
        self._stop()
        self.observer.wait_for(SIZE * len(self.names), seconds)

    def partial_s(self) -> float:
        """Return the longest time for which a gang was bound in part, up to now."""
        times: dict[str, list[float]] = defaultdict(list)
        for bind in self.observer.binds:
            times[bind.pod.rpartition("-")[0]].append(bind.at)
        now = time.monotonic()
        return max(
            ((max(at) if len(at) >= SIZE else now) - min(at) for at in times.values()), default=0.0
        )

    def _stop(self) -> None:
        self._ends.set()
        self._thread.join()

    def _create_gangs(self) -> None:
        while not self._ends.wait(_EVERY_S):
            name = f"gang{next(self._numbers)}"
            pods = objects.pods(
                SIZE,
                name,
                self._namespace,
                gang=name,
                scheduler=self._scheduler,
                node_selector=self._selector,
            )
            self._api.create(objects.pod_group(name, self._namespace, SIZE), *pods)
            self.names.append(name)
