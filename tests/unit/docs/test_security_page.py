"""What docs/security.md says is not told is not told, and what it says is open is open."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from extender.cli.saved import objects
from extender.web.dump import dump
from tests.unit.docs.written import TESTS, named
from tests.unit.web.conftest import World

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "security.md").read_text()
#: Sections that say what somebody tries, what stops them and which test shows it.
ACTORS = (
    "A tenant",
    "Somebody on the pod network",
    "Who may read the operations port",
    "Somebody with rights in `gang-system`",
    "A stolen client certificate",
    "A compromised node",
)

POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: a, annotations: {note: whisper}}
spec:
  schedulerName: gang-scheduler
  volumes: [{name: v, secret: {secretName: hush}}]
  containers:
  - name: main
    image: registry.example/hidden
    command: [covert]
    env: [{name: TOKEN, value: hunter2}]
    volumeMounts: [{name: v, mountPath: /hush}]
"""


@pytest.mark.parametrize("word", ["whisper", "hush", "hidden", "covert", "TOKEN", "hunter2"])
def test_what_a_pod_runs_is_not_in_the_snapshot(tmp_path: Path, word: str) -> None:
    saved = tmp_path / "pod.yaml"
    saved.write_text(POD)
    told = json.dumps(dump(objects.read([str(saved)], frozenset({"gang-scheduler"})).snapshot()))

    assert '"p"' in told
    assert word not in told


def test_the_role_reads_no_secrets_and_neither_creates_nor_deletes_what_people_write() -> None:
    things = yaml.safe_load_all((ROOT / "manifests" / "base" / "rbac.yaml").read_text())
    rules = [rule for thing in things for rule in thing.get("rules", ())]
    granted = {
        (what, verb) for rule in rules for what in rule["resources"] for verb in rule["verbs"]
    }

    assert ("pods/binding", "create") in granted
    assert not {what for what, _ in granted} & {"secrets", "configmaps", "*"}
    written = {"pods", "podgroups", "queues"}
    assert not {(w, v) for w, v in granted if w in written} & {
        (w, v)
        for w in written
        for v in ("create", "delete", "deletecollection", "update", "patch", "*")
    }


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(text: str, heads: str) -> list[list[str]]:
    """Give the cells of the table in *text* whose head begins so."""
    table = re.search(rf"^\|{heads}.*?\n\|[-|]+\n((?:\|.*\n?)+)", text, re.MULTILINE)
    assert table is not None, heads
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[1].splitlines()]


@pytest.mark.parametrize("actor", ACTORS)
def test_what_an_actor_tries_is_stopped_by_something_that_a_test_shows(actor: str) -> None:
    tried = rows(section(actor), "[^|]*tries to")

    for attempt, stopped, shown in tried:
        assert attempt
        assert bool(named(shown)) is not stopped.startswith("**nothing**"), attempt
        assert named(shown) <= TESTS, attempt


def test_every_test_that_the_page_names_exists() -> None:
    assert len(named(PAGE)) > 60
    assert named(PAGE) - TESTS == set()


def test_every_actor_of_the_overview_has_a_section() -> None:
    led_to = re.findall(r"^\| \[[^]]+\]\(#([\w-]+)\)", section("Who could want it"), re.MULTILINE)
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}

    assert len(led_to) == 7
    assert set(led_to) <= anchors


def test_the_page_says_what_every_page_of_the_operations_port_tells() -> None:
    told = {re.sub("[`]", "", row[0]) for row in rows(section(ACTORS[2]), " page \\| tells")}
    with World() as world:
        served = {rule.rule for rule in world.runtime.pages.url_map.iter_rules()}

    shown = {re.sub(r"<(?:\w+:)?(\w+)>", lambda part: part[1].upper(), each) for each in served}
    assert told == shown
