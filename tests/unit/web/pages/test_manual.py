"""The page of the manual about the dashboard says what is there."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from extender.reporting import departures, history
from extender.web.pages import gangs, sights, site

PAGE = (Path(__file__).parents[4] / "docs" / "dashboard.md").read_text()
SCRIPT = files("extender.web.pages").joinpath("assets/live.js").read_text("utf-8")


def test_every_section_has_its_row_and_its_chapter() -> None:
    named = re.findall(r"^\| \[[^]]+\]\(#[\w-]+\), `(/[^`]*)` \|", PAGE, re.MULTILINE)

    assert {f"/{path}" for path, _ in site._SECTIONS} == set(named) - {"/gangs/NAMESPACE/NAME"}
    assert {name for _, name in site._SECTIONS} <= set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE))


def test_whatever_may_be_in_the_address_of_gangs_is_told() -> None:
    table = PAGE.partition("| in the address | means |")[2].partition("\n\n")[0]

    assert set(re.findall(r"`(\w+)=", table)) == {*gangs.FIELDS, "page"}
    assert {*gangs.STANDINGS, *gangs.COLUMNS} <= set(re.findall(r"`(\w+)`", table))
    assert f"{gangs.SIZE}" == "50"
    assert "fifty gangs each" in table


def test_figures_of_the_page_are_those_of_the_code() -> None:
    assert "SILENT_MS = 9000" in SCRIPT
    assert "has not answered for nine seconds" in PAGE
    assert f"older than {sights.STALE_S:.0f} seconds" in PAGE
    assert f"The last {departures._MOST} pods" in PAGE
    assert f"the first {history._MOST_QUEUES} queues" in PAGE
    assert (history.EVERY_S, history._MOST_RESOURCES) == (30.0, 4)
    assert "a moment every half minute" in PAGE
    assert "the first four resources" in PAGE


def test_every_key_that_does_something_is_told() -> None:
    keys = set(re.findall(r'event\.key === "([^"]+)"', SCRIPT))
    chapter = PAGE.partition("## By keyboard")[2].partition("\n## ")[0]

    assert keys == {"/", "Escape", "j", "k", "[", "]"}
    assert {key for key in keys if f"`{key}`" in chapter} == keys - {"Escape"}
    assert "`Esc`" in chapter
