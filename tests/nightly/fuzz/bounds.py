"""Limits of CPU time and memory for one input, and detection of logged errors."""

from __future__ import annotations

import ctypes
import gc
import logging
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, Self

from tests.nightly.fuzz.edge import Objection

#: CPU time of all threads: a hundred times that of the most expensive input.
MOST_SECONDS = 5.0
#: For one input of at most 64 KB.
MOST_BYTES = 256 << 20


class _TookTooLong(BaseException):
    """A BaseException, so that the code under test does not catch it."""


@contextmanager
def bounded(seconds: float = MOST_SECONDS, size: int = MOST_BYTES) -> Iterator[None]:
    """Raise if the block uses more CPU time or memory; interrupt it if it hangs."""
    in_main = threading.current_thread() is threading.main_thread()
    before, began = _reset_peak(), time.thread_time()
    if in_main:
        old = signal.signal(signal.SIGPROF, _interrupt)
        signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except _TookTooLong:
        raise Objection("it takes too long") from None
    finally:
        if in_main:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, old)
    # A loop in C cannot be interrupted.
    if time.thread_time() - began > seconds:
        raise Objection("it takes too long")
    if _peak() - before > size:
        raise Objection("it takes too much memory")


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise _TookTooLong


def _reset_peak() -> int:
    """Reset the peak memory, and return the memory in use."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _peak()


def _peak() -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def resident() -> int:
    """Return the memory in use, in bytes, without freed memory."""
    gc.collect()
    # Otherwise growth would reuse freed memory unnoticed; musl does not need it.
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class ErrorLog(logging.Handler):
    """Collects errors that were not raised: tracebacks in the log, in threads, in callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self._errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._errors.append(
                f"in the log: {record.getMessage()}: {_describe(record.exc_info[1])}"
            )
        elif record.name == "asyncio" and record.levelno >= logging.ERROR:
            self._errors.append(f"in the loop: {record.getMessage()}")

    def check(self) -> None:
        """Raise the first error since the last check."""
        if self._errors:
            first, self._errors = self._errors[0], []
            raise Objection(first)

    def clear(self) -> None:
        self._errors = []

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        self._hooks = threading.excepthook, sys.unraisablehook

        def in_thread(failure: Any) -> None:
            self._errors.append(f"in a thread: {_describe(failure.exc_value)}")

        threading.excepthook = sys.unraisablehook = in_thread
        return self

    def __exit__(self, *error: object) -> None:
        threading.excepthook, sys.unraisablehook = self._hooks
        logging.getLogger().removeHandler(self)


def _describe(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"[:300]
