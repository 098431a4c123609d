"""The room: what a trial did is gone without a trace, unless it was kept."""

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
    census = Accounting(snapshot)
    gangs = [census.state(key) for key in snapshot.gangs]
    return FreeCapacity(snapshot.nodes), [each for each in gangs if each is not None]


def picture(room: FreeCapacity, gangs: list[GangState]) -> tuple[object, ...]:
    return (
        room.free.tolist(),
        room.releasing.tolist(),
        room.full.tolist(),
        [departure.pod.uid for departure in room.evictions],
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


def do(room: FreeCapacity, gangs: list[GangState], kind: str, number: int) -> None:
    each = gangs[number % len(gangs)]
    row = number % len(room.table.nodes)
    waiting = [pod for pod in each.gang.waiting if pod.uid not in {p.uid for p, _ in each.placed}]
    seated = [pod for pod in each.gang.pods if pod.node and pod.uid not in each.evicted]
    if kind == "place" and waiting:
        room.place(each, waiting[:1], [row])
    elif kind == "pipeline" and waiting:
        room.pipeline(each, waiting[0], row)
    elif kind == "evict" and seated and room.row_of(seated[0]) >= 0:
        room.evict(PlannedEviction(each, seated[0], room.row_of(seated[0]), "preempt", gangs[0]))


@given(snapshots(), STEPS, STEPS)
@settings(max_examples=examples(60))
def test_an_abandoned_trial_leaves_everything_as_it_was(
    before: Snapshot, outer: list[tuple[str, int]], inner: list[tuple[str, int]]
) -> None:
    room, gangs = opened(before)
    first = picture(room, gangs)

    with room.trial(gangs[0]):
        for step in outer:
            do(room, gangs, *step)
        with room.trial() as kept:
            for step in inner:
                do(room, gangs, *step)
            kept.keep()

    assert picture(room, gangs) == first


def test_what_is_kept_stays() -> None:
    room, (train,) = opened(snapshot(nodes(2, cpu=4), [gang("a/train", 2, cpu=1)]))

    with room.trial(train) as trial:
        room.place(train, list(train.gang.pods), [0, 0])
        trial.keep()

    assert room.free[:, 0].tolist() == [2000, 4000]
    assert train.ready == 2
    assert train.queue.allocated.amount("cpu") == 2000


def test_an_error_inside_a_trial_undoes_it_too() -> None:
    room, (train,) = opened(snapshot(nodes(1), [gang("a/train", 1, cpu=1)]))

    try:
        with room.trial(train) as trial:
            room.place(train, list(train.gang.pods), [0])
            trial.keep()
            raise RuntimeError
    except RuntimeError:
        pass

    assert train.placed == []
    assert room.free[0, 0] == 4000


def test_room_that_is_owed_is_paid_by_whoever_leaves() -> None:
    running = gang("a/old", 2, on=["n1", "n1"], cpu=2)
    room, (old,) = opened(snapshot(nodes(1, cpu=5), [running]))
    four = np.array([4000, 0, 0])

    fence = room.reservation(0, four)
    assert room.free[0, 0] == 0
    assert fence.kept[0] == 1000
    room.evict(PlannedEviction(old, old.gang.pods[0], 0, "preempt", old))
    assert room.releasing[0, 0] == -1000

    room.release(fence)
    assert (room.free[0, 0], room.releasing[0, 0]) == (1000, 2000)
