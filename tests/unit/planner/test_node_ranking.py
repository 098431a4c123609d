"""Choosing nodes for many equal pods in one go gives what choosing one by one gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from extender.model.pod import HostPort, Shape
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.policy import Policy
from extender.planner.session import Session
from extender.planner.state import GangState
from tests.builders import gang, node, nodes, pod, shape, snapshot
from tests.strategies import examples, node_lists

SPREAD = policy_parser.parse("tiers: [{plugins: [{name: nodeorder}]}]")
PACK = policy_parser.parse("tiers: [{plugins: [{name: binpack}]}]")


def opened(before: Snapshot, chosen: Policy) -> tuple[Session, GangState]:
    session = Session(before, chosen)
    return session, next(iter(session.accounting.contenders.values()))


def one_by_one(session: Session, waiting: GangState, kind: Shape, count: int) -> list[int]:
    rows: list[int] = []
    for member in waiting.gang.pods[:count]:
        found = session.nodes.ranking(kind).best(1)
        if not found:
            break
        session.capacity.place(waiting, [member], found)
        rows += found
    return rows


@given(
    node_lists(),
    st.integers(1, 12),
    st.sampled_from([0.5, 1, 2]),
    st.integers(0, 3),
    st.sampled_from([SPREAD, PACK, policy_parser.DEFAULT]),
)
@settings(max_examples=examples(120))
def test_nodes_chosen_for_many_pods_at_once_equal_those_chosen_one_by_one(  # type: ignore[no-untyped-def]
    members, count, cpu, memory, chosen
) -> None:
    before = snapshot(members, [gang("a/train", count, cpu=cpu, memory=memory)])
    kind = shape(cpu=cpu, memory=memory)
    first, _ = opened(before, chosen)
    at_once = first.nodes.ranking(kind).best(count)
    second, other = opened(before, chosen)

    assert at_once == one_by_one(second, other, kind, count)


def test_in_a_large_cluster_every_choice_still_fits() -> None:
    sizes = [node(f"n{number:04}", cpu=1 + number % 7, memory=4) for number in range(700)]
    before = snapshot(sizes, [gang("a/big", 1500, cpu=1)])
    session, waiting = opened(before, policy_parser.DEFAULT)
    kind = shape(cpu=1)
    left = list(waiting.gang.pods)
    while left and (rows := session.nodes.ranking(kind).best(len(left))):
        session.capacity.place(waiting, left[: len(rows)], rows)
        left = left[len(rows) :]

    assert not left
    assert (session.capacity.free >= 0).all()


def test_packing_fills_one_node_after_the_other_and_spreading_does_not() -> None:
    before = snapshot(nodes(3, cpu=4), [gang("a/train", 4, cpu=1)])

    packed, _ = opened(before, PACK)
    spread, _ = opened(before, SPREAD)

    assert len(set(packed.nodes.ranking(shape(cpu=1)).best(4))) == 1
    assert len(set(spread.nodes.ranking(shape(cpu=1)).best(3))) == 3


def test_a_host_port_is_given_once_per_node() -> None:
    ported = Shape(requests=shape(cpu=1).requests, host_ports=(HostPort(80),))
    taken = pod("old", ported, on="n1")
    waiting = [pod(f"new-{number}", ported) for number in range(3)]
    before = snapshot(
        nodes(3, cpu=8),
        [gang("a/old", pods=[taken], on=["n1"]), gang("a/new", pods=waiting)],
    )
    session, state = opened(before, policy_parser.DEFAULT)

    rows = session.nodes.ranking(ported).best(3)
    session.capacity.place(state, waiting[: len(rows)], rows)

    assert sorted(rows) == [1, 2]
    assert session.nodes.ranking(ported).best(1) == []
    assert not session.nodes.ranking(ported).fits(1)


def test_a_resource_no_node_has_leaves_no_slot() -> None:
    before = snapshot(nodes(2), [gang("a/train", 1, cpu=1, gpu=1)])
    session, _ = opened(before, policy_parser.DEFAULT)

    assert session.nodes.ranking(shape(cpu=1, gpu=1)).free == 0


def test_releasing_capacity_is_found_when_none_is_free() -> None:
    terminating = gang("a/old", 1, on=["n2"], cpu=4, each={"status": _releasing()})
    before = snapshot(nodes(2, cpu=4), [terminating, gang("a/new", 2, cpu=4)])
    session, state = opened(before, policy_parser.DEFAULT)
    session.capacity.place(state, list(state.gang.pods[:1]), [0])

    assert session.nodes.ranking(shape(cpu=4)).best(1) == []
    assert session.nodes.ranking(shape(cpu=4)).best_releasing() == 1
    assert np.array_equal(session.capacity.releasing[0], [0, 0, 0])


def _releasing():  # type: ignore[no-untyped-def]
    from extender.model.pod import Status

    return Status.RELEASING
