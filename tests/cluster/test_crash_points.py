"""A sample of the crash points, and a plant: the whole walk is `make crash-points`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.faults import Fault, Point, faults_of
from tests.faults.planted import PLANTS
from tests.faults.proxy import Switchboard
from tests.faults.record import Asked, CutOff, Record

from .crash import walk
from .crash.lane import BIND_TIMEOUT_S, Lane
from .crash.planting import WHERE, tries_of, unseen
from .crash.scenes import SCENES, Scene
from .crash.table import figures, table
from .crash.walk import Lanes, Outcome, Try, choose, given_up, points_of, say

GANG = Scene("gang", lambda stage: None)
#: What a walk in `make test` may cost.
SAMPLE = 40
SECONDS = 60
LANES = 2
PLANT = "unknown-is-failed"
BESIDE_OTHERS_S = 10.0


def probed(**calls: int) -> Outcome:
    sites = {site.replace("_", "-"): count for site, count in calls.items()}
    return Outcome(Try(GANG), was_met=True, took_s=1.0, calls=sites)


def test_every_fault_at_every_call_is_a_point_and_the_pulse_is_none() -> None:
    found = points_of([probed(bind=2, pulse=5, heard_pods=1)])

    points = {each.point for each in found}
    assert points == {
        *(Point("bind", number, fault) for number in (1, 2) for fault in faults_of("bind")),
        *(Point("heard-pods", 1, fault) for fault in faults_of("heard-pods")),
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
    lost = Try(GANG, Point("bind", 1, Fault.LOST))
    outcomes = [
        Outcome(lost, True, 1.0, ["partial gang"], partial_s=6.0, ready_again_s=[2.0]),
        Outcome(lost, True, 3.0),
        Outcome(Try(GANG, Point("event", 1, Fault.AWAY)), False, 1.0),
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
        Try(GANG, Point("list-nodes", 1, fault)) for fault in (Fault.KILL_BEFORE, Fault.TIMEOUT)
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
        ([0.6, 0.6, 0.6, 0.0], ["partial gang"], 2),
        ([0.2, 0.0], ["partial gang"], 0),
    ],
    ids=["played again", "not for ever", "not if the machine was ours"],
)
def test_what_broke_while_the_host_took_too_much_is_played_again_and_told(
    monkeypatch: pytest.MonkeyPatch, taken: list[float], words: list[str], disturbed: int
) -> None:
    shares = iter(taken)

    def play(*_: object) -> Outcome:
        share = next(shares)
        return Outcome(Try(GANG), True, 1.0, ["partial gang"] if share else [], taken=share)

    monkeypatch.setattr(walk, "play", play)
    with Switchboard() as board:
        outcome = walk.play_calmly(Lane(Path(), board), Try(GANG))

    assert outcome.breaches == words
    assert outcome.disturbed == ["the host took 60%: partial gang"] * disturbed
    told = figures([outcome])
    assert ("1 broke while the host took more than 25% of" in told) == bool(disturbed)


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
        tries_of(["one-short", "never-given-back"]), (["in part"], []), strict=True))  # fmt: skip
    assert unseen([seen, missed], ["one-short", "never-given-back"]) == ["never-given-back"]


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
    monkeypatch.setattr(walk, "BOUNDS", replace(walk.BOUNDS, whole_s=BESIDE_OTHERS_S))
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


def test_a_check_that_is_taken_out_is_seen_by_the_walk(lanes: Lanes) -> None:
    assert unseen(lanes.run(tries_of([PLANT]), say), [PLANT]) == []
