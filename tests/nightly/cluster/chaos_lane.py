"""Runs one lane of a script in its own thread, and records each turn."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

from tests.cluster.api import ApiError
from tests.nightly.faults.record import Record

from .chaos_script import Facts, Turn

#: Schedules an action in the same lane, so many seconds from now.
Later = Callable[[float, Callable[[], object]], None]


class LaneRunner:
    """One lane: its turns at their times, and the actions they schedule."""

    def __init__(self, name: str, record: Record) -> None:
        self.name = name
        self._record = record
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._ends_at = float("inf")
        self._pause = threading.Event()
        self._thread: threading.Thread | None = None
        self.played: list[Turn] = []
        #: Those of them that failed.
        self.failed: list[Turn] = []
        self.error: BaseException | None = None

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        due_at = self._record.now() + seconds
        heapq.heappush(self._later, (due_at, next(self._numbers), act))

    def start(
        self,
        turns: Sequence[Turn],
        acts: Mapping[str, Callable[[Facts], None]],
        seconds: float = float("inf"),
    ) -> None:
        """Start; turns that have not begun after *seconds* are skipped."""
        self._ends_at = self._record.now() + seconds
        self._thread = threading.Thread(
            target=self._run, args=(turns, acts), name=f"chaos {self.name}", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        """Wait until all turns are done; scheduled actions are dropped then."""
        assert self._thread is not None
        self._thread.join()

    def _run(self, turns: Sequence[Turn], acts: Mapping[str, Callable[[Facts], None]]) -> None:
        try:
            for turn in turns:
                self._wait(turn.after_s)
                if self._record.now() >= self._ends_at:
                    return
                self._record.line(f"{self.name}: {turn}")
                done = self._try(partial(acts[turn.kind], turn.facts))
                self.played.append(turn)
                if not done:
                    self.failed.append(turn)
        except BaseException as error:
            self.error = error
            self._record.line(f"{self.name} ended: {error!r}")

    def _wait(self, seconds: float) -> None:
        until = self._record.now() + seconds
        while True:
            if self._later and self._later[0][0] <= self._record.now():
                self._try(heapq.heappop(self._later)[2])
                continue
            due_at = min([until, *(each[0] for each in self._later[:1])])
            if self._record.now() >= until:
                return
            self._pause.wait(max(0.0, due_at - self._record.now()))

    def _try(self, act: Callable[[], object]) -> bool:
        """Run *act*; return False if its object is gone or the API server does not answer."""
        try:
            act()
        except ApiError as why:
            self._record.line(f"{self.name}: could not: {str(why)[:200]}")
            return False
        return True
