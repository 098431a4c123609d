"""Names that tenants choose are printed as text: they never control the terminal."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from flask import Flask, Response

from extender import logs
from extender.cli.main import main
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.planner import policy_parser
from extender.planner.plan import QueueFigures
from extender.status.history import GangHistory
from extender.text import clean
from extender.web.api import Api
from tests.builders import NOW
from tests.scene import gang, plan, snapshot, verdict
from tests.unit.cli.conftest import serve
from tests.unit.cli.terminal import run_on_terminal

EVIL = "[/][link=http://x]y\x1b[2J\x9b31m\x1b]0;t\x07\r\u202e\u2066\u2028\x85\ufeff\nz"
AMOUNTS = ("deserved", "allocated", "requested", "borrowed", "own", "idle", "amounts", "each")
OUTPUTS = pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])


def is_text(told: str) -> bool:
    return all(clean(line) == line for line in told.split("\n"))


def with_hostile_text(thing: Any, key: str = "") -> Any:
    """Append hostile text to every string of a document, and to resource names."""
    if isinstance(thing, dict):
        named = key in AMOUNTS
        return {name + EVIL * named: with_hostile_text(each, name) for name, each in thing.items()}
    if isinstance(thing, list):
        return [with_hostile_text(each) for each in thing]
    return thing + EVIL if isinstance(thing, str) and key not in ("at", "liveness") else thing


def texts(thing: Any) -> Iterator[str]:
    """Yield every string of a document."""
    if isinstance(thing, str):
        yield thing
    for each in thing.values() if isinstance(thing, dict) else ():
        yield from texts(each)
    for each in thing if isinstance(thing, list) else ():
        yield from texts(each)


@pytest.fixture
def hostile_url(history: GangHistory) -> Iterator[str]:
    figures = QueueFigures(
        name="left",
        weight=2,
        deserved=Resources({"cpu": 4000, "x.io/card": 3}),
        allocated=Resources({"cpu": 2500, "pods": 2}),
        requested=Resources({"cpu": 6000}),
        share=0.625,
    )
    said = [verdict("a/runs"), verdict("a/waits", Reason.INSUFFICIENT_CAPACITY, message="needs 2")]
    gangs = [gang("runs"), gang("waits", status=Status.PENDING)]
    history.note(snapshot(*gangs), plan(*said, queues={"left": figures}, generation=9))
    app = Flask(__name__)
    app.register_blueprint(Api(history, lambda: policy_parser.DEFAULT, lambda: NOW).blueprint())

    @app.after_request
    def spoil(answer: Response) -> Response:
        answer.set_data(json.dumps(with_hostile_text(json.loads(answer.get_data()))))
        return answer

    with serve(app) as url:
        yield url


@OUTPUTS
@pytest.mark.parametrize(
    "words", [["top", "--once"], ["gangs", "-A"], ["queues"], ["explain", "a/waits"]], ids=str
)
def test_answers_of_an_extender_are_printed_as_text(
    hostile_url: str, words: list[str], output: str
) -> None:
    result = CliRunner().invoke(main, [*words, "-o", output, "--ops-url", hostile_url])

    assert result.exit_code == 0, result.output
    assert is_text(result.output)
    if output in ("json", "yaml"):
        assert any(each.endswith(EVIL) for each in texts(yaml.safe_load(result.stdout)))


def test_hostile_names_are_plain_text_on_a_terminal(
    hostile_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, only rich may write control sequences."""
    code, told = run_on_terminal(monkeypatch, 80, "gangs", "-A", "--ops-url", hostile_url)

    assert code == 0
    assert "waits" in told
    for steering in ("\x1b[2J", "\x1b]0", "\x07", "\x9b", "\u202e"):
        assert steering not in told


OBJECTS = [
    {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{EVIL}"},
     "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10", f"x{EVIL}": "1"}}},
    {"apiVersion": "v1", "kind": f"Strange{EVIL}", "metadata": {"name": "s"}},
    {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
     "metadata": {"name": f"q{EVIL}"}, "spec": {"parent": f"p{EVIL}"}},
    {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
     "metadata": {"name": f"g{EVIL}", "namespace": f"ns{EVIL}"},
     "spec": {"queue": f"gone{EVIL}", "minMember": 2, "priorityClassName": f"class{EVIL}"}},
    {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
     "metadata": {"name": "starts", "namespace": "a"}, "spec": {"minMember": 1}},
    {"apiVersion": "v1", "kind": "Pod",
     "metadata": {"name": f"pod{EVIL}", "namespace": "a", "uid": "u1",
                  "annotations": {"scheduling.k8s.io/group-name": "starts"}},
     "spec": {"schedulerName": "gang-scheduler",
              "containers": [{"resources": {"requests": {"cpu": "1"}}}]}},
]  # fmt: skip


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_names_of_saved_objects_are_printed_as_text(tmp_path: Path, output: str) -> None:
    file = tmp_path / "saved.yaml"
    file.write_text(yaml.safe_dump_all(OBJECTS))
    result = CliRunner().invoke(main, ["plan", "-f", str(file), "-o", output])

    assert result.exit_code == 0, result.output
    assert "[/][link=http://x]y" in result.stdout
    assert "passed over: 1 Strange[/][link" in result.stderr
    assert "not in the input: " in result.stderr
    assert "ParentMissing: queue q[/]" in result.stderr
    assert is_text(result.output)


def test_a_log_record_is_one_line_of_plain_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logs.set_up("warning")
    facts = {"gang": EVIL, "half": "\ud800"}
    logging.getLogger("x").warning("sentence", extra={"facts": facts})
    written = capsys.readouterr().err

    (line,) = written.splitlines()
    assert is_text(line)
    assert json.loads(line)["gang"] == EVIL


def test_an_invalid_name_is_never_completed(hostile_url: str) -> None:
    words = ["explain", "--ops-url", hostile_url]
    shell = ShellComplete(main, {"obj": 60.0}, "gang-extender", "_X")

    assert shell.get_completions(words, "a/") == []
