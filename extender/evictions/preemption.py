"""Decides on which nodes kube-scheduler may evict its victims for a pod.

kube-scheduler chooses victims by priority alone, one pod at a time. It knows neither gangs nor
queues. So its choice may free one node for a gang that needs ten, leave another gang below its
minimum, or take the deserved share of a queue. A node stays a candidate only with all of its
victims, except those that terminate anyway: only kube-scheduler knows why it needs each of them
(capacity, ports, affinity). A preemption is checked together with all pending preemptions, those
that were allowed and have not been observed yet. Without any allowed node the preemption fails.
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

#: By then kube-scheduler has nominated the pod for which it evicts, and the watch shows that.
SHOWN_S = 10.0
#: The victims of a nominated pod are gone by then, however long it stays nominated.
_LONGEST_S = 600.0


class PreemptionVictim(NamedTuple):
    """A pod that kube-scheduler would evict, with its effect on its gang and queue."""

    uid: PodUid
    gang: GangKey | None = None
    #: The pod, if it counts towards the minimum of its gang.
    member: Pod | None = None
    #: Its queue and share in the accounting, if it is *ours*, and what it frees there.
    queue: str = ""
    share: str = ""
    frees: Resources = NOTHING


@dataclass(slots=True)
class _Loss:
    """What a preemption costs at most."""

    #: By gang: its victims on each candidate node. Which node costs most depends on the next
    #: preemption, because a victim of both counts once.
    members: dict[GangKey, list[dict[PodUid, Pod]]] = field(default_factory=dict)
    #: By queue, and by the share of a namespace in one.
    amounts: dict[str, Resources] = field(default_factory=dict)


@dataclass(slots=True)
class _Allowed:
    pod: Pod
    queue: str
    at: float
    nodes: Mapping[str, Sequence[PreemptionVictim]]
    loss: _Loss
    #: By how much the usage of its queue grows when it starts.
    more: Resources
    #: All victims on any of the nodes.
    named: frozenset[PodUid]
    #: Victims that are gone or terminating, and the generation of the cluster that showed it.
    left: dict[PodUid, int] = field(default_factory=dict)


class PendingPreemptions:
    """The allowed preemptions that may still happen, by the preempting pod."""

    def __init__(self, cluster: Cluster, plan: Callable[[], Plan]) -> None:
        self._cluster = cluster
        self._plan = plan
        self._pending: dict[PodUid, _Allowed] = {}

    def note(
        self, pod: Pod, queue: str, nodes: Mapping[str, Sequence[PreemptionVictim]], now: float
    ) -> None:
        """Store the preemption allowed to *pod*, in place of an earlier one."""
        self._pending.pop(pod.uid, None)
        if nodes:
            more, named = _more(pod, queue, nodes), _named(nodes)
            loss = _worst(nodes.values())
            self._pending[pod.uid] = _Allowed(pod, queue, now, nodes, loss, more, named)

    def update(self, preemptor: PodUid, now: float) -> None:
        """Drop the preemption of *preemptor*, and those that happened or no longer can."""
        self._pending.pop(preemptor, None)
        for uid, allowed in tuple(self._pending.items()):
            seen = self._cluster.pod(uid)
            if self._is_over(allowed, seen, now):
                del self._pending[uid]
            else:
                self._learn(allowed, seen, is_shown=now - allowed.at > SHOWN_S)

    def may_take(self, uid: PodUid, now: float) -> bool:
        """Return whether *uid* may be evicted in this moment, not observed yet."""
        return any(
            self._still_includes(allowed, uid, now)
            for allowed in self._pending.values()
            if uid in allowed.named and now - allowed.at <= SHOWN_S
        )

    def choices(self, gang: GangKey, now: float) -> Iterator[Set[PodUid]]:
        """Yield the victims in a gang for each choice that may happen now, not observed yet."""
        for allowed in tuple(self._pending.values()):
            if gang not in allowed.loss.members or now - allowed.at > SHOWN_S:
                continue
            seen = self._cluster.pod(allowed.pod.uid)
            if not self._is_over(allowed, seen, now):
                self._learn(allowed, seen, is_shown=False)
                yield from (choice.keys() for choice in allowed.loss.members.get(gang, ()))

    def _still_includes(self, allowed: _Allowed, uid: PodUid, now: float) -> bool:
        seen = self._cluster.pod(allowed.pod.uid)
        if self._is_over(allowed, seen, now):
            return False
        self._learn(allowed, seen, is_shown=False)
        return uid in _named(allowed.nodes)

    def count_members(
        self, gang: GangKey, role: str | None, beside: Set[PodUid], now: float | None = None
    ) -> int:
        """Count the members of a gang, or of a role, that pending preemptions may evict.

        Pods in *beside* do not count. Without *now*, by the last update. With it, for any thread.
        """
        possible: set[PodUid] = set()
        at_worst = 0
        for allowed in tuple(self._pending.values()):
            loss = allowed.loss if now is None else self._loss(allowed, now)
            most = 0
            for choice in loss.members.get(gang, ()):
                evicted = {
                    uid
                    for uid, pod in choice.items()
                    if uid not in beside and role in (None, pod.role) and self._stays(uid)
                }
                possible |= evicted
                most = max(most, len(evicted))
            at_worst += most
        return min(at_worst, len(possible))

    def _loss(self, allowed: _Allowed, now: float) -> _Loss:
        """Return the loss by the choices that remain; changes no state, for any thread."""
        seen, nodes = self._cluster.pod(allowed.pod.uid), allowed.nodes
        if self._is_over(allowed, seen, now):
            return _Loss()
        named = _chosen(allowed.pod, seen, nodes, is_shown=now - allowed.at > SHOWN_S)
        return _worst((nodes[named],)) if named else allowed.loss

    def lost_by(self, name: str) -> Resources:
        """Return what a queue, or the share of a namespace in one, may lose beside the plan."""
        lost = (allowed.loss.amounts.get(name, NOTHING) for allowed in self._pending.values())
        return sum(lost, NOTHING)

    def gained_by(self, queue: str, *, only_unreserved: bool = False) -> Resources:
        """Return by how much the usage of *queue* grows when the pending preemptors start.

        With *only_unreserved* without preemptors that have a reservation, which is counted there.
        """
        reservation = self._cluster.reservations.of
        pending = (each for each in self._pending.values() if each.queue == queue)
        more = (e.more for e in pending if not only_unreserved or reservation(e.pod.uid) is None)
        return sum(more, NOTHING)

    def _is_over(self, allowed: _Allowed, seen: Pod | None, now: float) -> bool:
        if seen is not None and (seen.node or seen.status is not Status.PENDING):
            return True
        is_waiting = seen is not None and seen.nominated in allowed.nodes
        return now - allowed.at > (_LONGEST_S if is_waiting else SHOWN_S)

    def _learn(self, allowed: _Allowed, seen: Pod | None, *, is_shown: bool) -> None:
        """Update the chosen node, and drop victims that the plan does not count any more."""
        if named := _chosen(allowed.pod, seen, allowed.nodes, is_shown=is_shown):
            allowed.nodes = {named: allowed.nodes[named]}
            allowed.more = _more(allowed.pod, allowed.queue, allowed.nodes)
            allowed.loss = _worst(allowed.nodes.values())
        if len(allowed.nodes) > 1:
            return
        ((node, victims),) = allowed.nodes.items()
        for each in victims:
            if not self._stays(each.uid):
                allowed.left.setdefault(each.uid, self._cluster.generation)
        shown = self._plan().generation
        counted = [each for each in victims if allowed.left.get(each.uid, shown + 1) > shown]
        if len(counted) < len(victims):
            allowed.nodes = {node: counted}
            allowed.loss = _worst((counted,))

    def _stays(self, uid: PodUid) -> bool:
        """Return whether the pod shows no termination; a pod just bound may not be seen at all."""
        seen = self._cluster.pod(uid)
        if seen is None:
            return self._cluster.reservations.of(uid) is not None
        return seen.status is not Status.RELEASING


def _chosen(
    pod: Pod, seen: Pod | None, nodes: Mapping[str, Sequence[PreemptionVictim]], *, is_shown: bool
) -> str:
    """Return the nominated node among several; empty while unknown.

    The nomination at the time of the request counts only when a newer one would be visible.
    """
    named = seen.nominated if seen is not None else ""
    is_new = is_shown or named != pod.nominated
    return named if len(nodes) > 1 and named in nodes and is_new else ""


def _named(nodes: Mapping[str, Sequence[PreemptionVictim]]) -> frozenset[PodUid]:
    return frozenset(each.uid for victims in nodes.values() for each in victims)


def _more(pod: Pod, queue: str, nodes: Mapping[str, Sequence[PreemptionVictim]]) -> Resources:
    most = NOTHING
    for victims in nodes.values():
        back = sum((each.frees for each in victims if each.queue == queue), NOTHING)
        most = most.at_least(pod.requests.beyond(back))
    return most


def _worst(choices: Iterable[Sequence[PreemptionVictim]]) -> _Loss:
    """Return the largest loss of every queue, and the victims of every gang by choice."""
    worst = _Loss()
    for victims in choices:
        members: dict[GangKey, dict[PodUid, Pod]] = {}
        amounts: dict[str, Resources] = {}
        for each in victims:
            if each.gang is not None and each.member is not None:
                members.setdefault(each.gang, {})[each.uid] = each.member
            for name in filter(None, (each.queue, each.share)):
                amounts[name] = amounts.get(name, NOTHING) + each.frees
        for gang, pods in members.items():
            worst.members.setdefault(gang, []).append(pods)
        for name, lost in amounts.items():
            worst.amounts[name] = lost.at_least(worst.amounts.get(name, NOTHING))
    return worst


#: Returns the ceiling or guarantee that an amount more of a namespace in a queue would exceed.
ProblemOf: TypeAlias = Callable[[str, str, Resources], Problem | None]


class Preemption:
    """Checks the victims of kube-scheduler against gangs and queues."""

    def __init__(
        self,
        cluster: Cluster,
        plan: Callable[[], Plan],
        problem_of: ProblemOf,
        monotonic: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._reservations = cluster.reservations
        self._plan = plan
        self._problem_of = problem_of
        self._monotonic = monotonic
        self._pending = PendingPreemptions(cluster, plan)

    def allowed_nodes(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> dict[str, Sequence[str]]:
        """Return the nodes whose victims may be evicted, with those victims."""
        now = self._monotonic()
        self._pending.update(pod.uid, now)
        queue, problem = self._queue_of(member.key, pod.namespace, member.queue)
        is_new = (
            not pod.is_unmanaged and not member.native and self._reservations.of(pod.uid) is None
        )
        if is_new and (problem is not None or self._is_hopeless(member, queue)):
            return {}
        kept: dict[str, list[PreemptionVictim]] = {}
        for node, uids in victims.items():
            if not pod.is_unmanaged and node in self._cluster.foreign:
                continue  # the pod may not use capacity freed there
            staying = [PodUid(uid) for uid in uids if not self._is_leaving(PodUid(uid))]
            candidates = [self._victim(uid) for uid in staying]
            # kube-scheduler treats a node without victims as an error; and where all of them
            # terminate, waiting is enough.
            is_useless = is_new and self._would_exceed(pod, queue, candidates)
            if staying and not is_useless and not self._is_refused(pod, queue, candidates):
                kept[node] = candidates
        self._pending.note(pod, queue if pod.ours else "", kept, now)
        return {node: [each.uid for each in evicted] for node, evicted in kept.items()}

    def may_lose(self, uid: PodUid) -> bool:
        """Return whether an allowed preemption may be evicting *uid* now."""
        return self._pending.may_take(uid, self._monotonic())

    def may_leave(self, gang: GangKey, role: str | None, beside: Set[PodUid]) -> int:
        """Count the members of a gang that may be evicted now beside others; for any thread."""
        return self._pending.count_members(gang, role, beside, self._monotonic())

    def may_lose_all(self, gang: GangKey) -> bool:
        """Return the same for all members of a gang on nodes; later members are not included."""
        on_nodes, now = self._cluster.on_nodes(gang), self._monotonic()
        # A gang without members on nodes starts from none and needs all of its minimum anyway.
        return any(not on_nodes - choice for choice in self._pending.choices(gang, now) if on_nodes)

    def _is_hopeless(self, member: Membership, queue: str) -> bool:
        """Return whether filter would refuse the pod, so that a freed node does not help it.

        Its gang does not run, its queue is closed, or the pod is invalid.
        """
        if member.problem or self._cluster.is_closed(queue):
            return True
        return member.named and not self._runs(member.key)

    def _would_exceed(self, pod: Pod, queue: str, victims: Sequence[PreemptionVictim]) -> bool:
        """Return whether its queue has no share left for it, even without the victims."""
        back = sum((each.frees for each in victims), NOTHING)
        needs = pod.requests.beyond(back).positive()
        if not needs:
            return False
        more = needs + self._pending.gained_by(queue, only_unreserved=True)
        return self._problem_of(queue, pod.namespace, more) is not None

    def _runs(self, key: GangKey) -> bool:
        group = self._cluster.group(key)
        if group is None or group.problem:
            return False
        return self._cluster.scheduled(key) >= group.min_member

    def _is_leaving(self, uid: PodUid) -> bool:
        seen = self._cluster.pod(uid)
        return seen is not None and seen.status is Status.RELEASING

    def _victim(self, uid: PodUid) -> PreemptionVictim:
        """Return what the eviction of a pod costs its gang and queue.

        A pod whose bind still waits does not count for its gang, which has not started. A bound pod
        does, though this watch may be behind that of kube-scheduler.
        """
        reservation, seen = self._reservations.of(uid), self._cluster.pod(uid)
        gang = self._cluster.gang_of(uid)
        counted = seen if seen is not None and seen.node else None
        if reservation is not None:
            counted = reservation.pod if reservation.stage is Stage.BOUND else None
        if seen is None or gang is None or not seen.ours:
            return PreemptionVictim(uid, gang, counted)
        queue = self._counted_in(gang, seen.namespace)
        return PreemptionVictim(
            uid, gang, counted, queue, share_name(queue, seen.namespace), seen.requests
        )

    def _is_refused(self, pod: Pod, queue: str, victims: Sequence[PreemptionVictim]) -> bool:
        if any(self._is_binding(each.uid) for each in victims):
            return True
        if pod.is_exempt:
            return False  # exempt pods do not wait; they go before gangs
        return (
            any(self._is_not_preemptable(each.uid) for each in victims)
            or self._breaks_a_gang(victims)
            or self._breaks_deserved(pod, queue, victims)
            or self._breaks_guarantee(pod, queue, victims)
        )

    def _is_binding(self, uid: PodUid) -> bool:
        """Return whether its binding is in flight or its outcome is unknown.

        A sent binding cannot be cancelled. Nor can one of unknown outcome; kube-scheduler would not
        count the pod on the node if the binding had failed.
        """
        reservation = self._reservations.of(uid)
        return reservation is not None and reservation.stage in (Stage.BINDING, Stage.UNKNOWN)

    def _is_not_preemptable(self, uid: PodUid) -> bool:
        """Return whether its author marked it as not preemptable."""
        seen = self._cluster.pod(uid)
        return seen is not None and seen.ours and not seen.preemptable

    def _breaks_a_gang(self, victims: Sequence[PreemptionVictim]) -> bool:
        """Return whether some gang would run on below its minimum."""
        evicted: dict[GangKey, dict[PodUid, Pod]] = {}
        for each in victims:
            if each.gang is not None and each.member is not None:
                evicted.setdefault(each.gang, {})[each.uid] = each.member
        return any(self._falls_below_minimum(key, pods) for key, pods in evicted.items())

    def _falls_below_minimum(self, key: GangKey, evicted: Mapping[PodUid, Pod]) -> bool:
        """Check the gang without *evicted* and without victims of pending preemptions.

        That pending preemptions may evict the rest does not help: they may choose other victims.
        """
        group = self._cluster.group(key)
        if group is None or not self._cluster.on_nodes(key) - evicted.keys():
            return False  # nothing of it would run on
        at_worst = len(evicted) + self._pending.count_members(key, None, evicted.keys())
        if self._cluster.scheduled(key) - at_worst < group.min_member:
            return True
        roles, minima = Counter(pod.role for pod in evicted.values()), group.role_minima
        return any(
            self._cluster.scheduled_in_role(key, role)
            - count
            - self._pending.count_members(key, role, evicted.keys())
            < minima[role]
            for role, count in roles.items()
            if role in minima
        )

    def _breaks_deserved(self, pod: Pod, own: str, victims: Sequence[PreemptionVictim]) -> bool:
        """Return whether another queue loses its deserved share, or the own one has all of its.

        Inside one queue priority decides, as in kube-scheduler.
        """
        taken: dict[str, Resources] = {}
        for each in victims:
            if each.queue and each.queue != own:
                taken[each.queue] = taken.get(each.queue, NOTHING) + each.frees
        if not taken:
            return False
        more = pod.requests + self._pending.gained_by(own)
        if not _stays_within_deserved(self._plan().queues.get(own), more):
            return True
        return any(not self._can_spare(name, lost) for name, lost in taken.items())

    def _breaks_guarantee(self, pod: Pod, queue: str, victims: Sequence[PreemptionVictim]) -> bool:
        """Return whether another namespace would fall below its guarantee in a queue."""
        shares = self._plan().shares
        own = share_name(queue, pod.namespace)
        taken: dict[str, Resources] = {}
        for each in victims:
            if each.share != own and each.share in shares:
                taken[each.share] = taken.get(each.share, NOTHING) + each.frees
        return any(
            lost.amount(each) > 0
            and shares[name].allocated.amount(each)
            - lost.amount(each)
            - self._pending.lost_by(name).amount(each)
            < least
            for name, lost in taken.items()
            for each, least in shares[name].guarantee.items()
        )

    def _can_spare(self, name: str, lost: Resources) -> bool:
        """Return whether a queue keeps its deserved share of some resource without *lost*."""
        queue, figures = self._cluster.queue(name), self._plan().queues.get(name)
        if figures is None or (queue is not None and not queue.reclaimable):
            return False
        has, deserved = figures.own - self._pending.lost_by(name), figures.deserved
        counted = [name for name in lost if name in deserved]
        return not counted or any(
            has.amount(each) > deserved.amount(each) <= has.amount(each) - lost[each]
            for each in counted
        )

    def _queue_of(self, key: GangKey, namespace: str, named: str) -> tuple[str, Problem | None]:
        group = self._cluster.group(key)
        return self._cluster.queue_of(key, namespace, group.queue if group else named)

    def _counted_in(self, key: GangKey, namespace: str) -> str:
        group = self._cluster.group(key)
        return self._cluster.used_in_queue(key, namespace, group.queue if group else "")


def _stays_within_deserved(queue: QueueFigures | None, more: Resources) -> bool:
    if queue is None:
        return False
    return all(
        queue.own.amount(name) + amount <= queue.deserved.amount(name)
        for name, amount in more.items()
        if name in queue.deserved
    )
