"""Responses to binds are sent one by one, so that kube-scheduler keeps its connections."""

from __future__ import annotations

from typing import Any, cast

import pytest

from extender.hooks.handlers import RetryDelay
from extender.hooks.server import BindResponses
from extender.model.pod import PodUid
from tests.unit.web.loop import ManualLoop


class Caller:
    """A connection whose bind is done; idle again once it was answered."""

    def __init__(self, responses: BindResponses) -> None:
        self._pacing = responses
        self.answered = False

    def answer_now(self) -> None:
        self.answered = True
        self._pacing.idle.add(self)

    def call(self) -> None:
        """Send the next bind on the same connection."""
        self._pacing.idle.discard(self)
        self._pacing.bind_came()


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def responses(loop: ManualLoop) -> BindResponses:
    return BindResponses(cast(Any, loop), cast(Any, Caller.answer_now))


def settle(responses: BindResponses, count: int) -> list[Caller]:
    callers = [Caller(responses) for _ in range(count)]
    for caller in callers:
        responses.bound(caller)
    return callers


def answered(callers: list[Caller]) -> int:
    return sum(each.answered for each in callers)


def test_only_as_many_responses_of_a_gang_are_sent_as_connections_are_kept(
    responses: BindResponses,
) -> None:
    assert answered(settle(responses, 20)) == 2


def test_every_incoming_bind_sends_one_more_response(responses: BindResponses) -> None:
    first, second, *others = settle(responses, 20)
    first.call()
    assert answered(others) == 1
    second.call()
    assert answered(others) == 2


def test_a_bind_on_a_new_connection_sends_no_response(responses: BindResponses) -> None:
    callers = settle(responses, 20)
    Caller(responses).call()

    assert answered(callers) == 2


def test_responses_are_sent_in_the_order_of_their_results(responses: BindResponses) -> None:
    callers = settle(responses, 5)
    callers[0].call()

    assert [each.answered for each in callers] == [True, True, True, False, False]


def test_a_response_is_delayed_for_a_limited_time(
    responses: BindResponses, loop: ManualLoop
) -> None:
    early = settle(responses, 5)
    loop.clock.advance(0.2)
    late = settle(responses, 5)
    loop.clock.advance(0.1)
    assert (answered(early), answered(late)) == (5, 0)
    loop.clock.advance(0.2)

    assert answered(late) == 5


def test_all_responses_are_sent_when_the_port_closes(responses: BindResponses) -> None:
    callers = settle(responses, 20)
    responses.close()

    assert answered(callers) == 20


def delayed(*moments: float) -> list[bool]:
    """Refuse one pod at these times; return which refusals are delayed."""
    retries = RetryDelay()
    return [bool(retries.refused(PodUid("p0"), at)) for at in moments]


def test_a_pod_that_is_retried_rapidly_is_refused_after_a_delay() -> None:
    assert delayed(0, 0.1, 0.2, 0.3) == [False, False, True, True]


def test_the_backoff_of_kube_scheduler_causes_no_delay() -> None:
    """The first backoff may be shorter than a second: it is rounded down."""
    assert not any(delayed(0, 0.05, 1.1, 4.2, 11.3, 20.4))
    assert not any(delayed(*range(10))), "podMaxBackoffSeconds: 1"


def test_retries_of_one_pod_do_not_delay_another() -> None:
    retries = RetryDelay()
    for moment in range(3):
        retries.refused(PodUid("p0"), moment / 10)

    assert not retries.refused(PodUid("p1"), 0.3)
