"""An attacker works on a machine of its own, and takes no core from those whom we measure."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: How far behind the others it comes where there are few cores.
_BEHIND = 19


def leave_the_cores_to_others() -> None:
    """Come last, with all that is started from here."""
    # Where the kernel shares the cores out by sessions first, niceness says nothing to other
    # sessions; the weight of this one does. Elsewhere there is no such file.
    if os.getsid(0) != os.getpid():
        os.setsid()
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_BEHIND))
    os.nice(_BEHIND)
    if hasattr(os, "SCHED_IDLE"):
        # Who comes last by weight alone finishes his turn first, some milliseconds of it.
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
