"""Counted host ports conflict exactly where comparing each pair conflicts."""

from __future__ import annotations

from hypothesis import given, strategies as st

from extender.model.node import HostPorts
from extender.model.pod import HostPort

ports = st.builds(
    HostPort,
    st.integers(1, 3),
    st.sampled_from(["TCP", "UDP"]),
    st.sampled_from(["0.0.0.0", "10.0.0.1", "10.0.0.2", "*", ""]),
)
sets = st.lists(ports, max_size=4).map(tuple)


def clash(one: HostPort, other: HostPort) -> bool:
    """Return whether two host ports cannot be on one node, by the documented rule."""
    same = one.port == other.port and one.protocol == other.protocol
    return same and (one.ip == other.ip or "0.0.0.0" in (one.ip, other.ip))


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
