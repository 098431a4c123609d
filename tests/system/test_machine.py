"""The whole system with any order of events. `make nightly ONLY=soak` plays many more."""

from __future__ import annotations

import pytest

from tests.strategies import examples

from .machine import QUEUES, SystemMachine, play


@pytest.mark.parametrize("queues", QUEUES)
def test_no_order_of_events_breaks_a_rule(queues: str) -> None:
    # Hypothesis derives its draws from the name.
    machine = type(f"{SystemMachine.__name__} {queues}", (SystemMachine,), {})
    machine.queue_kind = queues
    play(machine, examples(180 // len(QUEUES)))
