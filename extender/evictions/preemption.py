"""May kube-scheduler evict these pods for that one? Judged node by node; no node left is a veto.

kube-scheduler chooses victims by priority alone, one pod at a time. It knows neither gangs nor
queues, so its choice may free one node for a gang that needs ten, leave another gang torn, or
take from a queue what is its due. A node stays a candidate only with all of its victims, except
those that are leaving anyway: why it needs each of them (room, ports, affinity) only it knows.
Whoever asks is judged beside all that others were granted and have not been seen to take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from extender.cache.cluster import Cluster
from extender.cache.reservation_table import Stage
from extender.model.gang import GangKey, Membership
from extender.model.pod import Pod, PodUid, Status
from extender.model.queue import share_name
from extender.model.reason import Problem
from extender.model.resources import NOTHING, Resources
from extender.planner.plan import Plan, QueueFigures

#: By then it has nominated the pod for which it evicts somebody, and our watch shows that.
SHOWN_S = 10.0
#: However long a pod stays nominated: those who were to leave for it are gone by then.
_LONGEST_S = 600.0


class PreemptionVictim(NamedTuple):
    """One whom kube-scheduler would evict, as it counts."""

    uid: PodUid
    gang: GangKey | None = None
    #: The pod, if its gang has one seat less without it.
    node: Pod | None = None
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
    nodes: Mapping[str, Sequence[PreemptionVictim]]
    loss: _Loss
    #: What its queue has more when it has started.
    more: Resources
    #: Whoever was a victim on any of the nodes.
    named: frozenset[PodUid]
    #: Victims that have left, and what the generation of the cluster was when that was seen.
    left: dict[PodUid, int] = field(default_factory=dict)


class PendingPreemptions:
    """The grants that may still be taken, by the pod that got them."""

    def __init__(self, cluster: Cluster, plan: Callable[[], Plan]) -> None:
        self._cluster = cluster
        self._plan = plan
        self._grants: dict[PodUid, _Grant] = {}

    def note(
        self, pod: Pod, queue: str, nodes: Mapping[str, Sequence[PreemptionVictim]], now: float
    ) -> None:
        """Remember what *pod* may take; it takes nothing that was granted it before."""
        self._grants.pop(pod.uid, None)
        if nodes:
            more, named = _more(pod, queue, nodes), _named(nodes)
            loss = _worst(nodes.values())
            self._grants[pod.uid] = _Grant(pod, queue, now, nodes, loss, more, named)

    def update(self, asking: PodUid, now: float) -> None:
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
        promise = self._cluster.reservations.of
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
            return self._cluster.reservations.of(uid) is not None
        return seen.status is not Status.RELEASING


def _chosen(
    asked: Pod, seen: Pod | None, nodes: Mapping[str, Sequence[PreemptionVictim]], *, is_shown: bool
) -> str:
    """Name the one of several nodes that a pod took, by its nomination; empty when it says none.

    A nomination that it came with says so only when a newer one would have been shown.
    """
    named = seen.nominated if seen is not None else ""
    is_new = is_shown or named != asked.nominated
    return named if len(nodes) > 1 and named in nodes and is_new else ""


def _named(nodes: Mapping[str, Sequence[PreemptionVictim]]) -> frozenset[PodUid]:
    return frozenset(each.uid for victims in nodes.values() for each in victims)


def _more(pod: Pod, queue: str, nodes: Mapping[str, Sequence[PreemptionVictim]]) -> Resources:
    most = NOTHING
    for victims in nodes.values():
        back = sum((each.gives for each in victims if each.queue == queue), NOTHING)
        most = most.at_least(pod.requests.beyond(back))
    return most


def _worst(choices: Iterable[Sequence[PreemptionVictim]]) -> _Loss:
    """Give for every queue what it loses by the choice that is worst for it, for a gang each."""
    worst = _Loss()
    for victims in choices:
        seats: dict[GangKey, dict[PodUid, Pod]] = {}
        amounts: dict[str, Resources] = {}
        for each in victims:
            if each.gang is not None and each.node is not None:
                seats.setdefault(each.gang, {})[each.uid] = each.node
            for name in filter(None, (each.queue, each.share)):
                amounts[name] = amounts.get(name, NOTHING) + each.gives
        for gang, pods in seats.items():
            worst.seats.setdefault(gang, []).append(pods)
        for name, lost in amounts.items():
            worst.amounts[name] = lost.at_least(worst.amounts.get(name, NOTHING))
    return worst


#: Says which ceiling or guarantee so much more of a namespace in a queue would break.
Objection: TypeAlias = Callable[[str, str, Resources], Problem | None]


class Preemption:
    """Judges kube-scheduler's choice by gangs and queues."""

    def __init__(self, cluster: Cluster, plan: Callable[[], Plan], objection: Objection) -> None:
        self._cluster = cluster
        self._inflight = cluster.reservations
        self._plan = plan
        self._objection = objection
        self._grants = PendingPreemptions(cluster, plan)

    def allowed_nodes(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]], now: float
    ) -> dict[str, Sequence[str]]:
        """Keep the nodes whose victims may go."""
        self._grants.update(pod.uid, now)
        queue, problem = self._queue_of(member.key, pod.namespace, member.queue)
        is_new = (
            not pod.uses_no_resources and not member.native and self._inflight.of(pod.uid) is None
        )
        if is_new and (problem is not None or self._is_hopeless(member, queue)):
            return {}
        kept: dict[str, list[PreemptionVictim]] = {}
        for node, uids in victims.items():
            if not pod.uses_no_resources and node in self._cluster.foreign:
                continue  # whoever leaves there makes no room that the pod may use
            staying = [PodUid(uid) for uid in uids if not self._is_leaving(PodUid(uid))]
            candidates = [self._victim(uid) for uid in staying]
            # Without any victim the node would be an error in kube-scheduler's eyes; and where
            # all are leaving, waiting is enough.
            is_in_vain = is_new and self._has_all_it_may(pod, queue, candidates)
            if staying and not is_in_vain and not self._objects(pod, queue, candidates):
                kept[node] = candidates
        self._grants.note(pod, queue if pod.ours else "", kept, now)
        return {node: [each.uid for each in going] for node, going in kept.items()}

    def may_take(self, uid: PodUid, now: float) -> bool:
        """Ask whether somebody was allowed to have *uid* evicted, and it may be happening."""
        return self._grants.may_take(uid, now)

    def may_leave(self, gang: GangKey, role: str | None, beside: Set[PodUid], now: float) -> int:
        """Count who of a gang may be leaving beside those; from any thread."""
        return self._grants.seats(gang, role, beside, now)

    def may_end(self, gang: GangKey, now: float) -> bool:
        """Ask the same of all of a gang that are on nodes; a part of it must leave it whole."""
        standing = self._cluster.on_nodes(gang)
        # Where nobody stands, nobody is counted on: it starts anew, with all it needs.
        return any(not standing - choice for choice in self._grants.choices(gang, now) if standing)

    def _is_hopeless(self, member: Membership, queue: str) -> bool:
        """Ask whether one freed node is of no use to a pod without a place: filter would refuse it.

        Its gang does not run, or nobody starts in its queue, or it cannot be read.
        """
        if member.problem or self._cluster.is_closed(queue):
            return True
        return member.named and not self._runs(member.key)

    def _has_all_it_may(self, pod: Pod, queue: str, victims: Sequence[PreemptionVictim]) -> bool:
        """Ask whether its queue could not have it when those have left, who may be nobody's."""
        back = sum((each.gives for each in victims), NOTHING)
        needs = pod.requests.beyond(back).positive()
        if not needs:
            return False
        more = needs + self._grants.more_in(queue, only_unpromised=True)
        return self._objection(queue, pod.namespace, more) is not None

    def _runs(self, key: GangKey) -> bool:
        group = self._cluster.group(key)
        if group is None or group.problem:
            return False
        return self._cluster.scheduled(key) >= group.min_member

    def _is_leaving(self, uid: PodUid) -> bool:
        seen = self._cluster.pod(uid)
        return seen is not None and seen.status is Status.RELEASING

    def _victim(self, uid: PodUid) -> PreemptionVictim:
        """Say what leaves with a pod; with one that is not ours, nothing that we count.

        One whose bind is still held has no seat: its gang has not started. One that was bound has,
        though our watch may be behind kube-scheduler's and not show it yet.
        """
        promise, seen = self._inflight.of(uid), self._cluster.pod(uid)
        gang = self._cluster.gang_of(uid)
        seat = seen if seen is not None and seen.node else None
        if promise is not None:
            seat = promise.pod if promise.stage is Stage.BOUND else None
        if seen is None or gang is None or not seen.ours:
            return PreemptionVictim(uid, gang, seat)
        queue = self._counted_in(gang, seen.namespace)
        return PreemptionVictim(
            uid, gang, seat, queue, share_name(queue, seen.namespace), seen.requests
        )

    def _objects(self, pod: Pod, queue: str, victims: Sequence[PreemptionVictim]) -> bool:
        if any(self._is_committing(each.uid) for each in victims):
            return True
        if pod.is_exempt:
            return False  # it waits for nobody: gangs come second
        return (
            any(self._is_spared(each.uid) for each in victims)
            or self._tears_a_gang(victims)
            or self._breaks_a_due(pod, queue, victims)
            or self._breaks_a_share(pod, queue, victims)
        )

    def _is_committing(self, uid: PodUid) -> bool:
        """Ask whether its binding is on its way: what was sent cannot be called back.

        Nor can what nobody knows of; kube-scheduler would not count it there if it had failed.
        """
        promise = self._inflight.of(uid)
        return promise is not None and promise.stage in (Stage.BINDING, Stage.UNKNOWN)

    def _is_spared(self, uid: PodUid) -> bool:
        """Ask whether its author marked it as no victim of anybody."""
        seen = self._cluster.pod(uid)
        return seen is not None and seen.ours and not seen.preemptable

    def _tears_a_gang(self, victims: Sequence[PreemptionVictim]) -> bool:
        """Ask whether some gang would run on below its minimum."""
        leaving: dict[GangKey, dict[PodUid, Pod]] = {}
        for each in victims:
            if each.gang is not None and each.node is not None:
                leaving.setdefault(each.gang, {})[each.uid] = each.node
        return any(self._is_torn(key, pods) for key, pods in leaving.items())

    def _is_torn(self, key: GangKey, leaving: Mapping[PodUid, Pod]) -> bool:
        """Ask it of those who leave and of whoever was granted before and may leave as well.

        That others may take the rest does not make it whole: they may take somebody else.
        """
        group = self._cluster.group(key)
        if group is None or not self._goes_on(key, leaving.keys()):
            return False
        all_of_it = len(leaving) + self._grants.seats(key, None, leaving.keys())
        if self._cluster.scheduled(key) - all_of_it < group.min_member:
            return True
        roles, minima = Counter(pod.role for pod in leaving.values()), group.role_minima
        return any(
            self._cluster.scheduled_in_role(key, role)
            - count
            - self._grants.seats(key, role, leaving.keys())
            < minima[role]
            for role, count in roles.items()
            if role in minima
        )

    def _goes_on(self, key: GangKey, leaving: Set[PodUid]) -> bool:
        """Ask whether anybody of a gang is still on a node when those have left."""
        return bool(self._cluster.on_nodes(key) - leaving)

    def _breaks_a_due(self, pod: Pod, ours: str, victims: Sequence[PreemptionVictim]) -> bool:
        """Ask whether another queue would lose what is its due, or to one that has its own.

        Inside one queue priority decides, as kube-scheduler has it.
        """
        taken: dict[str, Resources] = {}
        for each in victims:
            if each.queue and each.queue != ours:
                taken[each.queue] = taken.get(each.queue, NOTHING) + each.gives
        if not taken:
            return False
        more = pod.requests + self._grants.more_in(ours)
        if not _stays_within_due(self._plan().queues.get(ours), more):
            return True
        return any(not self._can_spare(name, lost) for name, lost in taken.items())

    def _breaks_a_share(self, pod: Pod, queue: str, victims: Sequence[PreemptionVictim]) -> bool:
        """Ask whether a namespace would have less of a queue than at least, for another one."""
        shares = self._plan().shares
        ours = share_name(queue, pod.namespace)
        taken: dict[str, Resources] = {}
        for each in victims:
            if each.share != ours and each.share in shares:
                taken[each.share] = taken.get(each.share, NOTHING) + each.gives
        return any(
            lost.amount(each) > 0
            and shares[name].allocated.amount(each)
            - lost.amount(each)
            - self._grants.taken(name).amount(each)
            < least
            for name, lost in taken.items()
            for each, least in shares[name].guarantee.items()
        )

    def _can_spare(self, name: str, lost: Resources) -> bool:
        """Ask whether a queue has so much of some resource that it keeps its due without *lost*."""
        queue, figures = self._cluster.queue(name), self._plan().queues.get(name)
        if figures is None or (queue is not None and not queue.reclaimable):
            return False
        has, due = figures.own - self._grants.taken(name), figures.deserved
        counted = [name for name in lost if name in due]
        return not counted or any(
            has.amount(each) > due.amount(each) <= has.amount(each) - lost[each] for each in counted
        )

    def _queue_of(self, key: GangKey, namespace: str, named: str) -> tuple[str, Problem | None]:
        group = self._cluster.group(key)
        return self._cluster.queue_of(key, namespace, group.queue if group else named)

    def _counted_in(self, key: GangKey, namespace: str) -> str:
        group = self._cluster.group(key)
        return self._cluster.used_in_queue(key, namespace, group.queue if group else "")


def _stays_within_due(queue: QueueFigures | None, more: Resources) -> bool:
    if queue is None:
        return False
    return all(
        queue.own.amount(name) + amount <= queue.deserved.amount(name)
        for name, amount in more.items()
        if name in queue.deserved
    )
