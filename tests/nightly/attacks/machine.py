"""Lowers the priority of an attacker, which would have a machine of its own."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: The lowest niceness.
_NICENESS = 19


def lower_priority() -> None:
    """Give this process and its children the lowest priority."""
    # With autogroups, niceness counts only within a session, and the session has a niceness of its
    # own. Other kernels do not have the file.
    if os.getsid(0) != os.getpid():
        os.setsid()
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICENESS))
    os.nice(_NICENESS)
    if hasattr(os, "SCHED_IDLE"):
        # By niceness alone a process keeps its time slice of some milliseconds.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
