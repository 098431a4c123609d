"""Runs a program with its own host name, as a container runtime does: NAME PROGRAM ARGUMENT …

kube-scheduler writes its host name into its lease, and the extender beside it compares the name.
"""

from __future__ import annotations

import ctypes
import os
import sys

NEW_HOSTNAME = 0x04000000
NEW_USER = 0x10000000


def main(name: str, program: str, *arguments: str) -> None:
    system = ctypes.CDLL(None, use_errno=True)
    # Without root, a new host name needs a new user namespace.
    spaces = NEW_HOSTNAME if os.geteuid() == 0 else NEW_HOSTNAME | NEW_USER
    written = name.encode()
    if system.unshare(spaces) or system.sethostname(written, len(written)):
        why = os.strerror(ctypes.get_errno())
        sys.exit(f"no host name of its own for {name}: {why}; allow user namespaces, or be root")
    os.execv(program, [program, *arguments])  # noqa: S606 - in place of this very process


if __name__ == "__main__":
    main(*sys.argv[1:])
