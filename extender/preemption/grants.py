"""What kube-scheduler was allowed to take, for as long as nobody sees whether it did.

It evicts in the background while it asks about the next pod, and our watch shows that later still.
A pod that was granted the victims of several nodes takes those of one; which, its nomination says.
Until then all count as if they were taken where it hurts most: too much care costs a pod another
turn, too little tears a gang.

It belongs to whoever answers kube-scheduler, in the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.cache.cluster import Cluster
from extender.model.gang import GangKey
from extender.model.pod import Pod, PodUid, Status
from extender.model.resources import NOTHING, Resources
from extender.plan.decision import Plan

#: By then it has nominated the pod for which it evicts somebody, and our watch shows that.
SHOWN_S = 10.0
#: However long a pod stays nominated: those who were to leave for it are gone by then.
_LONGEST_S = 600.0


class Displaced(NamedTuple):
    """One whom kube-scheduler would evict, as it counts."""

    uid: PodUid
    gang: GangKey | None = None
    #: The pod, if its gang has one seat less without it.
    seat: Pod | None = None
    #: Where it counts, if it is ours, and what it gives back there.
    queue: str = ""
    share: str = ""
    gives: Resources = NOTHING


@dataclass(slots=True)
class _Loss:
    """What is lost at worst."""

    #: By gang: those of it who leave by one choice or another. Which hurts most is seen only beside
    #: the next who asks, for whoever goes for both is gone once.
    seats: dict[GangKey, list[dict[PodUid, Pod]]] = field(default_factory=dict)
    #: By queue, and by the share of a namespace in one.
    amounts: dict[str, Resources] = field(default_factory=dict)


@dataclass(slots=True)
class _Grant:
    pod: Pod
    queue: str
    at: float
    nodes: Mapping[str, Sequence[Displaced]]
    loss: _Loss
    #: What its queue has more when it has started.
    more: Resources
    #: Whoever was a victim on any of the nodes.
    named: frozenset[PodUid]
    #: Victims that have left, and what the generation of the cluster was when that was seen.
    left: dict[PodUid, int] = field(default_factory=dict)


class Grants:
    """The grants that may still be taken, by the pod that got them."""

    def __init__(self, cluster: Cluster, plan: Callable[[], Plan]) -> None:
        self._cluster = cluster
        self._plan = plan
        self._grants: dict[PodUid, _Grant] = {}

    def note(
        self, pod: Pod, queue: str, nodes: Mapping[str, Sequence[Displaced]], now: float
    ) -> None:
        """Remember what *pod* may take; it takes nothing that was granted it before."""
        self._grants.pop(pod.uid, None)
        if nodes:
            more, named = _more(pod, queue, nodes), _named(nodes)
            loss = _worst(nodes.values())
            self._grants[pod.uid] = _Grant(pod, queue, now, nodes, loss, more, named)

    def look(self, asking: PodUid, now: float) -> None:
        """Forget what *asking* was granted, and what was taken or cannot be taken any more."""
        self._grants.pop(asking, None)
        for uid, grant in tuple(self._grants.items()):
            seen = self._cluster.pod(uid)
            if self._is_over(grant, seen, now):
                del self._grants[uid]
            else:
                self._learn(grant, seen, is_shown=now - grant.at > SHOWN_S)

    def may_take(self, uid: PodUid, now: float) -> bool:
        """Ask whether somebody may be taking *uid* in this moment, unseen."""
        return any(
            self._still_names(grant, uid, now)
            for grant in self._grants.values()
            if uid in grant.named and now - grant.at <= SHOWN_S
        )

    def choices(self, gang: GangKey, now: float) -> Iterator[Set[PodUid]]:
        """Give who of a gang leaves by each choice that may be taken in this moment, unseen."""
        for grant in tuple(self._grants.values()):
            if gang not in grant.loss.seats or now - grant.at > SHOWN_S:
                continue
            seen = self._cluster.pod(grant.pod.uid)
            if not self._is_over(grant, seen, now):
                self._learn(grant, seen, is_shown=False)
                yield from (choice.keys() for choice in grant.loss.seats.get(gang, ()))

    def _still_names(self, grant: _Grant, uid: PodUid, now: float) -> bool:
        seen = self._cluster.pod(grant.pod.uid)
        if self._is_over(grant, seen, now):
            return False
        self._learn(grant, seen, is_shown=False)
        return uid in _named(grant.nodes)

    def seats(
        self, gang: GangKey, role: str | None, beside: Set[PodUid], now: float | None = None
    ) -> int:
        """Count who of a gang, or of one role in it, may be leaving *beside* those, unseen.

        Without *now*, as of the last look. With it, from any thread.
        """
        anyone: set[PodUid] = set()
        at_worst = 0
        for grant in tuple(self._grants.values()):
            loss = grant.loss if now is None else self._loss(grant, now)
            most = 0
            for choice in loss.seats.get(gang, ()):
                leaving = {
                    uid
                    for uid, pod in choice.items()
                    if uid not in beside and role in (None, pod.role) and self._stays(uid)
                }
                anyone |= leaving
                most = max(most, len(leaving))
            at_worst += most
        return min(at_worst, len(anyone))

    def _loss(self, grant: _Grant, now: float) -> _Loss:
        """Give what is lost by the choices that are left by now; learns nothing, for any thread."""
        seen, nodes = self._cluster.pod(grant.pod.uid), grant.nodes
        if self._is_over(grant, seen, now):
            return _Loss()
        named = _chosen(grant.pod, seen, nodes, is_shown=now - grant.at > SHOWN_S)
        return _worst((nodes[named],)) if named else grant.loss

    def taken(self, name: str) -> Resources:
        """Add up what a queue, or the share of a namespace in one, may lose beside the plan."""
        lost = (grant.loss.amounts.get(name, NOTHING) for grant in self._grants.values())
        return sum(lost, NOTHING)

    def more_in(self, queue: str, *, only_unpromised: bool = False) -> Resources:
        """Add up what *queue* will have more when those start that wait for their victims.

        Whoever has a promise by now is counted where promises are.
        """
        promise = self._cluster.inflight.of
        coming = (each for each in self._grants.values() if each.queue == queue)
        more = (e.more for e in coming if not only_unpromised or promise(e.pod.uid) is None)
        return sum(more, NOTHING)

    def _is_over(self, grant: _Grant, seen: Pod | None, now: float) -> bool:
        if seen is not None and (seen.node or seen.status is not Status.PENDING):
            return True
        is_waiting = seen is not None and seen.nominated in grant.nodes
        return now - grant.at > (_LONGEST_S if is_waiting else SHOWN_S)

    def _learn(self, grant: _Grant, seen: Pod | None, *, is_shown: bool) -> None:
        """See which node it is, and who of it has left and counts in the plan no more."""
        if named := _chosen(grant.pod, seen, grant.nodes, is_shown=is_shown):
            grant.nodes = {named: grant.nodes[named]}
            grant.more = _more(grant.pod, grant.queue, grant.nodes)
            grant.loss = _worst(grant.nodes.values())
        if len(grant.nodes) > 1:
            return
        ((node, victims),) = grant.nodes.items()
        for each in victims:
            if not self._stays(each.uid):
                grant.left.setdefault(each.uid, self._cluster.generation)
        shown = self._plan().generation
        counting = [each for each in victims if grant.left.get(each.uid, shown + 1) > shown]
        if len(counting) < len(victims):
            grant.nodes = {node: counting}
            grant.loss = _worst((counting,))

    def _stays(self, uid: PodUid) -> bool:
        """Ask whether nothing shows that a pod leaves; one we bound may not be shown at all yet."""
        seen = self._cluster.pod(uid)
        if seen is None:
            return self._cluster.inflight.of(uid) is not None
        return seen.status is not Status.RELEASING


def _chosen(
    asked: Pod, seen: Pod | None, nodes: Mapping[str, Sequence[Displaced]], *, is_shown: bool
) -> str:
    """Name the one of several nodes that a pod took, by its nomination; empty when it says none.

    A nomination that it came with says so only when a newer one would have been shown.
    """
    named = seen.nominated if seen is not None else ""
    is_new = is_shown or named != asked.nominated
    return named if len(nodes) > 1 and named in nodes and is_new else ""


def _named(nodes: Mapping[str, Sequence[Displaced]]) -> frozenset[PodUid]:
    return frozenset(each.uid for victims in nodes.values() for each in victims)


def _more(pod: Pod, queue: str, nodes: Mapping[str, Sequence[Displaced]]) -> Resources:
    most = NOTHING
    for victims in nodes.values():
        back = sum((each.gives for each in victims if each.queue == queue), NOTHING)
        most = most.at_least(pod.requests.beyond(back))
    return most


def _worst(choices: Iterable[Sequence[Displaced]]) -> _Loss:
    """Give for every queue what it loses by the choice that is worst for it, for a gang each."""
    worst = _Loss()
    for victims in choices:
        seats: dict[GangKey, dict[PodUid, Pod]] = {}
        amounts: dict[str, Resources] = {}
        for each in victims:
            if each.gang is not None and each.seat is not None:
                seats.setdefault(each.gang, {})[each.uid] = each.seat
            for name in filter(None, (each.queue, each.share)):
                amounts[name] = amounts.get(name, NOTHING) + each.gives
        for gang, pods in seats.items():
            worst.seats.setdefault(gang, []).append(pods)
        for name, lost in amounts.items():
            worst.amounts[name] = lost.at_least(worst.amounts.get(name, NOTHING))
    return worst
