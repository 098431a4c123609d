"""Recording of planning cycles by a thread of its own.

The planner never waits for this thread. If it is behind, cycles are skipped and counted. If the
disk is full or fails, the recording ends with one log line, and planning goes on.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TypeAlias

from extender.errors import InvalidInput
from extender.logs import event
from extender.metrics import Metrics
from extender.model.snapshot import Snapshot
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from extender.replay.recording import Folder, RecordingWriter
from extender.settings import Settings

log = logging.getLogger(__name__)
Cycle: TypeAlias = tuple[Snapshot, Policy, Plan, int]
#: The cycles that may wait to be written; their snapshots share most of their memory.
_WAITING = 4
#: `stop` waits for at most twice this time.
_END_S = 2.0


class Recorder:
    """Record snapshots and plans in *folder*; with an empty *folder* record nothing."""

    def __init__(self, folder: str, most_bytes: int, metrics: Metrics) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._metrics = metrics
        self._cycles: queue.Queue[Cycle | None] = queue.Queue(_WAITING)
        self._skipped = 0
        #: The recording has ended, or is off.
        self._is_over = not folder
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, settings: Settings, metrics: Metrics) -> Recorder:
        """Return the recorder that *settings* configure."""
        return cls(settings.record, settings.record_mib << 20, metrics)

    def planner(
        self,
        policy: Callable[[], Policy],
        around: Callable[[str], AbstractContextManager[object]],
    ) -> Callable[[Snapshot], Plan]:
        """Return a function that plans with the current policy and records the cycle."""

        def make_recorded_plan(snapshot: Snapshot) -> Plan:
            current = policy()
            plan = make_plan(snapshot, current, around=around)
            self.record(snapshot, current, plan)
            return plan

        return make_recorded_plan

    def record(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> None:
        """Enqueue a cycle, without waiting."""
        if self._is_over:
            if self._folder:
                self._count("lost")
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recording", daemon=True)
            self._thread.start()
        try:
            self._cycles.put_nowait((snapshot, policy, plan, self._skipped))
            self._skipped = 0
        except queue.Full:
            self._skipped += 1
            self._count("skipped")

    def stop(self) -> None:
        """Write the enqueued cycles, and end the thread."""
        if self._thread is not None:
            with suppress(queue.Full):  # the disk hangs, so waiting is pointless
                self._cycles.put(None, timeout=_END_S)
            self._thread.join(_END_S)

    def _run(self) -> None:
        folder: Folder | None = None
        try:
            folder = Folder(self._folder, self._most_bytes)
            writer = RecordingWriter(folder)
            while (each := self._cycles.get()) is not None:
                writer.write(*each)
                self._count("written")
        except (OSError, InvalidInput) as error:
            self._abandon(str(error))
        except Exception:
            log.exception("the recording ends: a cycle cannot be written")
            self._abandon("")
        finally:
            if folder is not None:
                folder.close()

    def _abandon(self, why: str) -> None:
        self._is_over = True
        if why:
            event(log, logging.ERROR, "the recording ends", folder=self._folder, why=why)
        self._count("lost")
        # Drain the queue, so that neither `record` nor `stop` waits.
        while self._cycles.get() is not None:
            self._count("lost")

    def _count(self, outcome: str) -> None:
        self._metrics.recorded_cycles.labels(outcome).inc()
