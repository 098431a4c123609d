"""`python -m tests.nightly.attacks PORT TIMES FUNCTION`: attacks until standard input ends.

It is a process of its own, so that measurements do not wait for the lock of its interpreter, and of
the lowest priority: a real attacker has a machine of its own.
"""

from __future__ import annotations

import sys

from . import attackers
from .machine import lower_priority


def main(port: str, times: str, name: str) -> None:
    lower_priority()
    with attackers.under(getattr(attackers, name), int(port), int(times)):
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
