"""Half a minute of chaos, always the same; `make chaos` plays longer ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.record import Killed, Line, Ready, Record
from tests.faults.stepped_clock import PLANTED
from tests.faults.stories import Story
from tests.faults.verdict import judge

from . import chaos
from .api import ApiError
from .chaos_lane import Playing
from .chaos_script import LANES, Lane, Turn, rounds

SEED = 17
SECONDS = 30.0


def test_nothing_breaks_in_half_a_minute_of_chaos(
    control_plane_binaries: None, tmp_path: Path
) -> None:
    record = Record()
    with chaos.staged(tmp_path / "cluster", record) as rivals:
        run = chaos.play(rivals, record, SEED, SECONDS, each_s=SECONDS / 2)

    record.save(tmp_path / "record.jsonl")
    assert run.broken == [], chaos.told(run)
    assert run.verdict.gangs_started > 5, chaos.told(run)
    assert "all came to rest 1 times before the end" in chaos.told(run)


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
    assert "again: python -m tests.cluster chaos --seconds 60 --seed 17" in told
    assert "| gang in part | 1 |" in told


def test_what_was_planted_is_planted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLANTED, "one-short")
    again = "again: python -m tests.cluster chaos --seconds 60 --seed 17 --planted one-short"
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
