"""The page of a simulation in a real Chromium: drawn, silent, narrow, dark, and only text."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from extender.cli.main import main
from tests.nightly.browser.windows import brightness, overhang, serious_faults, windows
from tests.unit.sim.test_report import OTHER, SMALL


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
    window = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    with windows(browser, page_file.as_uri()) as look:
        page = look("", **window)

        expect(page.locator("h1")).to_contain_text("<script>")
        expect(page.locator("h2").first).to_have_text("What differs")
        assert page.locator("svg.plot").count() >= 6
        assert page.locator("svg.plot").first.bounding_box()["width"] > width / 5
        assert overhang(page) <= 0
        assert (brightness(page) < 150) == (scheme == "dark")
        # Only for axe, which is a script: the page itself allows none.
        assert serious_faults(look("", quiet=False, bypass_csp=True, **window)) == []
