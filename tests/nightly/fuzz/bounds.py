"""How much one input may cost, and what must not be heard of it."""

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

#: Of the processor, all threads together: a hundred times what the dearest input takes.
MOST_SECONDS = 5.0
#: By one input of at most 64 KB.
MOST_BYTES = 256 << 20


class _TookTooLong(BaseException):
    """Passes everybody who catches what goes wrong."""


@contextmanager
def bounded(seconds: float = MOST_SECONDS, size: int = MOST_BYTES) -> Iterator[None]:
    """Object to what takes more of the processor or of the memory; what hangs is torn away."""
    in_main = threading.current_thread() is threading.main_thread()
    before, began = _forget_peak(), time.thread_time()
    if in_main:
        old = signal.signal(signal.SIGPROF, _tear_away)
        signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    except _TookTooLong:
        raise Objection("it takes too long") from None
    finally:
        if in_main:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, old)
    # What loops in C is told only now.
    if time.thread_time() - began > seconds:
        raise Objection("it takes too long")
    if _peak() - before > size:
        raise Objection("it takes too much memory")


def _tear_away(number: int, frame: FrameType | None) -> NoReturn:
    raise _TookTooLong


def _forget_peak() -> int:
    """Measure anew, or an input could take unseen what any before it took; give what is in use."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _peak()


def _peak() -> int:
    with open("/proc/self/status") as file:
        told = next(line for line in file if line.startswith("VmHWM:"))
    return int(told.split()[1]) << 10


def resident() -> int:
    """Give the memory that is in use now, in bytes; what was given back is none of it."""
    gc.collect()
    # Else what grows fills unseen what something large has left behind; musl keeps nothing.
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


class Ears(logging.Handler):
    """Hears what nobody raised: a traceback in the log, in a thread, in a callback."""

    def __init__(self) -> None:
        super().__init__()
        self._heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._heard.append(f"in the log: {record.getMessage()}: {_said(record.exc_info[1])}")
        elif record.name == "asyncio" and record.levelno >= logging.ERROR:
            self._heard.append(f"in the loop: {record.getMessage()}")

    def check(self) -> None:
        """Object to what was heard since the last time."""
        if self._heard:
            told, self._heard = self._heard[0], []
            raise Objection(told)

    def forget(self) -> None:
        self._heard = []

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        self._hooks = threading.excepthook, sys.unraisablehook

        def in_thread(told: Any) -> None:
            self._heard.append(f"in a thread: {_said(told.exc_value)}")

        threading.excepthook = sys.unraisablehook = in_thread
        return self

    def __exit__(self, *error: object) -> None:
        threading.excepthook, sys.unraisablehook = self._hooks
        logging.getLogger().removeHandler(self)


def _said(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"[:300]
