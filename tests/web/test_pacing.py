"""Answers to binds leave one by one, so that kube-scheduler keeps its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from extender.web.pacing import Exits


class Caller:
    """A connection whose bind is done; idle again once it was answered."""

    def __init__(self, exits: Exits) -> None:
        self._exits = exits
        self.answered = False

    def leave(self) -> None:
        self.answered = True
        self._exits.idle.add(self)

    def call(self) -> None:
        """Ask for the next bind on the same connection."""
        self._exits.idle.discard(self)
        self._exits.swap()


class Loop:
    """Time that a test turns; one timer is enough for one door."""

    def __init__(self) -> None:
        self.now = 100.0
        self._rings: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> object:
        return self.call_at(self.now + delay_s, callback)

    def call_at(self, when: float, callback: Callable[[], None]) -> object:
        self._rings.append((when, callback))
        return object()

    def turn(self, seconds: float) -> None:
        self.now += seconds
        due = [ring for when, ring in self._rings if when <= self.now]
        self._rings = [each for each in self._rings if each[0] > self.now]
        for ring in due:
            ring()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def exits(loop: Any) -> Exits:
    return Exits(cast(asyncio.AbstractEventLoop, loop))


def settle(exits: Exits, count: int) -> list[Caller]:
    callers = [Caller(exits) for _ in range(count)]
    for caller in callers:
        exits.ask(caller)
    return callers


def answered(callers: list[Caller]) -> int:
    return sum(each.answered for each in callers)


def test_an_answer_leaves_at_once_while_its_connection_would_be_kept(exits):
    assert answered(settle(exits, 2)) == 2


def test_of_a_gang_only_as_many_leave_as_connections_are_kept(exits):
    assert answered(settle(exits, 20)) == 2


def test_every_bind_that_comes_in_lets_one_go(exits):
    first, second, *others = settle(exits, 20)
    first.call()
    assert answered(others) == 1
    second.call()
    assert answered(others) == 2


def test_a_bind_on_a_connection_that_was_just_dialled_lets_nobody_go(exits):
    callers = settle(exits, 20)
    Caller(exits).call()

    assert answered(callers) == 2


def test_they_leave_in_the_order_in_which_they_were_settled(exits):
    callers = settle(exits, 5)
    callers[0].call()

    assert [each.answered for each in callers] == [True, True, True, False, False]


def test_nobody_waits_longer_than_a_moment(exits, loop):
    early = settle(exits, 5)
    loop.turn(0.2)
    late = settle(exits, 5)
    loop.turn(0.1)
    assert (answered(early), answered(late)) == (5, 0)
    loop.turn(0.2)

    assert answered(late) == 5


def test_everybody_leaves_when_the_door_closes(exits):
    callers = settle(exits, 20)
    exits.empty()

    assert answered(callers) == 20
