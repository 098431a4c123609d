"""A sample of the crash points, and a plant: the whole walk is `python -m tests.nightly.crash`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.faults import Fault, FaultPoint, faults_of
from tests.cluster.proxy import ProxyLoop
from tests.nightly.crash import walk
from tests.nightly.crash.excuses import (
    GIVEN_UP,
    NO_END,
    NOT_JUDGED,
    SLOW,
    TIMED,
    WRONG_END,
    are_all_of_time,
)
from tests.nightly.crash.forked import ForkedExtender
from tests.nightly.crash.lane import BIND_TIMEOUT_S, Lane, Rolling
from tests.nightly.crash.planting import WHERE, seen_as, tries_of, unseen
from tests.nightly.crash.scenes import SCENES, Scene
from tests.nightly.crash.stage import Stage, WrongEnd
from tests.nightly.crash.table import figures, table
from tests.nightly.crash.walk import Lanes, Outcome, Try, choose, given_up, points_of, say
from tests.nightly.faults.planted import PLANTS
from tests.nightly.faults.record import Asked, CutOff, Killed, Promised, Ready, Record
from tests.nightly.faults.verdict import RULES, returns
from tests.nightly.faults.witness import EXTENDER

GANG = Scene("gang", lambda stage: None)
#: What a walk beside other tests may cost.
SAMPLE = 40
SECONDS = 60
LANES = 2
#: One of those that chaos knows too, and one of the walk alone.
SOME_PLANTS = ["unknown-is-failed", "no-ceiling"]
IN_PART = "gang in part: crash/train: in part for 6.0 s"
BESIDE_OTHERS_S = 10.0
READY_BESIDE_OTHERS_S = 30.0


def probed(**calls: int) -> Outcome:
    sites = {site.replace("_", "-"): count for site, count in calls.items()}
    return Outcome(Try(GANG), was_met=True, took_s=1.0, calls=sites)


def test_every_fault_at_every_call_is_a_point_and_the_pulse_is_none() -> None:
    found = points_of([probed(bind=2, pulse=5, heard_pods=1)])

    points = {each.point for each in found}
    assert points == {
        *(FaultPoint("bind", number, fault) for number in (1, 2) for fault in faults_of("bind")),
        *(FaultPoint("event-pods", 1, fault) for fault in faults_of("event-pods")),
    }


def test_a_choice_takes_of_every_kind_and_is_the_same_for_the_same_seed() -> None:
    found = points_of([probed(bind=9, event=1)])
    kinds = len(faults_of("bind")) + len(faults_of("event"))

    chosen = choose(found, limit=kinds, seed=3)

    assert len({(each.point.site, each.point.fault) for each in chosen if each.point}) == kinds
    assert choose(found, limit=kinds, seed=3) == chosen
    assert choose(found, limit=kinds, seed=4) != chosen
    assert {
        str(each.point) for each in choose(found, sites=["event"], faults=["409", "reset"])
    } == {
        "event#1 409",
        "event#1 reset",
    }


def test_the_table_tells_points_and_breaches_and_leaves_out_what_did_not_happen() -> None:
    lost = Try(GANG, FaultPoint("bind", 1, Fault.LOST))
    outcomes = [
        Outcome(lost, True, 1.0, ["partial gang"], partial_s=6.0, ready_again_s=[2.0]),
        Outcome(lost, True, 3.0),
        Outcome(Try(GANG, FaultPoint("event", 1, Fault.UNAVAILABLE)), False, 1.0),
    ]

    assert table(outcomes).splitlines() == [
        "| call | answer-lost | points | breaches |",
        "|---|---|---|---|",
        "| bind | **1 of 2** | 2 | 1 |",
        "| all | **1 of 2** | 2 | 1 |",
    ]
    assert "2 points in 1 scenes, 1 with a breach; 1 more did not come" in figures(outcomes)
    assert "longest in part: 6.00 s" in figures(outcomes)


def test_a_restart_is_told_apart_from_one_that_was_disturbed_besides() -> None:
    killed, silent = (
        Try(GANG, FaultPoint("list-nodes", 1, fault))
        for fault in (Fault.KILL_BEFORE, Fault.TIMEOUT)
    )
    outcomes = [
        Outcome(killed, True, 1.0, ready_again_s=[2.0, 1.0]),
        Outcome(killed, True, 1.0, ready_again_s=[0.5]),
        Outcome(silent, True, 30.0, ready_again_s=[20.7]),
    ]

    assert figures(outcomes).splitlines()[2:] == [
        "ready again after SIGKILL, its modules read before: 3 times, median 1.0 s,"
        f" at most 2.0 s ({killed})",
        "where a call of its start failed besides: 1 times, median 20.7 s,"
        f" at most 20.7 s ({silent})",
    ]
    assert "where a call of its start" not in figures(outcomes[:2])


@pytest.mark.parametrize(
    ("taken", "words", "disturbed"),
    [
        ([0.6, 0.0], [], 1),
        ([0.6, 0.6, 0.6, 0.0], [IN_PART], 2),
        ([0.2, 0.0], [IN_PART], 0),
    ],
    ids=["played again", "not for ever", "not if the machine was ours"],
)
def test_what_broke_while_the_host_took_too_much_is_played_again_and_told(
    monkeypatch: pytest.MonkeyPatch, taken: list[float], words: list[str], disturbed: int
) -> None:
    shares = iter(taken)

    def play(*_: object) -> Outcome:
        share = next(shares)
        return Outcome(Try(GANG), True, 1.0, [IN_PART] if share else [], taken=share)

    monkeypatch.setattr(walk, "play", play)
    with ProxyLoop() as board:
        outcome = walk.play_calmly(Lane(Path(), board), Try(GANG))

    assert outcome.breaches == words
    assert outcome.disturbed == [f"the host took 60%: {IN_PART}"] * disturbed
    told = figures([outcome])
    assert ("1 broke while the host took more than 25% of" in told) == bool(disturbed)


def test_what_no_lack_of_time_explains_is_told_at_once_though_the_host_took_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [IN_PART, "room leaked: crash-1: gang-extender counts more or less than there is"]
    plays = iter([Outcome(Try(GANG), True, 1.0, words, taken=0.9)])
    monkeypatch.setattr(walk, "play", lambda *_: next(plays))
    with ProxyLoop() as board:
        outcome = walk.play_calmly(Lane(Path(), board), Try(GANG))

    assert (outcome.breaches, outcome.disturbed) == (words, [])


def test_only_promises_of_seconds_are_excused() -> None:
    excused = {
        "gang in part",
        "gang torn by the scheduler",
        "waits for ever",
        "hold without an answer",
    }

    assert {rule for rule in RULES if are_all_of_time([f"{rule}: train: late"])} == excused
    assert TIMED - excused == {NO_END, GIVEN_UP, SLOW}
    assert not are_all_of_time([f"{WRONG_END}: 4 of train bound"])
    assert not are_all_of_time([f"{NOT_JUDGED}: room leaked"])


class Empty:
    """A lane on which nothing happens."""

    def __init__(self) -> None:
        self.record = Rolling()
        self.log: list[str] = []

    def begin(self, _: str) -> None:
        self.record.begin()

    def tracebacks(self, _: object) -> list[str]:
        return self.log

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_a_scene_of_which_a_rule_has_nothing_to_judge_is_a_breach() -> None:
    lane: Any = Empty()
    asked = Asked(at=0.0, call=1, hook="filter")
    leaks = Promised(at=0.0, who="gang-extender", taken={})

    def noting(*moments: Any) -> list[str]:
        return walk.play(lane, Try(Scene("made up", lambda _: lane.record.note(*moments)))).breaches

    assert noting(leaks) == [
        "not judged: bind that was lost",
        "not judged: bind that was told as failed",
        "not judged: hold without an answer",
    ]
    assert noting(asked) == ["not judged: room leaked"]
    assert noting(asked, leaks) == []


ENOUGH = (Asked(at=0.0, call=1, hook="filter"), Promised(at=0.0, who="gang-extender", taken={}))


@pytest.mark.parametrize(
    ("fault", "took_s", "words"),
    [
        (Fault.KILL_BEFORE, 5.5, ["slow to be ready again: gang-extender after 5.5 s"]),
        (Fault.KILL_AFTER, 4.9, []),
        (Fault.TIMEOUT, 20.7, []),
        (None, 5.5, ["slow to be ready again: gang-extender after 5.5 s"]),
    ],
    ids=["killed", "soon", "and a list is never answered", "killed by the scene"],
)
def test_who_is_killed_and_nothing_else_must_soon_be_ready_again(
    fault: Fault | None, took_s: float, words: list[str]
) -> None:
    lane: Any = Empty()
    returned = (Killed(at=1.0, who=EXTENDER), Ready(at=1.0 + took_s, who=EXTENDER))
    scene = Scene("made up", lambda _: lane.record.note(*ENOUGH, *returned))

    point = FaultPoint("list-pods", 1, fault) if fault else None
    assert walk.play(lane, Try(scene, point)).breaches == words


def test_a_traceback_is_told_and_never_excused() -> None:
    lane: Any = Empty()
    lane.log.append("Traceback (most recent call last):")
    told = walk.play(lane, Try(Scene("made up", lambda _: lane.record.note(*ENOUGH)))).breaches

    assert told == ["traceback: Traceback (most recent call last):"]
    assert not are_all_of_time(told)


def test_a_traceback_of_an_earlier_play_is_not_told_again(tmp_path: Path) -> None:
    with ProxyLoop() as board:
        lane = Lane(tmp_path, board)
    lane.extender = ForkedExtender("gang-extender", tmp_path, kubeconfig=tmp_path)
    log, line = lane.extender.log_file, "worker: Traceback (most recent call last):"
    assert lane.written() == 0
    log.write_text(f"{line}\n  File\n")

    assert lane.tracebacks(0) == [line]
    before = lane.written()
    assert lane.tracebacks(before) == []
    log.write_text(f"{log.read_text()}all is well\n{line}\n")
    assert lane.tracebacks(before) == [line]


class Dying:
    """An extender that takes a while to be gone, and is ready soon after."""

    pid, ports = -1, (1,)

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def kill(self) -> None:
        time.sleep(0.05)

    def start(self) -> None:
        lane: Any = self._lane
        lane._ends.set()
        lane._was_killed.set()


def test_readiness_is_timed_from_the_kill_and_not_from_when_it_was_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def die(*_: object) -> None:
        time.sleep(0.05)

    monkeypatch.setattr("os.killpg", die)
    with ProxyLoop() as board:
        lane: Any = Lane(Path(), board)
    lane.extender = Dying(lane)
    lane.kill()
    lane._keep()

    notes = lane.record.of(Killed)
    assert len(notes) == 3
    assert [each.killed_at for each in returns(lane.record)] == [notes[0].at]


def test_who_started_and_must_not_is_told_apart_from_who_came_too_late() -> None:
    lane: Any = Empty()

    def breaches(why: Exception) -> list[str]:
        def ends(_: Stage) -> None:
            raise why

        return walk.play(lane, Try(Scene("made up", ends))).breaches

    assert breaches(AssertionError("not within 60 s")) == ["no proper end: not within 60 s"]
    assert breaches(WrongEnd("4 of train bound")) == ["wrong end: 4 of train bound"]


def test_what_the_extender_counts_as_taken_is_asked_again_and_an_error_if_never_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([None, {"crash-0": {"cpu": 1000}}, {}])

    def taken(_: Lane) -> Any:
        answer = next(answers, None)
        assert answer is not None, "the snapshot does not answer"
        return answer

    monkeypatch.setattr(Lane, "holds_nothing", True)
    monkeypatch.setattr(Lane, "taken", taken)
    with ProxyLoop() as board:
        lane = Lane(Path(), board)
        lane.wait_until_quiet(5)
        assert [each.taken for each in lane.record.of(Promised)] == [{}]

        lane.begin("another page")
        with pytest.raises(AssertionError, match="the snapshot does not answer"):
            lane.wait_until_quiet(0)

    assert lane.record.of(Promised) == []


def test_a_bind_that_kube_scheduler_gave_up_was_not_answered() -> None:
    record = Record(
        [
            *(Asked(at=0.0, call=number, hook="bind", uid=f"u{number}") for number in (1, 2, 3)),
            Asked(at=0.0, call=4, hook="filter", uid="u4"),
            *(CutOff(at=BIND_TIMEOUT_S, call=number, by_caller=True) for number in (1, 4)),
            CutOff(at=3.0, call=2, by_caller=True),
            CutOff(at=BIND_TIMEOUT_S, call=3, by_caller=False),
        ]
    )

    assert given_up(record) == ["hold given up by kube-scheduler: u1 after 21.0 s"]


def test_every_plant_has_a_spot_where_it_must_show() -> None:
    assert set(WHERE) == set(PLANTS)
    assert {each.plant for each in tries_of(list(WHERE))} == set(PLANTS)
    seen, missed = (Outcome(each, True, 1.0, words) for each, words in zip(
        tries_of(["one-short", "never-given-back"]), ([IN_PART], []), strict=True))  # fmt: skip
    assert unseen([seen, missed], ["one-short", "never-given-back"]) == ["never-given-back"]
    assert [seen_as(each) for each in (seen, missed)] == ["gang in part", "NOT SEEN"]


@pytest.mark.parametrize("plant", WHERE)
def test_a_plant_is_not_seen_by_what_else_may_break(plant: str) -> None:
    (tried,) = tries_of([plant])
    shows = next(iter(WHERE[plant][0].shows))

    for words, missed in ([f"{NO_END}: not within 25 s"], [plant]), ([f"{shows}: of train"], []):
        assert unseen([Outcome(tried, True, 1.0, words)], [plant]) == missed


def test_what_a_plant_has_leaked_is_judged_though_its_scene_has_no_end() -> None:
    lane: Any = Empty()
    leaked = Promised(at=0.0, who=EXTENDER, taken={"crash-0": {"cpu": 1000}})
    lane.wait_until_quiet = lambda: lane.record.note(leaked)

    def ends(_: Stage) -> None:
        raise AssertionError("not within 25 s")

    told = walk.play(lane, Try(Scene("made up", ends), plant="never-given-back")).breaches
    assert [words.partition(": ")[0] for words in told] == [NO_END, "room leaked"]


def test_a_plant_is_told_with_each_rule_that_it_breaks() -> None:
    over = [f"queue over its ceiling: crash-limited: cpu {number} of 4" for number in (5, 6)]
    outcome = Outcome(Try(GANG), True, 1.0, ["no proper end: 2 are bound, too", *over])

    assert seen_as(outcome) == "no proper end, queue over its ceiling"


@pytest.fixture(scope="module")
def lanes(
    control_plane_binaries: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lanes]:
    with Lanes(tmp_path_factory.mktemp("crash"), LANES) as running:
        yield running


def test_a_sample_of_all_crash_points_breaks_no_promise(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests run beside it, each with a control plane: whoever was killed is back later than
    # where the walk has the machine to itself and judges by what we promise.
    patient = replace(walk.BOUNDS, whole_s=BESIDE_OTHERS_S, ready_s=READY_BESIDE_OTHERS_S)
    monkeypatch.setattr(walk, "BOUNDS", patient)
    quick = [each for each in SCENES if each.name in ("gang", "late", "preempt")]
    clean = lanes.run([Try(scene) for scene in quick], say)
    # What takes its time is left to the whole walk.
    found = [
        each
        for each in points_of(clean)
        if each.point and each.point.fault not in (Fault.SILENT, Fault.TIMEOUT)
    ]
    outcomes = lanes.run(
        choose(found, limit=SAMPLE, seed=17), say, until=time.monotonic() + SECONDS
    )

    broken = [f"{each.tried}: {words}" for each in (*clean, *outcomes) for words in each.breaches]
    assert broken == []
    assert sum(each.was_met for each in outcomes) > len(outcomes) // 2 > 0


def test_members_are_held_when_their_queue_is_closed_or_their_node_cordoned(lanes: Lanes) -> None:
    scenes = [each for each in SCENES if each.name in ("closed", "cordoned")]
    outcomes = lanes.run([Try(scene) for scene in scenes], say)

    assert [words for each in outcomes for words in each.breaches] == []
    # Of four members somebody was sent back, and came again.
    assert all(each.calls["hook-bind"] > 4 for each in outcomes)


def test_a_check_that_is_taken_out_is_seen_by_the_walk(lanes: Lanes) -> None:
    assert unseen(lanes.run(tries_of(SOME_PLANTS), say), SOME_PLANTS) == []
