"""The whole system against any order of events; `python -m tests.system.soak` plays many more."""

from __future__ import annotations

import subprocess
import sys

from .machine import SystemMachine, play

#: Half a minute of one core.
EXAMPLES = 200


def test_no_order_of_events_breaks_a_rule() -> None:
    # The same stories every time: whoever breaks one sees it again. The soak draws new ones.
    play(SystemMachine, EXAMPLES, derandomize=True)


def test_the_soak_plays_its_stories_in_processes_of_their_own() -> None:
    played = subprocess.run(
        [sys.executable, "-m", "tests.system.soak", "2"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    assert "no order of events broke a rule in 2 stories" in played.stdout
