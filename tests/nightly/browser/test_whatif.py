"""What if in a real Chromium: typed into the form, answered, and sent as an address."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.nightly.browser.stage import Stage
from tests.nightly.browser.windows import NARROW, WIDE, Open, overhang, serious_faults, stays


def test_a_gang_and_a_change_that_are_typed_are_answered(look: Open, stage: Stage) -> None:
    page = look("/whatif")
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
    # The answer stays though the page follows the plan.
    stays(page)
    stage.plan()
    expect(page.locator("#said")).to_contain_text("plan 2")
    expect(page.locator(".asked .chip")).to_have_text("would start now")


def test_what_makes_no_sense_is_one_sentence_and_what_was_typed_stays(look: Open) -> None:
    # Browsers themselves say on the console that something was not as it should be.
    page = look("/whatif?without=node/<script>alert(1)</script>", quiet=False)

    expect(page.get_by_role("alert").filter(has_text="there is no node")).to_contain_text(
        "<script>alert(1)</script>"
    )
    expect(page.get_by_label("without")).to_have_value("node/<script>alert(1)</script>")
    expect(page.locator("main script")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("window", [WIDE, NARROW], ids=["wide", "narrow"])
def test_axe_finds_no_serious_fault_in_an_answer(
    look: Open, scheme: str, window: dict[str, int]
) -> None:
    page = look(
        "/whatif?name=new&namespace=a&members=30&cpu=1&without=node/n1",
        quiet=False, bypass_csp=True, color_scheme=scheme, viewport=window,
    )  # fmt: skip
    expect(page.locator(".asked .chip")).to_have_text("would wait")

    assert serious_faults(page) == []
    assert overhang(page) <= 0
