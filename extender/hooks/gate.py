"""What do we answer? Filter, prioritize and preempt, from the published plan and the ledger.

Rule 1: nothing here plans, waits or does I/O; these calls sit in kube-scheduler's serial loop.
Rule 2: the nodes of an answer are among those of the question; where none is left, every one has a
reason.
Rule 3: the only trace a call leaves is a promise, made by the ledger, what was offered and what was
answered, and for whom only a plan can let in the wish for the next one.
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
from extender.planner.plan import GangStatus, Plan
from extender.ports import Whose
from extender.reservations.arrivals import ArrivingGangs
from extender.reservations.ledger import Ledger

#: What keeps a node from being offered for twice that, kube-scheduler says itself again.
LATELY_S = 60.0
#: Shapes of pods that wait at a time; of others only the nodes just offered are known.
MOST_SHAPES = 500
#: A longer answer costs kube-scheduler more to read than a write into a pod's status.
MOST_NODES = 1_000
_NONE: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Offered:
    """Nodes of one shape: of this minute, and with those of the last one."""

    since: float
    now: frozenset[str] = _NONE
    all: frozenset[str] = _NONE


class RecentOffers:
    """Nodes by shape; belongs to the event loop."""

    def __init__(self, monotonic: Callable[[], float], exists: Callable[[str], bool]) -> None:
        self._monotonic = monotonic
        self._exists = exists
        self._by_shape: LRUCache[Shape, _Offered] = LRUCache(MOST_SHAPES)

    def lately(self, shape: Shape, offered: Sequence[str]) -> Collection[str]:
        """Give the nodes that are offered for *shape*, and those that were and are still there."""
        now = self._monotonic()
        known = self._by_shape.get(shape)
        if known is None or now - known.since > 2 * LATELY_S:
            known = self._by_shape[shape] = _Offered(now)
        elif now - known.since > LATELY_S:
            known.since, known.now, known.all = now, _NONE, known.now
        if len(known.all) <= MOST_NODES and not known.now.issuperset(offered):
            # Whoever asks may name anything; what is no node is not remembered.
            real = set(filter(self._exists, offered))
            known.now |= real
            known.all |= real
        if len(known.all) > MOST_NODES:
            return offered
        return {*filter(self._exists, known.all), *offered}


#: Verdicts that another look at the gang may change at once: more of it is here than the plan saw,
#: or others than those that have ended, or kube-scheduler asks of which nothing was heard.
_UNDECIDED = frozenset(
    {Reason.NOT_ENOUGH_MEMBERS, Reason.COMPLETED, Reason.SCHEDULER_SILENT},
)
#: kube-scheduler's scale for extenders goes from 0 to 10.
TOP_SCORE = 10


class Filtered(NamedTuple):
    """The nodes that remain, and the reason for each that does not."""

    nodes: Sequence[str]
    refused: Mapping[str, str] = {}
    #: passed, steered, or the word of the refusal; for metrics.
    outcome: str = "passed"


_STARTED = (GangStatus.ADMITTED, GangStatus.RUNNING, GangStatus.FINISHED)


class PlanRequests(Protocol):
    """The last plan, and the wish for the next."""

    def __call__(self) -> Plan:
        """Give the last plan."""

    def hurry(self) -> None:
        """Ask for the next one soon."""


class Gate:
    """Stands between kube-scheduler and the nodes."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: Ledger,
        arrivals: ArrivingGangs,
        plan: PlanRequests,
        prefer: str = "nothing",
        exempt: Collection[str] = (),
    ) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._arrivals = arrivals
        self._plan = plan
        #: pack, spread or nothing: see the setting.
        self._prefer = prefer
        self._exempt = frozenset({SYSTEM_NAMESPACE, *exempt})
        self._preemption = judge = Preemption(cluster, plan, ledger.allowance.objection)
        cluster.pending_evictions.granted = lambda gang, role, beside: judge.may_leave(
            gang, role, beside, ledger.now()
        )
        self._offers = RecentOffers(ledger.now, lambda name: cluster.node(name) is not None)

    def filter(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        """Say which of the *offered* nodes *pod* may use now."""
        self._ledger.asked()
        answer = self._answer(pod, member, offered)
        if answer.nodes:
            self._ledger.filter_results.passed(pod, member)
        else:
            self._ledger.refused(pod.uid)
        return answer

    def heard(self, pod: Pod) -> None:
        """Note that kube-scheduler asks about *pod*, whatever is answered."""
        self._cluster.hearing.hook_called(pod)

    def heard_bind(self, uid: PodUid) -> None:
        """Note that it wants a pod bound; of one that the watch has not shown, filter told us."""
        pod = self._cluster.pod(uid)
        if pod is not None:
            self._cluster.hearing.hook_called(pod)

    def whose(self, uid: PodUid) -> Whose:
        """Say whose decision the bind of a pod carries out; we cannot tell of one unseen.

        kube-scheduler asks us about the pods of all its profiles, so those of another name come to
        bind, too, but never unasked: whoever binds them so is not the scheduler that we serve.
        """
        answers = self._ledger.filter_results
        # Filter's first: it is forgotten once the watch shows the pod, so one of both is there.
        passer = answers.filtered(uid)
        pod = self._cluster.pod(uid) or (passer.pod if passer else None)
        if pod is None:
            return Whose.UNKNOWN
        if not pod.ours and not answers.has_passed(uid):
            raise OtherSchedulersPod
        return Whose.SCHEDULERS if pod.uses_no_resources else Whose.OURS

    def exempts(self, namespace: str) -> bool:
        """Ask whether all pods of a namespace are exempt, as far as they are ours."""
        return namespace in self._exempt

    def _answer(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        """Answer for the nodes that are ours; pods of ours may have no other, but for exempt ones.

        What the cluster itself needs runs on every node, those of others included.
        """
        foreign = self._cluster.foreign
        if not foreign or pod.uses_no_resources or foreign.isdisjoint(offered):
            return self._judge(pod, member, offered)
        ours = [name for name in offered if name not in foreign]
        answer = self._judge(pod, member, ours)
        others = _left_out(offered, ours, Reason.NODE_NOT_MANAGED)
        outcome = answer.outcome if ours else Reason.NODE_NOT_MANAGED.value
        return Filtered(answer.nodes, {**answer.refused, **others}, outcome)

    def _judge(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        if _passes_through(pod, member):
            return self._let_through(pod, member, offered)
        if barred := self._barred(pod, member):
            return self._refuse_all(pod, offered, barred)
        group = None
        if member.named:
            place = self._ledger.reserved_node(pod.uid) or self._arrivals.claim(pod, member.key)
            if place is not None and place.node:
                node = self._ledger.choose_node(pod, place, offered)
                # Why the others are left out matters only where no node is left.
                return _steered(node) if node else _refused(offered, Reason.INSUFFICIENT_CAPACITY)
            group = self._cluster.group(member.key) or _unwritten(pod, member)
            if group is None or group.problem:
                return self._refuse_all(pod, offered, Reason.POD_GROUP_MISSING)
        queue, problem = self._cluster.queue_of(
            member.key, pod.namespace, group.queue if group else member.queue
        )
        if problem is not None:
            return self._refuse_all(pod, offered, problem.reason)
        if group is None or self._stands(member.key, group):
            return self._pass_by(pod, member, queue, offered, group.min_member if group else 1)
        if self._is_undecided(member.key):
            place = self._arrivals.admit(pod, group, queue, offered)
            if place is not None and (node := self._ledger.choose_node(pod, place, offered)):
                return _steered(node)
        reason = self._turn_away(pod, member.key, group.min_member, queue)
        return self._refuse_all(pod, offered, reason)

    def _barred(self, pod: Pod, member: Membership) -> Reason | None:
        """Say why a pod cannot start whatever else is so, None when it can."""
        if self._ledger.filter_results.is_gone(pod.uid):
            # kube-scheduler will hear of it; room for it, or a place in its gang, would be in vain.
            return Reason.NOT_ENOUGH_MEMBERS
        # Of a pod without a gang, too: what cannot be read, or is too large, does not start.
        return Reason.POD_GROUP_MISSING if member.problem else None

    def _stands(self, key: GangKey, group: PodGroup) -> bool:
        """Ask whether a gang has all that it needs on nodes, each role too, as bind asks it."""
        if self._cluster.scheduled(key) < group.min_member:
            return False
        minima = group.role_minima
        return all(self._cluster.scheduled_in_role(key, role) >= minima[role] for role in minima)

    def _let_through(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        if pod.ours and not pod.node and offered:
            self._ledger.admit(pod, member)
        return Filtered(offered)

    def _pass_by(
        self, pod: Pod, member: Membership, queue: str, offered: Sequence[str], min_member: int
    ) -> Filtered:
        """Let a pod that waits for nobody pass as if we were not there, if its queue lets it."""
        nodes = self._ledger.admit_directly(pod, member.key, queue, offered)
        if nodes is None:
            return _refused(offered, self._turn_away(pod, member.key, min_member, queue))
        if not nodes:
            return _refused(offered, Reason.BEHIND_IN_ORDER)
        return Filtered(nodes, _left_out(offered, nodes, Reason.BEHIND_IN_ORDER))

    def prioritize(self, pod: Pod, offered: Sequence[str]) -> dict[str, int]:
        """Prefer the promised node, then what was configured, beside kube-scheduler's scores."""
        place = self._ledger.reserved_node(pod.uid)
        scores = self._scores(offered)
        if place is not None and place.node in scores:
            scores[place.node] = TOP_SCORE
        return scores

    def _scores(self, offered: Sequence[str]) -> dict[str, int]:
        """Score from the emptiest to the fullest, or the other way; small differences count."""
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
        """Keep the candidate nodes whose victims may go; none at all is a veto."""
        return self._preemption.allowed_nodes(pod, member, victims, self._ledger.now())

    def may_lose(self, uid: PodUid) -> bool:
        """Ask whether kube-scheduler was allowed to evict a pod, and may be about to."""
        return self._preemption.may_take(uid, self._ledger.now())

    def may_lose_all(self, gang: GangKey) -> bool:
        """Ask the same of all of a gang that are on nodes: whoever joins it is left alone."""
        return self._preemption.may_end(gang, self._ledger.now())

    def _is_undecided(self, key: GangKey) -> bool:
        """Ask whether no plan has looked at the gang as a whole yet."""
        verdict = self._plan().verdicts.get(key)
        return verdict is None or verdict.reason in _UNDECIDED

    def _turn_away(self, pod: Pod, key: GangKey, min_member: int, queue: str) -> Reason:
        """Say why a pod without a place is refused; who waits for a plan alone gets one soon."""
        reason = self._why(pod, key, min_member, queue)
        if reason is Reason.BEHIND_IN_ORDER and self._is_undecided(key):
            self._plan.hurry()
        return reason

    def _refuse_all(self, pod: Pod, offered: Sequence[str], reason: Reason) -> Filtered:
        """Refuse a pod that no node can help, nor anybody who leaves one: preempt would veto it."""
        return _refused(self._offers.lately(pod.shape, offered), reason)

    def _why(self, pod: Pod, key: GangKey, min_member: int, queue: str) -> Reason:
        """Name the reason of a member without a place; it may be newer than the plan."""
        is_unseen = self._cluster.pod(pod.uid) is None
        if self._cluster.members(key) + is_unseen < min_member:
            return Reason.NOT_ENOUGH_MEMBERS
        verdict = self._plan().verdicts.get(key)
        is_of_others = verdict is None or verdict.standing in _STARTED
        if verdict is not None and not is_of_others and verdict.reason not in _UNDECIDED:
            return verdict.reason
        # What the plan says is not said of this pod; what keeps it out is known without.
        if self._cluster.is_closed(queue):
            return Reason.QUEUE_CLOSED
        problem = self._ledger.allowance.objection(queue, pod.namespace, pod.requests)
        return problem.reason if problem is not None else Reason.BEHIND_IN_ORDER


def _passes_through(pod: Pod, member: Membership) -> bool:
    """Ask whether *pod* is none of our business, or too important to wait for us."""
    return pod.uses_no_resources or bool(pod.node) or member.native


def _unwritten(pod: Pod, member: Membership) -> PodGroup | None:
    """Give the group that *pod* declares by itself, before the watch has shown it to us."""
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


def _left_out(offered: Sequence[str], kept: Sequence[str], reason: Reason) -> dict[str, str]:
    if len(offered) == len(kept):
        return {}
    keep = set(kept)
    return {name: reason.sentence for name in offered if name not in keep}
