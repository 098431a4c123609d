"""The report page of a simulation in Chromium: plots, narrow and dark windows, escaping."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.sync_api import Browser, expect

from extender.cli.main import main
from tests.nightly.browser.windows import brightness, overflow, serious_violations, windows
from tests.unit.sim.test_report import OTHER, SMALL


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    scenario, other = folder / "<script>alert(1)<script>.yaml", folder / "other.conf"
    scenario.write_text(SMALL)
    other.write_text(OTHER)
    page = folder / "page.html"
    words = ["-f", str(scenario), "--compare", str(other), "--html", str(page)]
    ran = CliRunner().invoke(main, ["simulate", *words])
    assert ran.exit_code == 0, ran.output
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_report_fits_the_window_and_has_no_serious_accessibility_violation(
    browser: Browser, page_file: Path, scheme: str, width: int
) -> None:
    window = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    with windows(browser, page_file.as_uri()) as open_page:
        page = open_page("", **window)

        expect(page.locator("h1")).to_contain_text("<script>")
        expect(page.locator("h2").first).to_have_text("What differs")
        assert page.locator("svg.plot").count() >= 6
        assert page.locator("svg.plot").first.bounding_box()["width"] > width / 5
        assert overflow(page) <= 0
        assert (brightness(page) < 150) == (scheme == "dark")
        # CSP is bypassed for axe, which is a script: the page itself allows none.
        assert serious_violations(open_page("", quiet=False, bypass_csp=True, **window)) == []
