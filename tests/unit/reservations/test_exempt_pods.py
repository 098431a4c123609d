"""Exempt pods, critical or of kube-scheduler's own gangs, are admitted directly, and count in their
home queue from filter on."""

from __future__ import annotations

from typing import Any

import pytest

from extender.cache.reservation_table import ANY_NODE, Stage
from extender.model.gang import GangKey, Membership
from extender.model.pod import Pod
from extender.model.queue import Namespace, Queue
from tests.builders import GANG, ONE_CPU, amounts, pod, seen, uid

from .world import NODES, World

NATIVE = Membership(key=GANG, named=True, native=True)
SINGLE = Membership(key=GangKey("a/pod:x"))
HOME = (Namespace(name="a", queue="home"), Queue(name="home", capability=amounts(cpu=1)))
CRITICAL: dict[str, Any] = {"priority_class": "system-node-critical"}

privileged = pytest.mark.parametrize(
    ("pod", "member"),
    [
        (pod("x", **CRITICAL), SINGLE),
        (pod("x", exempt=True), SINGLE),
        (pod("x"), NATIVE),
    ],
    ids=["critical", "exempt", "native"],
)


@privileged
def test_an_exempt_pod_counts_in_its_home_queue_from_filter_on(
    pod: Pod, member: Membership
) -> None:
    world = World(*HOME)
    world.turn()

    assert list(world.gate.filter(pod, member, NODES).nodes) == NODES

    promise = world.table.of(pod.uid)
    assert promise is not None
    assert (promise.queue, promise.stage, promise.node) == ("home", Stage.FILTERED, ANY_NODE)
    assert world.ledger.check_queue("home", "a", ONE_CPU.requests) is not None
    world.turn()
    assert world.passes[-1].queues["home"].allocated == ONE_CPU.requests


@privileged
def test_other_pods_of_the_queue_wait_for_the_capacity_of_an_exempt_pod(
    pod: Pod, member: Membership
) -> None:
    world = World(*HOME)
    world.turn()
    world.gate.filter(pod, member, NODES)

    late = seen("late", "")
    assert not world.gate.filter(late.pod, late.membership, NODES).nodes


@privileged
def test_an_exempt_pod_is_admitted_and_bound_when_its_queue_is_full(
    pod: Pod, member: Membership
) -> None:
    world = World(*HOME, seen("first", "", on="n1"))
    world.turn()

    assert list(world.gate.filter(pod, member, NODES).nodes) == NODES
    assert world.ledger.may_bind(pod.uid, "n2")
    world.table.release(pod.uid)
    assert world.ledger.may_bind(pod.uid, "n2")


@privileged
def test_a_bind_of_an_exempt_pod_after_its_reservation_expired_counts_again(
    pod: Pod, member: Membership
) -> None:
    world = World(*HOME)
    world.turn()
    world.gate.filter(pod, member, NODES)
    world.table.release(pod.uid)

    world.ledger.mark_binding(pod.uid, "n2")

    assert world.cluster.reserved_in_queue(pod.uid) == "home"


def test_pods_of_other_schedulers_count_in_no_queue() -> None:
    world = World(*HOME)
    world.turn()

    world.gate.filter(pod("x", ours=False), SINGLE, NODES)

    assert world.table.of(uid("x")) is None
    assert world.cluster.reserved_in_queue(uid("x")) == ""
