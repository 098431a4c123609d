"""Windows of a real Chromium, with an ear at their consoles, and what is asked of every page."""

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

#: A busy machine takes its time; what never comes is noticed all the same.
PATIENCE_MS = 60_000
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 800}

Open = Callable[..., Page]


@contextmanager
def started() -> Iterator[Browser]:
    """Have a Chromium; where there is none, that is said, and in CI it is a fault."""
    try:
        path = chromium.ensure()
    except chromium.Missing as error:
        # Where everything has to be tried, something that was not tried is a fault.
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(error))
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as driver:
        # Pages of our own only, and root has no sandbox.
        opened = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def windows(browser: Browser, url: str = "") -> Iterator[Open]:
    """Open pages below *url*, each in a window of its own; nothing may be said on its console."""
    said: list[str] = []
    contexts = []

    def look(path: str = "/", *, quiet: bool = True, **window: Any) -> Page:
        context = browser.new_context(**{"viewport": WIDE, **window})
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        if quiet:
            page.on("console", lambda line: said.append(f"{line.type}: {line.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append("a dialog opened"), dialog.dismiss()))
        page.goto(url + path)
        return page

    yield look
    for context in contexts:
        context.close()
    assert said == []


def serious_faults(page: Page, **options: Any) -> list[tuple[str, list[str]]]:
    """Give what axe finds that keeps people out; the page must allow its script."""
    found = Axe().run(page, options=options or None).response["violations"]
    return [
        (each["id"], [node["html"][:200] for node in each["nodes"]][:5])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def is_drawn_and_live(page: Page) -> None:
    """Expect one head, and that the server is heard."""
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("#state")).to_have_attribute("data-is", "live")


def overhang(page: Page) -> int:
    """Say by how much a page is broader than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))


def brightness(page: Page) -> int:
    """Add up the three colours of the ground: 0 is black, 765 white."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def gang_names(page: Page) -> list[str]:
    """Give the gangs of a table, from top to bottom."""
    return [each.strip() for each in page.locator(".gangs tbody a.name").all_inner_texts()]


def stays(page: Page) -> None:
    """Mark the page, so that a reload would be noticed."""
    page.evaluate("window.isTheSame = true")


def is_the_same(page: Page) -> bool:
    """Ask whether the page was never loaded anew since it was marked."""
    return bool(page.evaluate("window.isTheSame === true"))
