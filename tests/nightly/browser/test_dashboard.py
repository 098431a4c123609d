"""The dashboard in Chromium: live updates, keyboard, narrow and dark windows, escaping."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from extender.model.reason import Reason
from extender.web.dashboard import gangs
from tests.nightly.browser.page_server import PageServer
from tests.nightly.browser.windows import (
    NARROW,
    Open,
    brightness,
    expect_live,
    gang_names,
    is_same_page,
    mark_page,
    overflow,
    serious_violations,
)

SECTIONS = ["/", "/gangs", "/nodes", "/holds", "/evictions", "/whatif", "/policy", "/health"]
PAGES = [*SECTIONS, "/gangs/a/train", "/gangs/a/report", "/gangs/a/missing"]


@pytest.mark.parametrize("path", PAGES)
def test_page_is_live_and_logs_nothing_to_the_console(open_page: Open, path: str) -> None:
    # Browsers log a missing page themselves.
    page = open_page(path, quiet=not path.endswith("missing"))

    expect_live(page)


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_page_has_no_serious_accessibility_violation(
    open_page: Open, path: str, scheme: str, width: int
) -> None:
    window = {"width": width, "height": 800}
    page = open_page(path, quiet=False, color_scheme=scheme, viewport=window, bypass_csp=True)

    assert serious_violations(page) == []


def test_new_gang_appears_without_a_reload(open_page: Open, server: PageServer) -> None:
    page = open_page("/gangs")
    mark_page(page)
    server.add("arrived")
    server.plan()

    expect(page.locator("text=arrived")).to_be_visible()
    assert is_same_page(page)


def test_page_of_a_gang_follows_its_history(open_page: Open, server: PageServer) -> None:
    page = open_page("/gangs/a/train")
    mark_page(page)
    server.add("train", Reason.RUNNING, message="2 of at least 2 members run")
    server.plan()

    expect(page.locator(".page-head .chip")).to_have_text("running")
    expect(page.locator(".steps li.good")).to_contain_text("Running")
    assert is_same_page(page)


def test_focus_stays_when_rows_move(open_page: Open, server: PageServer) -> None:
    page = open_page("/gangs?sort=gang")
    page.locator("a.name", has_text="train").focus()
    server.add("aaa-first")
    server.plan()

    expect(page.locator("text=aaa-first")).to_be_visible()
    assert page.evaluate("document.activeElement.textContent").strip().endswith("train")


def test_filters_are_in_the_address(open_page: Open) -> None:
    page = open_page("/gangs")
    mark_page(page)
    page.get_by_role("searchbox").fill("swe")
    expect(page.locator(".gangs tbody tr")).to_have_count(1)
    assert page.url.endswith("/gangs?find=swe")
    assert is_same_page(page)

    page.reload()
    assert gang_names(page) == ["a/sweep"]
    expect(page.get_by_role("searchbox")).to_have_value("swe")

    page.get_by_role("link", name="clear filters").click()
    expect(page.locator(".gangs tbody tr")).to_have_count(3)


def test_choice_filters_at_once_and_column_header_sorts(open_page: Open) -> None:
    page = open_page("/gangs")
    page.get_by_label("status").select_option("waiting")
    expect(page.locator(".gangs tbody tr")).to_have_count(2)
    assert "status=waiting" in page.url

    page.get_by_role("columnheader", name="Gang").get_by_role("link").click()
    assert gang_names(page) == ["a/sweep", "a/train"]
    page.get_by_role("columnheader", name="Gang").get_by_role("link").click()
    assert gang_names(page) == ["a/train", "a/sweep"]
    assert "status=waiting" in page.url


def test_page_can_be_used_by_keyboard(open_page: Open) -> None:
    page = open_page("/gangs?sort=gang")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()

    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(page.locator("a.name", has_text="report")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/gangs/a/report")


def test_ten_thousand_gangs_are_shown_in_pages_of_fifty(
    open_page: Open, server: PageServer
) -> None:
    for number in range(10_000):
        server.add(f"many-{number:05d}", count=1)
    server.plan()
    page = open_page("/gangs?sort=gang")

    assert len(gang_names(page)) == 50
    expect(page.locator(".pager")).to_contain_text("of 10,003")
    page.keyboard.press("]")
    page.wait_for_url("**page=2")
    page.get_by_role("link", name="last").click()
    assert gang_names(page)[-1] == "a/train"
    page.get_by_role("searchbox").fill("many-0777")
    expect(page.locator(".gangs tbody tr")).to_have_count(10)


@pytest.mark.parametrize("path", PAGES)
def test_narrow_window_needs_no_horizontal_scrolling(open_page: Open, path: str) -> None:
    page = open_page(path, quiet=not path.endswith("missing"), viewport=NARROW)

    assert overflow(page) <= 0


def test_reason_is_visible_in_a_narrow_window(open_page: Open) -> None:
    page = open_page("/gangs", viewport=NARROW)
    box = page.locator(".why").first.bounding_box()

    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= NARROW["width"]


def test_colour_schemes_have_dark_and_light_backgrounds(open_page: Open) -> None:
    assert brightness(open_page("/", color_scheme="dark")) < 150
    assert brightness(open_page("/", color_scheme="light")) > 600


def test_names_and_messages_are_escaped(open_page: Open, server: PageServer) -> None:
    hostile = "<script>alert(1)</script>"
    server.add(hostile, message=f'<img src=x onerror="alert(2)">{hostile}')
    server.add("evil\u202etxt.exe", message="x" * 60_000)
    server.plan()

    page = open_page("/gangs")
    expect(page.get_by_role("link", name=hostile)).to_be_visible()
    expect(page.locator("main img, main script")).to_have_count(0)
    assert "\u202e" not in page.content()
    assert len(page.content()) < 40_000
    page.get_by_role("link", name=hostile).click()
    expect(page.locator("h1")).to_contain_text(hostile)
    expect(page.locator(".said")).to_contain_text("onerror")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("h2", has_text="Waiting longest")).to_be_visible()


def test_page_shows_that_the_server_is_down_and_recovers(
    open_page: Open, server: PageServer
) -> None:
    page = open_page("/gangs", quiet=False)
    expect(page.locator("#state")).to_have_attribute("data-is", "live")
    mark_page(page)

    server.stop()
    expect(page.locator("#stale")).to_be_visible()
    expect(page.locator("#stale")).to_contain_text("What you see is from")
    expect(page.locator("#state")).to_have_attribute("data-is", "stale")
    expect(page.locator("text=sweep")).to_be_visible()

    server.add("after")
    server.plan()
    server.restart()
    expect(page.locator("text=after")).to_be_visible()
    expect(page.locator("#stale")).to_be_hidden()
    assert is_same_page(page)


def test_page_that_fails_to_render_is_marked_stale(
    open_page: Open, server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page("/gangs", quiet=False)
    expect_live(page)

    def fail(*_: object) -> None:
        raise ValueError("this page fails")

    monkeypatch.setattr(gangs, "table", fail)
    server.add("unseen")
    server.plan()
    expect(page.locator("#stale")).to_contain_text("The extender answers 500. What you see is from")
    expect(page.locator("#state")).to_have_attribute("data-is", "stale")

    monkeypatch.undo()
    expect(page.locator("text=unseen")).to_be_visible()
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#state")).to_have_attribute("data-is", "live")


def test_problems_of_the_extender_are_shown(open_page: Open, server: PageServer) -> None:
    page = open_page("/")
    server.trouble = ["pods: watch silent for 40 s"]

    expect(page.locator(".troubles")).to_contain_text("watch silent")
    server.trouble = []
    expect(page.locator(".troubles")).to_have_count(0)


def test_page_works_without_javascript(open_page: Open) -> None:
    page = open_page("/gangs", java_script_enabled=False)
    page.get_by_role("searchbox").fill("sweep")
    page.get_by_role("button", name="show").click()

    assert gang_names(page) == ["a/sweep"]
