"""The dashboard in a real Chromium: drawn, live, found by keyboard, narrow, dark, and only text."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from extender.model.reason import Reason
from extender.web.dashboard import gangs
from tests.nightly.browser.stage import Stage
from tests.nightly.browser.windows import (
    NARROW,
    Open,
    brightness,
    gang_names,
    is_drawn_and_live,
    is_the_same,
    overhang,
    serious_faults,
    stays,
)

SECTIONS = ["/", "/gangs", "/nodes", "/holds", "/evictions", "/whatif", "/policy", "/health"]
PAGES = [*SECTIONS, "/gangs/a/train", "/gangs/a/report", "/gangs/a/nobody"]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_drawn_and_says_nothing_on_the_console(look: Open, path: str) -> None:
    # Browsers themselves say on the console that something is not there.
    page = look(path, quiet=not path.endswith("nobody"))

    is_drawn_and_live(page)


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_no_serious_fault(look: Open, path: str, scheme: str, width: int) -> None:
    window = {"width": width, "height": 800}
    page = look(path, quiet=False, color_scheme=scheme, viewport=window, bypass_csp=True)

    assert serious_faults(page) == []


def test_a_new_gang_appears_without_a_reload(look: Open, stage: Stage) -> None:
    page = look("/gangs")
    stays(page)
    stage.add("arrived")
    stage.plan()

    expect(page.locator("text=arrived")).to_be_visible()
    assert is_the_same(page)


def test_the_page_of_a_gang_follows_its_story(look: Open, stage: Stage) -> None:
    page = look("/gangs/a/train")
    stays(page)
    stage.add("train", Reason.RUNNING, message="2 of at least 2 members run")
    stage.plan()

    expect(page.locator(".page-head .chip")).to_have_text("running")
    expect(page.locator(".steps li.good")).to_contain_text("Running")
    assert is_the_same(page)


def test_what_is_focused_stays_focused_though_rows_move(look: Open, stage: Stage) -> None:
    page = look("/gangs?sort=gang")
    page.locator("a.name", has_text="train").focus()
    stage.add("aaa-first")
    stage.plan()

    expect(page.locator("text=aaa-first")).to_be_visible()
    assert page.evaluate("document.activeElement.textContent").strip().endswith("train")


def test_filters_live_in_the_address(look: Open) -> None:
    page = look("/gangs")
    stays(page)
    page.get_by_role("searchbox").fill("swe")
    expect(page.locator(".gangs tbody tr")).to_have_count(1)
    assert page.url.endswith("/gangs?find=swe")
    assert is_the_same(page)

    page.reload()
    assert gang_names(page) == ["a/sweep"]
    expect(page.get_by_role("searchbox")).to_have_value("swe")

    page.get_by_role("link", name="clear filters").click()
    expect(page.locator(".gangs tbody tr")).to_have_count(3)


def test_a_choice_narrows_at_once_and_a_head_sorts(look: Open) -> None:
    page = look("/gangs")
    page.get_by_label("status").select_option("waiting")
    expect(page.locator(".gangs tbody tr")).to_have_count(2)
    assert "status=waiting" in page.url

    page.get_by_role("columnheader", name="Gang").get_by_role("link").click()
    assert gang_names(page) == ["a/sweep", "a/train"]
    page.get_by_role("columnheader", name="Gang").get_by_role("link").click()
    assert gang_names(page) == ["a/train", "a/sweep"]
    assert "status=waiting" in page.url


def test_everything_is_reached_by_keyboard(look: Open) -> None:
    page = look("/gangs?sort=gang")
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


def test_ten_thousand_gangs_are_pages_of_fifty(look: Open, stage: Stage) -> None:
    for number in range(10_000):
        stage.add(f"many-{number:05d}", count=1)
    stage.plan()
    page = look("/gangs?sort=gang")

    assert len(gang_names(page)) == 50
    expect(page.locator(".pager")).to_contain_text("of 10,003")
    page.keyboard.press("]")
    page.wait_for_url("**page=2")
    page.get_by_role("link", name="last").click()
    assert gang_names(page)[-1] == "a/train"
    page.get_by_role("searchbox").fill("many-0777")
    expect(page.locator(".gangs tbody tr")).to_have_count(10)


@pytest.mark.parametrize("path", PAGES)
def test_a_narrow_screen_shows_all_without_scrolling_sideways(look: Open, path: str) -> None:
    page = look(path, quiet=not path.endswith("nobody"), viewport=NARROW)

    assert overhang(page) <= 0


def test_on_a_narrow_screen_the_reason_is_on_it(look: Open) -> None:
    page = look("/gangs", viewport=NARROW)
    box = page.locator(".why").first.bounding_box()

    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= NARROW["width"]


def test_the_dark_is_dark_and_the_light_is_light(look: Open) -> None:
    assert brightness(look("/", color_scheme="dark")) < 150
    assert brightness(look("/", color_scheme="light")) > 600


def test_names_and_messages_of_strangers_are_text(look: Open, stage: Stage) -> None:
    hostile = "<script>alert(1)</script>"
    stage.add(hostile, message=f'<img src=x onerror="alert(2)">{hostile}')
    stage.add("evil\u202etxt.exe", message="x" * 60_000)
    stage.plan()

    page = look("/gangs")
    expect(page.get_by_role("link", name=hostile)).to_be_visible()
    expect(page.locator("main img, main script")).to_have_count(0)
    assert "\u202e" not in page.content()
    assert len(page.content()) < 40_000
    page.get_by_role("link", name=hostile).click()
    expect(page.locator("h1")).to_contain_text(hostile)
    expect(page.locator(".said")).to_contain_text("onerror")
    page.get_by_role("link", name="Overview").click()
    expect(page.locator("h2", has_text="Waiting longest")).to_be_visible()


def test_a_server_that_goes_and_comes_again_is_noticed(look: Open, stage: Stage) -> None:
    page = look("/gangs", quiet=False)
    expect(page.locator("#state")).to_have_attribute("data-is", "live")
    stays(page)

    stage.end()
    expect(page.locator("#stale")).to_be_visible()
    expect(page.locator("#stale")).to_contain_text("What you see is from")
    expect(page.locator("#state")).to_have_attribute("data-is", "stale")
    expect(page.locator("text=sweep")).to_be_visible()

    stage.add("after")
    stage.plan()
    stage.begin_again()
    expect(page.locator("text=after")).to_be_visible()
    expect(page.locator("#stale")).to_be_hidden()
    assert is_the_same(page)


def test_a_page_that_cannot_be_written_says_from_when_it_is_though_the_server_lives(
    look: Open, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = look("/gangs", quiet=False)
    is_drawn_and_live(page)

    def fail(*_: object) -> None:
        raise ValueError("this page fails")

    monkeypatch.setattr(gangs, "table", fail)
    stage.add("unseen")
    stage.plan()
    expect(page.locator("#stale")).to_contain_text("The extender answers 500. What you see is from")
    expect(page.locator("#state")).to_have_attribute("data-is", "stale")

    monkeypatch.undo()
    expect(page.locator("text=unseen")).to_be_visible()
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#state")).to_have_attribute("data-is", "live")


def test_a_plan_that_gets_old_is_said_on_the_page(look: Open, stage: Stage) -> None:
    page = look("/")
    stage.trouble = ["pods: watch silent for 40 s"]

    expect(page.locator(".troubles")).to_contain_text("watch silent")
    stage.trouble = []
    expect(page.locator(".troubles")).to_have_count(0)


def test_without_script_it_still_tells(look: Open) -> None:
    page = look("/gangs", java_script_enabled=False)
    page.get_by_role("searchbox").fill("sweep")
    page.get_by_role("button", name="show").click()

    assert gang_names(page) == ["a/sweep"]
