"""Kills the programs of a test run that was itself killed.

A small process reads a pipe that only this run holds open. When the pipe closes, for whatever
reason, it kills the process groups that are still registered.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from threading import Lock

_lock = Lock()
_groups: set[int] = set()
_reaper: subprocess.Popen[bytes] | None = None


def remember(group: int) -> None:
    """Register a process group, to be killed when this run ends."""
    global _reaper
    with _lock:
        if _reaper is None:
            # Its own session: Ctrl-C must not end it.
            _reaper = subprocess.Popen(
                [sys.executable, "-IS", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        _groups.add(group)
        _write(_reaper, f"+{group}")


def forget(group: int) -> None:
    """Unregister a process group that has ended: its number may be reused."""
    global _reaper
    with _lock:
        _groups.discard(group)
        if _reaper is None:
            return
        _write(_reaper, f"-{group}")
        if not _groups:
            _reaper.communicate()
            _reaper = None


def _write(reaper: subprocess.Popen[bytes], line: str) -> None:
    assert reaper.stdin is not None
    reaper.stdin.write(f"{line}\n".encode())
    reaper.stdin.flush()


def _reap_when_the_pipe_closes() -> None:
    groups: set[int] = set()
    for line in sys.stdin:
        note = groups.add if line.startswith("+") else groups.discard
        note(int(line[1:]))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    _reap_when_the_pipe_closes()
