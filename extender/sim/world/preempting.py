"""kube-scheduler's own preemption: who would have to leave where, and what the extender says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from extender.model.gang import Membership
from extender.model.pod import Pod
from extender.sim.world.node_rooms import NodeRooms

#: So many nodes are tried at most.
_MOST_CANDIDATES = 100


class Vetoes(Protocol):
    """Whom kube-scheduler asks before it makes anybody leave."""

    def preempt(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Keep the nodes whose victims may go."""


class Preempting:
    """Makes less important pods leave, one node's at a time."""

    def __init__(
        self,
        rooms: NodeRooms,
        vetoes: Vetoes,
        evict: Callable[[Pod], None],
        is_there: Callable[[Pod], bool],
    ) -> None:
        self._rooms = rooms
        self._vetoes = vetoes
        self._evict = evict
        #: Says who is on a node or on the way; who is only nominated has not come yet.
        self._is_there = is_there

    def make_room(self, pod: Pod, member: Membership) -> str:
        """Let the cheapest node's victims leave and give its name; empty where nobody may go."""
        # Where all are equal, and mostly they are, no node need be looked at.
        if not pod.may_preempt or not self._rooms.has_lesser(pod.priority):
            return ""
        candidates = self._candidates(pod)
        if not candidates:
            return ""
        asked = {name: [each.uid for each in found] for name, found in candidates.items()}
        kept = self._vetoes.preempt(pod, member, asked)
        allowed = {
            name: [each for each in candidates[name] if each.uid in uids]
            for name, uids in kept.items()
        }
        if not allowed:
            return ""
        name = min(allowed, key=lambda each: _price(each, allowed[each]))
        for victim in allowed[name]:
            self._evict(victim)
        return name

    def _candidates(self, pod: Pod) -> dict[str, list[Pod]]:
        found: dict[str, list[Pod]] = {}
        for name in sorted(self._rooms.nodes):
            victims = self._victims(pod, name)
            if victims:
                found[name] = victims
            if len(found) >= _MOST_CANDIDATES:
                break
        return found

    def _victims(self, pod: Pod, name: str) -> list[Pod]:
        """Give whom of the less important a node must lose for *pod*; the least important first."""
        lesser = [each for each in self._rooms.on(name) if each.priority < pod.priority]
        if not lesser or not self._rooms.fits_beside(pod, name, lesser):
            return []
        victims = list(lesser)
        for each in sorted(lesser, key=lambda it: (-it.priority, it.created, it.uid)):
            rest = [other for other in victims if other.uid != each.uid]
            if self._rooms.fits_beside(pod, name, rest):
                victims = rest
        return [each for each in victims if self._is_there(each)]


def _price(name: str, victims: Sequence[Pod]) -> tuple[int, int, int, str]:
    ranks = [each.priority for each in victims]
    return max(ranks), sum(ranks), len(ranks), name
