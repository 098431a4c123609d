"""The form of `demo --keep` in Chromium: a submitted gang runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.nightly.browser.windows import serious_violations, windows


@pytest.fixture
def demo_url() -> Iterator[str]:
    words = ("demo", "--keep", "--story", "deadlock", "--speed", "50")
    with subprocess.Popen(
        [sys.executable, "-m", "extender", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as running:
        assert running.stdout is not None
        output = ""
        while "Submit gangs" not in output:
            line = running.stdout.readline()
            assert line, output
            output += line
        found = re.search(r"http://127\.0\.0\.1:\d+/", output)
        assert found, output
        yield found[0]
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_submitted_gang_runs(browser: Browser, demo_url: str, width: int, scheme: str) -> None:
    window = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    with windows(browser, demo_url) as open_page:
        page = open_page("", **window)
        page.get_by_role("link", name="Submit a gang").click()
        page.get_by_label("name").fill("hello-1")
        page.get_by_label("seconds of work").fill("600")
        page.get_by_role("button", name="submit").click()

        expect(page.get_by_role("row", name=re.compile("hello-1.*running"))).to_be_visible()
        assert serious_violations(page, runOnly=["wcag2a", "wcag2aa"]) == []
