"""One thread renders pages and uses at most half of its time, however many requests there are."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from extender.sim.clock import VirtualClock
from extender.web.page_worker import Page, PageRequest, PageWorker


class WorkerHarness:
    """A page worker with an app that takes *costs_s* seconds for each page."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.costs_s = 0.0
        self.asked: list[str] = []
        self.status = "200 OK"
        self.pieces = [b"page", b"\n"]
        self.rests: list[float] = []
        self.given: queue.Queue[Page] = queue.Queue()
        self.leads = True
        self.worker = PageWorker(
            self.app, self.clock.monotonic, lambda: self.leads, self.rests.append
        )

    def app(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        self.asked.append(environment["PATH_INFO"])
        if environment["PATH_INFO"] == "/broken":
            raise RuntimeError("broken")
        self.clock.advance(self.costs_s)
        start(self.status, [("Content-Type", "text/plain"), ("Content-Length", "5")])
        return self.pieces

    def ask(self, path: str, *, is_wanted: bool = True, waited_s: float = 0.0) -> None:
        since = self.clock.monotonic() - waited_s
        self.worker.ask(
            PageRequest(b"GET", path.encode(), since, lambda: is_wanted, self.given.put)
        )

    def page(self, path: str) -> Page:
        self.ask(path)
        return self.given.get(timeout=20)


@pytest.fixture
def harness() -> Iterator[WorkerHarness]:
    made = WorkerHarness()
    made.worker.start()
    yield made
    made.worker.stop()


def test_a_page_is_cached_for_ten_times_its_rendering_time(harness: WorkerHarness) -> None:
    harness.costs_s = 0.01
    first = harness.page("/snapshot")
    harness.clock.advance(0.09)

    assert harness.page("/snapshot") is first
    assert harness.asked == ["/snapshot"]

    harness.clock.advance(0.02)
    harness.page("/snapshot")
    assert harness.asked == ["/snapshot"] * 2


def test_a_page_of_an_earlier_lease_is_not_served_from_the_cache(harness: WorkerHarness) -> None:
    harness.costs_s = 0.05
    harness.page("/plan")
    harness.leads = False
    harness.page("/plan")
    harness.leads = True
    harness.page("/plan")

    assert harness.asked == ["/plan"] * 3


def test_a_failed_page_is_not_cached(harness: WorkerHarness) -> None:
    harness.costs_s, harness.status = 0.01, "503 Service Unavailable"
    harness.page("/findings")

    assert harness.page("/findings").status == 503
    assert len(harness.asked) == 2


def test_a_page_is_not_rendered_for_a_client_that_disconnected(harness: WorkerHarness) -> None:
    harness.ask("/left", is_wanted=False)
    harness.page("/here")

    assert harness.asked == ["/here"]


def test_a_request_that_would_wait_too_long_gets_503_with_retry_after(
    harness: WorkerHarness,
) -> None:
    harness.ask("/late", waited_s=16)

    page = harness.given.get(timeout=20)
    assert (page.status, page.headers.endswith(b"retry-after: 5\r\n")) == (503, True)
    assert harness.asked == []


def test_a_failing_page_is_logged_and_the_next_page_is_rendered(
    harness: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    assert harness.page("/broken").status == 500
    assert harness.page("/good").status == 200
    assert "page failed" in caplog.text


def test_percent_encoding_does_not_change_a_page_except_for_slashes(
    harness: WorkerHarness,
) -> None:
    harness.costs_s = 1.0
    first = harness.page("/api/v1/snapshot")

    assert harness.page("/api/v1/snapsho%74") is first
    assert harness.page("/%61pi/v1/%73napshot") is first
    assert len(harness.asked) == 1
    assert harness.page("/gangs/a/b") is not harness.page("/gangs/a%2Fb"), (
        "links are read by slashes"
    )


def test_the_worker_rests_after_a_page_as_long_as_it_worked(harness: WorkerHarness) -> None:
    harness.costs_s = 0.25
    for path in ("/one", "/two", "/two", "/three"):
        harness.page(path)

    assert harness.rests[:2] == [0.25, 0.25], "a cached page costs nothing"


def test_the_number_of_cached_pages_is_limited(harness: WorkerHarness) -> None:
    paths = [f"/gang-{index}" for index in range(17)]
    for index, path in enumerate(paths):
        harness.costs_s = 0.5**index  # no page expires before the last is rendered
        harness.page(path)
    for path in paths:
        harness.page(path)

    assert harness.asked == [*paths, paths[-1]]


def test_cached_pages_have_a_total_limit_and_the_newest_stays(harness: WorkerHarness) -> None:
    harness.costs_s = 1.0
    harness.pieces = [b"x" * 1024 * 1024] * 16  # the same bytes object: it is in memory once
    for path in ("/1", "/2", "/3", "/2", "/3", "/1"):
        harness.page(path)
    assert harness.asked == ["/1", "/2", "/3", "/1"]

    harness.pieces *= 3
    large = harness.page("/large")
    assert harness.page("/large") is large, "a single page may be larger"
