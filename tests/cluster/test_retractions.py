"""Tickets that are good no more, on the real kube-scheduler: whoever holds one does not start.

They are given while kube-scheduler is away, and an administrator or their own tenant has changed
the queue by the time it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from . import objects, telling
from .api import Api, Object
from .conftest import Pool
from .control_plane import ControlPlane
from .extender_process import Extender
from .stage import OURS, SCHEDULER
from .test_gangs import wait_until_refused
from .test_status import gang
from .waiting import wait_for

Nodes = Callable[..., Pool]
Create = Callable[..., list[Object]]


@pytest.fixture(scope="module")
def extender(plane: ControlPlane) -> Iterator[Extender]:
    with plane.extender(*OURS) as extender:
        yield extender


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
def pool(
    api: Api, extender: Extender, namespace: str, nodes: Nodes, queue: str, closed: str
) -> Pool:
    """Two nodes, on which the gang `train` has its tickets."""
    pool = nodes(2)
    gang(api, "train", namespace, 2, pool, queue=queue, scheduler=SCHEDULER)

    def said() -> str:
        return str(telling.over_http(extender, namespace, "train")["verdict"])

    wait_for(lambda: said() == "admitted", 20, "the gang has its tickets", seeing=said)
    return pool


def set_state(api: Api, name: str, state: str) -> None:
    api.patch(objects.QUEUES, name, {"status": {"state": state}}, subresource="status")


def assert_starts_only_when_mended(
    plane: ControlPlane,
    extender: Extender,
    namespace: str,
    words: str,
    mend: Callable[[], Any],
) -> None:
    """Let kube-scheduler come, refuse it with *words*, and start the gang after *mend*."""
    config = plane.scheduler_config(extender, f"--scheduler-name={SCHEDULER}")
    with plane.binds(namespace) as binds, plane.scheduler(config):
        for name in ("train-0", "train-1"):
            wait_until_refused(plane.api, namespace, name, words)
        assert binds.binds == []
        mend()
        binds.wait_for(2, 30)


@pytest.mark.usefixtures("pool")
def test_nobody_starts_with_a_ticket_of_a_queue_that_was_closed_since(
    plane: ControlPlane, api: Api, extender: Extender, namespace: str, queue: str
) -> None:
    set_state(api, queue, "Closed")

    assert_starts_only_when_mended(
        plane, extender, namespace, "is not open", lambda: set_state(api, queue, "Open")
    )


@pytest.mark.usefixtures("pool")
def test_nobody_starts_with_a_ticket_of_a_queue_whose_ceiling_was_lowered_since(
    plane: ControlPlane, api: Api, extender: Extender, namespace: str, queue: str
) -> None:
    def set_ceiling(cpu: str) -> None:
        api.patch(objects.QUEUES, queue, {"spec": {"capability": {"cpu": cpu}}})

    set_ceiling("1")

    assert_starts_only_when_mended(
        plane, extender, namespace, "capability", lambda: set_ceiling("2")
    )


@pytest.mark.usefixtures("pool")
def test_nobody_takes_the_ticket_of_one_queue_along_to_another(
    plane: ControlPlane, api: Api, extender: Extender, namespace: str, queue: str, closed: str
) -> None:
    def move(name: str) -> None:
        api.patch(objects.POD_GROUPS, "train", {"spec": {"queue": name}}, namespace)

    move(closed)

    assert_starts_only_when_mended(plane, extender, namespace, "is not open", lambda: move(queue))
