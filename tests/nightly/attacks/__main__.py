"""`python -m tests.nightly.attacks PORT TIMES FUNCTION`: attacks until the input ends.

In a process of its own, so that whoever measures beside it waits for no lock of an interpreter; and
behind everybody else, for an attacker works on a machine of its own and takes no core from us.
"""

from __future__ import annotations

import sys

from . import attackers
from .machine import leave_the_cores_to_others


def main(port: str, times: str, name: str) -> None:
    leave_the_cores_to_others()
    with attackers.under(getattr(attackers, name), int(port), int(times)):
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
