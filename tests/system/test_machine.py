"""The whole system against any order of events; `make nightly ONLY=soak` plays many more."""

from __future__ import annotations

from tests.strategies import examples

from .machine import SystemMachine, play


def test_no_order_of_events_breaks_a_rule() -> None:
    play(SystemMachine, examples(200))
