"""Tickets that are good no more, on the real kube-scheduler: whoever holds one does not start.

They are given while kube-scheduler is away, and an administrator or their own tenant has changed
the queue by the time it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import objects

from . import telling
from .api import Api, Object
from .control_plane import ControlPlane
from .extender_process import Extender
from .stage import OURS, SCHEDULER, GangScheduler, Pool, gang
from .telling import wait_until_refused
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
    """A queue, in which the gang `train` will have its tickets."""
    name = f"q-{namespace}"
    create(objects.queue(name, capability={"cpu": "2"}))
    telling.wait_until_queue_is_known(extender, name)
    return name


@pytest.fixture
def closed(api: Api, extender: Extender, namespace: str, create: Create) -> str:
    """Another queue, in which nobody may start."""
    name = f"closed-{namespace}"
    create(objects.queue(name))
    telling.wait_until_queue_is_known(extender, name)
    set_state(api, name, "Closed")
    return name


@pytest.fixture
def ticketed(
    plane: ControlPlane,
    api: Api,
    pair: GangScheduler,
    namespace: str,
    nodes: Nodes,
    queue: str,
    closed: str,
) -> Iterator[None]:
    """Tickets for the gang `train`, given while kube-scheduler is away."""
    pool = nodes(2)
    # Who was never heard has no tickets.
    with plane.binds(namespace) as binds:
        api.create(
            objects.pod("heard", namespace, scheduler=SCHEDULER, node_selector=pool.selector)
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
    def said() -> str:
        return str(telling.over_http(pair.extender, namespace, "train")["verdict"])

    wait_for(lambda: said() == verdict, 10, f"the gang is {verdict}", seeing=said)


def set_state(api: Api, name: str, state: str) -> None:
    api.patch(objects.QUEUES, name, {"status": {"state": state}}, subresource="status")


def assert_starts_only_when_mended(
    plane: ControlPlane, pair: GangScheduler, namespace: str, words: str, mend: Callable[[], Any]
) -> None:
    """Let kube-scheduler come, be refused with *words*, and start the gang after *mend*."""
    wait_for_verdict(pair, namespace, "waiting")  # which takes a plan
    with plane.binds(namespace) as binds:
        pair.scheduler.start()
        for name in ("train-0", "train-1"):
            wait_until_refused(plane.api, namespace, name, words)
        assert binds.binds == []
        mend()
        binds.wait_for(2, 30)


@pytest.mark.usefixtures("ticketed")
def test_nobody_starts_with_a_ticket_of_a_queue_that_was_closed_since(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, queue: str
) -> None:
    set_state(api, queue, "Closed")

    assert_starts_only_when_mended(
        plane, pair, namespace, "is not open", lambda: set_state(api, queue, "Open")
    )


@pytest.mark.usefixtures("ticketed")
def test_nobody_starts_with_a_ticket_of_a_queue_whose_ceiling_was_lowered_since(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, queue: str
) -> None:
    def set_ceiling(cpu: str) -> None:
        api.patch(objects.QUEUES, queue, {"spec": {"capability": {"cpu": cpu}}})

    set_ceiling("1")

    assert_starts_only_when_mended(plane, pair, namespace, "capability", lambda: set_ceiling("2"))


@pytest.mark.usefixtures("ticketed")
def test_nobody_takes_the_ticket_of_one_queue_along_to_another(
    plane: ControlPlane, api: Api, pair: GangScheduler, namespace: str, queue: str, closed: str
) -> None:
    def move(name: str) -> None:
        api.patch(objects.POD_GROUPS, "train", {"spec": {"queue": name}}, namespace)

    move(closed)

    assert_starts_only_when_mended(plane, pair, namespace, "is not open", lambda: move(queue))
