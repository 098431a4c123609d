"""`gang-extender simulate --html`: one self-contained page in which names are escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from extender.cli.main import main
from extender.model.pod import Shape
from extender.model.resources import Resources
from extender.sim import report
from extender.sim.workloads import Job, JobRun

ROOT = Path(__file__).parents[3]
SMALL = """
about: "Small & <b>bold</b> \\u202Eeman"
span: 10m
nodes: [{name: n, count: 2, has: {cpu: 4}}]
queues: [{name: red, weight: 2}, {name: blue}]
arrivals:
- {queue: red, name: r, count: 6, before: 2m, size: {between: [1, 4]}, each: {cpu: 1}, lasts: 1m}
- {queue: blue, name: b, count: 3, every: 30s, size: 8, each: {cpu: 1}, lasts: 30s}
mishaps: [{at: 1m, lose: n-1}, {at: 5m, restore: n-1}]
"""
OTHER = 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}, {name: predicates}]\n'


class ParsedPage(HTMLParser):
    """Parses the elements and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.words += f" {data}"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


def simulate(*words: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, words)])


def test_the_page_has_the_text_of_the_terminal_and_charts(small: Path, tmp_path: Path) -> None:
    told = simulate("-f", small, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    seen = ParsedPage(page)

    assert told.exit_code == 0, told.output
    for word in ("Waits", "Shares of queues and their deserved shares", "Utilisation", "red/"):
        assert word in seen.words
    assert "All 9, in order of arrival." in seen.words
    assert "10m 00s of 2 nodes and 9 gangs" in seen.words
    ended = re.search(r"gangs that ended +(\d+)", told.stdout)
    assert ended is not None
    assert f'<th scope="row">gangs that ended</th><td class="number">{ended[1]}</td>' in page
    assert {"polyline", "polygon", "rect", "title"} <= set(seen.names)
    assert seen.names.count("caption") == seen.names.count("table")


def test_the_page_loads_nothing_and_runs_no_script(small: Path, tmp_path: Path) -> None:
    simulate("-f", small, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    seen = ParsedPage(page)

    assert not {"script", "link", "img", "iframe", "object"} & set(seen.names)
    assert not [name for name, _ in seen.attributes if name in ("src", "href", "style")]
    assert not [name for name, _ in seen.attributes if name.startswith("on")]
    assert "url(" not in page
    assert "default-src 'none'; style-src 'sha256-" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "\u202e" not in page


def test_the_differences_between_policies_come_first(small: Path, tmp_path: Path) -> None:
    (tmp_path / "other.conf").write_text(OTHER)
    page = tmp_path / "page.html"
    told = simulate("-f", small, "--compare", tmp_path / "other.conf", "--html", page)
    words = ParsedPage(page.read_text()).words

    assert told.exit_code == 0, told.output
    titles = re.findall("what differs|the same in all", told.stdout)
    assert titles in (["what differs", "the same in all"], ["what differs"])
    places = [words.index(each) for each in ("What differs", "Waits", "Gangs")]
    assert places == sorted(places)
    assert words.count("Shares of queues and their deserved shares") == 2
    assert "other.conf" in words


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (".", "is a folder; name a file in it"),
        ("nowhere/page.html", "there is no folder"),
        ("x" * 300, "cannot be written: File name too long"),
    ],
)
def test_a_page_that_cannot_be_written_is_one_line_before_the_simulation(
    tmp_path: Path, place: str, said: str
) -> None:
    told = simulate("-f", "ml-day", "--html", tmp_path / place)

    assert told.exit_code == 2
    assert told.stdout == ""
    assert said in told.stderr
    assert told.stderr.count("\n") == 1


def run(number: int, waits: float) -> JobRun:
    job = Job(
        namespace="a",
        name=f"j{number}",
        queue="a",
        size=1,
        min_member=1,
        shape=Shape(requests=Resources({"cpu": 1})),
        lasts_s=1,
    )
    return JobRun(job, created_at=float(number), first_started_at=number + waits)


def test_a_sample_of_many_gangs_is_drawn_and_the_page_says_which() -> None:
    runs = [run(number, waits=number % 977) for number in range(5000)]
    chosen, said = report.choose(runs, end=10_000)

    assert len(chosen) <= report.MOST
    assert f"{len(chosen)} of 5,000" in said
    assert "one in 42 of the others" in said
    assert {976.0} < {each.first_started_at - each.created_at for each in chosen}
    assert [each.created_at for each in chosen] == sorted(each.created_at for each in chosen)


@pytest.mark.parametrize(
    ("span_s", "said"),
    [
        (40, ["0", "10s", "20s", "30s", "40s"]),
        (600, ["0", "2m", "4m", "6m", "8m", "10m"]),
        (5400, ["0", "15m", "30m", "45m", "1h", "1h15", "1h30"]),
        (86400, ["0", "6h", "12h", "18h", "24h"]),
        (7 * 86400, ["0", "24h", "2d", "3d", "4d", "5d", "6d", "7d"]),
    ],
)
def test_time_marks_are_round_and_few(span_s: float, said: list[str]) -> None:
    assert [each for _, each in report.marks(span_s)] == said


def test_hostile_text_is_escaped_in_the_page() -> None:
    hostile = "\"><script>alert('1')</script>\x00"

    page = report.page(hostile, hostile, "x" * 60_000, [])
    assert "<script" not in page
    assert "\"><script>alert('1')</script>\N{REPLACEMENT CHARACTER}" in ParsedPage(page).words
    assert page.count("x") < 500
