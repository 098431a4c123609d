"""Nodes with conflicting host ports: the same as comparing each pair, with less work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given, strategies as st

from extender.model.node import HostPorts
from extender.model.pod import HostPort, Shape
from extender.planner.free_capacity import PortUsage
from extender.planner.planner import make_plan
from tests.builders import gang, nodes, pod, shape, snapshot
from tests.steps import steps
from tests.unit.model.test_host_ports import clash, sets


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
