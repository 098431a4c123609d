"""The whole system against any order of events; `python -m tests.system` plays many more."""

from __future__ import annotations

from .machine import SystemMachine, play

#: About half a minute on two busy cores.
EXAMPLES = 250


def test_no_order_of_events_breaks_a_rule() -> None:
    # The same stories every time: whoever breaks one sees it again. The soak draws new ones.
    play(SystemMachine, EXAMPLES, derandomize=True)
