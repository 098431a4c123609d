"""Half a minute of chaos, always the same; `make nightly ONLY=chaos` plays a long one."""

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
from tests.nightly.cluster.chaos_lane import Playing
from tests.nightly.cluster.chaos_machines import Machines, SteppedReplica
from tests.nightly.cluster.chaos_script import LANES, Lane, Turn, rounds
from tests.nightly.faults.record import (
    API_SERVER,
    LEADERS_CABLE,
    Away,
    Back,
    Killed,
    Line,
    Ready,
    Record,
)
from tests.nightly.faults.stepped_clock import PLANTED
from tests.nightly.faults.stories import Story
from tests.nightly.faults.verdict import judge

SEED = 17
SECONDS = 30.0


def test_nothing_breaks_in_half_a_minute_of_chaos(
    control_plane_binaries: None, tmp_path: Path
) -> None:
    record = Record()
    with chaos.staged(tmp_path / "cluster", record) as candidates:
        run = chaos.play(candidates, record, SEED, SECONDS, each_s=SECONDS / 2)

    record.save(tmp_path / "record.jsonl")
    assert run.broken == [], chaos.told(run)
    assert run.verdict.gangs_started > 5, chaos.told(run)
    assert "1 of 1 rests before the end judged" in chaos.told(run)


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_a_seed_gives_the_same_turns_again_and_another_seed_others(lane: Lane) -> None:
    assert lane.script(1, 120) == lane.script(1, 120)
    assert lane.script(1, 120) != lane.script(2, 120)
    assert lane.script(1, 60) == lane.script(1, 120)[: len(lane.script(1, 60))]


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)
def test_ten_minutes_have_every_kind_of_turn(lane: Lane) -> None:
    assert {turn.kind for turn in lane.script(1, 600)} == set(lane.kinds)


def test_all_turns_of_a_script_are_in_one_round_or_another_each_in_its_time() -> None:
    script = LANES[0].script(1, 100)
    parts = rounds(script, 100, 40)

    assert [turn for part in parts for turn in part] == script
    assert [round(sum(turn.after_s for turn in part)) for part in parts] == [40, 40, 20]
    assert rounds([], 100, 40) == [[], [], []]
    assert rounds(script, 100, 400) == [script]


def test_lanes_that_were_not_all_are_named_where_a_run_is_played_again() -> None:
    run = replace(made_up(breaks=True), lanes=("tenants", "administrators"))

    assert "--seed 17 --lanes tenants administrators" in chaos.told(run)
    assert "--lanes" not in chaos.told(made_up(breaks=True))


def test_a_lane_plays_its_turns_in_order_and_tells_what_could_not_be_done() -> None:
    record, done = Record(), list[str]()
    lane = Playing("lane", record)

    def act(facts: dict[str, str]) -> None:
        done.append(facts["name"])
        lane.later(0.01, lambda: done.append(f"{facts['name']} undone"))
        if facts["name"] == "b":
            raise ApiError(409, "PUT /b", "somebody was faster")

    lane.start([Turn(0.0, "do", {"name": name}) for name in "ab"] + [Turn(0.1, "end")],
               {"do": act, "end": lambda facts: None})  # fmt: skip
    lane.join()
    assert done == ["a", "b", "a undone", "b undone"]
    assert lane.error is None
    assert [len(lane.played), *lane.undone] == [3, Turn(0.0, "do", {"name": "b"})]
    assert [line.text for line in record.of(Line)] == [
        "lane: do (name a)", "lane: do (name b)",
        "lane: could not: PUT /b: 409 somebody was faster", "lane: end",
    ]  # fmt: skip


def test_a_lane_that_fails_says_why() -> None:
    lane = Playing("lane", Record())
    lane.start([Turn(0.0, "unheard of")], {})
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


def test_a_run_is_told_with_the_turns_before_a_breach_and_how_to_play_it_again() -> None:
    run = made_up(breaks=True)
    told = chaos.told(run)

    assert len(run.broken) == 1
    assert "  -1.0 s machines: leader frozen" in told
    assert "again: python -m tests.nightly.cluster chaos --seconds 60 --seed 17" in told
    assert "| gang in part | 1 |" in told


def test_turns_that_could_not_be_done_are_told_as_such() -> None:
    gang, edit = Turn(0, "gang"), Turn(1, "group edited")
    run = replace(made_up(breaks=False), played=[gang, gang, edit], undone=[edit])

    assert "3 turns, 1 of them could not be done; " in chaos.told(run)
    assert "done: 2 gang, 0 group edited\n" in chaos.told(run)
    assert "60 s: 1 turns; " in chaos.told(made_up(breaks=False))


def test_it_is_told_for_how_long_nobody_was_held_to_gangs_in_part() -> None:
    run = made_up(breaks=False)
    # Settled only after the end: a run cannot have more that does not count than it has.
    for who, at, until in ((API_SERVER, 0, 10), (LEADERS_CABLE, 8, 12), (LEADERS_CABLE, 40, 41)):
        run.record.note(Away(at=at, who=who), Back(at=until, who=who))

    assert "the API server was away for 10.0 s\n" in chaos.told(run)
    assert "for gangs in part 15.0 s of 41.0 s did not count\n" in chaos.told(run)


class Sleeper(SteppedReplica):
    """A program of ours that does nothing."""

    def command(self) -> list[str | Path]:
        return ["sleep", "60"]

    def is_ready(self) -> bool:
        return True


@dataclass
class Stood:
    """Programs without a cluster, of which the second one leads."""

    extenders: list[Sleeper]

    def __post_init__(self) -> None:
        folder = self.extenders[0].log_file.parent
        scheduler = Scheduler("scheduler", folder, folder, config=folder)
        scheduler.command = self.extenders[0].command  # type: ignore[method-assign]
        scheduler.is_ready = lambda: True  # type: ignore[method-assign]
        self.plane = SimpleNamespace(programs=[scheduler], apiserver=scheduler)
        no_cable: Any = None
        self.sides = [Led(each.name, each, no_cable) for each in self.extenders]

    def leader(self) -> Candidate:
        return self.sides[1]


class Led(Candidate):
    """One side, of which nobody is asked whether it leads."""

    @property
    def leads(self) -> bool:
        return False


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Two programs that run, and who sees to them."""
    with ExitStack() as running:
        extenders = [
            running.enter_context(Sleeper(name, tmp_path, kubeconfig=tmp_path)) for name in "ab"
        ]
        stood: Any = Stood(extenders)
        yield Machines(stood, Record())
        stood.plane.apiserver.kill()


def test_who_has_ended_by_itself_is_complained_about_and_whom_a_turn_ends_is_not(
    machines: Machines,
) -> None:
    first, second = (side.extender for side in machines._rivals.members)

    machines.acts["both killed"]({})
    machines.acts["leader ended"]({})
    first.terminate()
    machines.calm()
    assert machines.complaints == []

    for fallen in (first, second):
        os.kill(fallen.pid, signal.SIGKILL)
        wait_for(lambda fallen=fallen: fallen.has_crashed, 5, "it is gone")
    machines.acts["leader killed"]({})
    machines.calm()
    assert machines.complaints == ["b had ended by itself", "a had ended by itself"]
    assert first.is_running
    assert second.is_running


def test_a_worker_that_its_arbiter_began_again_is_seen_in_the_log(tmp_path: Path) -> None:
    begins, ends = '{"event": "extender starts"}\n', '{"event": "the lease is not ours"}\n'

    def restarted(*starts: str) -> int:
        """Write what each of our starts came to."""
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
    assert restarted(ends, begins + ends + begins) == 1, "what one lacks another does not hide"
    assert restarted(3 * begins, 2 * begins) == 3


def test_what_the_arbiter_began_again_is_a_complaint(tmp_path: Path) -> None:
    program = Sleeper("a", tmp_path, kubeconfig=tmp_path)
    plane: Any = SimpleNamespace(programs=[program])
    program.start()
    program.kill()
    program.log_file.write_text(2 * '{"event": "extender starts"}\n')

    assert [*chaos._by_itself(plane)] == ["the worker of a ended by itself 1 times"]


NOTHING: Any = SimpleNamespace(calm=lambda: True)


class Rests:
    """A rest with an extender that says what it is told to, and little patience."""

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
        return [*chaos._rest(candidates, self.record, NOTHING, NOTHING)]

    def told(self) -> str:
        made = replace(made_up(breaks=False), record=self.record)
        return next(line for line in chaos.told(made).splitlines() if "rests" in line)


def test_a_rest_in_which_nobody_says_what_is_promised_is_complained_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rests = Rests(monkeypatch)

    assert rests.rest() == ["a said nothing of what it promises when all was quiet"]
    rests.says = {"items": []}
    assert rests.rest() == []
    assert rests.told() == "1 of 2 rests before the end judged"


def test_a_rest_that_never_got_quiet_is_not_told_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rests = Rests(monkeypatch)
    rests.says = {"items": []}
    rests.rest()
    monkeypatch.setattr(chaos, "_QUIET_S", 1e9)

    assert rests.rest() == []
    assert rests.told() == "1 of 2 rests before the end judged"
    assert "it never got quiet" in [line.text for line in rests.record.of(Line)]


def test_an_end_that_never_got_quiet_is_told_as_slow() -> None:
    run = made_up(breaks=False)
    before = run.slow
    run.record.line("it never got quiet in the end")

    assert run.slow == [*before, "it never got quiet in the end"]


def test_what_was_planted_is_planted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLANTED, "one-short")
    again = (
        "again: python -m tests.nightly.cluster chaos --seconds 60 --seed 17 --planted one-short"
    )
    assert again in chaos.told(made_up(breaks=True))


def test_who_was_slow_to_be_ready_again_is_told_and_breaks_no_promise_about_gangs() -> None:
    run = made_up(breaks=False)

    assert (run.broken, run.slow) == ([], ["ha-a was ready again after 6.0 s"])
    assert "ha-a was ready again after 6.0 s" in chaos.told(run)


def test_what_the_host_took_is_told_and_excuses_nothing() -> None:
    run = made_up(breaks=True, taken=lambda since, until: 0.9 if since < 6 else 0.4)
    told = chaos.told(run)

    assert "the host took 90% of the processors\n" in told
    assert "ha-a was ready again after 6.0 s, while the host took 90% of the processors" in told
    assert ", while the host took 40% of the processors:\n" in told
    assert len(run.broken) == 1


def test_what_a_snapshot_takes_of_a_node_is_added_up() -> None:
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
