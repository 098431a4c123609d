"""A call before readiness waits a short time: after an error kube-scheduler backs off its pods."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from extender.hooks.handlers import HookAnswer, Hooks
from extender.settings import Settings
from tests import objects
from tests.unit.leader.test_runtime import (
    LeaseDouble,
    call,
    clock,
    leases,
    metric,
    page,
    standby,
    world,
)
from tests.unit.web.conftest import World, eventually

__all__ = ["clock", "leases", "standby", "world"]  # fixtures

QUESTION = {"Pod": objects.pod("web", "demo"), "NodeNames": ["node-0"]}
ERRORS = 'gang_extender_hook_answers_total{outcome="error",verb="filter"}'
ANSWERED = 'gang_extender_hook_seconds_count{verb="filter"}'


class StartingWorld(World):
    """An extender that has started, and makes its first plan when the test allows it."""

    def __enter__(self) -> World:
        self.may_plan = self.hold_planning()
        self.node("node-0")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_plan.set()
        super().__exit__()


@pytest.fixture
def starting() -> Iterator[StartingWorld]:
    with StartingWorld() as made:
        assert isinstance(made, StartingWorld)
        yield made


@pytest.fixture
def asking(starting: StartingWorld) -> Iterator[Callable[[], Future[Any]]]:
    with ThreadPoolExecutor(2) as pool:
        yield lambda: pool.submit(call, starting, "filter", QUESTION)


@pytest.fixture
def waiting(
    starting: StartingWorld, asking: Callable[[], Future[Any]], monkeypatch: pytest.MonkeyPatch
) -> Future[Any]:
    """A call that came before readiness and waits."""
    hooks, waits = starting.runtime.hooks, threading.Event()
    hooks.max_wait_s = 3600
    answer = hooks.answer

    def noted(verb: str, body: bytes) -> HookAnswer:
        reply = answer(verb, body)
        if reply.retry_here:
            waits.set()
        return reply

    monkeypatch.setattr(hooks, "answer", noted)
    asked = asking()
    assert waits.wait(10)
    assert not asked.done()
    return asked


def test_a_call_before_the_first_plan_is_answered_with_that_plan(
    starting: StartingWorld, waiting: Future[Any]
) -> None:
    starting.may_plan.set()

    connection, answer = waiting.result(10)
    assert (connection, answer["NodeNames"]) == (None, ["node-0"])
    assert (metric(starting, ERRORS), metric(starting, ANSWERED)) == (0, 1)


def test_a_call_that_waited_too_long_gets_an_error_and_the_next_does_not_wait(
    starting: StartingWorld, asking: Callable[[], Future[Any]]
) -> None:
    starting.runtime.hooks.max_wait_s = 0.2
    assert "the first plan" in asking().result(10)[1]["Error"]
    assert metric(starting, ERRORS) == 1

    answer = starting.runtime.hooks.answer("filter", json.dumps(QUESTION).encode())
    assert b"the first plan" in answer.body
    assert not answer.retry_here


def test_the_longest_wait_is_below_the_timeout_of_kube_scheduler() -> None:
    assert Settings().filter_timeout_s > Hooks.max_wait_s


def test_a_standby_refuses_calls_at_once(standby: World) -> None:
    standby.runtime.hooks.max_wait_s = 3600
    assert "there_1 leads" in call(standby, "filter", QUESTION)[1]["Error"]


def test_a_replica_that_lost_its_lease_is_not_ready_even_if_it_just_was(
    world: World, leases: LeaseDouble
) -> None:
    world.runtime.hooks.ready_s = float("inf")
    call(world, "filter", QUESTION)  # checks readiness for ever
    leases.give_to("there_1")
    eventually(lambda: "standby" in page(world, "/readyz").text)
    assert "there_1 leads" in call(world, "filter", QUESTION)[1]["Error"]


def test_a_waiting_call_is_answered_at_shutdown(
    starting: StartingWorld, waiting: Future[Any]
) -> None:
    starting.wait_for(starting.port.drain(5))

    connection, answer = waiting.result(10)
    assert (connection, "not ready" in answer["Error"]) == ("close", True)


def test_calls_wait_in_a_second_unready_period_as_in_the_first(starting: StartingWorld) -> None:
    starting.runtime.hooks.max_wait_s = 0.0
    ask, question = starting.runtime.hooks.answer, json.dumps(QUESTION).encode()
    assert not ask("filter", question).retry_here
    starting.may_plan.set()
    eventually(lambda: b"not ready" not in ask("filter", question).body)
    starting.runtime.hooks.max_wait_s = 3600
    starting.runtime.core.permit.lose_lease()

    # A positive readiness check is cached for a short time.
    eventually(lambda: ask("filter", question).retry_here)
