"""A progress line for a long task, on a terminal or in a log."""

from __future__ import annotations

import sys
import time

REPEAT_IN_LOGS_EVERY_S = 30


class Progress:
    """Shows the elapsed time: updated on a terminal, repeated in a log."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._began = time.monotonic()
        self._shown_at = self._began

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def __enter__(self) -> Progress:
        if not sys.stderr.isatty():
            self._write(f"{self.title} ...\n")
        return self

    def show(self) -> None:
        if sys.stderr.isatty():
            self._write(f"\r{self.title} ... {self.elapsed_s:.0f} s ")
        elif time.monotonic() - self._shown_at >= REPEAT_IN_LOGS_EVERY_S:
            self._shown_at = time.monotonic()
            self._write(f"{self.title} ... {self.elapsed_s:.0f} s\n")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        outcome = "failed after" if error else "took"
        start = "\r" if sys.stderr.isatty() else ""
        self._write(f"{start}{self.title} {outcome} {self.elapsed_s:.0f} s\n")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
