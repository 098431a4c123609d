"""The whole system against any order of events; `python -m tests.system` plays many more."""

from __future__ import annotations

from .machine import SystemMachine, play

#: Half a minute of one core.
EXAMPLES = 200


def test_no_order_of_events_breaks_a_rule() -> None:
    # The same stories every time: whoever breaks one sees it again. The soak draws new ones.
    play(SystemMachine, EXAMPLES, derandomize=True)
