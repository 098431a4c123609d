"""Remedies cost whole plans: no other page waits for them, and the page loads them by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from extender.model.gang import GangKey
from extender.model.pod import Status
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.explain.explain import remedies
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.web import background
from extender.web.background import TRYING, BackgroundWorker, CachedRemedies
from tests.scene import gang, node_table, snapshot
from tests.unit.web.pages.conftest import DashboardReader, reader

PATIENCE_S = 60.0
Said = TypeVar("Said", str, tuple[str, ...])
TRAIN, LATE = GangKey("a/train"), GangKey("a/late")

__all__ = ["reader"]


@pytest.fixture
def now() -> Snapshot:
    waiting = (gang(name, 4, status=Status.PENDING) for name in ("train", "late"))
    return snapshot(*waiting, nodes=node_table([2, 0]))


@pytest.fixture
def plan(now: Snapshot) -> Plan:
    return make_plan(now, policy_parser.DEFAULT)


class SlowRemedies:
    """Replaces the computation of remedies; it blocks until the test allows it."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.done = threading.Event()

    def __call__(self, *case: object) -> tuple[str, ...]:
        assert self.may.wait(PATIENCE_S)
        self.done.set()
        return (f"a larger cluster for {case[-1]}",)


def known(ask: Callable[[], Said]) -> Said:
    """Repeat the request until the answer is known, with a limit."""
    end = time.monotonic() + PATIENCE_S
    while TRYING[0] in (said := ask()):
        assert time.monotonic() < end, "it is never known"
    return said


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowRemedies]:
    stand_in = SlowRemedies()
    monkeypatch.setattr(background, "remedies", stand_in)
    yield stand_in
    stand_in.may.set()


def test_remedies_that_are_computed_quickly_are_returned_at_once_and_recomputed(
    now: Snapshot, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, case = (
        CachedRemedies(BackgroundWorker(lambda: 100.0), PATIENCE_S),
        (now, plan, policy_parser.DEFAULT, TRAIN),
    )
    said = ask(*case)

    assert said == remedies(*case) != ()
    monkeypatch.setattr(background, "remedies", lambda *_: ("something else",))
    assert ask(*case) == ("something else",)


def test_slow_remedies_are_reported_as_pending_to_every_request(
    now: Snapshot, plan: Plan, slow: SlowRemedies
) -> None:
    ask = CachedRemedies(BackgroundWorker(), 0.05)

    assert ask(now, plan, policy_parser.DEFAULT, TRAIN) == TRYING
    assert ask(now, plan, policy_parser.DEFAULT, LATE) == TRYING
    slow.may.set()
    for key in (TRAIN, LATE):
        said = known(lambda key=key: ask(now, plan, policy_parser.DEFAULT, key))
        assert said == (f"a larger cluster for {key}",)


def test_a_failure_is_one_sentence(
    now: Snapshot, plan: Plan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> tuple[str, ...]:
        raise KeyError("x")

    monkeypatch.setattr(background, "remedies", fails)
    ask = CachedRemedies(BackgroundWorker(), PATIENCE_S)

    said = ask(now, plan, policy_parser.DEFAULT, TRAIN)

    assert said == ("the extender failed to answer; its log has the details",)
    assert "KeyError" in caplog.text


def test_a_page_is_shown_before_its_remedies_are_known(
    reader: DashboardReader, now: Snapshot, plan: Plan, slow: SlowRemedies
) -> None:
    reader.sees(now, plan)

    page = reader.page(f"/gangs/{TRAIN}", status=202)
    assert TRYING[0] in page
    assert "What it needs" in page
    assert "data-unfinished" in page
    reader.page("/gangs")

    slow.may.set()
    assert slow.done.wait(PATIENCE_S)
    page = known(lambda: reader.client.get(f"/gangs/{TRAIN}").text)
    assert f"a larger cluster for {TRAIN}" in page
    assert "data-unfinished" not in page
