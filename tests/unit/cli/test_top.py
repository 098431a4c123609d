"""`gang-extender top`: queues and gangs in one view."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console, RenderableType

from extender.cli.connect import Target
from extender.cli.listing import frames, top
from extender.cli.options import Filter
from extender.cli.output import Terminal
from extender.model.pod import Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.model.snapshot import Liveness, SchedulerStatus
from extender.planner.plan import HeldCapacity, HoldReason, QueueFigures, ShareFigures
from extender.status.history import GangHistory
from tests.builders import NOW
from tests.scene import gang, plan, snapshot, verdict

WIDE = {"COLUMNS": "160"}


@pytest.fixture(autouse=True)
def record_cycle(history: GangHistory) -> None:
    gangs = [gang("runs"), gang("waits", status=Status.PENDING)]
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
        verdict(
            "a/waits", Reason.INSUFFICIENT_CAPACITY, message="needs 2", min_member=2, members=2
        ),
    ]
    history.note(snapshot(*gangs), plan(*said, queues={"left": figures}, generation=9))


def test_queues_are_shown_with_deserved_used_and_requested(ops_url: str) -> None:
    said = CliRunner().invoke(top, ["--once", "--ops-url", ops_url], env=WIDE).output

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
        "1",
        "1",
    ]


def test_waiting_gangs_come_first_with_their_reason(ops_url: str) -> None:
    said = CliRunner().invoke(top, ["--once", "--ops-url", ops_url], env=WIDE).output

    assert "InsufficientCapacity: needs 2" in said
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

    said = CliRunner().invoke(top, ["--once", "--ops-url", ops_url], env={"COLUMNS": "200"}).output

    assert (
        "scheduler dead: no kube-scheduler has called for pods of scheduler name dead for 90 s"
        in (said)
    )
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

    said = CliRunner().invoke(top, ["--once", "--ops-url", ops_url], env=WIDE).output

    assert "idle: 3 cpu" in said
    assert "2 cpu guaranteed to queue gold, which does not let others borrow it" in said
    assert "100m cpu allocated to members of gang a/g0 that are still binding" in said
    assert "and 1 more" in said
    wide = CliRunner().invoke(top, ["-o", "wide", "--ops-url", ops_url], env=WIDE).output
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
    once = ["--once", "--ops-url", ops_url]
    assert "namespaces in queues" not in CliRunner().invoke(top, once, env=WIDE).output

    history.note(snapshot(), plan(shares={"left/b": share}))
    said = CliRunner().invoke(top, once, env=WIDE).output

    rows = [line.split() for line in said.splitlines()]
    assert ["left", "b", "1", "cpu", "3", "cpu", "4", "cpu", "5", "cpu"] in rows


def test_a_long_list_is_cut_and_counted(ops_url: str) -> None:
    said = (
        CliRunner().invoke(top, ["--once", "--gangs", "1", "--ops-url", ops_url], env=WIDE).output
    )

    assert "and 1 more gangs" in said
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
