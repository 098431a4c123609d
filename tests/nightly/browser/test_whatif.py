"""The what-if form in Chromium: input, answer, and the address."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.nightly.browser.page_server import PageServer
from tests.nightly.browser.windows import (
    NARROW,
    WIDE,
    Open,
    mark_page,
    overflow,
    serious_violations,
)


def test_gang_and_change_are_answered(open_page: Open, server: PageServer) -> None:
    page = open_page("/whatif")
    page.get_by_label("name", exact=True).fill("new")
    page.get_by_label("namespace").fill("a")
    page.get_by_label("members").fill("3")
    page.get_by_label("cpu of each").fill("1")
    page.get_by_label("with", exact=True).fill("queue/left.weight=5\nnode/n1.unschedulable=true")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button")).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.locator(".asked .chip")).to_have_text("would start now")
    assert "members=3" in page.url
    expect(page.locator("textarea[name=with]")).to_have_value(
        "queue/left.weight=5\nnode/n1.unschedulable=true"
    )
    # The answer stays when the page is updated.
    mark_page(page)
    server.plan()
    expect(page.locator("#said")).to_contain_text("plan 2")
    expect(page.locator(".asked .chip")).to_have_text("would start now")


def test_invalid_input_is_one_message_and_stays_in_the_form(open_page: Open) -> None:
    # Browsers log the status code themselves.
    page = open_page("/whatif?without=node/<script>alert(1)</script>", quiet=False)

    expect(page.get_by_role("alert").filter(has_text="there is no node")).to_contain_text(
        "<script>alert(1)</script>"
    )
    expect(page.get_by_label("without")).to_have_value("node/<script>alert(1)</script>")
    expect(page.locator("main script")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("window", [WIDE, NARROW], ids=["wide", "narrow"])
def test_answer_has_no_serious_accessibility_violation(
    open_page: Open, scheme: str, window: dict[str, int]
) -> None:
    page = open_page(
        "/whatif?name=new&namespace=a&members=30&cpu=1&without=node/n1",
        quiet=False, bypass_csp=True, color_scheme=scheme, viewport=window,
    )  # fmt: skip
    expect(page.locator(".asked .chip")).to_have_text("would wait")

    assert serious_violations(page) == []
    assert overflow(page) <= 0
