"""`gang-extender gangs`, `queues` and `top`: what is listed, at which width, in which format."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from extender.cli.main import main
from extender.model.gang import Gang
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.planner.plan import QueueFigures
from extender.status.history import GangHistory
from tests.scene import gang, plan, snapshot, verdict
from tests.unit.cli.terminal import run_on_terminal

ROOT = Path(__file__).parents[3]
LONG = "needs 2 x 1 cpu; " + "1 slot free on a node with a long name, " * 3 + "so it waits"


def of_b(name: str) -> Gang:
    made = gang(name)
    return replace(made, group=replace(made.group, namespace="b"))


@pytest.fixture(autouse=True)
def record_cycle(history: GangHistory) -> None:
    gangs = [gang("runs"), gang("waits", status=Status.PENDING), *map(of_b, ("other", "[/]"))]
    figures = QueueFigures(
        name="left",
        weight=2,
        deserved=Resources({"cpu": 4000, "memory": 1 << 30}),
        allocated=Resources({"cpu": 2500, "pods": 2}),
        requested=Resources({"cpu": 6000}),
        share=0.625,
    )
    said = [
        verdict("a/runs"),
        verdict("a/waits", Reason.INSUFFICIENT_CAPACITY, message=LONG, min_member=2, members=2),
        verdict("b/other", Reason.QUEUE_NOT_FOUND, queue="gone"),
        verdict("b/[/]", Reason.QUEUE_NOT_FOUND, message="a\x1b[31mb"),
    ]
    history.note(snapshot(*gangs), plan(*said, queues={"left": figures}, generation=9))


@pytest.fixture
def run(ops_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    def typed(*words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--ops-url", ops_url])

    return typed


def names(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [f"{each['namespace']}/{each['name']}" for each in json.loads(result.stdout)["items"]]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["-A"], ["a/waits", "b/[/]", "b/other", "a/runs"]),
        (["-n", "a"], ["a/waits", "a/runs"]),
        (["-n", "a", "--verdict", "waiting"], ["a/waits"]),
        (["-A", "--queue", "gone"], ["b/other"]),
        (["-A", "--reason", "insufficientcapacity"], ["a/waits"]),
        (["-A", "--reason", "InsufficientCapacity", "--reason", "Running"], ["a/waits", "a/runs"]),
        ([], []),
    ],
)
def test_gangs_are_chosen_by_namespace_queue_reason_and_verdict(
    run, words: list[str], found: list[str]
) -> None:
    listed = names(run("gangs", "-o", "json", *words))

    assert sorted(listed) == sorted(found)
    assert "a/runs" not in listed[:-1]


def test_a_table_names_the_namespace_only_where_there_are_several(run) -> None:
    one, all_ = (run("gangs", *words).stdout.splitlines()[0] for words in (("-n", "a"), ("-A",)))

    assert one.split() == ["NAME", "QUEUE", "MEMBERS", "VERDICT", "REASON", "WHY"]
    assert all_.split()[0] == "NAMESPACE"


def test_wide_has_more_columns(run) -> None:
    heads = run("gangs", "-A", "-o", "wide").stdout.splitlines()[0].split()

    assert {"PHASE", "SHARE", "NODES"} <= {*heads}
    assert "BORROWED" in run("queues", "-o", "wide").stdout.splitlines()[0]


def test_an_empty_list_is_a_message_on_stderr_and_no_error(run) -> None:
    result = run("gangs")

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "no such gangs in namespace default\n"


def test_an_unknown_reason_is_refused_with_the_nearest_one(run) -> None:
    result = run("gangs", "--reason", "InsuficientCapacity")

    assert result.exit_code == 2
    assert (
        "--reason 'InsuficientCapacity' is not a reason; did you mean InsufficientCapacity"
        in result.output
    )


def test_queues_are_listed_with_the_number_of_waiting_gangs(run) -> None:
    (queue,) = json.loads(run("queues", "-o", "json").stdout)["items"]

    assert (queue["name"], queue["waiting"], queue["running"]) == ("left", 2, 1)
    assert run("queues").stdout.splitlines() == [
        "NAME  WEIGHT  SHARE  WAITING  RUNNING  DESERVED          USED       WANTED",
        "left       2    62%        2        1  4 cpu 1Gi memory  2500m cpu  6 cpu",
    ]


@pytest.mark.parametrize("words", [["gangs", "-A"], ["queues"], ["top"], ["explain", "a/waits"]])
def test_yaml_and_json_output_are_the_same(run, words: list[str]) -> None:
    as_json = json.loads(run(*words, "-o", "json").stdout)
    as_yaml = yaml.safe_load(run(*words, "-o", "yaml").stdout)

    assert as_json["apiVersion"] == "gang-extender.io/v1"
    as_json.pop("lasted_s", None), as_yaml.pop("lasted_s", None)
    assert as_json == as_yaml


@pytest.mark.parametrize("words", [["gangs", "-A"], ["top"], ["explain", "a/waits"]])
def test_a_pipe_gets_the_whole_text_without_colours(run, words: list[str]) -> None:
    result = run(*words)

    assert result.exit_code == 0, result.output
    assert LONG.strip() in result.stdout
    assert "\x1b" not in result.stdout
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


def test_names_are_not_markup_and_do_not_control_the_terminal(run) -> None:
    for word in ("gangs", "top"):
        told = run(word, "-A").stdout

        assert "[/]" in told
        assert "a\ufffd[31mb" in told


def test_top_of_one_namespace_shows_its_gangs(run) -> None:
    told = run("top", "-n", "b").stdout

    assert "b/other" in told
    assert "a/waits" not in told


@pytest.mark.parametrize("columns", [50, 200])
@pytest.mark.parametrize("words", [["gangs", "-A"], ["top", "--once"], ["queues"]], ids=" ".join)
def test_no_text_is_lost_at_any_terminal_width(
    ops_url: str, monkeypatch: pytest.MonkeyPatch, columns: int, words: list[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    code, told = run_on_terminal(monkeypatch, columns, *words, "--ops-url", ops_url)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", told).replace("\r", "").splitlines()

    assert code == 0, told
    assert all(len(line) <= columns for line in lines)
    wanted = ["left", "62%"] if words == ["queues"] else ["waits", *LONG.split()]
    for word in wanted:
        assert word in " ".join(lines).split() or f"a/{word}" in " ".join(lines).split()


def test_terminals_get_colours_unless_no_color_is_set(
    ops_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = run_on_terminal(monkeypatch, 200, "gangs", "-A", "--ops-url", ops_url)[1]
    monkeypatch.setenv("NO_COLOR", "1")
    plain = run_on_terminal(monkeypatch, 200, "gangs", "-A", "--ops-url", ops_url)[1]

    assert "\x1b[33m" in coloured
    assert "\x1b[33m" not in plain


def test_ctrl_c_ends_the_live_view_and_restores_the_screen(ops_url: str) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"}
    command = [sys.executable, "-m", "extender", "top", "--ops-url", ops_url]
    told = b""
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs) as ran:
        os.close(theirs)
        try:
            while b"queues, cycle 9" not in told:
                told += os.read(ours, 4096)
            ran.send_signal(signal.SIGINT)
            with suppress(OSError):  # Linux reports a closed other end like this
                while chunk := os.read(ours, 4096):
                    told += chunk
            assert ran.wait() == 0
        finally:
            ran.kill()
            os.close(ours)

    assert told.count(b"\x1b[?1049h") == told.count(b"\x1b[?1049l") == 1
