"""Tickets that are good no more: their queue was closed, left, or its ceiling lowered, since.

Only of gangs that nobody tears by it: either nothing of them has been sent, or they have their
minimum and the ticket is for more.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.cache.cluster import Cluster
from extender.cache.inflight import Promise, Stage
from extender.model.gang import GangKey
from extender.model.pod import SEATED_SET
from extender.model.resources import NOTHING
from extender.promises.ledger import Ledger


def shut_out(cluster: Cluster) -> list[GangKey]:
    """Name the gangs of which nobody has started yet where nobody may, or in a queue they left."""
    return [key for key in cluster.inflight.gangs() if _is_shut_out(cluster, key)]


def _is_shut_out(cluster: Cluster, key: GangKey) -> bool:
    queues = {each.queue for each in _unused(cluster, key)}
    is_astray = any(map(cluster.is_closed, queues)) or _has_moved(cluster, key, queues)
    return bool(queues) and is_astray and not _has_begun(cluster, key)


def _has_moved(cluster: Cluster, key: GangKey, queues: set[str]) -> bool:
    group = cluster.group(key)
    if group is None or not group.dialect:
        return False  # its pods are all there is of it, and their labels were read as they came
    queue, problem = cluster.queue_of(key, group.namespace, group.queue)
    return problem is not None or queues != {queue}


def _has_begun(cluster: Cluster, key: GangKey) -> bool:
    """Ask whether somebody of a gang is on a node or on the way; who is done is neither."""
    is_sent = any(each.stage >= Stage.COMMITTING for each in cluster.inflight.of_gang(key))
    return is_sent or any(pod.status in SEATED_SET for pod in cluster.pods_of(key))


def keep_ceilings(cluster: Cluster, ledger: Ledger) -> None:
    """Take tickets back until every queue is within its ceiling, or nothing is left to take.

    First from who came least far, and of those from who came last.
    """
    if not ledger.allowance.is_exceeded():
        return
    gangs = {key: tuple(_unused(cluster, key)) for key in cluster.inflight.gangs()}
    for key in sorted(filter(gangs.get, gangs), key=lambda key: _came_far(gangs[key])):
        if _can_stop(cluster, key):
            _withdraw_if_over(ledger, key, gangs[key])


def _withdraw_if_over(ledger: Ledger, key: GangKey, unused: tuple[Promise, ...]) -> None:
    queue, namespace = unused[0].queue, unused[0].pod.namespace
    room = sum((each.pod.requests for each in unused), NOTHING)
    if ledger.allowance.exceeds(queue, namespace, room):
        ledger.withdraw(key)
        ledger.allowance.count(queue, namespace, NOTHING - room)


def _unused(cluster: Cluster, key: GangKey) -> Iterator[Promise]:
    """Give what nobody was sent for yet, held or not; who asks nobody starts in any case."""
    for each in cluster.inflight.of_gang(key):
        if each.stage <= Stage.HELD and not each.pod.asks_nobody:
            yield each


def _came_far(promises: tuple[Promise, ...]) -> tuple[Stage, float]:
    return (
        max(each.stage for each in promises),
        -max(each.since_monotonic for each in promises),
    )


def _can_stop(cluster: Cluster, key: GangKey) -> bool:
    """Ask whether a gang stays whole without its ticket."""
    group = cluster.group(key)
    if group is None or not _has_begun(cluster, key):
        return True
    return cluster.seated(key) >= group.min_member and all(
        cluster.seated_in_role(key, role) >= least for role, least in group.role_minima.items()
    )
