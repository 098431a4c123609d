"""A Chromium for all tests of a file, and a fresh window with an eye on its console for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from extender.model.reason import Reason
from extender.web.http import desk
from tests.browser import chromium
from tests.browser.stage import Stage

#: A busy machine takes its time; what never comes is noticed all the same.
PATIENCE_MS = 60_000


# Not for the whole run: its driver keeps an event loop running, and other files run their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
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


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    # On a busy machine a page takes long to write, and would be given again for ten times as long.
    monkeypatch.setattr(desk, "_GOOD_FOR", 0.0)
    monkeypatch.setattr(desk, "_PATIENCE_S", 600.0)
    made = Stage()
    made.add("train")
    made.add("report", Reason.RUNNING, message="2 of at least 2 members run")
    made.add("sweep", count=4)
    made.plan()
    yield made
    made.end()


Open = Callable[..., Page]


@pytest.fixture
def look(browser: Browser, stage: Stage) -> Iterator[Open]:
    """Open a page of the stage in a window of its own; nothing may be said on its console."""
    said: list[str] = []
    contexts = []

    def look(path: str = "/", *, quiet: bool = True, **window: object) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **window})
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        if quiet:
            page.on("console", lambda line: said.append(f"{line.type}: {line.text}"))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append("a dialog opened"), dialog.dismiss()))
        page.goto(stage.url + path)
        return page

    yield look
    for context in contexts:
        context.close()
    assert said == []
