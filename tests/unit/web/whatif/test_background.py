"""The background worker of what-ifs: one question at a time, cached answers, a rest after each."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from extender.errors import InvalidInput
from extender.sim.clock import VirtualClock
from extender.web.background import BUSY, GOOD_S, PENDING, BackgroundReply, BackgroundWorker
from extender.whatif.page import WhatIfQuery, WhatIfResult

PATIENCE_S = 60.0
FIRST, SECOND = (WhatIfQuery(None, (f"queue/{name}.weight=5",), ()) for name in ("a", "b"))


def result(cycle: int) -> WhatIfResult:
    return WhatIfResult(cycle, 0.0, (), (), 0, ())


class WorkClock(VirtualClock):
    """A clock that advances while a question is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def work(self, cycle: int, seconds: float) -> Callable[[], WhatIfResult]:
        def work() -> WhatIfResult:
            self.advance(seconds)
            return result(cycle)

        return work


@pytest.fixture
def clock() -> WorkClock:
    return WorkClock()


@pytest.fixture
def worker(clock: WorkClock) -> BackgroundWorker:
    return BackgroundWorker(clock.monotonic, clock.pauses.append)


def not_computed() -> WhatIfResult:
    raise AssertionError("a cached answer is computed again")


def test_a_thread_that_cannot_start_now_does_not_block_later_questions(
    worker: BackgroundWorker, clock: WorkClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RuntimeError):
            worker.ask(FIRST, not_computed, 0)

    assert worker.ask(SECOND, clock.work(1, 0), PATIENCE_S) == BackgroundReply(200, result(1))


def test_one_question_is_computed_at_a_time_and_others_get_busy(
    worker: BackgroundWorker,
) -> None:
    go = threading.Event()

    def work() -> WhatIfResult:
        assert go.wait(PATIENCE_S)
        return result(1)

    assert worker.ask(FIRST, work, 0) == PENDING
    assert worker.ask(SECOND, not_computed, 0) == BUSY
    assert worker.ask(FIRST, not_computed, 0) == PENDING
    go.set()
    assert worker.ask(FIRST, not_computed, PATIENCE_S) == BackgroundReply(200, result(1))
    assert worker.ask(SECOND, lambda: result(2), PATIENCE_S).answer == result(2)


def test_the_worker_rests_as_long_as_it_worked(worker: BackgroundWorker, clock: WorkClock) -> None:
    worker.ask(FIRST, clock.work(1, 4.0), PATIENCE_S)
    clock.advance(1.0)
    worker.ask(SECOND, clock.work(2, 0.0), PATIENCE_S)

    assert clock.pauses == [0.0, 3.0]


@pytest.mark.parametrize(("took", "good_s"), [(0.1, GOOD_S), (4.0, 80.0)])
def test_an_answer_is_valid_for_a_while_and_shown_until_there_is_a_newer_one(
    worker: BackgroundWorker, clock: WorkClock, took: float, good_s: float
) -> None:
    worker.ask(FIRST, clock.work(1, took), PATIENCE_S)
    clock.advance(good_s - 0.01)
    assert worker.ask(FIRST, not_computed).answer == result(1)

    clock.advance(0.02)
    go, done = threading.Event(), threading.Event()

    def work() -> WhatIfResult:
        assert go.wait(PATIENCE_S)
        done.set()
        return result(2)

    assert worker.ask(FIRST, work).answer == result(1)
    assert worker.ask(FIRST, not_computed).answer == result(1)
    go.set()
    assert done.wait(PATIENCE_S)
    while (reply := worker.ask(FIRST, not_computed)).answer == result(1):
        pass
    assert reply.answer == result(2)


def test_an_expired_answer_is_not_shown(worker: BackgroundWorker, clock: WorkClock) -> None:
    worker.ask(FIRST, clock.work(1, 0.0), PATIENCE_S)
    clock.advance(1000.0)

    assert worker.ask(FIRST, clock.work(2, 0.0), PATIENCE_S).answer == result(2)


def test_the_number_of_kept_answers_is_limited(worker: BackgroundWorker) -> None:
    for number in range(40):
        asked = WhatIfQuery(None, (f"queue/q{number}.weight=5",), ())
        assert worker.ask(asked, lambda: result(1), PATIENCE_S).status == 200

    assert len(worker) == 32


def test_a_refusal_is_one_sentence_and_soon_computed_again(
    worker: BackgroundWorker, clock: WorkClock
) -> None:
    def refuse() -> WhatIfResult:
        raise InvalidInput("there is no queue a")

    assert worker.ask(FIRST, refuse, PATIENCE_S) == BackgroundReply(
        422, None, "there is no queue a"
    )
    clock.advance(3.0)
    worker.ask(FIRST, lambda: result(2))
    while (reply := worker.ask(FIRST, lambda: result(2))).answer is None:
        pass
    assert reply.answer == result(2)


def test_a_failure_is_reported_and_the_next_question_is_answered(
    worker: BackgroundWorker, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> WhatIfResult:
        raise KeyError("x")

    assert worker.ask(FIRST, fail, PATIENCE_S).status == 500
    assert "what-if failed" in caplog.text
    assert worker.ask(SECOND, lambda: result(1), PATIENCE_S).status == 200
