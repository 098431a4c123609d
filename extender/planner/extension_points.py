"""The answers of the plugins, combined tier by tier.

Answers are combined as in kube-batch and Volcano, because their users know it. Orders are compared
plugin by plugin, the first difference decides. Predicates, readiness and limits must all agree.
Votes are decided by the highest tier that votes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from itertools import chain
from operator import add
from typing import Any, TypeAlias

from extender.model.node import Mask, NodeFacts
from extender.model.pod import Pod, Shape
from extender.model.reason import Problem, Reason
from extender.model.resources import NOTHING, Resources
from extender.planner.node_ranking import Scores, ScoringTable
from extender.planner.plugin import Plugin, Preemptor, VictimCandidate, View, Vote
from extender.planner.plugins import registry
from extender.planner.policy import Vector
from extender.planner.quota import UNBOUNDED, QuotaNode
from extender.planner.state import GangState, QueueUsage

Key: TypeAlias = tuple[Any, ...]
#: Plugins by tier, each with the callbacks it is disabled in.
Tiers: TypeAlias = Sequence[Sequence[tuple[Plugin, frozenset[str]]]]
_Judge: TypeAlias = Callable[[GangState], Vote | Problem]
_Voter: TypeAlias = Callable[
    [Preemptor, Sequence[VictimCandidate]], Iterable[VictimCandidate] | None
]
_Protector: TypeAlias = Callable[[str, Preemptor, GangState], bool]
_VOTES = {"preempt": ("preemptable", "Preemptable"), "reclaim": ("reclaimable", "Reclaimable")}


def open_plugins(session: View) -> ExtensionPoints:
    """Build the plugins of the policy and let each read the cluster."""
    rules = session.rules
    tiers = [
        [(registry.make(option, option.name, rules), option.silenced) for option in tier]
        for tier in session.policy.tiers
    ]
    for plugin, _ in chain.from_iterable(tiers):
        plugin.open(session)
    has_shares = bool(session.accounting.shares)
    return ExtensionPoints(tiers, vetoes_are_final=rules.vetoes_are_final, has_shares=has_shares)


class ExtensionPoints:
    """The plugins of one policy, called together."""

    def __init__(self, tiers: Tiers, *, vetoes_are_final: bool, has_shares: bool = False) -> None:
        self._vetoes_are_final = vetoes_are_final
        #: Whether any namespace has a share of its own in a queue.
        self._has_shares = has_shares
        every, by_tier = partial(_every, tiers), partial(_by_tier, tiers)
        plugins_with = partial(_plugins_with, tiers)
        self._gang_orders: list[Callable[[GangState], Any]] = every("gang_order", "JobOrder")
        self._gang_orderers = list(chain(*plugins_with("gang_order", "JobOrder")))
        self._queue_orders: list[Callable[[QueueUsage], Any]] = every("queue_order", "QueueOrder")
        self._queue_orderers = list(chain(*plugins_with("queue_order", "QueueOrder")))
        self._namespace_orders: list[Callable[[str], Any]] = every(
            "namespace_order", "NamespaceOrder"
        )
        self._namespace_orderers = list(chain(*plugins_with("namespace_order", "NamespaceOrder")))
        self._task_orders: list[Callable[[Pod], Any]] = every("task_order", "TaskOrder")
        self._victim_orders: list[Callable[[QueueUsage, QueueUsage], Any]] = every(
            "victim_queue_order"
        )
        self._valid: list[Callable[[GangState], Problem | None]] = every("gang_valid")
        self._missing: list[Callable[[GangState], int]] = every("gang_ready", "JobReady")
        self._pipelined: list[list[_Judge]] = by_tier("gang_pipelined", "JobPipelined")
        self._starving: list[list[Callable[[GangState], bool]]] = by_tier(
            "gang_starving", "JobStarving"
        )
        self._enqueueable: list[list[_Judge]] = by_tier("enqueueable", "JobEnqueued")
        self._enqueued: list[Callable[[GangState], None]] = every("enqueued", "JobEnqueued")
        self._overused: list[Callable[[QueueUsage], bool]] = every("overused", "Overused")
        self._allocatable: list[Callable[[GangState, Shape], int | Problem]] = every(
            "allocatable", "Allocatable"
        )
        self._preemptive: list[Callable[[GangState, Shape], bool]] = every(
            "preemptive", "Preemptive"
        )
        self._entitled: list[Callable[[GangState, Resources], bool]] = every(
            "entitled", "Allocatable"
        )
        self._voters: dict[str, list[list[_Voter]]] = {}
        self._protectors: dict[str, list[_Protector]] = {}
        for action, vote in _VOTES.items():
            self._voters[action] = by_tier(*vote)
            self._protectors[action] = _protectors(plugins_with(*vote))
        #: The plugins that exclude nodes.
        self.node_filters = list(chain(*plugins_with("obstacles", "Predicate")))
        self._obstacles: list[Callable[[Shape, NodeFacts], Mapping[str, Mask]]] = every(
            "obstacles", "Predicate"
        )
        self._scores: list[Callable[[Shape, ScoringTable], Scores]] = every("scores", "NodeOrder")
        self._deserved: list[Callable[[QueueUsage], Vector | None]] = every("deserved")

    # ---------------------------------------------------------------- orders

    def gang_order(self, gang: GangState) -> Key:
        """Return the key by which the plugins order gangs."""
        return tuple([order(gang) for order in self._gang_orders])

    def queue_order(self, queue: QueueUsage) -> Key:
        """Return the key by which the plugins order queues."""
        return tuple([order(queue) for order in self._queue_orders])

    def namespace_order(self, namespace: str) -> Key:
        """Return the key by which the plugins order namespaces."""
        return tuple([order(namespace) for order in self._namespace_orders])

    @property
    def order_namespaces(self) -> bool:
        """Return whether namespaces come before queues."""
        return bool(self._namespace_orders)

    def task_order(self, pod: Pod) -> Key:
        """Return the key by which the plugins order members."""
        return tuple([order(pod) for order in self._task_orders])

    def victim_queue_order(self, queue: QueueUsage, own: QueueUsage) -> Key:
        """Return how close *queue* is to the preemptor's: relatives are reclaimed first."""
        return tuple([order(queue, own) for order in self._victim_orders])

    def why_gang_first(self, ahead: GangState, behind: GangState) -> str:
        """Return why the plugin that decides puts gang *ahead* first; empty without one."""
        return _why_first(self._gang_orderers, "gang_order", ahead, behind, "it")

    def why_queue_first(self, ahead: QueueUsage, behind: QueueUsage) -> str:
        """Return why the plugin that decides puts queue *ahead* first; empty without one."""
        what = f"queue {ahead.name}"
        return _why_first(self._queue_orderers, "queue_order", ahead, behind, what)

    def why_namespace_first(self, ahead: str, behind: str) -> str:
        """Return why the plugin that decides puts namespace *ahead* first; empty without one."""
        what = f"namespace {ahead}"
        return _why_first(self._namespace_orderers, "namespace_order", ahead, behind, what)

    @property
    def prefer_relatives(self) -> bool:
        """Return whether related queues are reclaimed from first."""
        return bool(self._victim_orders)

    # ---------------------------------------------------------------- gangs

    def invalid_reason(self, gang: GangState) -> Problem | None:
        """Return why *gang* cannot be considered, None when it can."""
        return next((problem for valid in self._valid if (problem := valid(gang))), None)

    def missing_members(self, gang: GangState) -> int:
        """Count the members that must still be placed before *gang* is ready."""
        return max([missing(gang) for missing in self._missing], default=0)

    def is_ready(self, gang: GangState) -> bool:
        """Return whether *gang* may start."""
        return not any(missing(gang) for missing in self._missing)

    def is_pipelined(self, gang: GangState) -> bool:
        """Return whether *gang* could start once the capacity reserved for it is released."""
        return _decide(self._pipelined, gang) is None

    @property
    def checks_pipelining(self) -> bool:
        """Return whether any plugin judges what is reserved for gangs that cannot start yet."""
        return any(self._pipelined)

    def is_starving(self, gang: GangState) -> bool | None:
        """Return whether pods may be evicted for *gang*; None when no plugin votes."""
        deciding = next((tier for tier in self._starving if tier), None)
        return None if deciding is None else all(starving(gang) for starving in deciding)

    # ---------------------------------------------------------------- queues

    def enqueue_refusal(self, gang: GangState) -> Problem | None:
        """Return why *gang* may not be admitted to its queue now, None when it may."""
        return _decide(self._enqueueable, gang)

    def notify_enqueued(self, gang: GangState) -> None:
        """Notify the plugins that *gang* was admitted to its queue."""
        for enqueued in self._enqueued:
            enqueued(gang)

    def is_overused(self, queue: QueueUsage) -> bool:
        """Return whether *queue* has all it may have."""
        return any(overused(queue) for overused in self._overused)

    def allowed_pods(self, gang: GangState, shape: Shape) -> int | Problem:
        """Count the pods of *shape* the queue of *gang* may still start, or return why none."""
        has_shares = self._has_shares
        least = UNBOUNDED
        guaranteed = self.within_guarantee(gang, shape.requests) if has_shares else 0
        for allocatable in self._allocatable:
            answer = allocatable(gang, shape)
            if isinstance(answer, Problem):
                if not guaranteed or answer.reason is not Reason.QUEUE_OVER_DESERVED:
                    return answer
                answer = guaranteed
            least = min(least, max(answer, guaranteed))
        quota = gang.quota if has_shares else gang.queue.quota
        if quota is not None:
            times, problem = quota.how_many(shape.requests)
            if problem is not None:
                return problem
            least = min(least, times)
        return least

    def within_guarantee(self, gang: GangState, requested: Resources) -> int:
        """Count how often *requested* fits into the guarantee of the namespace of *gang*.

        The namespace deserves that much, whatever the others in its queue use of the queue's
        deserved amount.
        """
        share = gang.share
        return share.covers(requested) if share is not None else 0

    def may_allocate(self, gang: GangState, shape: Shape) -> bool:
        """Return whether the queue of *gang* may start one more pod of *shape*."""
        allowed = self.allowed_pods(gang, shape)
        return not isinstance(allowed, Problem) and allowed > 0

    @property
    def limit_queues(self) -> bool:
        """Return whether any plugin limits what a queue may start."""
        return bool(self._allocatable)

    @property
    def limit_every_task(self) -> bool:
        """Return whether an overused queue is noticed pod by pod, not only between gangs."""
        return bool(self._allocatable) or not self._overused

    def is_preemptive(self, gang: GangState, shape: Shape) -> bool:
        """Return whether other queues must release capacity for one more pod of *gang*."""
        if self.exceeds_share(gang, shape.requests):
            return False
        if self.within_guarantee(gang, shape.requests):
            return True
        return all(preemptive(gang, shape) for preemptive in self._preemptive)

    def exceeds_share(self, gang: GangState, needs: Resources) -> bool:
        """Return whether *needs* exceed what the namespace of *gang* may have of its queue.

        Reclaiming would not help then.
        """
        share = gang.share
        return share is not None and bool(share.lacks(needs))

    def is_entitled(self, gang: GangState, needs: Resources) -> bool:
        """Return whether the queue of *gang* is below its deserved amount and may have *needs*."""
        if self.exceeds_share(gang, needs):
            return False
        return all(entitled(gang, needs) for entitled in self._entitled)

    def deserved(self, queue: QueueUsage) -> Vector | None:
        """Return what *queue* deserves, None when no plugin divides the cluster."""
        return next(
            (vector for deserved in self._deserved if (vector := deserved(queue)) is not None), None
        )

    # ---------------------------------------------------------------- victims

    def allowed_victims(
        self, action: str, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Return the *candidates* that may be evicted for *preemptor*, all of them together."""
        if self._has_shares:
            candidates = _beyond_shares(preemptor, candidates)
        final = self._vetoes_are_final
        for tier in self._voters[action]:
            left = _join(tier, preemptor, candidates, final=final)
            if left or (final and left is not None):
                return left
        return []

    def protect(self, action: str, preemptor: Preemptor, gang: GangState) -> bool:
        """Return whether a plugin exempts all of *gang*, or of its queue and priority; cheap."""
        return any(protects(action, preemptor, gang) for protects in self._protectors[action])

    # ---------------------------------------------------------------- nodes

    def obstacles(self, shape: Shape, facts: NodeFacts) -> dict[str, Mask]:
        """Return the mask of nodes that *shape* may not use, by word."""
        found = (obstacles(shape, facts).items() for obstacles in self._obstacles)
        return dict(chain.from_iterable(found))

    def score(self, shape: Shape, table: ScoringTable) -> Scores:
        """Return the sums of the scores of the nodes of *table*."""
        if not self._scores:
            return table.nothing
        return reduce(add, [scores(shape, table) for scores in self._scores])


def _plugins_with(tiers: Tiers, method: str, switch: str = "") -> list[list[Plugin]]:
    """Return, tier by tier, the plugins that define *method* and are not disabled in it."""
    return [
        [plugin for plugin, silenced in tier if hasattr(plugin, method) and switch not in silenced]
        for tier in tiers
    ]


def _by_tier(tiers: Tiers, method: str, switch: str = "") -> list[list[Any]]:
    return [[getattr(p, method) for p in tier] for tier in _plugins_with(tiers, method, switch)]


def _every(tiers: Tiers, method: str, switch: str = "") -> list[Any]:
    return list(chain(*_by_tier(tiers, method, switch)))


def _protectors(voters: Sequence[Sequence[Plugin]]) -> list[_Protector]:
    """Return the cheap checks of the deciding tier for groups that are exempt as a whole."""
    deciding = next((tier for tier in voters if tier), ())
    return [plugin.protects for plugin in deciding if hasattr(plugin, "protects")]


def _why_first(plugins: list[Plugin], order: str, ahead: Any, behind: Any, what: str) -> str:
    for plugin in plugins:
        key = getattr(plugin, order)
        if key(ahead) != key(behind):
            words = getattr(plugin, f"{order}_reason", None)
            return words(ahead, behind) if words else f"plugin {plugin.name} puts {what} first"
    return ""


def _decide(tiers: Iterable[Iterable[_Judge]], gang: GangState) -> Problem | None:
    """Let the highest tier that votes decide: a rejection wins, and no vote is a yes."""
    for tier in tiers:
        permitted = False
        for judge in tier:
            answer = judge(gang)
            if isinstance(answer, Problem):
                return answer
            if answer is Vote.REJECT:
                return Problem(Reason.NOT_ENQUEUED, "a plugin of the policy rejects it for now")
            permitted = permitted or answer is Vote.PERMIT
        if permitted:
            return None
    return None


def _beyond_shares(
    preemptor: Preemptor, candidates: Sequence[VictimCandidate]
) -> Sequence[VictimCandidate]:
    """Leave out candidates without which a namespace would have less than its guarantee.

    Within one namespace any pod may replace any other.
    """
    ours, released = preemptor.gang.share, dict[QuotaNode, Resources]()
    left = []
    for one in candidates:
        share = one.gang.share
        if share is not None and share is not ours and share.guarantee:
            lost = released.get(share, NOTHING) + one.pod.requests
            if not share.reserves(lost):
                continue
            released[share] = lost
        left.append(one)
    return left


def _join(
    tier: Iterable[_Voter],
    preemptor: Preemptor,
    candidates: Sequence[VictimCandidate],
    *,
    final: bool,
) -> list[VictimCandidate] | None:
    """Combine the votes of one tier; None if no plugin votes.

    An empty vote ends it, the others are intersected.
    """
    left: list[VictimCandidate] | None = None
    for vote in tier:
        answer = vote(preemptor, candidates)
        if answer is None:
            continue
        allowed = list(answer)
        if not allowed:
            return []
        # Volcano takes an intersection that became empty for no vote at all.
        if left or (final and left is not None):
            named = {one.pod.uid for one in allowed}
            left = [one for one in left if one.pod.uid in named]
        else:
            left = allowed
    return left
