"""Fixtures: Chromium for a test file, and a server with new windows for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from extender.model.reason import Reason
from extender.web import page_worker
from tests.nightly.browser.page_server import PageServer
from tests.nightly.browser.windows import Open, started, windows


# Not for the session: its driver runs an event loop, and other test files run their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as opened:
        yield opened


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PageServer]:
    # A page is cached for a multiple of the time that it took, which is long on a busy machine.
    monkeypatch.setattr(page_worker, "_REUSE_FACTOR", 0.0)
    monkeypatch.setattr(page_worker, "_MAX_WAIT_S", 600.0)
    made = PageServer()
    made.add("train")
    made.add("report", Reason.RUNNING, message="2 of at least 2 members run")
    made.add("sweep", count=4)
    made.plan()
    yield made
    made.stop()


@pytest.fixture
def open_page(browser: Browser, server: PageServer) -> Iterator[Open]:
    """Opens a page of the server in a new window."""
    with windows(browser, server.url) as open_page:
        yield open_page
