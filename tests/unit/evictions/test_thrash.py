"""Capacity moves once and then stays: long virtual times with the real planner."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings, strategies as st

from extender.evictions.backoff import LONGEST_S
from extender.model.queue import Queue
from tests.scene import STORY_S, budget
from tests.strategies import examples
from tests.unit.evictions.simulated_cluster import Job, SimulatedCluster

LEFT, RIGHT = Queue(name="left"), Queue(name="right")


def full_cluster(**rest: object) -> SimulatedCluster:
    """32 cpus, all used by eight gangs of four in queue `left`."""
    simulated = SimulatedCluster([8] * 4, [LEFT, RIGHT], **rest)  # type: ignore[arg-type]
    simulated.submit(*(Job(f"l{number}", "left", 4) for number in range(8)))
    simulated.pass_seconds(5)
    assert simulated.used("left") == 32
    return simulated


def test_a_queue_reclaims_exactly_its_deserved_share_once_and_keeps_it() -> None:
    simulated = full_cluster()
    simulated.submit(Job("r", "right", 16))
    simulated.pass_seconds(10)

    assert (simulated.used("left"), simulated.used("right")) == (16, 16)
    assert len(simulated.evicted) == 16

    simulated.pass_seconds(STORY_S, every=10)

    assert len(simulated.evicted) == 16
    assert simulated.running()["r"] == 16


def test_queues_whose_gangs_do_not_divide_evenly_become_stable_too() -> None:
    simulated = SimulatedCluster([8] * 4, [LEFT, RIGHT])
    simulated.submit(*(Job(f"l{number}", "left", 3) for number in range(10)))
    simulated.pass_seconds(5)
    simulated.submit(*(Job(f"r{number}", "right", 5) for number in range(6)))
    simulated.pass_seconds(60)
    evicted = len(simulated.evicted)
    simulated.pass_seconds(STORY_S, every=10)

    assert len(simulated.evicted) == evicted
    assert simulated.used("left") >= 15
    assert simulated.used("right") == 15


def test_a_queue_with_recurring_demand_evicts_the_same_gangs_less_and_less_often() -> None:
    simulated = full_cluster()
    for _ in range(STORY_S // 120):
        simulated.submit(Job("r", "right", 16))
        simulated.pass_seconds(60, every=2)
        simulated.cancel("r")
        simulated.pass_seconds(60, every=2)

    times: dict[str, list[float]] = {}
    for at, name in simulated.evicted:
        if at not in times.setdefault(name, []):
            times[name].append(at)
    gaps = {name: [later - at for at, later in pairwise(each)] for name, each in times.items()}
    assert any(len(each) > 1 for each in gaps.values())
    for each in gaps.values():
        for turn, gap in enumerate(each):
            assert gap >= min(60 * 2**turn, LONGEST_S)


def test_no_pod_is_evicted_where_a_budget_forbids_it() -> None:
    simulated = full_cluster(budgets=[budget(f"keep-{n}", 0, job=f"l{n}") for n in range(8)])
    simulated.submit(Job("r", "right", 16))
    simulated.pass_seconds(600, every=5)

    assert simulated.evicted == []
    assert simulated.used("left") == 32


def test_a_gang_of_higher_priority_preempts_one_of_lower_priority_once() -> None:
    simulated = full_cluster()
    simulated.submit(Job("vip", "left", 10, priority=100))
    simulated.pass_seconds(10)
    assert simulated.running()["vip"] == 10
    evicted = len(simulated.evicted)
    simulated.pass_seconds(STORY_S, every=10)

    assert evicted == len(simulated.evicted) == 12


def test_a_restart_in_the_middle_of_a_set_asks_for_no_more_than_were_needed() -> None:
    simulated = full_cluster()
    simulated.submit(Job("r", "right", 16))
    simulated.takes = 8  # two of four gangs; then the process ends
    simulated.pass_seconds(1)
    assert len(simulated.evicted) == 8

    simulated.takes = None
    simulated.restart()
    simulated.pass_seconds(STORY_S, every=10)

    assert len(simulated.evicted) == 16
    assert (simulated.used("left"), simulated.running()["r"]) == (16, 16)


def test_a_victim_that_never_terminates_is_replaced_by_another_after_a_wait() -> None:
    simulated = full_cluster(finalized={"l7"})
    simulated.submit(Job("vip", "left", 10, priority=100))
    simulated.pass_seconds(60)
    assert len(simulated.evicted) == 12, "one set, and no more while all of it may still go"
    assert simulated.running()["vip"] == 0

    simulated.pass_seconds(30)
    assert simulated.running()["vip"] == 10
    evicted = len(simulated.evicted)
    simulated.pass_seconds(STORY_S, every=10)

    assert len(simulated.evicted) == evicted


jobs = st.builds(
    lambda number, queue, members, surplus, cpu, priority: Job(
        f"j{number}", queue, members + surplus, members, cpu, priority
    ),
    st.integers(0, 9),
    st.sampled_from(["left", "right"]),
    st.integers(1, 5),
    st.integers(0, 2),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([0, 0, 10]),
)


@settings(max_examples=examples(8))
@given(
    cpus=st.lists(st.integers(2, 8), min_size=1, max_size=3),
    weights=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    waves=st.lists(st.lists(jobs, min_size=1, max_size=4), min_size=2, max_size=3),
)
def test_any_simulated_cluster_becomes_stable_and_no_gang_is_partly_evicted(
    cpus: list[int], weights: tuple[int, int], waves: list[list[Job]]
) -> None:
    left, right = weights
    simulated = SimulatedCluster(
        cpus, [Queue(name="left", weight=left), Queue(name="right", weight=right)]
    )
    for wave in waves:
        simulated.submit(*(job for job in wave if job.name not in simulated.jobs))
        simulated.pass_seconds(20, every=2)
    simulated.pass_seconds(60, every=5)
    evicted = len(simulated.evicted)
    simulated.pass_seconds(STORY_S, every=60)

    assert len(simulated.evicted) == evicted
