"""Chromium windows whose console output is checked, and checks for every page."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.nightly.browser import chromium

#: Long enough for a busy machine.
TIMEOUT_MS = 60_000
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 800}

Open = Callable[..., Page]


@contextmanager
def started() -> Iterator[Browser]:
    """Start Chromium; without one the test is skipped, and fails in CI."""
    try:
        path = chromium.ensure()
    except chromium.Missing as error:
        # CI must not skip tests.
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(error))
    expect.set_options(timeout=TIMEOUT_MS)
    with sync_playwright() as driver:
        # Only local pages are opened, and root has no sandbox.
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def windows(browser: Browser, url: str = "") -> Iterator[Open]:
    """Open pages below *url*, each in a new window; its console must stay empty."""
    messages: list[str] = []
    contexts = []

    def open_page(path: str = "/", *, quiet: bool = True, **window: Any) -> Page:
        context = browser.new_context(**{"viewport": WIDE, **window})
        contexts.append(context)
        context.set_default_timeout(TIMEOUT_MS)
        page = context.new_page()
        if quiet:
            page.on("console", lambda line: messages.append(f"{line.type}: {line.text}"))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: (messages.append("a dialog opened"), dialog.dismiss()))
        page.goto(url + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert messages == []


def serious_violations(page: Page, **options: Any) -> list[tuple[str, list[str]]]:
    """Return the serious accessibility violations that axe finds; the page must allow it."""
    found = Axe().run(page, options=options or None).response["violations"]
    return [
        (each["id"], [node["html"][:200] for node in each["nodes"]][:5])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def expect_live(page: Page) -> None:
    """Expect one heading and a live connection to the server."""
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("#state")).to_have_attribute("data-is", "live")


def overflow(page: Page) -> int:
    """Return by how much a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


def brightness(page: Page) -> int:
    """Return the sum of the three background colours: 0 is black, 765 white."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def gang_names(page: Page) -> list[str]:
    """Return the gangs of the table, from top to bottom."""
    return [each.strip() for each in page.locator(".gangs tbody a.name").all_inner_texts()]


def mark_page(page: Page) -> None:
    """Mark the page, so that a reload can be detected."""
    page.evaluate("window.isTheSame = true")


def is_same_page(page: Page) -> bool:
    """Return whether the page was not reloaded since it was marked."""
    return bool(page.evaluate("window.isTheSame === true"))
