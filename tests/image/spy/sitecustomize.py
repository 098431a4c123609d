"""Loaded by the served Python before anything else: tells every path that is opened to write.

Python's own audit events, so it holds for every user and sees what a mode bit would let through.
"""

from __future__ import annotations

import os
import sys

_TELLS = int(os.environ["SPY_TELLS"])
_CHANGES = (
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _heard(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        changes = isinstance(flags, int) and bool(flags & _WRITES)
    else:
        path, changes = (arguments or ("",))[0], event in _CHANGES
    # A number is a file that is open already: it was told when it was opened.
    if changes and isinstance(path, str | bytes):
        os.write(_TELLS, os.path.abspath(os.fsencode(path)) + b"\n")


sys.addaudithook(_heard)
