"""Binds that kube-scheduler decided are sent without a lease; unknown pods are read first."""

from __future__ import annotations

from typing import Any

import msgspec

from extender.kube.write import bind
from extender.leader.fencing import Term
from extender.ports import BindOrder, Whose
from tests.api_server import NEVER, scene
from tests.unit.kube.write.test_bind import Binds, connected_binder, order


def bind_order(whose: Whose, name: str = "w-0") -> BindOrder:
    return msgspec.structs.replace(order(name), whose=whose)


def without_lease(exempt: str = "uid-w-0") -> Any:
    """A binder that never held the lease."""
    return connected_binder(
        fencing=Term(lambda: 0.0), is_exempt=lambda pod: pod.metadata.uid == exempt
    )


@scene(without_lease)
async def test_a_bind_kube_scheduler_decided_is_sent_without_a_lease(binds: Binds, /) -> None:
    binds.server.add_pod("w-0")

    assert await binds.outcomes(bind_order(Whose.SCHEDULERS)) == [bind.BOUND]
    assert binds.server.node_of("w-0") == "n-1"


@scene(without_lease)
async def test_a_bind_kube_scheduler_decided_is_retried_without_a_lease(binds: Binds, /) -> None:
    binds.server.add_pod("w-0")
    binds.server.script.append(503)

    assert await binds.outcomes(bind_order(Whose.SCHEDULERS)) == [bind.BOUND]


@scene(without_lease)
async def test_beside_an_exempt_bind_our_own_is_refused_without_a_lease(binds: Binds, /) -> None:
    binds.server.add_pod("w-0")
    binds.server.add_pod("w-1")

    both = bind_order(Whose.SCHEDULERS), order("w-1")
    assert await binds.outcomes(*both) == [bind.BOUND, bind.NOT_LEADER]
    assert not binds.server.node_of("w-1")


@scene(without_lease)
async def test_an_unknown_pod_is_read_and_bound_if_it_is_exempt(binds: Binds, /) -> None:
    binds.server.add_pod("w-0")

    assert await binds.outcomes(bind_order(Whose.UNKNOWN)) == [bind.BOUND]
    assert [each.method for each in binds.server.requests] == ["GET", "POST"]


@scene(without_lease, exempt="uid-of-another")
async def test_an_unknown_pod_that_is_not_exempt_is_not_bound(binds: Binds, /) -> None:
    binds.server.add_pod("w-0")

    assert await binds.outcomes(bind_order(Whose.UNKNOWN)) == [bind.NOT_EXEMPT]
    assert [each.method for each in binds.server.requests] == ["GET"]


@scene(without_lease)
async def test_an_unknown_pod_that_was_deleted_is_not_bound(binds: Binds, /) -> None:
    assert await binds.outcomes(bind_order(Whose.UNKNOWN)) == [bind.POD_GONE]


@scene(without_lease)
async def test_an_unknown_pod_still_being_read_at_its_deadline_has_certainly_failed(
    binds: Binds, /
) -> None:
    binds.server.add_pod("w-0")
    binds.server.script.append(NEVER)

    assert await binds.outcomes(bind_order(Whose.UNKNOWN), within_s=0.05) == [bind.TIMED_OUT]
