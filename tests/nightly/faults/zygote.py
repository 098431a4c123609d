"""An extender that has been imported and not begun: each line it reads makes a child that begins.

Most of a start is Python reading modules. A walk that kills at every call would do little else; a
child of this one has never run anything, so that it is as new as any other.
"""

from __future__ import annotations

import json
import os
import signal
import sys

# The command imports what it needs when it is called; here it is all there before.
import extender.cli.serve
import extender.server
import extender.wiring  # noqa: F401
from extender.cli.main import main

from .planted import plant


def _be_born(wanted: dict[str, object]) -> None:
    """Become `gang-extender …`, in a session of our own, with a log of our own."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(str(wanted["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for ours, theirs in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(ours, theirs)
    if wanted["plant"]:
        plant(str(wanted["plant"]))
    arguments = wanted["arguments"]
    assert isinstance(arguments, list)
    sys.argv = ["gang-extender", *arguments]
    main()


if __name__ == "__main__":
    # Nobody waits for the children; whoever asked for them sees them by their numbers.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _be_born(json.loads(line))
            os._exit(0)
        print(child, flush=True)
