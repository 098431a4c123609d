"""The page of a simulation in a real Chromium: drawn, silent, narrow, dark, and only text."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from extender.cli.main import main
from tests.browser.conftest import PATIENCE_MS
from tests.sim.test_page import OTHER, SMALL


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    scenario, other = folder / "<script>alert(1)<script>.yaml", folder / "other.conf"
    scenario.write_text(SMALL)
    other.write_text(OTHER)
    page = folder / "page.html"
    words = ["-f", str(scenario), "--compare", str(other), "--html", str(page)]
    told = CliRunner().invoke(main, ["simulate", *words])
    assert told.exit_code == 0, told.output
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_drawn_and_axe_finds_no_serious_fault(
    browser: Browser, page_file: Path, scheme: str, width: int
) -> None:
    said: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.on("console", lambda line: said.append(line.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append("a dialog opened"), dialog.dismiss()))
    page.goto(page_file.as_uri())

    expect(page.locator("h1")).to_contain_text("<script>")
    expect(page.locator("h2").first).to_have_text("What differs")
    assert page.locator("svg.plot").count() >= 6
    assert page.locator("svg.plot").first.bounding_box()["width"] > width / 5
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, colour[4:-1].split(","))) < 150) == (scheme == "dark")
    assert said == []
    context.close()

    # Only for axe, which is a script: the page itself allows none.
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    page.goto(page_file.as_uri())
    found = Axe().run(page).response["violations"]
    context.close()

    assert [
        (each["id"], [node["html"][:200] for node in each["nodes"]][:5])
        for each in found
        if each["impact"] in ("serious", "critical")
    ] == []
