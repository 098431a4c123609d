"""Two threads at one term: what ends it is the last word, wherever the other one stands."""

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

_ROOM = str(Path(extender.leader.__file__).parent)


class Loop:
    """The event loop, which works when told to and can be interrupted."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def work_off(self) -> None:
        while self._soon:
            self._soon.pop(0)()

    def work_off_until(self, line: int, meanwhile: Callable[[], None]) -> bool:
        """Work, and before the *line*th line let another thread do something; False at the end."""
        lines = 0

        def trace(frame: FrameType, happens: str, _: object) -> Any:
            nonlocal lines
            if not frame.f_code.co_filename.startswith(_ROOM):
                return None
            if happens == "line":
                lines += 1
                if lines == line:
                    meanwhile()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            self.work_off()
        finally:
            sys.settrace(before)
        return lines >= line


def play(line: int, *, is_first: bool) -> tuple[bool, Term, list[str]]:
    """Have the lease lost while the loop stands before a line of taking a renewal in."""
    loop, told = Loop(), list[str]()
    term = Term(lambda: 100.0)
    succession = LeaseTracker(term, loop, Metrics())
    succession.on_change(begun=lambda: told.append("begun"), ended=lambda: told.append("ended"))
    if not is_first:
        succession.renewed(105.0, "a")
        loop.work_off()
        assert term.current()
    succession.renewed(110.0, "a")
    went_so_far = loop.work_off_until(line, lambda: succession.lost("b"))
    loop.work_off()
    return went_so_far, term, told


@pytest.mark.parametrize("is_first", [True, False], ids=["begins", "goes on"])
def test_a_lease_lost_while_its_renewal_is_applied_gives_no_term(is_first: bool) -> None:
    line, lines = 1, 0
    while (played := play(line, is_first=is_first))[0]:
        _, term, told = played
        assert not term.current(), f"it leads on though the lease was lost before line {line}"
        assert told in ([], ["begun", "ended"])
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
