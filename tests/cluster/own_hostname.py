"""Runs a program under a host name of its own, as a container runtime does: NAME PROGRAM ARGUMENT …

kube-scheduler calls itself by its host name when it leads, and the extender beside it goes by that.
"""

from __future__ import annotations

import ctypes
import os
import sys

NEW_HOSTNAME = 0x04000000
NEW_USER = 0x10000000


def main(name: str, program: str, *arguments: str) -> None:
    system = ctypes.CDLL(None, use_errno=True)
    # Whoever is not root may have a host name of their own among users of their own.
    spaces = NEW_HOSTNAME if os.geteuid() == 0 else NEW_HOSTNAME | NEW_USER
    written = name.encode()
    if system.unshare(spaces) or system.sethostname(written, len(written)):
        why = os.strerror(ctypes.get_errno())
        sys.exit(f"no host name of its own for {name}: {why}; allow user namespaces, or be root")
    os.execv(program, [program, *arguments])  # noqa: S606 - in place of this very process


if __name__ == "__main__":
    main(*sys.argv[1:])
