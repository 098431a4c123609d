"""Reservations are released if their queue changes, so that their gang does not start.

A gang gets them while kube-scheduler is stopped; the queue is changed before it runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import objects

from . import reported
from .api import Api, Object
from .control_plane import ControlPlane
from .extender_process import Extender
from .reported import wait_until_refused
from .train_gang import OURS, SCHEDULER, GangScheduler, Pool, gang
from .waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]


@pytest.fixture(scope="module")
def pair(plane: ControlPlane) -> Iterator[GangScheduler]:
    with plane.extender(*OURS) as extender:
        config = plane.scheduler_config(extender, f"--scheduler-name={SCHEDULER}")
        with plane.scheduler(config) as scheduler:
            yield GangScheduler(extender, scheduler)


@pytest.fixture
def extender(pair: GangScheduler) -> Extender:
    return pair.extender


@pytest.fixture
def queue(extender: Extender, namespace: str, create: Create) -> str:
    """The queue in which the gang `train` gets its reservations."""
    name = f"q-{namespace}"
    create(objects.queue(name, capability={"cpu": "2"}))
    reported.wait_until_queue_is_known(extender, name)
    return name


@pytest.fixture
def closed(api: Api, extender: Extender, namespace: str, create: Create) -> str:
    """A closed queue."""
    name = f"closed-{namespace}"
    create(objects.queue(name))
    reported.wait_until_queue_is_known(extender, name)
    set_state(api, name, "Closed")
    return name


@pytest.fixture
def reserved(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    queue: str,
    closed: str,
) -> Iterator[None]:
    """Reservations for the gang `train`, while kube-scheduler is stopped."""
    pool = nodes(2)
    # A scheduler that has never called gets no reservations.
    with plane.binds(namespace) as binds:
        api.create(
            objects.pod("first", namespace, scheduler=SCHEDULER, node_selector=pool.selector)
        )
        binds.wait_for(1, 20)
    pair.scheduler.terminate()
    try:
        gang(api, "train", namespace, 2, pool, queue=queue, scheduler=SCHEDULER)
        wait_for_verdict(pair, namespace, "admitted")
        yield
    finally:
        if not pair.scheduler.is_running:
            pair.scheduler.start()


def wait_for_verdict(pair: GangScheduler, namespace: str, verdict: str) -> None:
    def current() -> str:
        return str(reported.explanation(pair.extender, namespace, "train")["verdict"])

    wait_for(lambda: current() == verdict, 10, f"the gang is {verdict}", seeing=current)


def set_state(api: Api, name: str, state: str) -> None:
    api.patch(objects.QUEUES, name, {"status": {"state": state}}, subresource="status")


def assert_starts_only_after(
    plane: ControlPlane, pair: GangScheduler, namespace: str, words: str, fix: Callable[[], Any]
) -> None:
    """Assert that kube-scheduler is refused with *words*, and starts the gang after *fix*."""
    wait_for_verdict(pair, namespace, "waiting")  # in a new plan
    with plane.binds(namespace) as binds:
        pair.scheduler.start()
        for name in ("train-0", "train-1"):
            wait_until_refused(plane.api, namespace, name, words)
        assert binds.binds == []
        fix()
        binds.wait_for(2, 30)


@pytest.mark.usefixtures("reserved")
def test_reservation_in_a_queue_that_was_closed_is_released(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, queue: str
) -> None:
    set_state(api, queue, "Closed")

    assert_starts_only_after(
        plane, pair, namespace, "is not open", lambda: set_state(api, queue, "Open")
    )


@pytest.mark.usefixtures("reserved")
def test_reservation_above_a_lowered_capability_is_released(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, queue: str
) -> None:
    def set_capability(cpu: str) -> None:
        api.patch(objects.QUEUES, queue, {"spec": {"capability": {"cpu": cpu}}})

    set_capability("1")

    assert_starts_only_after(plane, pair, namespace, "capability", lambda: set_capability("2"))


@pytest.mark.usefixtures("reserved")
def test_reservation_is_released_if_the_gang_moves_to_another_queue(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, queue: str, closed: str
) -> None:
    def move(name: str) -> None:
        api.patch(objects.POD_GROUPS, "train", {"spec": {"queue": name}}, namespace)

    move(closed)

    assert_starts_only_after(plane, pair, namespace, "is not open", lambda: move(queue))
