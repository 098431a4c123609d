"""Reads of a PodGroup from the API server, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from extender.errors import ApiError, NoResponse
from extender.kube.read import GroupReads
from extender.model.gang import PodGroup
from tests.api_server import HANG_UP, LoopbackServer, connected, loopback_server, scene

GROUP = PodGroup(
    namespace="team", name="train", min_member=2, uid="g-1", dialect="scheduling.volcano.sh"
)
PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/team/podgroups/train"


def live(min_member: object = 4) -> dict[str, object]:
    return {
        "metadata": {
            "namespace": "team",
            "name": "train",
            "uid": "g-1",
            "creationTimestamp": "2026-11-15T00:00:00Z",
        },
        "spec": {"minMember": min_member},
    }


class Reads:
    """Reads, and the API server that answers them."""

    def __init__(self, server: LoopbackServer, groups: GroupReads) -> None:
        self.server = server
        self._groups = groups

    async def read(self, group: PodGroup = GROUP) -> PodGroup | None:
        return await asyncio.wrap_future(self._groups.read(group))


@asynccontextmanager
async def connected_reads() -> AsyncIterator[tuple[Reads]]:
    async with loopback_server() as server, connected(server) as pipeline:
        yield (Reads(server, GroupReads(pipeline)),)


@pytest.mark.parametrize(
    ("dialect", "path"),
    [
        ("scheduling.volcano.sh", "/apis/scheduling.volcano.sh/v1beta1/"),
        ("scheduling.x-k8s.io", "/apis/scheduling.x-k8s.io/v1alpha1/"),
        ("scheduling.sigs.dev", "/apis/scheduling.sigs.dev/v1alpha2/"),
        ("scheduling.incubator.k8s.io", "/apis/scheduling.incubator.k8s.io/v1alpha1/"),
    ],
)
@scene(connected_reads)
async def test_a_pod_group_of_each_dialect_is_read_from_the_api_server_and_not_from_the_cache(
    reads: Reads, /, dialect: str, path: str
) -> None:
    reads.server.objects[f"{path}namespaces/team/podgroups/train"] = live(min_member=4)
    group = await reads.read(replace(GROUP, dialect=dialect))

    assert group is not None
    assert (group.dialect, group.key, group.uid, group.min_member) == (
        dialect,
        "team/train",
        "g-1",
        4,
    )


@scene(connected_reads)
async def test_a_pod_group_that_does_not_exist_is_none(reads: Reads, /) -> None:
    assert await reads.read() is None


@scene(connected_reads)
async def test_a_gang_without_a_pod_group_is_not_requested(reads: Reads, /) -> None:
    implicit = replace(GROUP, dialect="")

    assert await reads.read(implicit) is implicit
    assert reads.server.requests == []


@scene(connected_reads)
async def test_an_invalid_pod_group_names_its_problem(reads: Reads, /) -> None:
    reads.server.objects[PATH] = live(min_member="four")
    group = await reads.read()

    assert group is not None
    assert "minMember" in group.problem


@scene(connected_reads)
async def test_a_read_is_retried_once_after_a_closed_connection(reads: Reads, /) -> None:
    reads.server.objects[PATH] = live()
    reads.server.script.append(HANG_UP)
    assert await reads.read() is not None

    reads.server.script.extend([HANG_UP, HANG_UP])
    with pytest.raises(NoResponse, match="no response"):
        await reads.read()


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
@scene(connected_reads)
async def test_a_refused_read_is_an_error_and_not_an_absent_group(
    reads: Reads, /, status: int
) -> None:
    reads.server.script.append(status)

    with pytest.raises(ApiError) as refused:
        await reads.read()
    assert refused.value.status == status


@scene(connected_reads)
async def test_a_response_that_is_no_object_is_an_error(reads: Reads, /) -> None:
    reads.server.objects[PATH] = ["not", "an", "object"]

    with pytest.raises(ApiError, match="not a PodGroup"):
        await reads.read()
