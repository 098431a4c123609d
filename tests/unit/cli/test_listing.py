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
from io import StringIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console, RenderableType

from extender.cli.connect import Target
from extender.cli.listing import frames
from extender.cli.main import main
from extender.cli.options import Filter
from extender.cli.output import Terminal
from extender.model.gang import Gang
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.model.snapshot import Liveness, SchedulerStatus
from extender.planner.plan import HeldCapacity, HoldReason, QueueFigures, ShareFigures
from extender.status.history import GangHistory
from tests.builders import NOW
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
def run(ops_url: str) -> object:
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


def test_queues_are_listed_with_the_number_of_waiting_gangs(run) -> None:
    (queue,) = json.loads(run("queues", "-o", "json").stdout)["items"]

    assert (queue["name"], queue["waiting"], queue["running"]) == ("left", 2, 1)
    assert run("queues").stdout.splitlines() == [
        "NAME  WEIGHT  SHARE  WAITING  RUNNING  DESERVED          USED       WANTED",
        "left       2    62%        2        1  4 cpu 1Gi memory  2500m cpu  6 cpu",
    ]


@pytest.mark.parametrize("words", [["gangs", "-A"], ["top"], ["explain", "a/waits"]])
def test_a_pipe_gets_the_whole_text_without_colours(run, words: list[str]) -> None:
    result = run(*words)

    assert result.exit_code == 0, result.output
    assert LONG.strip() in result.stdout
    assert "\x1b" not in result.stdout
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


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


def top(ops_url: str, *words: str) -> str:
    given = ["top", "--once", "--ops-url", ops_url, *words]
    return CliRunner().invoke(main, given, env={"COLUMNS": "200"}).output


def test_top_shows_queues_and_then_gangs_waiting_ones_first(ops_url: str) -> None:
    said = top(ops_url)

    assert "queues, cycle 9" in said
    row = next(line for line in said.splitlines() if line.strip().startswith("left"))
    assert row.split() == [
        "left",
        "2",
        "4",
        "cpu",
        "1Gi",
        "memory",
        "2500m",
        "cpu",
        "-",
        "6",
        "cpu",
        "62%",
        "2",
        "1",
    ]
    assert f"InsufficientCapacity: {LONG.strip()}" in said
    assert said.index("a/waits") < said.index("a/runs")


def test_a_silent_kube_scheduler_is_named_and_one_without_pods_is_not(
    ops_url: str, history: GangHistory
) -> None:
    silent = SchedulerStatus(
        name="dead", liveness=Liveness.SILENT, called_at=NOW - 90, quiet_since=NOW - 90
    )
    never = SchedulerStatus(name="unused", liveness=Liveness.UNHEARD)
    seen = replace(snapshot(gang("runs")), now=NOW, schedulers={"dead": silent, "unused": never})
    history.note(seen, plan(verdict("a/runs")))

    said = top(ops_url)

    called = "no kube-scheduler has called for pods of scheduler name dead for 90 s"
    assert f"scheduler dead: {called}" in said
    assert "unused" not in said


def test_unused_capacity_is_shown_with_what_it_is_held_for(
    ops_url: str, history: GangHistory
) -> None:
    room = Resources({"cpu": 3000})
    kept = (
        HeldCapacity(HoldReason.GUARANTEED, "gold", Resources({"cpu": 2000})),
        *(
            HeldCapacity(HoldReason.BINDING, f"a/g{number}", Resources({"cpu": 100}))
            for number in range(5)
        ),
    )
    history.note(snapshot(), plan(unused=room, held=kept))

    said = top(ops_url)

    assert "idle: 3 cpu" in said
    assert "2 cpu guaranteed to queue gold, which does not let others borrow it" in said
    assert "100m cpu allocated to members of gang a/g0 that are still binding" in said
    assert "and 1 more" in said
    wide = top(ops_url, "-o", "wide")
    assert "100m cpu allocated to members of gang a/g4" in wide


def test_each_share_of_a_namespace_in_a_queue_is_one_line(
    ops_url: str, history: GangHistory
) -> None:
    share = ShareFigures(
        queue="left",
        namespace="b",
        limit=Resources({"cpu": 4000}),
        guarantee=Resources({"cpu": 1000}),
        allocated=Resources({"cpu": 3000}),
        requested=Resources({"cpu": 5000}),
    )
    assert "namespaces in queues" not in top(ops_url)

    history.note(snapshot(), plan(shares={"left/b": share}))
    said = top(ops_url)

    rows = [line.split() for line in said.splitlines()]
    assert ["left", "b", "1", "cpu", "3", "cpu", "4", "cpu", "5", "cpu"] in rows


def test_a_long_list_is_cut_and_counted(ops_url: str) -> None:
    said = top(ops_url, "--gangs", "1")

    assert "and 3 more gangs" in said
    assert "a/runs" not in said


def test_the_live_view_follows_the_plan(ops_url: str, history: GangHistory) -> None:
    pictures = frames(Target(ops_url=ops_url), Filter(), 10, Terminal())
    before = seen(next(pictures))
    history.note(snapshot(), plan(generation=10))
    after = seen(next(pictures))

    assert "queues, cycle 9" in before
    assert "queues, cycle 10" in after


def test_the_live_view_survives_a_restart_of_the_extender() -> None:
    pictures = frames(Target(ops_url="http://127.0.0.1:1"), Filter(), 10, Terminal())

    assert [seen(next(pictures)).strip() for _ in range(2)] == [
        "no extender answers at http://127.0.0.1:1; forward its port, or name another with"
        " --ops-url"
    ] * 2


def seen(picture: RenderableType) -> str:
    console = Console(width=160, record=True, file=StringIO())
    console.print(picture)
    return console.export_text()
