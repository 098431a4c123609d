"""The rule about waiting: when nothing changes, a gang that could start has started.

Only clear cases count: every waiting gang fits by itself into the free capacity, though not all
together: then one of them must have started. If one does not fit, others may have to wait for it,
and the rule is not checked.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .breaches import Bounds, Breach
from .cluster_state import Pod, World, added
from .excluded_spans import Spans
from .record import Amounts, Change, Record

RULE = "waits for ever"


@dataclass(frozen=True, slots=True)
class _Claim:
    """Pods that would start together."""

    whose: str
    queue: str
    pods: tuple[Pod, ...]


def judge(record: Record, world: World, bounds: Bounds, spans: Spans) -> list[Breach]:
    """Return gangs that wait although each waiting gang fits, long after the last change."""
    changes = [change.at for change in record.of(Change)]
    quiet_since = max(changes, default=record.began_at)
    if spans.counted_s(quiet_since, record.ended_at) < bounds.patience_s:
        return []
    claims = waiting(world)
    if not all(_fit([claim], world) for claim in claims):
        return []
    fits = "all waiting gangs fit" if _fit(claims, world) else "each waiting gang fits"
    words = f"complete and allowed, and {fits}"
    return [
        Breach(
            rule=RULE, whose=claim.whose, words=f"{len(claim.pods)} pods: {words}", at=quiet_since
        )
        for claim in claims
    ]


def waiting(world: World) -> list[_Claim]:
    """Return the waiting gangs and pods that are complete and whose queue is open."""
    found = []
    for gang, pods in world.gangs.items():
        group = world.groups[gang].now
        waits = tuple(pod for pod in pods if pod.waits and pod.made.ours)
        if group is not None and waits:
            standing = sum(pod.stands for pod in pods)
            if standing + len(waits) >= group.minimum:
                found.append(_Claim(gang, group.queue, waits))
    found += [
        _Claim(pod.name, pod.made.queue or "default", (pod,))
        for pod in world.pods.values()
        if pod.waits and pod.made.ours and not pod.made.gang
    ]
    return [claim for claim in found if _is_open(claim.queue, world)]


def _is_open(name: str, world: World) -> bool:
    queue = world.queues[name].now
    return queue.open if queue else name == "default"


def _fit(claims: list[_Claim], world: World) -> bool:
    asked: dict[str, list[Amounts]] = defaultdict(list)
    for claim in claims:
        asked[claim.queue] += [pod.made.request for pod in claim.pods]
    for name, requests in asked.items():
        queue = world.queues[name].now
        used = world.taken_in(name)
        for resource, limit in (queue.ceiling if queue else {}).items():
            if added([used, *requests]).get(resource, 0) > limit:
                return False
    return _pack([pod for claim in claims for pod in claim.pods], world)


def _pack(pods: list[Pod], world: World) -> bool:
    """Pack by first fit, the largest pods first; only a positive result is certain."""
    free: dict[str, dict[str, int]] = {}
    for name, history in world.nodes.items():
        node = history.now
        if node is not None and not node.closed:
            taken = world.taken_on(name)
            free[name] = {key: room - taken.get(key, 0) for key, room in node.room.items()}
    for pod in sorted(pods, key=lambda each: -max(each.made.request.values(), default=0)):
        request = pod.made.request
        for room in free.values():
            if all(room.get(key, 0) >= amount for key, amount in request.items()):
                for key, amount in request.items():
                    room[key] -= amount
                break
        else:
            return False
    return True
