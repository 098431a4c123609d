"""The table of gangs: filters and order are in the URL, and its size is limited."""

from __future__ import annotations

import re

import pytest

from extender.model.pod import Status
from extender.model.reason import Reason
from extender.planner.plan import GangStatus
from extender.web.dashboard import gangs
from extender.web.dashboard.format import QueryFields, paged
from tests.builders import NOW, pod
from tests.scene import gang, plan, snapshot, verdict
from tests.unit.web.pages.conftest import DashboardReader

NOT_YET = Reason.INSUFFICIENT_CAPACITY


def shown(page: str) -> list[str]:
    body = page.partition("<tbody>")[2].partition("</tbody>")[0]
    return re.findall(r'href="\./gangs/a/([^"]+)"', body)


@pytest.fixture
def busy(reader: DashboardReader) -> DashboardReader:
    """Four gangs in two queues: `old` waits longest, `bad` is invalid."""
    reader.sees(
        snapshot(
            gang("run", queue="left"),
            gang("old", status=Status.PENDING, queue="right", created=NOW - 900),
            gang("new", 4, status=Status.PENDING, queue="left", created=NOW - 60),
            gang("bad", 1, status=Status.PENDING, queue="left"),
        ),
        plan(
            verdict("a/run", queue="left"),
            verdict("a/old", NOT_YET, queue="right", min_member=2, members=2),
            verdict("a/new", NOT_YET, queue="left", min_member=4, members=4),
            verdict("a/bad", Reason.QUEUE_NOT_FOUND, GangStatus.INVALID, queue="left"),
        ),
    )
    return reader


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["bad", "old", "new", "run"]),
        ("?status=waiting", ["old", "new"]),
        ("?status=nonsense", ["bad", "old", "new", "run"]),
        ("?queue=right", ["old"]),
        ("?queue=nowhere", []),
        ("?namespace=a&find=NE", ["new"]),
        ("?namespace=b", []),
        ("?reason=QueueNotFound", ["bad"]),
        ("?find=queuenot", ["bad"]),
        ("?sort=gang", ["bad", "new", "old", "run"]),
        ("?sort=-gang", ["run", "old", "new", "bad"]),
        ("?sort=age", ["old", "new", "bad", "run"]),
        ("?sort=members&status=waiting", ["new", "old"]),
        ("?sort=nonsense", ["bad", "old", "new", "run"]),
        ("?page=0", ["bad", "old", "new", "run"]),
        ("?page=99", ["bad", "old", "new", "run"]),
        ("?page=-1&page=x", ["bad", "old", "new", "run"]),
        ("?page=%D9%A3", ["bad", "old", "new", "run"]),
        ("?unknown=1", ["bad", "old", "new", "run"]),
    ],
)
def test_the_query_of_the_url_selects_the_rows(
    busy: DashboardReader, query: str, names: list[str]
) -> None:
    assert shown(busy.page(f"/gangs{query}")) == names


def test_a_filter_without_matches_shows_a_link_to_all_gangs(busy: DashboardReader) -> None:
    page = busy.page("/gangs?find=nobody")

    assert "None of 4 gangs matches" in page
    assert 'href="?"' in page
    assert "There are no gangs yet" not in page


def test_links_keep_the_filters_and_a_second_click_reverses_the_order(
    busy: DashboardReader,
) -> None:
    page = busy.page("/gangs?queue=left&sort=gang")

    assert 'href="?queue=left&amp;sort=-gang"' in page
    assert 'href="?queue=left&amp;sort=gang&amp;status=waiting"' in page
    assert '<option value="left" selected>' in page
    assert 'aria-sort="ascending"' in page


def test_pages_have_fifty_rows_and_link_to_their_neighbours(reader: DashboardReader) -> None:
    many = [gang(f"g{number:05d}", 1) for number in range(120)]
    reader.sees(snapshot(*many), plan(*(verdict(str(each.key)) for each in many)))

    first, last = reader.page("/gangs?sort=gang"), reader.page("/gangs?sort=gang&page=3")
    assert len(shown(first)) == 50
    assert shown(last)[0] == "g00100"
    assert "101\N{EN DASH}120 of 120" in last
    assert 'rel="next" href="?sort=gang&amp;page=2"' in first
    assert 'rel="prev" href="?sort=gang&amp;page=2"' in last
    assert 'rel="next"' not in last


def test_progress_counts_bound_waiting_and_reserved_members() -> None:
    members = [
        pod("p0", on="n"),
        pod("p1", on="n", status=Status.BINDING),
        pod("p2", on="n", status=Status.BINDING),
        pod("p3", on="n", status=Status.ALLOCATED),
        pod("p4"),
    ]
    done = gangs.progress(
        gang("half", members, min_member=4), verdict("a/half", min_member=4, members=5)
    )

    assert (done.bound, done.waiting, done.reserved, done.least) == (1, 2, 1, 4)
    assert [(part.kind, part.x, part.width) for part in done.parts] == [
        ("bound", 0.0, 20.0),
        ("held", 20.0, 40.0),
        ("promised", 60.0, 20.0),
    ]
    assert done.mark == 80.0


def test_the_query_of_a_url_is_limited() -> None:
    asked = QueryFields({"find": "x" * 9999, "page": "9" * 99, "other": "y"}, "find")

    assert len(asked["find"]) == 253
    assert asked.page == 1
    assert asked["other"] == ""
    assert paged([], asked.page, 50).pages == 1
