"""One thread writes pages; however many ask, it takes no more than half of its time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from extender.web.http import desk as desks
from extender.web.http.desk import Desk, Inquiry, Written


class Clock:
    """Goes on when somebody works."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Office:
    """A desk, an app that takes *costs_s* for a page, and those who ask."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.costs_s = 0.0
        self.asked: list[str] = []
        self.status = "200 OK"
        self.may_write = threading.Event()
        self.may_write.set()
        self.is_writing = threading.Event()
        self.given: queue.Queue[Written] = queue.Queue()
        self.leads = True
        self.desk = Desk(self.app, self.clock, lambda: self.leads)

    def app(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        self.asked.append(environment["PATH_INFO"])
        self.is_writing.set()
        assert self.may_write.wait(20)
        if environment["PATH_INFO"] == "/broken":
            raise RuntimeError("broken")
        self.clock.now += self.costs_s
        start(self.status, [("Content-Type", "text/plain"), ("Content-Length", "5")])
        return [b"page", b"\n"]

    def ask(self, path: str, *, is_wanted: bool = True, waited_s: float = 0.0) -> None:
        since = self.clock() - waited_s
        self.desk.ask(Inquiry(b"GET", path.encode(), since, lambda: is_wanted, self.given.put))

    def page(self, path: str) -> Written:
        self.ask(path)
        return self.given.get(timeout=20)


@pytest.fixture
def office() -> Iterator[Office]:
    made = Office()
    made.desk.start()
    yield made
    made.may_write.set()
    made.desk.stop()


def test_a_page_is_written_with_its_headers_in_pieces(office: Office) -> None:
    page = office.page("/a%20b")

    assert page == Written(200, b"Content-Type: text/plain\r\n", (b"page", b"\n"))
    assert page.size == 5
    assert office.asked == ["/a b"]


def test_a_page_that_took_long_is_given_again_for_ten_times_as_long(office: Office) -> None:
    office.costs_s = 0.01
    first = office.page("/snapshot")
    office.clock.now += 0.09

    assert office.page("/snapshot") is first
    assert office.asked == ["/snapshot"]

    office.clock.now += 0.02
    office.page("/snapshot")
    assert office.asked == ["/snapshot"] * 2


def test_what_was_written_in_an_earlier_term_is_not_given_again(office: Office) -> None:
    office.costs_s = 0.05
    office.page("/plan")
    office.leads = False
    office.page("/plan")
    office.leads = True
    office.page("/plan")

    assert office.asked == ["/plan"] * 3


def test_what_went_wrong_is_not_given_again(office: Office) -> None:
    office.costs_s, office.status = 0.01, "503 Service Unavailable"
    office.page("/findings")

    assert office.page("/findings").status == 503
    assert len(office.asked) == 2


def test_after_a_page_the_desk_rests_as_long_as_it_worked(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float | None] = []
    monkeypatch.setattr(office.desk._ending, "wait", rests.append)
    office.costs_s = 0.25
    office.page("/one")
    office.page("/two")
    office.page("/two")

    assert rests[:1] == [0.25]
    assert len(rests) <= 2, "what was kept costs nothing"


def test_who_has_left_costs_nothing(office: Office) -> None:
    office.ask("/left", is_wanted=False)
    office.page("/here")

    assert office.asked == ["/here"]


def test_who_would_wait_too_long_is_told_to_come_back(office: Office) -> None:
    office.ask("/late", waited_s=16)

    page = office.given.get(timeout=20)
    assert (page.status, page.headers.endswith(b"retry-after: 5\r\n")) == (503, True)
    assert office.asked == []


def test_when_too_many_wait_the_next_is_told_to_come_back_at_once(office: Office) -> None:
    office.may_write.clear()
    office.ask("/first")
    assert office.is_writing.wait(20)
    for index in range(desks._MOST_WAITING):
        office.ask(f"/{index}", is_wanted=False)

    office.ask("/one-too-many")

    assert office.given.get(timeout=20).status == 503


def test_an_app_that_fails_is_said_and_the_next_page_is_written(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    assert office.page("/broken").status == 500
    assert office.page("/good").status == 200
    assert "page failed" in caplog.text


def test_no_more_than_a_few_pages_are_kept(office: Office) -> None:
    office.costs_s = 0.001
    for index in range(100):
        office.page(f"/gang-{index}")

    assert len(office.desk._kept) <= desks._MOST_KEPT


def test_a_page_is_the_same_however_its_address_is_spelt(office: Office) -> None:
    office.costs_s = 1.0
    first = office.page("/api/v1/snapshot")

    assert office.page("/api/v1/snapsho%74") is first
    assert office.page("/%61pi/v1/%73napshot") is first
    assert len(office.asked) == 1


def test_but_for_its_slashes_by_which_links_are_read(office: Office) -> None:
    office.costs_s = 1.0

    assert office.page("/gangs/a/b") is not office.page("/gangs/a%2Fb")


def test_all_pages_that_are_kept_have_a_bound_and_the_newest_stays(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desks, "_MOST_BYTES", 2 * len(b"page\n"))
    office.costs_s = 1.0
    pages = [office.page(f"/{number}") for number in range(3)]

    assert [page for _, page in office.desk._kept.values()] == pages[1:]
    monkeypatch.setattr(desks, "_MOST_BYTES", 1)
    large = office.page("/large")
    assert office.page("/large") is large
    assert len(office.desk._kept) == 1
