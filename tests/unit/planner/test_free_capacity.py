"""The free capacity: a trial leaves no trace, unless it is kept."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from extender.model.snapshot import Snapshot
from extender.planner.accounting import Accounting
from extender.planner.free_capacity import FreeCapacity, PlannedEviction
from extender.planner.state import GangState
from tests.builders import gang, nodes, snapshot
from tests.strategies import examples, snapshots

STEPS = st.lists(st.tuples(st.sampled_from(["place", "pipeline", "evict"]), st.integers(0, 99)))


def opened(snapshot: Snapshot) -> tuple[FreeCapacity, list[GangState]]:
    accounting = Accounting(snapshot)
    gangs = [accounting.state(key) for key in snapshot.gangs]
    return FreeCapacity(snapshot.nodes), [each for each in gangs if each is not None]


def state_of(capacity: FreeCapacity, gangs: list[GangState]) -> tuple[object, ...]:
    return (
        capacity.free.tolist(),
        capacity.releasing.tolist(),
        capacity.full.tolist(),
        [eviction.pod.uid for eviction in capacity.evictions],
        [
            (
                each.ready,
                sorted(each.ready_by_role.items()),
                each.allocated.positive(),
                each.queue.allocated.positive(),
                list(each.placed),
                list(each.pipelined),
                set(each.evicted),
            )
            for each in gangs
        ],
    )


def apply_step(capacity: FreeCapacity, gangs: list[GangState], kind: str, number: int) -> None:
    each = gangs[number % len(gangs)]
    row = number % len(capacity.table.nodes)
    waiting = [pod for pod in each.gang.waiting if pod.uid not in {p.uid for p, _ in each.placed}]
    scheduled = [pod for pod in each.gang.pods if pod.node and pod.uid not in each.evicted]
    if kind == "place" and waiting:
        capacity.place(each, waiting[:1], [row])
    elif kind == "pipeline" and waiting:
        capacity.pipeline(each, waiting[0], row)
    elif kind == "evict" and scheduled and capacity.row_of(scheduled[0]) >= 0:
        capacity.evict(
            PlannedEviction(each, scheduled[0], capacity.row_of(scheduled[0]), "preempt", gangs[0])
        )


@given(snapshots(), STEPS, STEPS)
@settings(max_examples=examples(60))
def test_an_abandoned_trial_leaves_everything_as_it_was(
    before: Snapshot, outer: list[tuple[str, int]], inner: list[tuple[str, int]]
) -> None:
    capacity, gangs = opened(before)
    first = state_of(capacity, gangs)

    with capacity.trial(gangs[0]):
        for step in outer:
            apply_step(capacity, gangs, *step)
        with capacity.trial() as kept:
            for step in inner:
                apply_step(capacity, gangs, *step)
            kept.keep()

    assert state_of(capacity, gangs) == first


def test_a_kept_trial_stays() -> None:
    capacity, (train,) = opened(snapshot(nodes(2, cpu=4), [gang("a/train", 2, cpu=1)]))

    with capacity.trial(train) as trial:
        capacity.place(train, list(train.gang.pods), [0, 0])
        trial.keep()

    assert capacity.free[:, 0].tolist() == [2000, 4000]
    assert train.ready == 2
    assert train.queue.allocated.amount("cpu") == 2000


def test_an_error_inside_a_trial_undoes_it_too() -> None:
    capacity, (train,) = opened(snapshot(nodes(1), [gang("a/train", 1, cpu=1)]))

    try:
        with capacity.trial(train) as trial:
            capacity.place(train, list(train.gang.pods), [0])
            trial.keep()
            raise RuntimeError
    except RuntimeError:
        pass

    assert train.placed == []
    assert capacity.free[0, 0] == 4000


def test_evictions_supply_what_a_reservation_is_missing() -> None:
    running = gang("a/old", 2, on=["n1", "n1"], cpu=2)
    capacity, (old,) = opened(snapshot(nodes(1, cpu=5), [running]))
    four = np.array([4000, 0, 0])

    hold = capacity.hold(0, four)
    assert capacity.free[0, 0] == 0
    assert hold.kept[0] == 1000
    capacity.evict(PlannedEviction(old, old.gang.pods[0], 0, "preempt", old))
    assert capacity.releasing[0, 0] == -1000

    capacity.release(hold)
    assert (capacity.free[0, 0], capacity.releasing[0, 0]) == (1000, 2000)
