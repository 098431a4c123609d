"""One thread writes pages; however many ask, it takes no more than half of its time."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from extender.sim.clock import VirtualClock
from extender.web.page_worker import Page, PageRequest, PageWorker


class Office:
    """A desk, an app that takes *costs_s* for a page, and those who ask."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.costs_s = 0.0
        self.asked: list[str] = []
        self.status = "200 OK"
        self.pieces = [b"page", b"\n"]
        self.rests: list[float] = []
        self.given: queue.Queue[Page] = queue.Queue()
        self.leads = True
        self.desk = PageWorker(
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
        self.desk.ask(PageRequest(b"GET", path.encode(), since, lambda: is_wanted, self.given.put))

    def page(self, path: str) -> Page:
        self.ask(path)
        return self.given.get(timeout=20)


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    made.desk.start()
    yield made
    made.desk.stop()


def test_a_page_is_cached_for_ten_times_its_rendering_time(office: Office) -> None:
    office.costs_s = 0.01
    first = office.page("/snapshot")
    office.clock.advance(0.09)

    assert office.page("/snapshot") is first
    assert office.asked == ["/snapshot"]

    office.clock.advance(0.02)
    office.page("/snapshot")
    assert office.asked == ["/snapshot"] * 2


def test_a_page_of_an_earlier_lease_is_not_served_from_the_cache(office: Office) -> None:
    office.costs_s = 0.05
    office.page("/plan")
    office.leads = False
    office.page("/plan")
    office.leads = True
    office.page("/plan")

    assert office.asked == ["/plan"] * 3


def test_a_failed_page_is_not_cached(office: Office) -> None:
    office.costs_s, office.status = 0.01, "503 Service Unavailable"
    office.page("/findings")

    assert office.page("/findings").status == 503
    assert len(office.asked) == 2


def test_a_page_is_not_rendered_for_a_client_that_disconnected(office: Office) -> None:
    office.ask("/left", is_wanted=False)
    office.page("/here")

    assert office.asked == ["/here"]


def test_a_request_that_would_wait_too_long_gets_503_with_retry_after(office: Office) -> None:
    office.ask("/late", waited_s=16)

    page = office.given.get(timeout=20)
    assert (page.status, page.headers.endswith(b"retry-after: 5\r\n")) == (503, True)
    assert office.asked == []


def test_a_failing_page_is_logged_and_the_next_page_is_rendered(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    assert office.page("/broken").status == 500
    assert office.page("/good").status == 200
    assert "page failed" in caplog.text


def test_percent_encoding_does_not_change_a_page_except_for_slashes(
    office: Office,
) -> None:
    office.costs_s = 1.0
    first = office.page("/api/v1/snapshot")

    assert office.page("/api/v1/snapsho%74") is first
    assert office.page("/%61pi/v1/%73napshot") is first
    assert len(office.asked) == 1
    assert office.page("/gangs/a/b") is not office.page("/gangs/a%2Fb"), "links are read by slashes"


def test_the_worker_rests_after_a_page_as_long_as_it_worked(office: Office) -> None:
    office.costs_s = 0.25
    for path in ("/one", "/two", "/two", "/three"):
        office.page(path)

    assert office.rests[:2] == [0.25, 0.25], "what was kept costs nothing"


def test_the_number_of_cached_pages_is_limited(office: Office) -> None:
    paths = [f"/gang-{index}" for index in range(17)]
    for index, path in enumerate(paths):
        office.costs_s = 0.5**index  # so that none gets old before the last is written
        office.page(path)
    for path in paths:
        office.page(path)

    assert office.asked == [*paths, paths[-1]]


def test_cached_pages_have_a_total_limit_and_the_newest_stays(office: Office) -> None:
    office.costs_s = 1.0
    office.pieces = [b"x" * 1024 * 1024] * 16  # the same bytes: they are there once
    for path in ("/1", "/2", "/3", "/2", "/3", "/1"):
        office.page(path)
    assert office.asked == ["/1", "/2", "/3", "/1"]

    office.pieces *= 3
    large = office.page("/large")
    assert office.page("/large") is large, "one alone may be larger"
