"""Recording beside planning: a pass is handed over, and a thread of its own writes it down.

Nobody waits for it. If it is behind, passes are left out and counted; if the disk is full or fails,
the recording ends with one line in the log, and planning goes on.
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
#: So many passes may wait to be written; each holds a snapshot that shares most with the next.
_WAITING = 4
#: Whoever ends us waits so long, twice at most.
_END_S = 2.0


class Recorder:
    """Keeps what was seen and decided in *folder*; without one it keeps nothing."""

    def __init__(self, folder: str, most_bytes: int, metrics: Metrics) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._metrics = metrics
        self._cycles: queue.Queue[Cycle | None] = queue.Queue(_WAITING)
        self._skipped = 0
        #: Nothing is to be recorded any more, or nothing ever was.
        self._is_over = not folder
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, settings: Settings, metrics: Metrics) -> Recorder:
        """Make the one that *settings* ask for."""
        return cls(settings.record, settings.record_mib << 20, metrics)

    def planner(
        self,
        policy: Callable[[], Policy],
        around: Callable[[str], AbstractContextManager[object]],
    ) -> Callable[[Snapshot], Plan]:
        """Give what makes a plan by the policy in force and hands both over."""

        def plan(snapshot: Snapshot) -> Plan:
            rules = policy()
            decided = make_plan(snapshot, rules, around=around)
            self.record(snapshot, rules, decided)
            return decided

        return plan

    def record(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> None:
        """Take a pass in, without waiting."""
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
        """Write what was handed over, and end."""
        if self._thread is not None:
            with suppress(
                queue.Full
            ):  # the disk does not answer: then there is nothing to wait for
                self._cycles.put(None, timeout=_END_S)
            self._thread.join(_END_S)

    def _run(self) -> None:
        folder: Folder | None = None
        try:
            folder = Folder(self._folder, self._most_bytes)
            writing = RecordingWriter(folder)
            while (each := self._cycles.get()) is not None:
                writing.write(*each)
                self._count("written")
        except (OSError, InvalidInput) as error:
            self._abandon(str(error))
        except Exception:
            log.exception("the recording ends: something in it cannot be written")
            self._abandon("")
        finally:
            if folder is not None:
                folder.close()

    def _abandon(self, why: str) -> None:
        self._is_over = True
        if why:
            event(log, logging.ERROR, "the recording ends", folder=self._folder, why=why)
        self._count("lost")
        # Whoever hands over or ends never waits for us.
        while self._cycles.get() is not None:
            self._count("lost")

    def _count(self, outcome: str) -> None:
        self._metrics.recorded_cycles.labels(outcome).inc()
