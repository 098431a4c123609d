"""Free capacity and host ports: a trial leaves no trace, unless it is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import given, settings, strategies as st

from extender.model.node import HostPorts
from extender.model.pod import HostPort, Shape
from extender.model.snapshot import Snapshot
from extender.planner.accounting import Accounting
from extender.planner.free_capacity import FreeCapacity, PlannedEviction, PortUsage
from extender.planner.planner import make_plan
from extender.planner.state import GangState
from tests.builders import gang, nodes, pod, shape, snapshot
from tests.steps import steps
from tests.strategies import examples, snapshots

ports = st.builds(
    HostPort,
    st.integers(1, 3),
    st.sampled_from(["TCP", "UDP"]),
    st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2", "*", ""]),
)
sets = st.lists(ports, max_size=4).map(tuple)
STEPS = st.lists(st.tuples(st.sampled_from(["place", "pipeline", "evict"]), st.integers(0, 99)))


def clash(one: HostPort, other: HostPort) -> bool:
    """Return whether two host ports cannot be on one node, by the documented rule."""
    same = one.port == other.port and one.protocol == other.protocol
    return same and (one.ip == other.ip or "0.0.0.0" in (one.ip, other.ip))


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


@given(
    st.lists(sets, min_size=3, max_size=3),
    st.lists(st.tuples(sets, st.lists(st.integers(0, 2), min_size=1, max_size=3)), max_size=4),
    st.integers(0, 4),
    sets,
)
def test_nodes_conflict_where_two_host_ports_do(taken, reserved, released, wanted) -> None:  # type: ignore[no-untyped-def]
    table = snapshot(nodes(3)).nodes
    ports = {each.name: HostPorts(taken[row]) for row, each in enumerate(table.nodes) if taken[row]}
    index = PortUsage(replace(table, ports=ports))
    made = [(Shape(host_ports=some), rows) for some, rows in reserved]
    for kind, rows in made:
        index.reserve(kind, rows)
        index.conflicting(Shape(host_ports=wanted))
    kept = made[: len(made) - released] if released <= len(made) else []
    for kind, rows in reversed(made[len(kept) :]):
        index.release(kind, rows)

    assert index.conflicting(Shape(host_ports=wanted)).tolist() == [
        any(
            clash(one, other)
            for one in wanted
            for other in (
                *taken[row],
                *(port for kind, rows in kept if row in rows for port in kind.host_ports),
            )
        )
        for row in range(3)
    ]


def planning(pods: int, ports: int) -> Callable[[], object]:
    """Plan half of *pods*, each with its own ports, beside the others on one node."""
    kinds = [
        Shape(
            requests=shape(cpu=0.01).requests,
            host_ports=tuple(HostPort(1000 + ports * n + each) for each in range(ports)),
        )
        for n in range(pods)
    ]
    running = [
        gang(f"a/run-{n}", pods=[pod(f"run-{n}", kinds[n], on="n1")], on=["n1"])
        for n in range(pods // 2)
    ]
    waiting = [
        gang(f"a/wait-{n}", pods=[pod(f"wait-{n}", kinds[n])]) for n in range(pods // 2, pods)
    ]
    before = snapshot(nodes(3, cpu=64), [*running, *waiting])
    return lambda: make_plan(before)


def test_the_cost_of_a_pod_grows_no_faster_than_its_host_ports() -> None:
    few, many = (steps(planning(16, ports)) for ports in (8, 64))

    # Comparing each pair would cost 64 times as much for the ports.
    assert many - few < 20 * 16 * 56


@given(st.lists(sets, max_size=4), sets)
def test_host_ports_conflict_exactly_where_two_of_them_conflict(
    taken: list[tuple[HostPort, ...]], wanted
) -> None:  # type: ignore[no-untyped-def]
    counted = HostPorts()
    for some in taken:
        counted = counted.plus(some)

    assert counted.conflicts(wanted) == any(
        clash(one, other) for one in wanted for some in taken for other in some
    )


@given(st.lists(sets, max_size=4), sets)
def test_a_port_added_twice_and_removed_once_is_still_used(taken, more) -> None:  # type: ignore[no-untyped-def]
    before = HostPorts(port for some in taken for port in some)

    assert before.plus(more).minus(more) == before
    assert not before.plus(more).minus(more).minus(p for some in taken for p in some)


def test_adding_ports_does_not_change_the_original() -> None:
    before = HostPorts([HostPort(80)])
    before.plus([HostPort(81)])

    assert not before.conflicts([HostPort(81)])
    assert before.conflicts([HostPort(80, ip="10.0.0.1")])
