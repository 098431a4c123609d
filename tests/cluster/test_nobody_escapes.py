"""A tenant's tricks on the real API server: whoever runs counts, whatever is written later."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import objects

from . import telling
from .api import Api, Object
from .control_plane import ControlPlane
from .observer import alive
from .stage import GangScheduler, Pool, gang, running_pair
from .telling import wait_until_running
from .waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]

SCHEDULER = "strict-scheduler"


@pytest.fixture
def pair(plane: ControlPlane) -> Iterator[GangScheduler]:
    """A pair of its own, because its extender is started anew."""
    with running_pair(plane, scheduler_name=SCHEDULER) as made:
        yield made


def test_no_trick_with_its_pod_group_frees_what_a_gang_uses_nor_does_a_restart_of_ours(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(2, cpu="4")
    small, other = f"small-{namespace}", f"other-{namespace}"
    create(objects.queue(small, capability={"cpu": "2"}), objects.queue(other))
    telling.wait_until_queue_is_known(pair.extender, other)
    ours = {"scheduler": SCHEDULER, "queue": small}
    gang(api, "first", namespace, 2, pool, **ours)
    wait_until_running(api, "first", namespace, 2)
    gang(api, "second", namespace, 2, pool, **ours)
    telling.wait_until_waiting(pair.extender, namespace, "second", "QueueAtCapability")

    with plane.binds(namespace) as binds:
        api.patch(objects.POD_GROUPS, "first", {"spec": {"queue": other}}, namespace)
        api.delete(objects.POD_GROUPS, "first", namespace)
        wait_for(
            lambda: telling.over_http(pair.extender, namespace, "first")["verdict"] == "invalid",
            10,
            "the extender misses the PodGroup",
        )

        assert telling.used_cpus(pair.extender, small) == "2"
        assert telling.used_cpus(pair.extender, other) in (None, "0")
        pair.extender.restart()
        telling.wait_until_used(pair.extender, small, "2")
        telling.wait_until_waiting(pair.extender, namespace, "second", "QueueAtCapability")
        assert not binds.of("second")

        for index in range(2):
            api.delete("pods", f"first-{index}", namespace)
        binds.wait_for(2, 15, prefix="second")
    said = api.get("pods", "second-0", namespace)["metadata"]["annotations"]
    assert said[objects.STARTED_IN] == small


def test_pods_that_take_their_time_to_end_count_until_they_are_gone(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    """Whoever deletes pods that ignore it for an hour does not have twice its queue meanwhile."""
    pool = nodes(2, cpu="4")
    small = f"small-{namespace}"
    create(objects.queue(small, capability={"cpu": "2"}))
    telling.wait_until_queue_is_known(pair.extender, small)
    ours = {"scheduler": SCHEDULER, "queue": small}
    slow = {"stop_seconds": 3600, "terminationGracePeriodSeconds": 3600}
    gang(api, "first", namespace, 2, pool, **ours, **slow)
    wait_until_running(api, "first", namespace, 2)

    for index in range(2):
        api.delete("pods", f"first-{index}", namespace)
    with plane.binds(namespace) as binds:
        gang(api, "second", namespace, 2, pool, **ours)
        create(objects.pod("alone", namespace, node_selector=pool.selector, **ours))
        telling.wait_until_waiting(pair.extender, namespace, "second", "QueueAtCapability")
        assert (
            "terminating pods use"
            in telling.over_http(pair.extender, namespace, "second")["message"]
        )
        assert not binds.of("second")
        assert not binds.of("alone")

        api.delete("pods", "alone", namespace)
        for index in range(2):
            api.delete("pods", f"first-{index}", namespace, grace_seconds=0)
        binds.wait_for(2, 15, prefix="second")


def test_a_gang_without_its_pod_group_gives_back_what_another_queue_deserves(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
) -> None:
    pool = nodes(2, cpu="4")
    theirs, ours = f"a-{namespace}", f"b-{namespace}"
    create(objects.queue(theirs), objects.queue(ours))
    telling.wait_until_queue_is_known(pair.extender, ours)
    for number in range(4):
        gang(api, f"lost{number}", namespace, 2, pool, queue=theirs, scheduler=SCHEDULER)
    for number in range(4):
        wait_until_running(api, f"lost{number}", namespace, 2)
        api.delete(objects.POD_GROUPS, f"lost{number}", namespace)

    with plane.binds(namespace) as binds:
        gang(api, "due", namespace, 4, pool, queue=ours, scheduler=SCHEDULER)
        binds.wait_for(4, 15, prefix="due")

    assert sum(alive(api, namespace, "lost").values()) == 4


def test_a_class_over_pods_that_do_not_have_it_makes_nobody_leave(
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    create: Create,
    tenant: Callable[..., str],
) -> None:
    pool, urgent, liars = nodes(4, cpu="8"), f"urgent-{namespace}", tenant("liars")
    create(objects.priority_class(urgent, 1000))
    ours = {"scheduler": SCHEDULER, "node_selector": pool.selector}
    gang(api, "whole", namespace, 32, pool, scheduler=SCHEDULER)
    wait_until_running(api, "whole", namespace, 32)

    api.create(objects.pod_group("liar", liars, 32, priorityClassName=urgent))
    api.create(*objects.pods(32, "liar", liars, gang="liar", **ours))
    told = telling.wait_until_said(api, pair.extender, liars, "liar", "InsufficientCapacity")

    assert told["priority"] == 0
    assert f"priority class {urgent} counts as 0, which is what the pods have" in told["message"]
    assert alive(api, namespace) == {"whole": 32}

    api.create(objects.pod_group("honest", liars, 32, priorityClassName=urgent))
    api.create(*objects.pods(32, "honest", liars, gang="honest", priority=urgent, **ours))
    wait_for(
        lambda: alive(api, liars)["honest"] == 32,
        30,
        "whose pods have the class comes first",
        seeing=lambda: telling.over_http(pair.extender, liars, "honest"),
    )


def test_a_tenant_gets_no_priority_by_the_name_of_a_system_class_and_reads_why(
    api: Api, pair: GangScheduler, namespace: str, nodes: Nodes, create: Create
) -> None:
    pool = nodes(1, cpu="2")
    usual = f"usual-{namespace}"
    create(objects.priority_class(usual, 100))
    ours = {"scheduler": SCHEDULER, "node_selector": pool.selector}
    api.create(objects.pod_group("first", namespace, 2, priorityClassName=usual))
    api.create(*objects.pods(2, "first", namespace, gang="first", **ours))
    wait_until_running(api, "first", namespace, 2)

    api.create(
        objects.pod_group("greedy", namespace, 2, priorityClassName="system-cluster-critical")
    )
    api.create(*objects.pods(2, "greedy", namespace, gang="greedy", **ours))
    told = telling.wait_until_said(api, pair.extender, namespace, "greedy", "InsufficientCapacity")

    assert told["priority"] == 0
    why = f"priority class system-cluster-critical does not count in namespace {namespace}"
    assert why in told["message"]
    said = telling.in_condition(api, namespace, "greedy")
    assert said is not None
    assert why in said.message
    assert alive(api, namespace) == {"first": 2}

    listed = {"gang-extender.io/priority-classes": "system-cluster-critical"}
    api.patch("namespaces", namespace, {"metadata": {"annotations": listed}})
    wait_for(
        lambda: alive(api, namespace)["greedy"] == 2,
        15,
        "the class counts where administrators list it",
        seeing=lambda: telling.over_http(pair.extender, namespace, "greedy"),
    )
