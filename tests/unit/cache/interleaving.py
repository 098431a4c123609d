"""Runs another thread between any two steps of the extender, so that a race is met without luck."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

import extender

_OURS = str(Path(extender.__file__).parent)
#: An actor that has not acted by then waits for a lock of the reader, and acts later.
_BLOCKED_S = 0.02
#: The wait at every step until then.
_STILL_BLOCKED_S = 0.0002


class Between:
    """Lets its own thread *act* before every step of the extender that the calling thread runs."""

    def __init__(self, act: Callable[[], object], within: str = "") -> None:
        """Only files of the extender whose path contains *within* count."""
        self._act = act
        self._within = within
        self._turns: SimpleQueue[bool] = SimpleQueue()
        self._done = threading.Semaphore(0)
        #: The actor still has to act, because it waits for a lock.
        self._is_owed = False
        self.failures: list[BaseException] = []
        #: How often the actor acted.
        self.times = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while self._turns.get():
            try:
                self._act()
            except BaseException as error:
                self.failures.append(error)
            self._done.release()

    def _let_act(self) -> None:
        patience_s = _STILL_BLOCKED_S if self._is_owed else _BLOCKED_S
        if not self._is_owed:
            self._turns.put(True)
        self._is_owed = not self._done.acquire(timeout=patience_s)
        self.times += not self._is_owed

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(_OURS) or self._within not in path:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            self._let_act()
        return self._trace

    @contextmanager
    def every_step(self) -> Iterator[None]:
        """Act while the block runs. An exception of the actor is raised at the end."""
        before = sys.gettrace()
        self._thread.start()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)
            self._turns.put(False)
            self._thread.join(timeout=10)
        # After a stall of the machine the actor may have acted after the last step.
        self.times += self._is_owed and self._done.acquire(blocking=False)
        if self.failures:
            raise self.failures[0]


@contextmanager
def between_steps(act: Callable[[], object], within: str = "") -> Iterator[Between]:
    """Let another thread *act* between any two steps of the extender, as the interpreter counts."""
    between = Between(act, within)
    with between.every_step():
        yield between
    assert between.times, "the actor never acted"
