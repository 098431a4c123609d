"""The what-if page: same wording and plan as the command line, and all input escaped."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import pytest
from werkzeug.test import TestResponse

from extender.kube.encode import dump
from extender.model.gang import GangKey
from extender.model.pod import Status
from extender.model.queue import Namespace
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.web import background
from extender.whatif import page
from tests.builders import pod
from tests.scene import gang
from tests.unit.cli.test_whatif import changes, document as told, plan, pods_on, seen
from tests.unit.web.pages.conftest import DashboardReader
from tests.unit.web.pages.test_dashboard import HOSTILE, parsed

NEW = {"name": "new", "namespace": "a", "cpu": "1"}


@pytest.fixture
def now() -> Snapshot:
    """Six of eight cpus are used, all by queue `left`; `late` waits there for four."""
    old = gang("old", pods_on("n0", "old", 3) + pods_on("n1", "older", 3), min_member=6)
    return seen(old, gang("late", 4, status=Status.PENDING))


@pytest.fixture
def whatif_reader(reader: DashboardReader, now: Snapshot) -> DashboardReader:
    reader.sees(now, make_plan(now, policy_parser.DEFAULT))
    return reader


def ask(reader: DashboardReader, **fields: object) -> TestResponse:
    """Repeat the request until there is an answer, as the page does by itself."""
    address = f"/whatif?{urlencode(fields, doseq=True)}"
    for _ in range(300):
        reply = reader.client.get(address)
        if reply.status_code != 202:
            return reply
        assert "data-unfinished" in reply.text
    raise AssertionError(f"no answer to {address}")


def answer(reader: DashboardReader, **fields: object) -> str:
    reply = ask(reader, **fields)
    assert reply.status_code == 200, reply.text
    return reply.text


def said(page: str) -> str:
    """Return the text below the form."""
    below = page.partition("</form>")[2]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", below)).split())


def table(page: str) -> dict[str, tuple[str, str]]:
    body = page.partition('<table class="rows changes">')[2].partition("</table>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", body)]
    plain = [[html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in row] for row in rows]
    return {name: (was, comes) for name, was, comes in filter(None, plain)}


def test_a_gang_that_fits_would_start_now_and_its_nodes_are_shown(
    whatif_reader: DashboardReader,
) -> None:
    page = answer(whatif_reader, **NEW, members=2, queue="right")

    assert "a/new would start now Admitted" in said(page)
    assert re.search(r"on n[01]", said(page))
    assert "Computed from plan 1" in said(page)


def test_a_gang_that_reclaims_capacity_shows_the_pods_it_would_evict(
    whatif_reader: DashboardReader,
) -> None:
    page = answer(whatif_reader, **NEW, members=4, queue="right")

    assert "a/new would wait WaitingForVictims" in said(page)
    assert "would be evicted for it a/old" in said(page)
    assert "would start with" in said(page)
    assert table(page)["pod a/old-0"] == ("stays", "evicted for a/new (reclaim)")
    assert table(page)["queue right"][0] == "deserves nothing"


def test_the_expected_start_is_shown_with_its_reason(
    reader: DashboardReader, now: Snapshot
) -> None:
    old = now.gangs[GangKey("a/old")]
    marks = {"gang-extender.io/duration": "2h"}
    said_so = replace(old, group=replace(old.group, lasts_s=7200.0, annotations=marks))
    declared = replace(now, gangs={**now.gangs, old.key: said_so})

    reader.sees(now, make_plan(now, policy_parser.DEFAULT))
    nobody_knows = said(answer(reader, **NEW, members=4, queue="left"))
    reader.sees(declared, make_plan(declared, policy_parser.DEFAULT))
    known = said(answer(reader, **NEW, members=3, queue="left"))
    at_once = said(answer(reader, **NEW, members=2, queue="right"))

    assert (
        "It would start: unknown, because a/old declares no duration and none was" in nobody_knows
    )
    assert re.search(r"It would start: about .* after a/old ends; it is expected to run 2 h", known)
    assert "It would start" not in at_once


def test_a_gang_of_higher_priority_starts_before_waiting_gangs(
    whatif_reader: DashboardReader,
) -> None:
    behind = said(answer(whatif_reader, **NEW, members=4, queue="left"))
    before = said(answer(whatif_reader, **NEW, members=4, queue="left", priority=1000))

    assert "ahead of it a/late" in behind
    assert "ahead of it" not in before


def test_a_gang_without_a_priority_has_that_of_the_default_class(
    reader: DashboardReader, now: Snapshot
) -> None:
    late = replace(now.gangs[GangKey("a/late")], priority=3)
    default = replace(now, gangs={**now.gangs, late.key: late}, usual_priority=5)
    reader.sees(default, make_plan(default, policy_parser.DEFAULT))

    usual = answer(reader, **NEW, members=4, queue="left")
    none = said(answer(reader, **NEW, members=4, queue="left", priority=0))

    assert "ahead of it" not in said(usual)
    assert "ahead of it a/late" in none
    assert re.search(r'name="priority" value="" placeholder="5"', usual)


def test_a_priority_counts_only_if_the_namespace_allows_its_class(
    reader: DashboardReader, now: Snapshot
) -> None:
    ranked = [
        pod(f"vip-{n}", on="n", status=Status.SUCCEEDED, priority=9, priority_class="high")
        for n in "ab"
    ]
    gangs = {**now.gangs, GangKey("a/vip"): gang("vip", ranked)}
    namespaces = {"a": Namespace(name="a", classes=frozenset({"high"}))}
    listed = replace(now, gangs=gangs, namespaces=namespaces)
    reader.sees(listed, make_plan(listed, policy_parser.DEFAULT))

    high = said(answer(reader, **NEW, members=4, queue="left", priority=9))
    unknown = said(answer(reader, **NEW, members=4, queue="left", priority=1000))

    assert "ahead of it" not in high
    assert "ahead of it a/late" in unknown
    assert "does not count in namespace a" in unknown


@pytest.mark.parametrize(
    "supposed",
    [
        {"without": ["node/n1"]},
        {"without": ["gang/a/old"]},
        {"with": ["queue/left.weight=3", "queue/right.guarantee.cpu=4"]},
        {"with": ["node/n0.unschedulable=true"], "without": ["pod/a/old-0"]},
        {"with": ["queue/right.priority=5"]},
    ],
)
def test_the_changes_are_those_of_the_command_line(
    whatif_reader: DashboardReader, now: Snapshot, tmp_path: Path, supposed: dict[str, list[str]]
) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(dump(now)))
    flags = [word for flag, each in supposed.items() for path in each for word in (flag, path)]
    typed = [f"--{word}" if word in supposed else word for word in flags]
    found = changes(told(plan("-f", str(saved), "-o", "json", *typed)))

    page = answer(whatif_reader, **supposed)
    assert table(page) == found
    assert found or "nothing changes" in said(page)


def test_the_form_keeps_its_values_but_no_control_characters(
    whatif_reader: DashboardReader,
) -> None:
    changes_ = "queue/left.weight=3\r\nqueue/right.weight=2"
    page = ask(
        whatif_reader, name="a\x1b[2J", without="node/\u202en\x00", **{"with": changes_}
    ).text

    assert ">queue/left.weight=3\nqueue/right.weight=2</textarea>" in page
    assert 'value="a\ufffd[2J"' in page
    assert ">node/\ufffdn\ufffd</textarea>" in page


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"with": "queue/lfet.weight=5"}, "there is no queue lfet; the nearest is left"),
        ({"without": "node/n9"}, "--without node/n9: there is no node n9; the nearest is n"),
        (
            {"with": "weight=5"},
            "--with 'weight=5' is not a known form; write it like queue/research",
        ),
        ({"with": "queue/left.weight=lots"}, "'lots' is not a whole number of at least 1"),
        ({"name": "old", "namespace": "a"}, "there is a gang a/old already; choose another name"),
        ({"name": "older", "namespace": "a", "members": 2}, "there is a pod a/older-0 already"),
        ({**NEW, "members": "many"}, "members: 'many' is not a number from 1 to 1000"),
        ({page.TOO_LONG: 1}, "too long for an address"),
    ],
)
def test_invalid_input_is_refused_in_one_sentence(
    whatif_reader: DashboardReader, fields: dict[str, object], sentence: str
) -> None:
    reply = ask(whatif_reader, **fields)

    assert reply.status_code == 422
    assert sentence in said(reply.text)


def test_a_cluster_that_is_too_large_is_refused_in_one_sentence(
    whatif_reader: DashboardReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_PODS", 9)
    reply = ask(whatif_reader, **NEW)

    assert reply.status_code == 422
    assert "10 pods are too many to plan twice for a page" in said(reply.text)
    assert "use gang-extender plan --live" in said(reply.text)


@pytest.mark.parametrize("field", ["name", "namespace", "queue", "cpu", "others", "with"])
def test_form_input_is_escaped(whatif_reader: DashboardReader, field: str) -> None:
    for name in HOSTILE:
        elements = parsed(ask(whatif_reader, **{**NEW, field: name}).text)

        assert "img" not in elements, name
        assert len(elements["script"]) == 1
        for each in (attribute for found in elements.values() for attribute in found):
            assert not [key for key in each if key.startswith("on") or key == "autofocus"]


def test_a_standby_and_an_extender_without_a_plan_answer_no_what_if(
    reader: DashboardReader,
) -> None:
    assert "There is no plan to show here yet" in answer(reader, **NEW)
    reader.leader = ["another one leads"]
    assert "another one leads; nothing is planned here" in answer(reader, **NEW)


def test_a_what_if_during_another_one_is_answered_as_busy(
    whatif_reader: DashboardReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background.BackgroundWorker, "ask", lambda *_: background.BUSY)
    reply = whatif_reader.client.get("/whatif?without=node/n0")

    assert reply.status_code == 503
    assert reply.headers["retry-after"] == "5"
    assert "busy with another question; try again in a moment" in said(reply.text)
