"""Decide the answers to filter, prioritize and preempt from the last plan and the ledger.

Rule 1: nothing here plans, waits or does I/O; these calls sit in kube-scheduler's serial loop.
Rule 2: the nodes of an answer are a subset of the nodes of the request. If none is left, every
node has a reason.
Rule 3: a call leaves four traces: the reservation that the ledger makes, the offered nodes, the
answer, and a request for the next cycle if only a plan can admit the pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from cachetools import LRUCache

from extender.cache.cluster import Cluster
from extender.errors import OtherSchedulersPod
from extender.evictions.preemption import Preemption
from extender.model.gang import GangKey, Membership, PodGroup
from extender.model.pod import SYSTEM_NAMESPACE, Pod, PodUid, Shape
from extender.model.reason import Reason
from extender.planner.plan import STARTED, GangStatus, Plan
from extender.ports import Clock, Whose
from extender.reservations.arrivals import ArrivingGangs
from extender.reservations.ledger import Ledger

#: How long an offered node is remembered; kube-scheduler offers it again well before.
RECENT_S = 60.0
#: Pod shapes that are remembered; for any other shape only the nodes of the request are known.
MOST_SHAPES = 500
#: With more nodes kube-scheduler needs longer to read the answer than to write the pod's status.
MOST_NODES = 1_000
_NONE: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Offered:
    """The nodes offered for one shape: in the current period, and in it and the last one."""

    since: float
    now: frozenset[str] = _NONE
    all: frozenset[str] = _NONE


class RecentOffers:
    """The recently offered nodes by pod shape; everything happens on the event loop."""

    def __init__(self, monotonic: Callable[[], float], exists: Callable[[str], bool]) -> None:
        self._monotonic = monotonic
        self._exists = exists
        self._by_shape: LRUCache[Shape, _Offered] = LRUCache(MOST_SHAPES)

    def add(self, shape: Shape, offered: Sequence[str]) -> Collection[str]:
        """Remember *offered*; return all nodes recently offered for *shape* that still exist."""
        now = self._monotonic()
        recent = self._by_shape.get(shape)
        if recent is None or now - recent.since > 2 * RECENT_S:
            recent = self._by_shape[shape] = _Offered(now)
        elif now - recent.since > RECENT_S:
            recent.since, recent.now, recent.all = now, _NONE, recent.now
        if len(recent.all) <= MOST_NODES and not recent.now.issuperset(offered):
            # A caller can send any name; only existing nodes are remembered.
            real = set(filter(self._exists, offered))
            recent.now |= real
            recent.all |= real
        if len(recent.all) > MOST_NODES:
            return offered
        return {*filter(self._exists, recent.all), *offered}


#: Reasons that may be out of date when a pod arrives: the gang has more members than in the plan,
#: new members after all others ended, or a kube-scheduler that was silent calls again.
_UNDECIDED = frozenset(
    {Reason.NOT_ENOUGH_MEMBERS, Reason.COMPLETED, Reason.SCHEDULER_SILENT},
)
#: kube-scheduler's scale for extenders goes from 0 to 10.
TOP_SCORE = 10


class Filtered(NamedTuple):
    """The nodes that remain, and the reason for each that does not."""

    nodes: Sequence[str]
    refused: Mapping[str, str] = {}
    #: passed, steered, or the word of the reason; a metric label.
    outcome: str = "passed"


_STARTED = STARTED | {GangStatus.ADMITTED}


class PlanRequests(Protocol):
    """The last plan, and a way to request the next one: `PublishedPlan`."""

    def __call__(self) -> Plan:
        """Return the last plan."""

    def hurry(self) -> None:
        """Request the next cycle soon."""


class Gate:
    """Decides which nodes of a request a pod may use."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: Ledger,
        arrivals: ArrivingGangs,
        plan: PlanRequests,
        preemption: Preemption,
        clock: Clock,
        prefer: str = "nothing",
        exempt: Collection[str] = (),
    ) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._arrivals = arrivals
        self._published = plan
        #: pack, spread or nothing: see the setting.
        self._prefer = prefer
        self._exempt = frozenset({SYSTEM_NAMESPACE, *exempt})
        self._preemption = preemption
        self._offers = RecentOffers(clock.monotonic, lambda name: cluster.node(name) is not None)

    def filter(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        """Return the *offered* nodes that *pod* may use now, and record the result."""
        answer = self._answer(pod, member, offered)
        if answer.nodes:
            self._ledger.passed(pod, member)
        else:
            self._ledger.refused(pod.uid)
        return answer

    def record_call(self, pod: Pod) -> None:
        """Record that kube-scheduler called a hook for *pod*, whatever the answer is."""
        self._cluster.liveness.hook_called(pod)

    def record_bind(self, uid: PodUid) -> None:
        """Record a bind call; a pod that the watch has not shown yet is known from filter."""
        pod = self._cluster.pod(uid)
        if pod is not None:
            self._cluster.liveness.hook_called(pod)

    def whose(self, uid: PodUid) -> Whose:
        """Return which scheduler decides the bind of a pod; UNKNOWN if the pod was never seen.

        kube-scheduler calls the hooks for the pods of all its profiles. A pod of another scheduler
        name reaches bind only after filter, so a bind without filter comes from a scheduler that
        we do not serve; raise `OtherSchedulersPod` then.
        """
        pod = self._ledger.pod_or_filtered(uid)
        if pod is None:
            return Whose.UNKNOWN
        if not pod.ours and not self._ledger.has_passed(uid):
            raise OtherSchedulersPod
        return Whose.SCHEDULERS if pod.is_unmanaged else Whose.OURS

    def exempts(self, namespace: str) -> bool:
        """Return whether all of our pods in a namespace are exempt."""
        return namespace in self._exempt

    def _answer(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        """Filter the managed nodes; only exempt pods and pods of the cluster may use others.

        Pods that the cluster itself needs run on every node.
        """
        foreign = self._cluster.foreign
        if not foreign or pod.is_unmanaged or foreign.isdisjoint(offered):
            return self._decide(pod, member, offered)
        ours = [name for name in offered if name not in foreign]
        answer = self._decide(pod, member, ours)
        others = _refusals_of_others(offered, ours, Reason.NODE_NOT_MANAGED)
        outcome = answer.outcome if ours else Reason.NODE_NOT_MANAGED.value
        return Filtered(answer.nodes, {**answer.refused, **others}, outcome)

    def _decide(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        if _is_unmanaged(pod, member):
            return self._admit_unmanaged(pod, member, offered)
        if reason := self._permanent_reason(pod, member):
            return self._refuse_all(pod, offered, reason)
        group = None
        if member.named:
            reservation = self._ledger.reservation_on_node(pod.uid) or self._arrivals.claim(
                pod, member.key
            )
            if reservation is not None and reservation.node:
                node = self._ledger.assign_node(pod, reservation, offered)
                # Reasons for the other nodes matter only if no node is left.
                return _steered(node) if node else _refused(offered, Reason.INSUFFICIENT_CAPACITY)
            group = self._cluster.group(member.key) or _implied_group(pod, member)
            if group is None or group.problem:
                return self._refuse_all(pod, offered, Reason.POD_GROUP_MISSING)
        queue, problem = self._cluster.queue_of(
            member.key, pod.namespace, group.queue if group else member.queue
        )
        if problem is not None:
            return self._refuse_all(pod, offered, problem.reason)
        if group is None or self._is_satisfied(member.key, group):
            return self._admit_directly(
                pod, member, queue, offered, group.min_member if group else 1
            )
        if self._is_undecided(member.key):
            reservation = self._arrivals.admit(pod, group, queue, offered)
            if reservation is not None and (
                node := self._ledger.assign_node(pod, reservation, offered)
            ):
                return _steered(node)
        reason = self._find_reason(pod, member.key, group.min_member, queue)
        return self._refuse_all(pod, offered, reason)

    def _permanent_reason(self, pod: Pod, member: Membership) -> Reason | None:
        """Return why a pod cannot start under any plan, None if it can."""
        if self._ledger.is_gone(pod.uid):
            # kube-scheduler learns of the deletion soon; do not spend capacity or a reservation.
            return Reason.NOT_ENOUGH_MEMBERS
        # Applies to a pod without a gang, too: an unreadable or too large object does not start.
        return Reason.POD_GROUP_MISSING if member.problem else None

    def _is_satisfied(self, key: GangKey, group: PodGroup) -> bool:
        """Return whether a gang has minMember scheduled, and each role its minimum, as in bind."""
        if self._cluster.scheduled(key) < group.min_member:
            return False
        minima = group.role_minima
        return all(self._cluster.scheduled_in_role(key, role) >= minima[role] for role in minima)

    def _admit_unmanaged(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        if pod.ours and not pod.node and offered:
            self._ledger.admit(pod, member)
        return Filtered(offered)

    def _admit_directly(
        self, pod: Pod, member: Membership, queue: str, offered: Sequence[str], min_member: int
    ) -> Filtered:
        """Admit a pod directly if its queue allows it; no gang needs to wait for it."""
        nodes = self._ledger.admit_directly(pod, member.key, queue, offered)
        if nodes is None:
            return _refused(offered, self._find_reason(pod, member.key, min_member, queue))
        if not nodes:
            return _refused(offered, Reason.BEHIND_IN_ORDER)
        return Filtered(nodes, _refusals_of_others(offered, nodes, Reason.BEHIND_IN_ORDER))

    def prioritize(self, pod: Pod, offered: Sequence[str]) -> dict[str, int]:
        """Score the reserved node highest; add --prefer's order to kube-scheduler's scores."""
        reservation = self._ledger.reservation_on_node(pod.uid)
        scores = self._scores(offered)
        if reservation is not None and reservation.node in scores:
            scores[reservation.node] = TOP_SCORE
        return scores

    def _scores(self, offered: Sequence[str]) -> dict[str, int]:
        """Score full nodes higher with --prefer pack, empty ones with --prefer spread.

        The scale is stretched, so that small differences count.
        """
        if self._prefer == "nothing":
            return dict.fromkeys(offered, 0)
        full = {name: self._cluster.fullness(name) for name in offered}
        least, most = min(full.values(), default=0.0), max(full.values(), default=0.0)
        span = (most - least) or 1.0
        packs = self._prefer == "pack"
        return {
            name: round((TOP_SCORE - 1) * ((each - least) if packs else (most - each)) / span)
            for name, each in full.items()
        }

    def preempt(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> dict[str, Sequence[str]]:
        """Return the candidate nodes whose victims may be evicted; without any, none is."""
        return self._preemption.allowed_nodes(pod, member, victims)

    def _is_undecided(self, key: GangKey) -> bool:
        """Return whether no plan has decided about the gang as a whole yet."""
        verdict = self._published().verdicts.get(key)
        return verdict is None or verdict.reason in _UNDECIDED

    def _find_reason(self, pod: Pod, key: GangKey, min_member: int, queue: str) -> Reason:
        """Find the reason of a refusal, and hurry the next cycle if only a plan is missing."""
        reason = self._why(pod, key, min_member, queue)
        if reason is Reason.BEHIND_IN_ORDER and self._is_undecided(key):
            self._published.hurry()
        return reason

    def _refuse_all(self, pod: Pod, offered: Sequence[str], reason: Reason) -> Filtered:
        """Refuse all recent nodes: no node and no eviction helps, and preempt would veto it."""
        return _refused(self._offers.add(pod.shape, offered), reason)

    def _why(self, pod: Pod, key: GangKey, min_member: int, queue: str) -> Reason:
        """Return the reason for a member without a placement; it may be newer than the plan."""
        is_unseen = self._cluster.pod(pod.uid) is None
        if self._cluster.members(key) + is_unseen < min_member:
            return Reason.NOT_ENOUGH_MEMBERS
        verdict = self._published().verdicts.get(key)
        concerns_others = verdict is None or verdict.status in _STARTED
        if verdict is not None and not concerns_others and verdict.reason not in _UNDECIDED:
            return verdict.reason
        # The plan's verdict is not about this pod; these reasons hold without a plan.
        if self._cluster.is_closed(queue):
            return Reason.QUEUE_CLOSED
        problem = self._ledger.check_queue(queue, pod.namespace, pod.requests)
        return problem.reason if problem is not None else Reason.BEHIND_IN_ORDER


def _is_unmanaged(pod: Pod, member: Membership) -> bool:
    """Return whether *pod* is not ours to decide, or too important to wait for us."""
    return pod.is_unmanaged or bool(pod.node) or member.native


def _implied_group(pod: Pod, member: Membership) -> PodGroup | None:
    """Return the group that *pod* declares by itself, before the watch has shown it."""
    if member.min_member is None or member.problem:
        return None
    name = member.key.partition("/")[2]
    return PodGroup(
        namespace=pod.namespace, name=name, min_member=member.min_member, queue=member.queue
    )


def _steered(node: str) -> Filtered:
    return Filtered((node,), outcome="steered")


def _refused(offered: Iterable[str], reason: Reason) -> Filtered:
    return Filtered((), dict.fromkeys(offered, reason.sentence), reason.value)


def _refusals_of_others(
    offered: Sequence[str], kept: Sequence[str], reason: Reason
) -> dict[str, str]:
    if len(offered) == len(kept):
        return {}
    keep = set(kept)
    return {name: reason.sentence for name in offered if name not in keep}
