"""A Chromium for all tests of a file, and a stage with fresh windows for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from extender.model.reason import Reason
from extender.web import page_worker
from tests.nightly.browser.stage import Stage
from tests.nightly.browser.windows import Open, started, windows


# Not for the whole run: its driver keeps an event loop running, and other files run their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as opened:
        yield opened


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    # On a busy machine a page takes long to write, and would be given again for ten times as long.
    monkeypatch.setattr(page_worker, "_REUSE_FACTOR", 0.0)
    monkeypatch.setattr(page_worker, "_MAX_WAIT_S", 600.0)
    made = Stage()
    made.add("train")
    made.add("report", Reason.RUNNING, message="2 of at least 2 members run")
    made.add("sweep", count=4)
    made.plan()
    yield made
    made.end()


@pytest.fixture
def look(browser: Browser, stage: Stage) -> Iterator[Open]:
    """Open a page of the stage in a window of its own."""
    with windows(browser, stage.url) as look:
        yield look
