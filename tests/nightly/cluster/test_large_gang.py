"""A very large gang."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests import objects
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.observer import bound
from tests.cluster.train_gang import GangScheduler, Pool

Nodes = Callable[..., Pool]


def test_gang_of_a_thousand_on_a_hundred_nodes_starts_whole(
    plane: ControlPlane, api: Api, gang_scheduler: GangScheduler, namespace: str, nodes: Nodes
) -> None:
    pool = nodes(100, cpu="10")
    api.create(objects.pod_group("huge", namespace, 1000))
    members = objects.pods(1000, "huge", namespace, gang="huge", node_selector=pool.selector)
    with plane.binds(namespace) as binds, ThreadPoolExecutor(8) as creators:
        list(creators.map(api.create, members[:-1]))
        assert bound(api, namespace) == []
        api.create(members[-1])
        seen = binds.wait_for(1000, 120)

    on_each: dict[str, int] = defaultdict(int)
    for bind in seen:
        on_each[bind.node] += 1
    assert max(on_each.values()) <= 10
