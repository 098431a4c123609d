"""Who asks before we are ready waits a moment for that: kube-scheduler would put its pods off."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from extender.demo.objects import pod as _pod
from extender.hooks import handlers
from extender.settings import Settings
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

QUESTION = {"Pod": _pod("web", None), "NodeNames": ["node-0"]}
ERRORS = 'gang_extender_hook_answers_total{outcome="error",verb="filter"}'
ANSWERED = 'gang_extender_hook_seconds_count{verb="filter"}'


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    return lambda seconds: monkeypatch.setattr(handlers, "_MAX_WAIT_S", seconds)


class Beginning(World):
    """An extender that has begun, and plans for the first time when a test says so."""

    def __enter__(self) -> World:
        self.may_plan = threading.Event()
        make = self.runtime.core.planning._make_plan

        def held_up(*seen: Any) -> Any:
            self.may_plan.wait(30)
            return make(*seen)

        self.runtime.core.planning._make_plan = held_up
        self.node("node-0")
        self._thread.start()
        self.runtime.start()
        self.wait_for(self.port.listen(self._listening))
        return self

    def __exit__(self, *_: object) -> None:
        self.may_plan.set()
        super().__exit__()


@pytest.fixture
def beginning() -> Iterator[Beginning]:
    with Beginning() as made:
        assert isinstance(made, Beginning)
        yield made


@pytest.fixture
def asking(beginning: Beginning) -> Iterator[Callable[[], Future[Any]]]:
    with ThreadPoolExecutor(2) as pool:
        yield lambda: pool.submit(call, beginning, "filter", QUESTION)


@pytest.fixture
def waiting(
    beginning: Beginning, asking: Callable[[], Future[Any]], patience: Callable[[float], None]
) -> Future[Any]:
    """A call that came too early, and has been looked at."""
    patience(3600)
    asked = asking()
    eventually(lambda: beginning.runtime.hooks._wait_until is not None)
    assert not asked.done()
    return asked


def test_a_call_before_the_first_plan_is_answered_with_that_plan(
    beginning: Beginning, waiting: Future[Any]
) -> None:
    beginning.may_plan.set()

    connection, answer = waiting.result(10)
    assert (connection, answer["NodeNames"]) == (None, ["node-0"])
    assert (metric(beginning, ERRORS), metric(beginning, ANSWERED)) == (0, 1)


def test_a_call_that_waited_too_long_gets_an_error_and_the_next_does_not_wait(
    beginning: Beginning, asking: Callable[[], Future[Any]], patience: Callable[[float], None]
) -> None:
    patience(0.2)
    assert "the first plan" in asking().result(10)[1]["Error"]
    assert metric(beginning, ERRORS) == 1

    answer = beginning.runtime.hooks.answer("filter", json.dumps(QUESTION).encode())
    assert b"the first plan" in answer.body
    assert not answer.ask_again


def test_the_longest_wait_is_below_the_timeout_of_kube_scheduler() -> None:
    assert Settings().filter_timeout_s > handlers._MAX_WAIT_S


def test_a_standby_refuses_calls_at_once(standby: World, patience: Callable[[float], None]) -> None:
    patience(3600)
    assert "there_1 leads" in call(standby, "filter", QUESTION)[1]["Error"]


def test_a_replica_that_lost_its_lease_is_not_ready_even_if_it_just_was(
    world: World, leases: LeaseDouble
) -> None:
    world.runtime.hooks._ready_until = float("inf")  # as if it had been asked a moment ago
    leases.give_to("there_1")
    eventually(lambda: "standby" in page(world, "/readyz").text)
    assert "there_1 leads" in call(world, "filter", QUESTION)[1]["Error"]


def test_a_waiting_call_is_answered_at_shutdown(beginning: Beginning, waiting: Future[Any]) -> None:
    beginning.wait_for(beginning.port.drain(5))

    connection, answer = waiting.result(10)
    assert (connection, "not ready" in answer["Error"]) == ("close", True)


def test_calls_wait_in_a_second_unready_period_as_in_the_first(
    beginning: Beginning, patience: Callable[[float], None]
) -> None:
    patience(0.0)
    ask, question = beginning.runtime.hooks.answer, json.dumps(QUESTION).encode()
    assert not ask("filter", question).ask_again
    beginning.may_plan.set()
    eventually(lambda: b"not ready" not in ask("filter", question).body)
    patience(3600)
    beginning.runtime.core.permit.lose_lease()

    # A good answer about our readiness is believed for a moment yet.
    eventually(lambda: ask("filter", question).ask_again)
