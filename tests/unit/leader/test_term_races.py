"""Two threads with one term: its end wins, at any line the other thread has reached."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import extender.leader
from extender.leader.fencing import Term
from extender.leader.lease import LeaseTracker
from extender.metrics import Metrics

_PACKAGE = str(Path(extender.leader.__file__).parent)


class Loop:
    """An event loop that a test runs and can interrupt."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def run_callbacks(self) -> None:
        while self._soon:
            self._soon.pop(0)()

    def run_callbacks_with(self, line: int, meanwhile: Callable[[], None]) -> bool:
        """Run, and before the *line*th line call *meanwhile*; False if the end came first."""
        lines = 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal lines
            if not frame.f_code.co_filename.startswith(_PACKAGE):
                return None
            if event == "line":
                lines += 1
                if lines == line:
                    meanwhile()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            self.run_callbacks()
        finally:
            sys.settrace(before)
        return lines >= line


def play(line: int, *, is_first: bool) -> tuple[bool, Term, list[str]]:
    """Lose the lease while the loop stands before a line that applies a renewal."""
    loop, changes = Loop(), list[str]()
    term = Term(lambda: 100.0)
    tracker = LeaseTracker(term, loop, Metrics())
    tracker.on_change(begun=lambda: changes.append("begun"), ended=lambda: changes.append("ended"))
    if not is_first:
        tracker.renewed(105.0, "a")
        loop.run_callbacks()
        assert term.current()
    tracker.renewed(110.0, "a")
    reached_line = loop.run_callbacks_with(line, lambda: tracker.lost("b"))
    loop.run_callbacks()
    return reached_line, term, changes


@pytest.mark.parametrize("is_first", [True, False], ids=["begins", "goes on"])
def test_a_lease_lost_while_its_renewal_is_applied_gives_no_term(is_first: bool) -> None:
    line, lines = 1, 0
    while (played := play(line, is_first=is_first))[0]:
        _, term, changes = played
        assert not term.current(), f"it leads on though the lease was lost before line {line}"
        assert changes in ([], ["begun", "ended"])
        line, lines = line + 1, lines + 1

    assert lines > 10


def test_a_fencing_token_of_one_term_is_not_valid_in_the_next() -> None:
    meanwhile: list[Callable[[], None]] = []

    def monotonic() -> float:
        while meanwhile:
            meanwhile.pop()()
        return 100.0

    term = Term(monotonic)
    term.begin(110.0)
    first = term.current()

    def another_begins() -> None:
        term.end()
        term.begin(110.0)

    meanwhile.append(another_begins)

    assert not term.holds(first)
    assert term.holds(term.current())
