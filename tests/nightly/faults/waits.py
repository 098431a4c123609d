"""Nothing waits for ever: what is complete, allowed and fits has started once all is quiet.

Only what is plain is judged: each who waits and could start fits by itself into the room that is
free. Not all together need to: whoever is first, somebody had to start. Where one of them does not
fit, the others may have to wait for him, and nobody is judged.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from .breaches import Bounds, Breach
from .record import Amounts, Change, Record
from .spans import Spans
from .world import Pod, World, added

RULE = "waits for ever"


@dataclass(frozen=True, slots=True)
class _Claim:
    """Pods that would start together."""

    whose: str
    queue: str
    pods: tuple[Pod, ...]


def judge(record: Record, world: World, bounds: Bounds, spans: Spans) -> list[Breach]:
    """Give who waits though there is room for each who does, once it was quiet for long."""
    changes = [change.at for change in record.of(Change)]
    quiet_since = max(changes, default=record.began_at)
    if spans.counted_s(quiet_since, record.ended_at) < bounds.patience_s:
        return []
    claims = waiting(world)
    if not all(_fit([claim], world) for claim in claims):
        return []
    room = "for all who wait" if _fit(claims, world) else "for each who waits, and nobody starts"
    words = f"complete, allowed, and there is room {room}"
    return [
        Breach(
            rule=RULE, whose=claim.whose, words=f"{len(claim.pods)} pods: {words}", at=quiet_since
        )
        for claim in claims
    ]


def waiting(world: World) -> list[_Claim]:
    """Give the gangs and single pods that wait, are complete, and whose queue is open."""
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
    """Put the largest first where it fits first; a yes is proof, a no is none."""
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
