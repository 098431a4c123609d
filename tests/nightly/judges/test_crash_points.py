"""A sample of the crash points and planted faults; `python -m tests.nightly.crash` runs all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.nightly.crash import walk
from tests.nightly.crash.forked import ForkedExtender
from tests.nightly.crash.lane import BIND_TIMEOUT_S, Lane, RestartableRecord
from tests.nightly.crash.planted_cases import CASES, detected_as, tries_of, undetected
from tests.nightly.crash.scene_run import SceneRun, WrongEnd
from tests.nightly.crash.scenes import SCENES, Scene
from tests.nightly.crash.table import figures, table
from tests.nightly.crash.time_breaches import (
    GIVEN_UP,
    NO_END,
    NOT_JUDGED,
    SLOW,
    TIMED,
    WRONG_END,
    are_all_of_time,
)
from tests.nightly.crash.walk import Lanes, Outcome, Try, choose, given_up, points_of, print_outcome
from tests.nightly.faults.fault_points import Fault, FaultPoint, faults_of
from tests.nightly.faults.planted import PLANTS
from tests.nightly.faults.proxy import ProxyLoop
from tests.nightly.faults.record import Asked, CutOff, Killed, Promised, Ready, Record
from tests.nightly.faults.recorders import EXTENDER
from tests.nightly.faults.verdict import RULES, returns

GANG = Scene("gang", lambda stage: None)
#: The size of the sample.
SAMPLE = 40
SECONDS = 60
LANES = 2
#: A sample of the planted faults.
SOME_PLANTS = ["unknown-is-failed", "no-ceiling"]
IN_PART = "gang in part: crash/train: in part for 6.0 s"
BESIDE_OTHERS_S = 10.0
READY_BESIDE_OTHERS_S = 30.0


def probed(**calls: int) -> Outcome:
    sites = {site.replace("_", "-"): count for site, count in calls.items()}
    return Outcome(Try(GANG), was_met=True, took_s=1.0, calls=sites)


def test_every_fault_at_every_call_but_the_health_probe_is_a_point() -> None:
    found = points_of([probed(bind=2, health_probe=5, event_pods=1)])

    points = {each.point for each in found}
    assert points == {
        *(FaultPoint("bind", number, fault) for number in (1, 2) for fault in faults_of("bind")),
        *(FaultPoint("event-pods", 1, fault) for fault in faults_of("event-pods")),
    }


def test_choice_has_every_kind_and_depends_only_on_the_seed() -> None:
    found = points_of([probed(bind=9, event=1)])
    kinds = len(faults_of("bind")) + len(faults_of("event"))

    chosen = choose(found, limit=kinds, seed=3)

    assert len({(each.point.site, each.point.fault) for each in chosen if each.point}) == kinds
    assert choose(found[::-1], limit=kinds, seed=3) == chosen
    assert choose(found, limit=kinds, seed=4) != chosen
    assert {
        str(each.point) for each in choose(found, sites=["event"], faults=["409", "reset"])
    } == {
        "event#1 409",
        "event#1 reset",
    }


def test_table_counts_points_and_breaches_that_were_reached() -> None:
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
    assert "2 points in 1 scenes, 1 with a breach; 1 more did not reach" in figures(outcomes)
    assert "longest in part: 6.00 s" in figures(outcomes)


def test_restarts_with_another_fault_are_listed_separately() -> None:
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
        "ready again after SIGKILL, with its modules imported before: 3 times, median 1.0 s,"
        f" at most 2.0 s ({killed})",
        f"with a failed call at its start: 1 times, median 20.7 s, at most 20.7 s ({silent})",
    ]
    assert "with a failed call at its start" not in figures(outcomes[:2])


@pytest.mark.parametrize(
    ("taken", "words", "disturbed"),
    [
        ([0.6, 0.0], [], 1),
        ([0.6, 0.6, 0.6, 0.0], [IN_PART], 2),
        ([0.2, 0.0], [IN_PART], 0),
    ],
    ids=["repeated", "not for ever", "not without steal time"],
)
def test_breach_of_a_time_limit_under_steal_time_is_repeated_and_reported(
    monkeypatch: pytest.MonkeyPatch, taken: list[float], words: list[str], disturbed: int
) -> None:
    shares = iter(taken)

    def play(*_: object) -> Outcome:
        share = next(shares)
        return Outcome(Try(GANG), True, 1.0, [IN_PART] if share else [], taken=share)

    monkeypatch.setattr(walk, "run_scene", play)
    with ProxyLoop() as board:
        outcome = walk.run_undisturbed(Lane(Path(), board), Try(GANG))

    assert outcome.breaches == words
    assert outcome.disturbed == [f"the host took 60%: {IN_PART}"] * disturbed
    told = figures([outcome])
    assert ("1 broke while the host took more than 25% of" in told) == bool(disturbed)


def test_breach_of_another_rule_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = [IN_PART, "room leaked: crash-1: gang-extender counts more or less than there is"]
    plays = iter([Outcome(Try(GANG), True, 1.0, words, taken=0.9)])
    monkeypatch.setattr(walk, "run_scene", lambda *_: next(plays))
    with ProxyLoop() as board:
        outcome = walk.run_undisturbed(Lane(Path(), board), Try(GANG))

    assert (outcome.breaches, outcome.disturbed) == (words, [])


def test_steal_time_excuses_only_time_limits() -> None:
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
    """A lane without a cluster."""

    def __init__(self) -> None:
        self.record = RestartableRecord()
        self.log: list[str] = []

    def start_point(self, _: str) -> None:
        self.record.restart()

    def tracebacks(self, _: object) -> list[str]:
        return self.log

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_rule_without_moments_is_a_breach() -> None:
    lane: Any = Empty()
    asked = Asked(at=0.0, call=1, hook="filter")
    leaks = Promised(at=0.0, who="gang-extender", taken={})

    def breaches_of(*moments: Any) -> list[str]:
        return walk.run_scene(
            lane, Try(Scene("made up", lambda _: lane.record.note(*moments)))
        ).breaches

    assert breaches_of(leaks) == [
        "not judged: bind that was lost",
        "not judged: bind that was told as failed",
        "not judged: hold without an answer",
    ]
    assert breaches_of(asked) == ["not judged: room leaked"]
    assert breaches_of(asked, leaks) == []


ENOUGH = (Asked(at=0.0, call=1, hook="filter"), Promised(at=0.0, who="gang-extender", taken={}))


@pytest.mark.parametrize(
    ("fault", "took_s", "words"),
    [
        (Fault.KILL_BEFORE, 5.5, ["slow to be ready again: gang-extender after 5.5 s"]),
        (Fault.KILL_AFTER, 4.9, []),
        (Fault.TIMEOUT, 20.7, []),
        (None, 5.5, ["slow to be ready again: gang-extender after 5.5 s"]),
    ],
    ids=["killed", "soon", "with an unanswered list", "killed by the scene"],
)
def test_killed_extender_must_soon_be_ready_again_if_nothing_else_failed(
    fault: Fault | None, took_s: float, words: list[str]
) -> None:
    lane: Any = Empty()
    returned = (Killed(at=1.0, who=EXTENDER), Ready(at=1.0 + took_s, who=EXTENDER))
    scene = Scene("made up", lambda _: lane.record.note(*ENOUGH, *returned))

    point = FaultPoint("list-pods", 1, fault) if fault else None
    assert walk.run_scene(lane, Try(scene, point)).breaches == words


def test_traceback_is_a_breach_and_never_excused() -> None:
    lane: Any = Empty()
    lane.log.append("Traceback (most recent call last):")
    told = walk.run_scene(lane, Try(Scene("made up", lambda _: lane.record.note(*ENOUGH)))).breaches

    assert told == ["traceback: Traceback (most recent call last):"]
    assert not are_all_of_time(told)


def test_traceback_of_an_earlier_scene_does_not_count(tmp_path: Path) -> None:
    with ProxyLoop() as board:
        lane = Lane(tmp_path, board)
    lane.extender = ForkedExtender("gang-extender", tmp_path, kubeconfig=tmp_path)
    log, line = lane.extender.log_file, "worker: Traceback (most recent call last):"
    assert lane.log_size() == 0
    log.write_text(f"{line}\n  File\n")

    assert lane.tracebacks(0) == [line]
    before = lane.log_size()
    assert lane.tracebacks(before) == []
    log.write_text(f"{log.read_text()}all is well\n{line}\n")
    assert lane.tracebacks(before) == [line]


class Dying:
    """An extender that takes a while to end, and is ready soon after."""

    pid, ports = -1, (1,)

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def kill(self) -> None:
        time.sleep(0.05)

    def start(self) -> None:
        self._lane.stop_restarting()


def test_time_to_readiness_begins_at_the_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def die(*_: object) -> None:
        time.sleep(0.05)

    monkeypatch.setattr("os.killpg", die)
    with ProxyLoop() as board:
        lane: Any = Lane(Path(), board)
    lane.extender = Dying(lane)
    lane.kill()
    lane.restart_killed()

    notes = lane.record.of(Killed)
    assert len(notes) == 3
    assert [each.killed_at for each in returns(lane.record)] == [notes[0].at]


def test_wrong_start_and_late_start_are_different_breaches() -> None:
    lane: Any = Empty()

    def breaches(why: Exception) -> list[str]:
        def ends(_: SceneRun) -> None:
            raise why

        return walk.run_scene(lane, Try(Scene("made up", ends))).breaches

    assert breaches(AssertionError("not within 60 s")) == ["no proper end: not within 60 s"]
    assert breaches(WrongEnd("4 of train bound")) == ["wrong end: 4 of train bound"]


def test_usage_is_polled_and_an_error_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([None, {"crash-0": {"cpu": 1000}}, {}])

    def taken(_: Lane) -> Any:
        answer = next(answers, None)
        assert answer is not None, "the snapshot does not answer"
        return answer

    monkeypatch.setattr(Lane, "has_no_waiting_binds", True)
    monkeypatch.setattr(Lane, "usage", taken)
    with ProxyLoop() as board:
        lane = Lane(Path(), board)
        lane.wait_until_quiet(5)
        assert [each.taken for each in lane.record.of(Promised)] == [{}]

        lane.start_point("another page")
        with pytest.raises(AssertionError, match="the snapshot does not answer"):
            lane.wait_until_quiet(0)

    assert lane.record.of(Promised) == []


def test_bind_that_timed_out_in_kube_scheduler_is_a_breach() -> None:
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


def test_every_plant_has_a_case() -> None:
    assert set(CASES) == set(PLANTS)
    assert {each.plant for each in tries_of(list(CASES))} == set(PLANTS)
    seen, missed = (Outcome(each, True, 1.0, words) for each, words in zip(
        tries_of(["one-short", "never-given-back"]), ([IN_PART], []), strict=True))  # fmt: skip
    assert undetected([seen, missed], ["one-short", "never-given-back"]) == ["never-given-back"]
    assert [detected_as(each) for each in (seen, missed)] == ["gang in part", "NOT DETECTED"]


@pytest.mark.parametrize("plant", CASES)
def test_plant_is_detected_only_by_its_rules(plant: str) -> None:
    (tried,) = tries_of([plant])
    shows = next(iter(CASES[plant][0].shows))

    for words, missed in ([f"{NO_END}: not within 25 s"], [plant]), ([f"{shows}: of train"], []):
        assert undetected([Outcome(tried, True, 1.0, words)], [plant]) == missed


def test_leak_is_detected_in_a_scene_without_an_end() -> None:
    lane: Any = Empty()
    leaked = Promised(at=0.0, who=EXTENDER, taken={"crash-0": {"cpu": 1000}})
    lane.wait_until_quiet = lambda: lane.record.note(leaked)

    def ends(_: SceneRun) -> None:
        raise AssertionError("not within 25 s")

    told = walk.run_scene(lane, Try(Scene("made up", ends), plant="never-given-back")).breaches
    assert [words.partition(": ")[0] for words in told] == [NO_END, "room leaked"]


def test_plant_is_listed_with_each_broken_rule() -> None:
    over = [f"queue over its ceiling: crash-limited: cpu {number} of 4" for number in (5, 6)]
    outcome = Outcome(Try(GANG), True, 1.0, ["no proper end: 2 are bound, too", *over])

    assert detected_as(outcome) == "no proper end, queue over its ceiling"


@pytest.fixture(scope="module")
def lanes(
    control_plane_binaries: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lanes]:
    with Lanes(tmp_path_factory.mktemp("crash"), LANES) as running:
        yield running


def test_sample_of_crash_points_breaks_no_rule(
    lanes: Lanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests use the machine too, so that restarts take longer than in the walk, which uses the
    # guaranteed limits.
    relaxed = replace(walk.BOUNDS, whole_s=BESIDE_OTHERS_S, ready_s=READY_BESIDE_OTHERS_S)
    monkeypatch.setattr(walk, "BOUNDS", relaxed)
    quick = [each for each in SCENES if each.name in ("gang", "late", "preempt")]
    clean = lanes.run([Try(scene) for scene in quick], print_outcome)
    # Slow faults are left to the walk.
    found = [
        each
        for each in points_of(clean)
        if each.point and each.point.fault not in (Fault.SILENT, Fault.TIMEOUT)
    ]
    outcomes = lanes.run(
        choose(found, limit=SAMPLE, seed=17), print_outcome, until=time.monotonic() + SECONDS
    )

    broken = [f"{each.tried}: {words}" for each in (*clean, *outcomes) for words in each.breaches]
    assert broken == []
    assert sum(each.was_met for each in outcomes) > len(outcomes) // 2 > 0


def test_binds_wait_while_the_queue_is_closed_or_the_node_cordoned(lanes: Lanes) -> None:
    scenes = [each for each in SCENES if each.name in ("closed", "cordoned")]
    outcomes = lanes.run([Try(scene) for scene in scenes], print_outcome)

    assert [words for each in outcomes for words in each.breaches] == []
    # At least one of four members was refused and retried.
    assert all(each.calls["hook-bind"] > 4 for each in outcomes)


def test_planted_faults_are_detected(lanes: Lanes) -> None:
    assert undetected(lanes.run(tries_of(SOME_PLANTS), print_outcome), SOME_PLANTS) == []
