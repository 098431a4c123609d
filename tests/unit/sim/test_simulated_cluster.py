"""A whole cluster under virtual time: which gangs start, which wait, and that runs repeat."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from extender.hooks.gate import Filtered
from extender.model.gang import Membership
from extender.model.node import Node
from extender.model.pod import Pod, Shape
from extender.model.queue import PriorityClass, Queue, QueueState
from extender.model.resources import Resources
from extender.sim.clock import PacedClock
from extender.sim.cluster import OPTIONS, SimulatedCluster
from extender.sim.extender import DirectExtender
from extender.sim.kube_scheduler import HookError, SchedulerOptions
from extender.sim.workloads import Job, JobRun

BEGINNING = 100.0
ONE_CPU = Shape(requests=Resources({"cpu": 1000, "pods": 1}))


def cluster(
    nodes: int = 2, cpus: int = 4, options: SchedulerOptions = OPTIONS, **queues: int
) -> SimulatedCluster:
    world = SimulatedCluster(options=options)
    for number in range(nodes):
        world.api.put(node(number, cpus))
    for name, weight in queues.items():
        world.api.put(Queue(name=name, weight=weight))
    return world


def node(number: int, cpus: int = 4) -> Node:
    return Node(name=f"n{number}", allocatable=Resources({"cpu": cpus * 1000, "pods": 110}))


def job(name: str, size: int, lasts_s: float | None = 60.0, **facts: Any) -> Job:
    given = {"namespace": "a", "queue": "", "min_member": size, "shape": ONE_CPU, **facts}
    return Job(name=name, size=size, lasts_s=lasts_s, **given)


def run(world: SimulatedCluster, seconds: float, *jobs: Job) -> dict[str, JobRun]:
    for each in jobs:
        world.workloads.submit(each)
    world.run(world.time.monotonic() + seconds)
    return {each.job.name: each for each in world.workloads.runs}


def test_a_gang_starts_as_a_whole_and_ends_when_its_work_is_done() -> None:
    world = cluster()
    runs = run(world, 120, job("train", 8, lasts_s=60))

    train = runs["train"]
    assert train.first_started_at is not None
    assert train.ended_at is not None
    assert train.first_started_at - train.created_at < 1
    assert train.ended_at - train.first_started_at == 60
    assert not world.api.pods
    assert not world.api.groups


def test_two_gangs_that_do_not_fit_together_run_one_after_the_other() -> None:
    runs = run(cluster(), 300, job("one", 6), job("two", 6))

    one, two = runs["one"], runs["two"]
    assert one.ended_at is not None
    assert two.first_started_at is not None
    assert 0 <= two.first_started_at - one.ended_at < 5
    assert two.ended_at is not None


def test_a_gang_that_never_fits_does_not_block_others() -> None:
    world = cluster()
    runs = run(world, 300, job("giant", 9), job("small", 4, arrives_s=5))

    assert runs["giant"].first_started_at is None
    assert runs["small"].ended_at is not None
    assert not any(seen.pod.node for seen in world.api.pods.values())


def test_a_gang_that_lost_a_node_restarts_on_free_nodes_from_the_beginning() -> None:
    world = cluster(nodes=3)
    run(world, 30, job("train", 8, lasts_s=60))
    world.workloads.lose_node("n0")
    runs = run(world, 120)

    train = runs["train"]
    assert train.lost > 0
    assert [was_lost for _, _, was_lost in train.stretches] == [True, False]
    assert train.wasted_s > 0
    assert train.ended_at is not None


def test_lost_pods_beyond_the_minimum_are_wasted_and_the_rest_still_works() -> None:
    world = cluster(nodes=4)
    run(world, 20, job("elastic", 16, min_member=2, lasts_s=50))
    for number in range(4):
        world.workloads.lose_node(f"n{number}")
    run(world, 20)
    world.api.put(node(3))
    runs = run(world, 100)

    elastic = runs["elastic"]
    assert elastic.wasted_s == pytest.approx(16 * 20, abs=2)
    assert elastic.done_s == pytest.approx(4 * 50, abs=2), "four pods fit on one node"


def test_scheduled_members_that_wait_for_the_rest_waste_their_time() -> None:
    world = cluster(nodes=2)
    run(world, 30, job("train", 8, lasts_s=60))
    world.workloads.lose_node("n0")
    runs = run(world, 100)
    world.workloads.count_until_now()

    assert runs["train"].done_s == 0
    assert runs["train"].wasted_s == pytest.approx(8 * 30 + 4 * 100, abs=2)


def test_a_queue_reclaims_borrowed_capacity() -> None:
    world = cluster(nodes=2, greedy=1, poor=1)
    greedy = [job(f"greedy-{n}", 2, lasts_s=5000, queue="greedy") for n in range(4)]
    runs = run(world, 600, *greedy, job("poor", 4, queue="poor", arrives_s=60))

    poor = runs["poor"]
    assert poor.first_started_at is not None, "its half of the cluster was only borrowed"
    assert sum(each.evicted for each in runs.values()) > 0


def test_a_wait_is_exact_except_for_the_backoff_of_kube_scheduler() -> None:
    waits = {}
    for backs_off in (False, True):
        world = cluster(nodes=2, options=replace(OPTIONS, backs_off=backs_off))
        runs = run(world, 120, job("first", 8, lasts_s=50), job("next", 8, arrives_s=10))
        started = runs["next"].first_started_at
        assert started is not None
        waits[backs_off] = started - runs["next"].created_at

    assert 40 <= waits[False] < 41
    assert 41 <= waits[True] < 51


def test_a_queue_closed_while_empty_admits_no_gang() -> None:
    world = cluster(red=1)
    runs = run(world, 30, job("before", 2, lasts_s=5000, queue="red"))
    assert runs["before"].first_started_at is not None

    world.api.put(Queue(name="red", state=QueueState.CLOSED))
    run(world, 1)
    runs = run(world, 300, job("after", 2, queue="red"))

    assert runs["after"].first_started_at is None


def test_a_higher_priority_goes_first_and_preempts_a_single_pod() -> None:
    world = cluster(nodes=1)
    world.api.put(PriorityClass(name="urgent", value=1000))
    low = [job(f"low-{n}", 1, lasts_s=5000, is_plain=True) for n in range(4)]
    urgent = job(
        "urgent",
        1,
        is_plain=True,
        arrives_s=30,
        priority=1000,
        priority_class="urgent",
    )
    runs = run(world, 300, *low, urgent)

    assert runs["urgent"].first_started_at is not None
    assert sum(each.evicted for each in runs.values()) == 1


def test_repeated_refusals_change_only_the_amount_of_work() -> None:
    """The simulator leaves out filter calls for pods that the extender refuses again."""

    def outcome(options: SchedulerOptions) -> dict[str, bool]:
        world = cluster(nodes=4, options=options, red=2, blue=1)
        jobs = [
            job(f"j{n}", n % 5 + 1, lasts_s=40 + n, queue=("red", "blue")[n % 2], arrives_s=5.0 * n)
            for n in range(20)
        ]
        runs = run(world, 400, *jobs)
        assert not world.extender.partial
        return {name: each.ended_at is not None for name, each in runs.items()}

    assert outcome(OPTIONS) == outcome(replace(OPTIONS, retries_refused=True))


class FailingOnce(DirectExtender):
    """Its first answer to filter is an error, as before the first plan."""

    has_failed = False

    def filter(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        if not self.has_failed:
            self.has_failed = True
            raise HookError("the extender is not ready")
        return super().filter(pod, member, offered)


def test_a_pod_whose_filter_call_fails_is_retried_after_its_backoff() -> None:
    world = cluster(nodes=1)
    world.extender.__class__ = FailingOnce
    runs = run(world, 10, job("one", 1))

    started_at = runs["one"].first_started_at
    assert started_at is not None
    assert 1 <= started_at - runs["one"].created_at <= 3


def test_a_job_without_a_duration_works_until_its_end_and_its_uids_are_not_reused() -> None:
    world = cluster(nodes=1)
    world.workloads.create(job("open", 2, lasts_s=None))
    world.run(world.time.monotonic() + 1000)
    (first,) = world.workloads.present
    earlier = set(world.api.pods)
    assert first.working_since is not None

    world.workloads.end(first.job.key)
    assert not world.workloads.present
    assert not world.api.pods
    world.workloads.create(first.job)

    assert len(world.api.pods) == 2
    assert not earlier & set(world.api.pods)


def test_the_pods_of_jobs_that_are_created_together_come_in_turn() -> None:
    world = cluster()
    world.workloads.create(job("red", 3), job("blue", 2))

    names = [seen.pod.name for seen in world.api.pods.values()]
    assert names == ["red-0", "blue-0", "red-1", "blue-1", "red-2"]


def test_a_paced_clock_runs_callbacks_in_order_and_hands_over_results_and_errors() -> None:
    clock, ran = PacedClock(), []
    thread = threading.Thread(target=clock.run, args=(lambda: ran.append("after"),))
    clock.call_later(0.02, lambda: ran.append("later"))
    clock.call_soon(lambda: ran.append("soon"))
    thread.start()

    assert clock.result_of(threading.current_thread) is thread
    with pytest.raises(ZeroDivisionError):
        clock.result_of(lambda: 1 // 0)
    clock.call_later(0.03, clock.stop)
    thread.join(10)
    assert [each for each in ran if each != "after"] == ["soon", "later"]
    assert ran.count("after") == 5
