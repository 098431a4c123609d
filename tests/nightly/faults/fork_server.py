"""A fork server: it imports the extender, and each line of its input forks a child that runs it.

Importing modules is most of a start, and the walk restarts the extender at every kill. A child has
not run anything before, so it is like a new process.
"""

from __future__ import annotations

import json
import os
import signal
import sys

# The command imports these when it is called.
import extender.cli.serve
import extender.server
import extender.wiring  # noqa: F401
from extender.cli.main import main

from .planted import plant


def _run(wanted: dict[str, object]) -> None:
    """Run `gang-extender …` in a new session, with its own log."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(str(wanted["log"]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, standard in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(file, standard)
    if wanted["plant"]:
        plant(str(wanted["plant"]))
    arguments = wanted["arguments"]
    assert isinstance(arguments, list)
    sys.argv = ["gang-extender", *arguments]
    main()


if __name__ == "__main__":
    # Children are not waited for; the parent of the fork server gets their pids.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(json.loads(line))
            os._exit(0)
        print(child, flush=True)
