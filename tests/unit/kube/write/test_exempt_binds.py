"""Binds that kube-scheduler decided are sent without a lease; unknown pods are read first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from extender.kube.write import bind
from extender.kube.write.bind import ApiBinder
from extender.leader.fencing import Term
from extender.ports import BindOrder, Whose
from tests.api_server import NEVER, LoopbackServer, connected, loopback_server, play
from tests.unit.kube.write.test_bind import order, outcomes

Story = Callable[[LoopbackServer, ApiBinder], Awaitable[None]]


def bind_order(whose: Whose, name: str = "w-0") -> BindOrder:
    return msgspec.structs.replace(order(name), whose=whose)


def run(story: Story, exempt: str = "uid-w-0") -> None:
    """Play *story* with a binder that never held the lease."""

    async def scene() -> None:
        async with loopback_server() as server, connected(server, size=1) as pipeline:
            binder = ApiBinder(
                pipeline,
                chance=lambda: 0.0,
                fencing=Term(lambda: 0.0),
                is_exempt=lambda pod: pod.metadata.uid == exempt,
                started_in=lambda uid: "",
            )
            await story(server, binder)

    play(scene())


def test_a_bind_kube_scheduler_decided_is_sent_without_a_lease():
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.add_pod("w-0")

        assert await outcomes(binder, bind_order(Whose.SCHEDULERS)) == [bind.BOUND]
        assert server.node_of("w-0") == "n-1"

    run(story)


def test_a_bind_kube_scheduler_decided_is_retried_without_a_lease():
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.add_pod("w-0")
        server.script.append(503)

        assert await outcomes(binder, bind_order(Whose.SCHEDULERS)) == [bind.BOUND]

    run(story)


def test_beside_an_exempt_bind_our_own_is_refused_without_a_lease():
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.add_pod("w-0")
        server.add_pod("w-1")

        both = bind_order(Whose.SCHEDULERS), order("w-1")
        assert await outcomes(binder, *both) == [bind.BOUND, bind.NOT_LEADER]
        assert not server.node_of("w-1")

    run(story)


def test_an_unknown_pod_is_read_and_bound_if_it_is_exempt():
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.add_pod("w-0")

        assert await outcomes(binder, bind_order(Whose.UNKNOWN)) == [bind.BOUND]
        assert [each.method for each in server.requests] == ["GET", "POST"]

    run(story)


def test_an_unknown_pod_that_is_not_exempt_is_not_bound():
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.add_pod("w-0")

        assert await outcomes(binder, bind_order(Whose.UNKNOWN)) == [bind.NOT_EXEMPT]
        assert [each.method for each in server.requests] == ["GET"]

    run(story, exempt="uid-of-another")


def test_an_unknown_pod_that_was_deleted_is_not_bound():
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        assert await outcomes(binder, bind_order(Whose.UNKNOWN)) == [bind.POD_GONE]

    run(story)


def test_an_unknown_pod_still_being_read_at_its_deadline_has_certainly_failed():
    async def story(server: LoopbackServer, binder: ApiBinder) -> None:
        server.add_pod("w-0")
        server.script.append(NEVER)

        assert await outcomes(binder, bind_order(Whose.UNKNOWN), within_s=0.05) == [bind.TIMED_OUT]

    run(story)
