"""What the plugins think, joined tier by tier.

How answers are joined is kube-batch's and Volcano's way, because their users know it: orders are
compared plugin by plugin, first difference wins; predicates, readiness and limits all have to
agree; votes are settled by the highest tier that has an opinion.
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
from extender.planner.plugin import Plugin, Preemptor, VictimCandidate, Vote
from extender.planner.policy import Vector
from extender.planner.quota import UNBOUNDED, QuotaNode
from extender.planner.state import GangState, QueueUsage

Key: TypeAlias = tuple[Any, ...]
#: Plugins by tier, each with the callbacks it is switched off in.
Tiers: TypeAlias = Sequence[Sequence[tuple[Plugin, frozenset[str]]]]
_Judge: TypeAlias = Callable[[GangState], Vote | Problem]
_Voter: TypeAlias = Callable[
    [Preemptor, Sequence[VictimCandidate]], Iterable[VictimCandidate] | None
]
_Protector: TypeAlias = Callable[[str, Preemptor, GangState], bool]
_VOTES = {"preempt": ("preemptable", "Preemptable"), "reclaim": ("reclaimable", "Reclaimable")}


class ExtensionPoints:
    """The plugins of one policy, asked together."""

    def __init__(self, tiers: Tiers, *, vetoes_are_final: bool, has_shares: bool = False) -> None:
        self._vetoes_are_final = vetoes_are_final
        #: Some namespace has a share of its own in a queue.
        self._has_shares = has_shares
        every, by_tier = partial(_every, tiers), partial(_by_tier, tiers)
        speakers = partial(_speakers, tiers)
        self._gang_orders: list[Callable[[GangState], Any]] = every("gang_order", "JobOrder")
        self._gang_orderers = list(chain(*speakers("gang_order", "JobOrder")))
        self._queue_orders: list[Callable[[QueueUsage], Any]] = every("queue_order", "QueueOrder")
        self._queue_orderers = list(chain(*speakers("queue_order", "QueueOrder")))
        self._namespace_orders: list[Callable[[str], Any]] = every(
            "namespace_order", "NamespaceOrder"
        )
        self._namespace_orderers = list(chain(*speakers("namespace_order", "NamespaceOrder")))
        self._task_orders: list[Callable[[Pod], Any]] = every("task_order", "TaskOrder")
        self._victim_orders: list[Callable[[QueueUsage, QueueUsage], Any]] = every(
            "victim_queue_order"
        )
        self._valid: list[Callable[[GangState], Problem | None]] = every("gang_valid")
        self._lacking: list[Callable[[GangState], int]] = every("gang_ready", "JobReady")
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
            self._protectors[action] = _protectors(speakers(*vote))
        #: The plugins that keep pods off nodes.
        self.barring = list(chain(*speakers("obstacles", "Predicate")))
        self._obstacles: list[Callable[[Shape, NodeFacts], Mapping[str, Mask]]] = every(
            "obstacles", "Predicate"
        )
        self._scores: list[Callable[[Shape, ScoringTable], Scores]] = every("scores", "NodeOrder")
        self._deserved: list[Callable[[QueueUsage], Vector | None]] = every("deserved")

    # ---------------------------------------------------------------- orders

    def gang_order(self, gang: GangState) -> Key:
        """Give what the plugins order gangs by."""
        return tuple([order(gang) for order in self._gang_orders])

    def queue_order(self, queue: QueueUsage) -> Key:
        """Give what the plugins order queues by."""
        return tuple([order(queue) for order in self._queue_orders])

    def namespace_order(self, namespace: str) -> Key:
        """Give what the plugins order namespaces by."""
        return tuple([order(namespace) for order in self._namespace_orders])

    @property
    def order_namespaces(self) -> bool:
        """Ask whether namespaces come before queues."""
        return bool(self._namespace_orders)

    def task_order(self, pod: Pod) -> Key:
        """Give what the plugins order members by."""
        return tuple([order(pod) for order in self._task_orders])

    def victim_queue_order(self, queue: QueueUsage, claimant: QueueUsage) -> Key:
        """Give how close *queue* is to the claimant's, for taking from its relatives first."""
        return tuple([order(queue, claimant) for order in self._victim_orders])

    def why_gang_first(self, ahead: GangState, behind: GangState) -> str:
        """Let the plugin that puts one gang before the other say why; empty when none does."""
        return _why_first(self._gang_orderers, "gang_order", ahead, behind, "it")

    def why_queue_first(self, ahead: QueueUsage, behind: QueueUsage) -> str:
        """Let the plugin that puts one queue before the other say why; empty when none does."""
        who = f"queue {ahead.name}"
        return _why_first(self._queue_orderers, "queue_order", ahead, behind, who)

    def why_namespace_first(self, ahead: str, behind: str) -> str:
        """Let the plugin that puts one namespace before the other say why; empty when none does."""
        who = f"namespace {ahead}"
        return _why_first(self._namespace_orderers, "namespace_order", ahead, behind, who)

    @property
    def prefer_relatives(self) -> bool:
        """Ask whether room is taken from related queues first."""
        return bool(self._victim_orders)

    # ---------------------------------------------------------------- gangs

    def invalid_reason(self, gang: GangState) -> Problem | None:
        """Say why *gang* cannot be considered, None when it can."""
        return next((problem for valid in self._valid if (problem := valid(gang))), None)

    def missing_members(self, gang: GangState) -> int:
        """Count the members that must be placed at least before *gang* is ready."""
        return max([lacking(gang) for lacking in self._lacking], default=0)

    def is_ready(self, gang: GangState) -> bool:
        """Ask whether *gang* may start."""
        return not any(lacking(gang) for lacking in self._lacking)

    def is_pipelined(self, gang: GangState) -> bool:
        """Ask whether *gang* could start once the room promised to it is released."""
        return _settle(self._pipelined, gang) is None

    @property
    def checks_pipelining(self) -> bool:
        """Ask whether any plugin judges what is kept for gangs that cannot start yet."""
        return any(self._pipelined)

    def is_starving(self, gang: GangState) -> bool | None:
        """Ask whether others may have to leave for *gang*; None when nobody has an opinion."""
        deciding = next((tier for tier in self._starving if tier), None)
        return None if deciding is None else all(starving(gang) for starving in deciding)

    # ---------------------------------------------------------------- queues

    def enqueue_refusal(self, gang: GangState) -> Problem | None:
        """Say why *gang* may not be let into its queue now, None when it may."""
        return _settle(self._enqueueable, gang)

    def notify_enqueued(self, gang: GangState) -> None:
        """Tell the plugins that *gang* was let in."""
        for enqueued in self._enqueued:
            enqueued(gang)

    def is_overused(self, queue: QueueUsage) -> bool:
        """Ask whether *queue* has all it may have."""
        return any(overused(queue) for overused in self._overused)

    def allowed_pods(self, gang: GangState, shape: Shape) -> int | Problem:
        """Count the pods of *shape* the queue of *gang* may still start, or say why none."""
        has_shares = self._has_shares
        least, covered = UNBOUNDED, self.within_guarantee(gang, shape.requests) if has_shares else 0
        for allocatable in self._allocatable:
            answer = allocatable(gang, shape)
            if isinstance(answer, Problem):
                if not covered or answer.reason is not Reason.QUEUE_OVER_DESERVED:
                    return answer
                answer = covered
            least = min(least, max(answer, covered))
        quota = gang.quota if has_shares else gang.queue.quota
        if quota is not None:
            times, problem = quota.how_many(shape.requests)
            if problem is not None:
                return problem
            least = min(least, times)
        return least

    def within_guarantee(self, gang: GangState, asked: Resources) -> int:
        """Count how often *asked* keeps the namespace of *gang* within what it has at least.

        So much is due to it, whatever the others of its queue have of the queue's due.
        """
        share = gang.share
        return share.covers(asked) if share is not None else 0

    def may_allocate(self, gang: GangState, shape: Shape) -> bool:
        """Ask whether the queue of *gang* may start one more pod of *shape*."""
        allowed = self.allowed_pods(gang, shape)
        return not isinstance(allowed, Problem) and allowed > 0

    @property
    def limit_queues(self) -> bool:
        """Ask whether any plugin limits what a queue may start."""
        return bool(self._allocatable)

    @property
    def limit_every_task(self) -> bool:
        """Ask whether a queue that has enough is noticed task by task, not only between turns."""
        return bool(self._allocatable) or not self._overused

    def is_preemptive(self, gang: GangState, shape: Shape) -> bool:
        """Ask whether others must give back room for one more pod of *gang*."""
        if self.exceeds_share(gang, shape.requests):
            return False
        if self.within_guarantee(gang, shape.requests):
            return True
        return all(preemptive(gang, shape) for preemptive in self._preemptive)

    def exceeds_share(self, gang: GangState, needs: Resources) -> bool:
        """Ask whether the namespace of *gang* may not have so much more of its queue.

        Nothing that others give back would help then.
        """
        share = gang.share
        return share is not None and bool(share.lacks(needs))

    def is_entitled(self, gang: GangState, needs: Resources) -> bool:
        """Ask whether the queue of *gang* has less than its due now and may have *needs* at all."""
        if self.exceeds_share(gang, needs):
            return False
        return all(entitled(gang, needs) for entitled in self._entitled)

    def deserved(self, queue: QueueUsage) -> Vector | None:
        """Give what *queue* deserves, None when no plugin divides the cluster."""
        return next((vector for ask in self._deserved if (vector := ask(queue)) is not None), None)

    # ---------------------------------------------------------------- victims

    def allowed_victims(
        self, action: str, claim: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Keep the *candidates* that may be asked to leave for *claim*, all of them together."""
        if self._has_shares:
            candidates = _beyond_shares(claim, candidates)
        final = self._vetoes_are_final
        for tier in self._voters[action]:
            left = _join(tier, claim, candidates, final=final)
            if left or (final and left is not None):
                return left
        return []

    def protect(self, action: str, claim: Preemptor, gang: GangState) -> bool:
        """See cheaply that nobody of *gang*, or of its queue and priority, may be asked."""
        return any(protects(action, claim, gang) for protects in self._protectors[action])

    # ---------------------------------------------------------------- nodes

    def obstacles(self, shape: Shape, facts: NodeFacts) -> dict[str, Mask]:
        """Mark, by word, the nodes that *shape* may not use."""
        found = (obstacles(shape, facts).items() for obstacles in self._obstacles)
        return dict(chain.from_iterable(found))

    def score(self, shape: Shape, prospect: ScoringTable) -> Scores:
        """Add up the scores of the nodes of *prospect*."""
        if not self._scores:
            return prospect.nothing
        return reduce(add, [scores(shape, prospect) for scores in self._scores])


def _speakers(tiers: Tiers, method: str, switch: str = "") -> list[list[Plugin]]:
    """Name, tier by tier, the plugins that have *method* and are not silenced in it."""
    return [
        [plugin for plugin, silenced in tier if hasattr(plugin, method) and switch not in silenced]
        for tier in tiers
    ]


def _by_tier(tiers: Tiers, method: str, switch: str = "") -> list[list[Any]]:
    return [[getattr(p, method) for p in tier] for tier in _speakers(tiers, method, switch)]


def _every(tiers: Tiers, method: str, switch: str = "") -> list[Any]:
    return list(chain(*_by_tier(tiers, method, switch)))


def _protectors(voters: Sequence[Sequence[Plugin]]) -> list[_Protector]:
    """Collect who can say cheaply that a whole group is exempt, in the tier that decides."""
    deciding = next((tier for tier in voters if tier), ())
    return [plugin.protects for plugin in deciding if hasattr(plugin, "protects")]


def _why_first(plugins: list[Plugin], order: str, ahead: Any, behind: Any, who: str) -> str:
    for plugin in plugins:
        key = getattr(plugin, order)
        if key(ahead) != key(behind):
            words = getattr(plugin, f"{order}_words", None)
            return words(ahead, behind) if words else f"plugin {plugin.name} puts {who} first"
    return ""


def _settle(tiers: Iterable[Iterable[_Judge]], gang: GangState) -> Problem | None:
    """Let the highest tier with an opinion decide: a rejection wins, nobody's opinion is a yes."""
    for tier in tiers:
        permitted = False
        for judge in tier:
            answer = judge(gang)
            if isinstance(answer, Problem):
                return answer
            if answer is Vote.REJECT:
                return Problem(Reason.NOT_ENQUEUED, "a plugin of the policy refuses it for now")
            permitted = permitted or answer is Vote.PERMIT
        if permitted:
            return None
    return None


def _beyond_shares(
    claim: Preemptor, candidates: Sequence[VictimCandidate]
) -> Sequence[VictimCandidate]:
    """Leave out those without whom a namespace would have less of a queue than at least.

    Within one namespace anybody may take the place of anybody else.
    """
    ours, gone = claim.gang.share, dict[QuotaNode, Resources]()
    left = []
    for one in candidates:
        share = one.gang.share
        if share is not None and share is not ours and share.least:
            lost = gone.get(share, NOTHING) + one.pod.requests
            if not share.reserves(lost):
                continue
            gone[share] = lost
        left.append(one)
    return left


def _join(
    tier: Iterable[_Voter], claim: Preemptor, candidates: Sequence[VictimCandidate], *, final: bool
) -> list[VictimCandidate] | None:
    """Join the votes of one tier: an empty one ends it, the others intersect; None if nobody's."""
    left: list[VictimCandidate] | None = None
    for vote in tier:
        answer = vote(claim, candidates)
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
