"""The pages: self-contained, with a strict content policy, and with all tenant input escaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files
from itertools import chain
from urllib.parse import quote

import pytest

from extender.model.reason import Reason
from tests.builders import NOW
from tests.scene import gang, plan, snapshot, verdict
from tests.unit.web.pages.conftest import DashboardReader
from tests.unit.web.test_api import DECIDED, SEEN

SECTIONS = ["/", "/gangs", "/nodes", "/holds", "/evictions", "/whatif", "/policy", "/health"]
PAGES = [*SECTIONS, "/gangs/a/train", "/gangs/a/nobody"]
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "' autofocus onfocus='alert(1)",
]


def parsed(page: str) -> dict[str, list[dict[str, str | None]]]:
    """Return the attributes of all elements of a page, by element name."""
    found: dict[str, list[dict[str, str | None]]] = {}

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.setdefault(tag, []).append(dict(attrs))

    Reader().feed(page)
    return found


def status_of(path: str) -> int:
    return 404 if path.endswith("nobody") else 200


def test_pages_load_nothing_from_other_hosts_and_have_no_inline_script(
    reader: DashboardReader,
) -> None:
    reader.sees(SEEN, DECIDED)
    for path in PAGES:
        reply = reader.client.get(path)
        rules = dict(
            part.strip().partition(" ")[::2]
            for part in reply.headers["content-security-policy"].split(";")
        )

        assert rules["default-src"] == "'none'", path
        assert rules["script-src"] == rules["style-src"] == "'self'"
        assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"
        assert rules["require-trusted-types-for"] == "'script'"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"
        assert not re.findall(r"https?://", reply.text), path
        assert not re.findall(r"<script(?![^>]* src=)|\sstyle=|\son\w+=", reply.text), path


def test_scripts_and_styles_insert_no_string_as_markup() -> None:
    script = files("extender.web.dashboard").joinpath("assets/live.js").read_text("utf-8")

    assert not re.findall(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)
    assert not re.findall(r"https?://", script)


def test_static_files_are_named_by_their_content_and_cached_for_ever(
    reader: DashboardReader,
) -> None:
    path = re.findall(r'"\./(assets/[^"]+\.css)"', reader.page("/"))[0]

    assert "immutable" in reader.client.get(path).headers["cache-control"]
    assert reader.client.get("/assets/old/style.css").headers["cache-control"] == "no-cache"
    assert reader.client.get("/assets/old/passwd").status_code == 404


def test_links_work_below_any_path_prefix(reader: DashboardReader) -> None:
    reader.sees(SEEN, DECIDED)
    for path in PAGES:
        page = reader.page(path, status_of(path))
        depth = path.count("/") - 1

        assert f'data-root="{"../" * depth or "./"}"' in page, path
        assert not re.findall(r'(?:href|src|action)="/', page), path


@pytest.mark.parametrize("name", HOSTILE)
def test_names_and_messages_written_by_tenants_are_escaped(
    reader: DashboardReader, name: str
) -> None:
    hostile = gang(name, 2, queue=name)
    said = verdict(f"a/{name}", Reason.INSUFFICIENT_CAPACITY, message=name, queue=name)
    reader.sees(snapshot(hostile), plan(said))
    for path in ("/", "/gangs", "/gangs?find={}", "/gangs/a/{}"):
        text = reader.client.get(path.format(quote(name, safe=""))).text
        elements = parsed(text)

        assert "img" not in elements, path
        assert len(elements["script"]) == 1
        assert "49" not in re.findall(r"<bdi>(.*?)</bdi>", text)
        for attributes in chain.from_iterable(elements.values()):
            assert not [each for each in attributes if each.startswith("on") or each == "autofocus"]
            assert not str(attributes.get("href", "")).startswith("javascript:")


def test_bidirectional_control_characters_are_shown_as_visible_marks(
    reader: DashboardReader,
) -> None:
    name = "evil\u202etxt.exe\u2066"
    reader.sees(snapshot(gang(name)), plan(verdict(f"a/{name}", message=f"\u202e{name}")))

    for path in ("/gangs", f"/gangs/a/{name}"):
        page = reader.page(path)
        assert "\u202e" not in page
        assert "\u2066" not in page
        assert "evil\N{REPLACEMENT CHARACTER}txt.exe" in page


def test_a_long_message_does_not_make_a_page_large(reader: DashboardReader) -> None:
    told = verdict("a/long", Reason.INSUFFICIENT_CAPACITY, message="x" * 60_000)
    reader.sees(snapshot(gang("long")), plan(told))

    assert len(reader.page("/gangs")) < 20_000
    assert len(reader.page("/gangs/a/long")) < 30_000


def test_a_deleted_gang_keeps_its_history_and_an_unknown_gang_is_not_found(
    reader: DashboardReader,
) -> None:
    reader.sees(SEEN, DECIDED)
    reader.sees(snapshot(now=NOW + 5), plan())

    page = reader.page("/gangs/a/train")
    assert "This gang was deleted" in page
    assert "InsufficientCapacity" in page
    assert "There is no <bdi>gang a/nobody" in reader.page("/gangs/a/nobody", 404)


@pytest.mark.parametrize("path", SECTIONS[:5])
def test_before_the_first_plan_a_page_shows_that_there_is_none(
    reader: DashboardReader, path: str
) -> None:
    reader.missing = ["pods: first list not complete"]

    page = reader.page(path)
    assert "There is no plan to show here yet" in page
    assert "pods: first list not complete" in page


@pytest.mark.parametrize("path", ["/", "/gangs", "/gangs/a/train"])
def test_a_standby_names_the_leader_and_shows_no_old_plan(
    reader: DashboardReader, path: str
) -> None:
    reader.sees(SEEN, DECIDED)
    reader.leader = ["other-1 leads"]

    page = reader.page(path)
    assert "other-1 leads; nothing is planned here" in page
    assert "InsufficientCapacity" not in page


def test_an_old_plan_is_shown_as_old(reader: DashboardReader) -> None:
    reader.sees(SEEN, DECIDED)
    assert "s old" not in reader.page("/")

    reader.now = NOW + 40
    reader.missing = ["pods: watch silent for 40 s"]
    page = reader.page("/")
    assert "the last plan is 40 s old" in page
    assert "pods: watch silent for 40 s" in page


def test_an_event_has_the_cycle_number_and_no_names(reader: DashboardReader) -> None:
    assert b'"cycle":0' in reader.context.heartbeat()

    reader.sees(SEEN, DECIDED)
    told = reader.context.heartbeat()
    assert told == b'data: {"cycle":7,"at":1000100.0,"troubled":false}\n\n'
    reader.missing = ["something"]
    assert reader.context.heartbeat() != told
    assert reader.page("/events").encode() == reader.context.heartbeat()


class ChangingList(list[str]):
    """A list whose truth value changes with every read, as when the leader changes."""

    is_odd = False

    def __bool__(self) -> bool:
        self.is_odd = not self.is_odd
        return self.is_odd


@pytest.mark.parametrize("path", ["/", "/gangs", "/gangs/a/train", "/nodes", "/holds"])
def test_a_lease_that_starts_while_a_page_is_rendered_breaks_nothing(
    reader: DashboardReader, path: str
) -> None:
    reader.sees(SEEN, DECIDED)
    reader.leader = ChangingList(["other-1 leads"])

    assert "There is no plan to show here yet" in reader.page(path)
