"""A chaos run of half a minute with a fixed seed; `make nightly ONLY=chaos` runs a long one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cluster.api import ApiError
from tests.cluster.candidates import Candidate
from tests.cluster.components import Scheduler
from tests.cluster.waiting import wait_for
from tests.nightly.cluster import chaos
from tests.nightly.cluster.chaos_lane import LaneRunner
from tests.nightly.cluster.chaos_machines import Machines, SteppedReplica
from tests.nightly.cluster.chaos_script import LANES, Lane, Turn, rounds
from tests.nightly.faults.record import (
    API_SERVER,
    LEADERS_LINK,
    Away,
    Back,
    Killed,
    Line,
    Ready,
    Record,
)
from tests.nightly.faults.record_builder import Story
from tests.nightly.faults.stepped_clock import PLANTED
from tests.nightly.faults.verdict import judge

SEED = 17
SECONDS = 30.0


def test_half_a_minute_of_chaos_breaks_no_rule(
    control_plane_binaries: None, tmp_path: Path
) -> None:
    record = Record()
    with chaos.cluster(tmp_path / "cluster", record) as candidates:
        run = chaos.run_script(candidates, record, SEED, SECONDS, each_s=SECONDS / 2)

    record.save(tmp_path / "record.jsonl")
    assert run.broken == [], chaos.summary(run)
    assert run.verdict.gangs_started > 5, chaos.summary(run)
    assert "1 of 1 rests before the end judged" in chaos.summary(run)


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_same_seed_gives_the_same_turns(lane: Lane) -> None:
    assert lane.script(1, 120) == lane.script(1, 120)
    assert lane.script(1, 120) != lane.script(2, 120)
    assert lane.script(1, 60) == lane.script(1, 120)[: len(lane.script(1, 60))]


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_ten_minutes_have_every_kind_of_turn(lane: Lane) -> None:
    assert {turn.kind for turn in lane.script(1, 600)} == set(lane.kinds)


def test_rounds_contain_all_turns_in_order() -> None:
    script = LANES[0].script(1, 100)
    parts = rounds(script, 100, 40)

    assert [turn for part in parts for turn in part] == script
    assert [round(sum(turn.after_s for turn in part)) for part in parts] == [40, 40, 20]
    assert rounds([], 100, 40) == [[], [], []]
    assert rounds(script, 100, 400) == [script]


def test_command_to_repeat_a_run_names_its_lanes() -> None:
    run = replace(made_up(breaks=True), lanes=("tenants", "administrators"))

    assert "--seed 17 --lanes tenants administrators" in chaos.summary(run)
    assert "--lanes" not in chaos.summary(made_up(breaks=True))


def test_lane_runs_turns_in_order_and_records_failed_ones() -> None:
    record, done = Record(), list[str]()
    lane = LaneRunner("lane", record)

    def act(facts: dict[str, str]) -> None:
        done.append(facts["name"])
        lane.later(0.01, lambda: done.append(f"{facts['name']} later"))
        if facts["name"] == "b":
            raise ApiError(409, "PUT /b", "it was changed")

    lane.start([Turn(0.0, "do", {"name": name}) for name in "ab"] + [Turn(0.1, "end")],
               {"do": act, "end": lambda facts: None})  # fmt: skip
    lane.join()
    assert done == ["a", "b", "a later", "b later"]
    assert lane.error is None
    assert [len(lane.played), *lane.failed] == [3, Turn(0.0, "do", {"name": "b"})]
    assert [line.text for line in record.of(Line)] == [
        "lane: do (name a)", "lane: do (name b)",
        "lane: could not: PUT /b: 409 it was changed", "lane: end",
    ]  # fmt: skip


def test_failed_lane_has_its_error() -> None:
    lane = LaneRunner("lane", Record())
    lane.start([Turn(0.0, "unknown")], {})
    lane.join()

    assert isinstance(lane.error, KeyError)


def nothing(since: float, until: float) -> float:
    return 0.0


def made_up(*, breaks: bool, taken: Callable[[float, float], float] = nothing) -> chaos.Run:
    story = (
        Story().note(Killed(at=0, who="ha-a"), Ready(at=6, who="ha-a")).gang("t", 3, 3).after(20)
    )
    story.record.line("machines: leader frozen")
    story.after(1).bind("t-0", *(() if breaks else ("t-1", "t-2"))).after(20)
    story.record.line("over")
    return chaos.Run(17, 60, story.record, judge(story.record), [Turn(0, "gang")], [3.0], taken)


def test_summary_has_the_turns_before_a_breach_and_the_command_to_repeat_it() -> None:
    run = made_up(breaks=True)
    told = chaos.summary(run)

    assert len(run.broken) == 1
    assert "  -1.0 s machines: leader frozen" in told
    assert "again: python -m tests.nightly.cluster chaos --seconds 60 --seed 17" in told
    assert "| gang in part | 1 |" in told


def test_summary_counts_failed_turns() -> None:
    gang, edit = Turn(0, "gang"), Turn(1, "group edited")
    run = replace(made_up(breaks=False), played=[gang, gang, edit], failed=[edit])

    assert "3 turns, 1 of them could not be done; " in chaos.summary(run)
    assert "done: 2 gang, 0 group edited\n" in chaos.summary(run)
    assert "60 s: 1 turns; " in chaos.summary(made_up(breaks=False))


def test_summary_has_the_time_that_does_not_count_for_partial_gangs() -> None:
    run = made_up(breaks=False)
    # The last span ends after the record: no more than the run's time may not count.
    for who, at, until in ((API_SERVER, 0, 10), (LEADERS_LINK, 8, 12), (LEADERS_LINK, 40, 41)):
        run.record.note(Away(at=at, who=who), Back(at=until, who=who))

    assert "the API server was away for 10.0 s\n" in chaos.summary(run)
    assert "for gangs in part 15.0 s of 41.0 s did not count\n" in chaos.summary(run)


class Sleeper(SteppedReplica):
    """A program that does nothing."""

    def command(self) -> list[str | Path]:
        return ["sleep", "60"]

    def is_ready(self) -> bool:
        return True


@dataclass
class FakeCandidates:
    """Candidates without a cluster, of which the second leads."""

    extenders: list[Sleeper]

    def __post_init__(self) -> None:
        folder = self.extenders[0].log_file.parent
        scheduler = Scheduler("scheduler", folder, folder, config=folder)
        scheduler.command = self.extenders[0].command  # type: ignore[method-assign]
        scheduler.is_ready = lambda: True  # type: ignore[method-assign]
        self.plane = SimpleNamespace(programs=[scheduler], apiserver=scheduler)
        no_cable: Any = None
        self.members = [FakeCandidate(each.name, each, no_cable) for each in self.extenders]

    def leader(self) -> Candidate:
        return self.members[1]


class FakeCandidate(Candidate):
    """A candidate that never leads."""

    @property
    def leads(self) -> bool:
        return False


@pytest.fixture
def candidates(tmp_path: Path) -> Iterator[FakeCandidates]:
    """Two running programs."""
    with ExitStack() as running:
        extenders = [
            running.enter_context(Sleeper(name, tmp_path, kubeconfig=tmp_path)) for name in "ab"
        ]
        fake = FakeCandidates(extenders)
        yield fake
        fake.plane.apiserver.kill()


def test_crashed_extender_is_a_failure_and_one_that_a_turn_stopped_is_not(candidates: Any) -> None:
    machines = Machines(candidates, Record())
    first, second = candidates.extenders

    machines.acts["both killed"]({})
    machines.acts["leader ended"]({})
    first.terminate()
    machines.restore()
    assert machines.complaints == []

    for crashed in (first, second):
        os.kill(crashed.pid, signal.SIGKILL)
        wait_for(lambda crashed=crashed: crashed.has_crashed, 5, "it is gone")
    machines.acts["leader killed"]({})
    machines.restore()
    assert machines.complaints == ["b had ended by itself", "a had ended by itself"]
    assert first.is_running
    assert second.is_running


def test_restarts_of_the_worker_are_counted_in_the_log(tmp_path: Path) -> None:
    begins, ends = '{"event": "extender starts"}\n', '{"event": "the lease is not ours"}\n'

    def restarted(*starts: str) -> int:
        """Write a log with these starts, and return the counted restarts."""
        program = Sleeper("a", tmp_path, kubeconfig=tmp_path)
        program.log_file.write_text("")
        for written in starts:
            program.start()
            program.kill()
            with program.log_file.open("a") as log:
                log.write(written)
        return program.worker_restarts

    assert restarted() == 0
    assert restarted(begins + ends, begins) == 0
    assert restarted(ends, begins) == 0, "killed before it wrote anything"
    assert restarted(ends, begins + ends + begins) == 1, "starts are counted separately"
    assert restarted(3 * begins, 2 * begins) == 3


def test_restart_of_the_worker_is_a_failure(tmp_path: Path) -> None:
    program = Sleeper("a", tmp_path, kubeconfig=tmp_path)
    plane: Any = SimpleNamespace(programs=[program])
    program.start()
    program.kill()
    program.log_file.write_text(2 * '{"event": "extender starts"}\n')

    assert [*chaos.ended_by_itself(plane)] == ["a lost its worker 1 times"]


NOTHING: Any = SimpleNamespace(restore=lambda: True)


class Pauses:
    """Pauses with a given response of the extender, and short timeouts."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.record = Record()
        self.says: object = None
        wait = chaos.wait_for
        patch.setattr(chaos, "http_json", lambda *asked: self.says)
        patch.setattr(
            chaos, "wait_for",
            lambda check, seconds, what, **more: wait(check, min(seconds, 0.05), what),
        )  # fmt: skip
        patch.setattr(chaos, "_QUIET_S", 0.0)

    def rest(self) -> list[str]:
        leader = SimpleNamespace(pod="a", extender=SimpleNamespace(ops_url=""))
        candidates: Any = SimpleNamespace(leader=lambda: leader)
        return [*chaos.pause(candidates, self.record, NOTHING, NOTHING)]

    def told(self) -> str:
        made = replace(made_up(breaks=False), record=self.record)
        return next(line for line in chaos.summary(made).splitlines() if "rests" in line)


def test_pause_without_reported_reservations_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests = Pauses(monkeypatch)

    assert rests.rest() == ["a reported no reservations in a pause"]
    rests.says = {"items": []}
    assert rests.rest() == []
    assert rests.told() == "1 of 2 rests before the end judged"


def test_pause_with_changes_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = Pauses(monkeypatch)
    rests.says = {"items": []}
    rests.rest()
    monkeypatch.setattr(chaos, "_QUIET_S", 1e9)

    assert rests.rest() == []
    assert rests.told() == "1 of 2 rests before the end judged"
    assert "changes never ended" in [line.text for line in rests.record.of(Line)]


def test_end_with_changes_counts_as_late() -> None:
    run = made_up(breaks=False)
    before = run.late
    run.record.line("changes never ended in the end")

    assert run.late == [*before, "changes never ended in the end"]


def test_command_to_repeat_a_run_names_the_planted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLANTED, "one-short")
    again = (
        "again: python -m tests.nightly.cluster chaos --seconds 60 --seed 17 --planted one-short"
    )
    assert again in chaos.summary(made_up(breaks=True))


def test_slow_restart_is_reported_and_breaks_no_rule() -> None:
    run = made_up(breaks=False)

    assert (run.broken, run.late) == ([], ["ha-a was ready again after 6.0 s"])
    assert "ha-a was ready again after 6.0 s" in chaos.summary(run)


def test_steal_time_is_reported_and_excuses_nothing() -> None:
    run = made_up(breaks=True, taken=lambda since, until: 0.9 if since < 6 else 0.4)
    told = chaos.summary(run)

    assert "the host took 90% of the processors\n" in told
    assert "ha-a was ready again after 6.0 s, while the host took 90% of the processors" in told
    assert ", while the host took 40% of the processors:\n" in told
    assert len(run.broken) == 1


def test_usage_of_nodes_is_summed_from_the_snapshot() -> None:
    def pod(node: str, phase: str = "Running") -> dict[str, object]:
        requests = {"cpu": "1", "memory": "1Ki"}
        spec = {"nodeName": node, "containers": [{"resources": {"requests": requests}}]}
        return {"kind": "Pod", "spec": spec, "status": {"phase": phase}}

    node = {"kind": "Node", "spec": {}}
    waiting = {"kind": "Pod", "spec": {"containers": []}, "status": {"phase": "Pending"}}
    listed = [node, pod("n1"), pod("n1", "Pending"), pod("n1", "Succeeded"), pod("n2"), waiting]

    assert chaos.taken_by_node(listed) == {
        "n1": {"cpu": 2000, "memory": 2048 * 1000},
        "n2": {"cpu": 1000, "memory": 1024 * 1000},
    }
