"""The last hour of queues: sampled, limited, and always in order of time."""

from __future__ import annotations

import pytest

from extender.model.resources import Resources
from extender.planner.plan import Plan, QueueFigures
from extender.status.history import EVERY_S, HOUR_S, QueueHistory, main_resources

TOTAL = Resources({"cpu": 8000, "memory": 1 << 30, "pods": 110, "nvidia.com/gpu": 4})


def seen(used: int, *names: str, total: Resources = TOTAL) -> Plan:
    names = names or ("left",)
    queues = {
        name: QueueFigures(
            name=name,
            weight=1,
            deserved=Resources({"cpu": 4000}),
            allocated=Resources({"cpu": used}),
            requested=Resources({"cpu": used + 500}),
        )
        for name in names
    }
    return Plan(queues=queues, total=total)


@pytest.fixture
def history() -> QueueHistory:
    return QueueHistory()


def test_one_sample_in_half_a_minute_is_kept(history: QueueHistory) -> None:
    for second in range(100):
        history.note(seen(second), 1000.0 + second)

    kept = history.of("left", "cpu")
    assert [(each.at, each.used) for each in kept] == [
        (1000.0, 0.0),
        (1030.0, 30.0),
        (1060.0, 60.0),
        (1090.0, 90.0),
    ]
    assert (kept[-1].deserved, kept[-1].requested) == (4000.0, 590.0)


def test_an_hour_is_kept_and_no_more(history: QueueHistory) -> None:
    for moment in range(1000):
        history.note(seen(moment), moment * EVERY_S)

    kept = history.of("left", "cpu")
    assert len(kept) == HOUR_S / EVERY_S + 1
    assert kept[-1].at - kept[0].at == HOUR_S


def test_a_clock_that_is_set_back_drops_samples_of_the_future(history: QueueHistory) -> None:
    for at in (1000.0, 1030.0, 3000.0, 1060.0):
        history.note(seen(1), at)

    assert [each.at for each in history.of("left", "cpu")] == [1000.0, 1030.0, 1060.0]


def test_the_number_of_sampled_queues_is_limited(history: QueueHistory) -> None:
    history.note(seen(1, *(f"q{number:04d}" for number in range(1000))), 0.0)

    assert history.of("q0255", "cpu")
    assert not history.of("q0256", "cpu")


def test_an_unknown_queue_or_resource_has_no_samples(history: QueueHistory) -> None:
    history.note(seen(1), 0.0)

    assert history.of("nobody", "cpu") == []
    assert history.of("left", "bananas") == []


def test_a_new_kind_of_resource_in_the_cluster_restarts_the_samples(
    history: QueueHistory,
) -> None:
    history.note(seen(1), 0.0)
    history.note(seen(2, total=Resources({"cpu": 1, "amd.com/gpu": 1})), 1.0)

    assert [each.used for each in history.of("left", "cpu")] == [2.0]


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
