"""JSON and YAML documents have exactly the fields of the manual."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from extender.cli.main import main
from extender.cli.schema import VERSION
from extender.findings.finding import Finding
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.status.history import GangHistory
from tests.unit.cli.test_bad_input import calling_commands
from tests.unit.docs.tables.api import KINDS, PARTS, meanings
from tests.unit.docs.tables.commandline import DOCUMENTS, EXITS
from tests.unit.planner.reason_cases import SENTENCES
from tests.unit.replay.runs import recorded

ROOT = Path(__file__).parents[3]
CROWDED = str(ROOT / "manifests" / "examples" / "namespace-policy")
WORDS = {"plan": ["-f", CROWDED, "--unlisted-namespaces", "deny"], "explain": ["a/train"]}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("recording")
    recorded(folder, seconds=100)
    return str(folder)


@pytest.fixture(autouse=True)
def with_a_recording(recording: str) -> None:
    WORDS["replay"] = [recording]


@pytest.fixture(autouse=True)
def a_full_cluster(history: GangHistory, findings: list[Any]) -> None:
    for told in SENTENCES[:1]:
        before = told.before()
        history.note(before, make_plan(before, policy_parser.DEFAULT))
    findings[0] = [Finding("Queue", "team", "ParentMissing", "x")]


def printed(word: str, ops_url: str) -> dict[str, Any]:
    where = ["--ops-url", ops_url] if word in calling_commands() else []
    listing = ["-A"] if word == "gangs" else []
    words = [word, *WORDS.get(word, []), *where, *listing, "-o"]
    result, as_yaml = (CliRunner().invoke(main, [*words, each]) for each in ("json", "yaml"))
    # doctor finds problems: the finding above, and that there is no cluster.
    assert result.exit_code == (1 if word == "doctor" else 0), result.output
    found: dict[str, Any] = json.loads(result.stdout)
    assert yaml.safe_load(as_yaml.stdout) == found
    return found


@pytest.mark.parametrize(("word", "kind"), DOCUMENTS.items())
def test_a_document_has_exactly_the_documented_fields(word: str, kind: str, ops_url: str) -> None:
    found = printed(word, ops_url)

    assert (found.pop("apiVersion"), found.pop("kind")) == (VERSION, kind)
    assert [*found] == [*meanings(KINDS[kind])]


PLACES = [
    ("plan", "gangs", "gang"),
    ("gangs", "items", "gang"),
    ("top", "gangs", "gang"),
    ("plan", "queues", "queue"),
    ("queues", "items", "queue of a QueueList"),
    ("top", "queues", "queue of a QueueList"),
    ("plan", "shares", "share"),
    ("plan", "findings", "finding"),
    ("doctor", "found", "problem"),
    ("doctor", "not_checked", "not checked"),
]


@pytest.mark.parametrize(("word", "key", "part"), PLACES)
def test_items_of_a_list_have_exactly_the_documented_fields(
    word: str, key: str, part: str, ops_url: str
) -> None:
    found = printed(word, ops_url)[key]

    assert found
    for each in found:
        assert [*each] == [*meanings(PARTS[part][1])]


def test_every_command_has_exit_codes_and_every_document_a_command() -> None:
    assert {*EXITS} == {*main.commands}
    assert {*DOCUMENTS.values()} == {*KINDS}
