"""The history of gangs, with times of the API server, and of queues; both are limited."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.model.gang import GangKey
from extender.model.pod import PodUid, Status
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.planner.plan import GangStatus, Plan, QueueFigures
from extender.status.history import (
    EVERY_S,
    HOUR_S,
    GangHistory,
    QueueHistory,
    RecordedEviction,
    main_resources,
)
from tests.builders import NOW, pod
from tests.scene import gang, plan, snapshot, verdict

TRAIN = GangKey("a/train")
WAITING = gang("train", 2, status=Status.PENDING, created=NOW - 40)


def words(history: GangHistory) -> list[str]:
    return [line.word for line in history.entries(TRAIN)]


def test_a_line_is_written_when_the_reason_changes_and_not_otherwise() -> None:
    history = GangHistory()
    for second, reason in enumerate(
        [Reason.INSUFFICIENT_CAPACITY] * 3
        + [Reason.BEHIND_IN_ORDER]
        + [Reason.INSUFFICIENT_CAPACITY] * 2
    ):
        said = verdict("a/train", reason, message=f"after {second} s")
        history.note(snapshot(WAITING, now=NOW + second), plan(said))

    assert [(line.at - NOW, line.word, line.text) for line in history.entries(TRAIN)] == [
        (0, "InsufficientCapacity", "after 0 s"),
        (3, "BehindInOrder", "after 3 s"),
        (4, "InsufficientCapacity", "after 4 s"),
    ]


def test_a_change_includes_how_long_the_earlier_status_lasted() -> None:
    history = GangHistory()
    history.note(snapshot(WAITING), plan(verdict("a/train", Reason.INSUFFICIENT_CAPACITY)))
    history.note(snapshot(WAITING, now=NOW + 5), plan(verdict("a/train", Reason.BEHIND_IN_ORDER)))
    admitted = history.note(
        snapshot(WAITING, now=NOW + 20), plan(verdict("a/train", Reason.ADMITTED))
    )

    assert [change.lasted_s for change in admitted] == [60]
    assert admitted[0].before is not None
    assert admitted[0].before.status is GangStatus.WAITING
    assert history.reason_since(TRAIN) == NOW + 20


def test_a_gang_that_does_not_run_waits_whatever_its_reasons_are() -> None:
    history = GangHistory()
    for second, reason, standing in (
        (0, Reason.INSUFFICIENT_CAPACITY, None),
        (5, Reason.BEHIND_IN_ORDER, None),
        (6, Reason.ADMITTED, None),
        (7, Reason.QUEUE_NOT_FOUND, GangStatus.INVALID),
        (8, Reason.INSUFFICIENT_CAPACITY, None),
    ):
        said = verdict("a/train", reason, standing)
        history.note(snapshot(WAITING, now=NOW + second), plan(said))

        assert history.since(TRAIN) == NOW - 40
        assert history.reason_since(TRAIN) == (NOW + second if second else NOW - 40)


def test_a_gang_that_lost_members_starts_a_new_wait() -> None:
    history = GangHistory()
    history.note(snapshot(gang("train")), plan(verdict("a/train")))
    again = verdict("a/train", Reason.NOT_ENOUGH_MEMBERS)
    history.note(snapshot(WAITING, now=NOW + 9), plan(again))

    assert history.since(TRAIN) == NOW + 9


def test_a_deleted_gang_is_a_change_too_and_includes_how_long_its_status_lasted() -> None:
    history = GangHistory()
    history.note(snapshot(gang("train")), plan(verdict("a/train")))
    (gone,) = history.note(snapshot(now=NOW + 7), plan())

    assert (gone.verdict.gang, gone.is_gone, gone.lasted_s) == (TRAIN, True, 7)


def test_a_gang_that_ran_before_this_process_has_run_since_its_newest_member() -> None:
    history = GangHistory()
    old = gang(
        "train",
        [pod("x", on="n", created=NOW - 30), pod("y", on="n", created=NOW - 10)],
        created=NOW - 99,
    )
    history.note(snapshot(old), plan(verdict("a/train")))

    assert history.running_since(TRAIN) == NOW - 10
    assert words(history) == []


def test_only_a_running_gang_has_a_running_since_time() -> None:
    history = GangHistory()
    assert history.running_since(TRAIN) is None
    history.note(snapshot(WAITING), plan(verdict("a/train", Reason.INSUFFICIENT_CAPACITY)))
    assert history.running_since(TRAIN) is None

    history.note(snapshot(gang("train"), now=NOW + 3), plan(verdict("a/train")))

    assert history.running_since(TRAIN) == NOW + 3


def test_the_history_of_a_gang_is_kept_after_its_deletion() -> None:
    history = GangHistory()
    history.note(snapshot(WAITING), plan(verdict("a/train", Reason.INSUFFICIENT_CAPACITY)))
    history.note(snapshot(), plan())

    assert words(history) == ["InsufficientCapacity", "Gone"]
    assert history.since(TRAIN) is None


def test_the_number_of_lines_and_gangs_and_the_length_of_texts_are_limited() -> None:
    history = GangHistory()
    for number in range(10_005):
        history.add_entry(GangKey(f"a/g{number}"), NOW, 1, "Evict", "x")
    for number in range(45):
        history.add_entry(GangKey("a/talkative"), NOW, number, "Evict", "x" * 5_000)

    story = history.entries(GangKey("a/talkative"))
    others = [history.entries(GangKey(f"a/g{number}")) for number in range(10_005)]
    assert [number for number, lines in enumerate(others) if not lines] == list(range(6))
    assert (len(story), story[-1].cycle) == (40, 44)
    assert len(story[0].text) == 1_000


def test_the_total_number_of_lines_is_limited_and_the_newest_are_kept() -> None:
    history = GangHistory()
    for number in range(3_000):
        for step in range(40):
            history.add_entry(GangKey(f"a/g{number}"), NOW, step, "Waits", "x")

    stories = [history.entries(GangKey(f"a/g{number}")) for number in range(3_000)]
    assert 99_000 <= sum(map(len, stories)) <= 101_000
    assert len(stories[-1]) == 40
    assert not stories[0]


def test_waiting_binds_are_recorded_once_each_time_a_gang_is_admitted() -> None:
    history, admitted = GangHistory(), verdict("a/g", Reason.ADMITTED)
    reserved = gang(
        "g",
        [pod("g-0", on="n", status=Status.ALLOCATED), pod("g-1", on="n", status=Status.ALLOCATED)],
    )
    waiting = gang(
        "g",
        [pod("g-0", on="n", status=Status.BINDING), pod("g-1", on="n", status=Status.ALLOCATED)],
    )
    history.note(snapshot(reserved), plan(admitted))
    for _ in range(3):
        history.note(snapshot(waiting), plan(admitted))
    history.note(snapshot(waiting), plan(verdict("a/g", Reason.BACKING_OFF)))
    history.note(snapshot(waiting), plan(admitted))

    lines = history.entries(GangKey("a/g"))
    assert [line.word for line in lines] == ["Admitted", "Held", "BackingOff", "Admitted", "Held"]
    assert lines[1].text == "binds of 1 of at least 2 members wait for the rest"


def test_the_plan_and_the_history_are_forgotten_when_the_lease_ends() -> None:
    history = GangHistory()
    waits = plan(
        verdict("a/train", Reason.INSUFFICIENT_CAPACITY),
        queues={"left": QueueFigures(name="left", weight=1)},
        total=Resources({"cpu": 1000}),
    )
    history.note(snapshot(WAITING), waits)
    left = RecordedEviction(NOW, "a/x", GangKey("a/x"), "n", "reclaim", TRAIN, "why")
    history.evictions.note(PodUid("x"), left)
    history.forget()

    assert history.last is None
    assert history.entries(TRAIN) == ()
    assert history.since(TRAIN) is None
    assert history.queues.of("left", "cpu") == []
    assert history.evictions.all() == (left,)

    remade = gang("train", 2, status=Status.PENDING, created=NOW + 500)
    (change,) = history.note(snapshot(remade, now=NOW + 600), waits)
    assert change.before is None
    assert history.since(TRAIN) == NOW + 500


def test_a_gang_recreated_between_two_cycles_waits_since_its_creation() -> None:
    history = GangHistory()
    said = plan(verdict("a/train", Reason.INSUFFICIENT_CAPACITY))
    history.note(snapshot(WAITING), said)
    again = gang("train", 2, status=Status.PENDING, created=NOW + 290)
    again = replace(again, group=replace(again.group, uid="another"))
    history.note(snapshot(again, now=NOW + 300), said)

    assert history.since(TRAIN) == NOW + 290
    assert history.reason_since(TRAIN) == NOW + 290

    admitted = plan(verdict("a/train", Reason.ADMITTED))
    (change,) = history.note(snapshot(again, now=NOW + 310), admitted)
    assert change.lasted_s == 20


TOTAL = Resources({"cpu": 8000, "memory": 1 << 30, "pods": 110, "nvidia.com/gpu": 4})


def cycle(used: int, *names: str, total: Resources = TOTAL) -> Plan:
    names = names or ("left",)
    figures = {
        name: QueueFigures(
            name=name,
            weight=1,
            deserved=Resources({"cpu": 4000}),
            allocated=Resources({"cpu": used}),
            requested=Resources({"cpu": used + 500}),
        )
        for name in names
    }
    return Plan(queues=figures, total=total)


@pytest.fixture
def queues() -> QueueHistory:
    return QueueHistory()


def test_one_sample_in_half_a_minute_is_kept(queues: QueueHistory) -> None:
    for second in range(100):
        queues.note(cycle(second), 1000.0 + second)

    kept = queues.of("left", "cpu")
    assert [(each.at, each.used) for each in kept] == [
        (1000.0, 0.0),
        (1030.0, 30.0),
        (1060.0, 60.0),
        (1090.0, 90.0),
    ]
    assert (kept[-1].deserved, kept[-1].requested) == (4000.0, 590.0)


def test_an_hour_is_kept_and_no_more(queues: QueueHistory) -> None:
    for moment in range(1000):
        queues.note(cycle(moment), moment * EVERY_S)

    kept = queues.of("left", "cpu")
    assert len(kept) == HOUR_S / EVERY_S + 1
    assert kept[-1].at - kept[0].at == HOUR_S


def test_a_clock_that_is_set_back_drops_samples_of_the_future(queues: QueueHistory) -> None:
    for at in (1000.0, 1030.0, 3000.0, 1060.0):
        queues.note(cycle(1), at)

    assert [each.at for each in queues.of("left", "cpu")] == [1000.0, 1030.0, 1060.0]


def test_the_number_of_sampled_queues_is_limited(queues: QueueHistory) -> None:
    queues.note(cycle(1, *(f"q{number:04d}" for number in range(1000))), 0.0)

    assert queues.of("q0255", "cpu")
    assert not queues.of("q0256", "cpu")


def test_a_new_kind_of_resource_in_the_cluster_restarts_the_samples(
    queues: QueueHistory,
) -> None:
    queues.note(cycle(1), 0.0)
    queues.note(cycle(2, total=Resources({"cpu": 1, "amd.com/gpu": 1})), 1.0)

    assert [each.used for each in queues.of("left", "cpu")] == [2.0]


def test_cpu_and_memory_come_first_and_four_are_enough() -> None:
    rare = {f"example.com/{letter}": 1 for letter in "dcba"}

    assert main_resources(TOTAL) == ("cpu", "memory", "nvidia.com/gpu")
    assert main_resources(Resources({**rare, "memory": 1, "cpu": 1, "hugepages-2Mi": 1})) == (
        "cpu",
        "memory",
        "example.com/a",
        "example.com/b",
    )
    assert main_resources(Resources()) == ()
