"""A terminal for a command that runs in this process."""

from __future__ import annotations

import os
import pty
import sys
import threading

import pytest

from extender.cli.main import main


def run_on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, *words: str) -> tuple[int, str]:
    """Run a command on a terminal of that width; return its exit code and output."""
    ours, theirs = pty.openpty()
    told = bytearray()

    def read() -> None:
        try:
            while chunk := os.read(ours, 1 << 16):
                told.extend(chunk)
        except OSError:  # Linux reports a closed other end like this
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with monkeypatch.context() as patch, os.fdopen(theirs, "w") as out:
        patch.setenv("TERM", "xterm")
        patch.setenv("COLUMNS", str(columns))
        patch.setattr(sys, "stdout", out)
        with pytest.raises(SystemExit) as ended:
            main(words, prog_name="gang-extender")
    reader.join()
    os.close(ours)
    return int(ended.value.code or 0), told.decode()
