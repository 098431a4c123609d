"""One cycle's view for plugins and actions: the cluster, and the plugins' opinions joined by tiers.

How answers are joined is Volcano's way, because its users know it: orders are compared plugin by
plugin, first difference wins; predicates, readiness and limits all have to agree; votes are
settled by the highest tier that has an opinion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from extender.model.gang import GangKey
from extender.model.pod import Pod, Shape, Status
from extender.model.reason import Problem
from extender.model.resources import PODS, Resources
from extender.plan import votes
from extender.plan.arithmetic import Arithmetic, Vector
from extender.plan.census import Census
from extender.plan.plugin import Candidate, Claim, Plugin, Round
from extender.plan.plugins.predicates import Predicates
from extender.plan.policy import plugin_register
from extender.plan.policy.arguments import Arguments
from extender.plan.policy.options import Policy
from extender.plan.room.prospect import Prospect, Scores
from extender.plan.room.slots import Slots
from extender.plan.room.state import GangState, QueueUse
from extender.plan.room.trials import Fence, TrialRoom
from extender.plan.task_order import index_of, runs_of

Mask = npt.NDArray[np.bool_]
Key = tuple[Any, ...]
#: More than any gang has members.
UNBOUNDED = 2**31


class Session:
    """The plugins at work on one snapshot."""

    def __init__(self, census: Census, policy: Policy) -> None:
        self.census = census
        self.snapshot = census.snapshot
        self.policy = policy
        self.rules = policy.rules
        self.maths = Arithmetic(policy.rules)
        self.room = TrialRoom(census.snapshot.nodes)
        self.total = census.total
        self.queues = census.queues
        self.round = Round.CLAIMS
        #: What actions work out once and share.
        self.shared: dict[str, object] = {}
        #: Room kept for gangs that wait too long.
        self.fenced: dict[GangKey, list[Fence]] = {}
        self._slots: dict[Shape, Slots] = {}
        self._obstacles: dict[Shape, dict[str, Mask]] = {}
        self._empty: dict[Shape, bool] = {}
        #: Whether one queue's place among all may change by what another one gets.
        self.queues_interact = any(option.hierarchy for tier in policy.tiers for option in tier)
        self._open_plugins()
        if not policy.rules.members_need_nodes:
            self._count_empty_members()
        if not policy.rules.exact and any(isinstance(p, Predicates) for p in self._predicates()):
            # Volcano's predicate counts pods that are leaving against a node's limit of pods.
            self.room.distrust_coming(PODS)
        if "enqueue" not in policy.actions:
            for gang in census.contenders.values():
                if policy.rules.only_enqueue_keeps_out or gang.gang.group.is_phaseless:
                    gang.let_in()

    def _open_plugins(self) -> None:
        tiers = [
            [(plugin_register.make(option, option.name), option.silenced) for option in tier]
            for tier in self.policy.tiers
        ]
        for tier in tiers:
            for plugin, _ in tier:
                plugin.open(self)

        def tiered(method: str, callback: str = "") -> list[list[Any]]:
            """Collect who speaks about *method*, tier by tier."""
            return [
                [
                    getattr(p, method)
                    for p, silenced in tier
                    if _speaks(p, method, callback, silenced)
                ]
                for tier in tiers
            ]

        def flat(method: str, callback: str = "") -> list[Any]:
            return [speaker for tier in tiered(method, callback) for speaker in tier]

        self._gang_order = flat("gang_order", "JobOrder")
        self._queue_order = flat("queue_order", "QueueOrder")
        self._task_order = flat("task_order", "TaskOrder")
        self._victim_queue_order = flat("victim_queue_order")
        self._valid = flat("gang_valid")
        self._lacking = flat("gang_ready", "JobReady")
        self._pipelined = tiered("gang_pipelined", "JobPipelined")
        self._starving = tiered("gang_starving", "JobStarving")
        self._enqueueable = tiered("enqueueable", "JobEnqueued")
        self._enqueued = flat("enqueued", "JobEnqueued")
        self._overused = flat("overused", "Overused")
        self._allocatable = flat("allocatable", "Allocatable")
        self._preemptive = flat("preemptive", "Preemptive")
        self._entitled = flat("entitled", "Allocatable")
        self._votes = {
            "preempt": tiered("preemptable", "Preemptable"),
            "reclaim": tiered("reclaimable", "Reclaimable"),
        }
        self._protectors = {
            action: votes.protectors(tiers) for action, tiers in self._votes.items()
        }
        self._blockers = flat("obstacles", "Predicate")
        self._scorers = flat("scores", "NodeOrder")
        self._deserved = flat("deserved")

    def _predicates(self) -> list[object]:
        return [blocker.__self__ for blocker in self._blockers]

    def _count_empty_members(self) -> None:
        for gang in self.census.contenders.values():
            pending = gang.gang.by_status.get(Status.PENDING, ())
            gang.empty = [pod for pod in pending if self.is_empty(pod.shape)]

    # ---------------------------------------------------------------- orders

    def gang_opinion(self, gang: GangState) -> Key:
        """Give what the plugins order gangs by, without any tie-break."""
        return tuple(order(gang) for order in self._gang_order)

    def gang_key(self, gang: GangState) -> Key:
        """Give the place of *gang* in its queue: total, and the same whatever the input order."""
        is_late = not (self.rules.torn_gangs_are_first and gang.gang.is_torn)
        return (is_late, *self.gang_opinion(gang), gang.created, gang.key)

    def queue_key(self, queue: QueueUse) -> Key:
        """Give the place of *queue* among all."""
        opinions = tuple(order(queue) for order in self._queue_order)
        return (*opinions, queue.queue.created, queue.name)

    def task_key(self, pod: Pod) -> Key:
        """Give the place of *pod* in its gang: priority, index, creation, uid."""
        opinions = tuple(order(pod) for order in self._task_order)
        return (*opinions, index_of(pod.name), pod.created, pod.uid)

    def victim_queue_key(self, queue: QueueUse, claimant: QueueUse) -> Key:
        """Give how close *queue* is to the claimant's, for taking from its relatives first."""
        return tuple(order(queue, claimant) for order in self._victim_queue_order)

    @property
    def prefers_relatives(self) -> bool:
        """Ask whether room is taken from related queues first."""
        return bool(self._victim_queue_order)

    def in_victim_order(self, claim: Claim, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Sort *candidates* so that whoever should leave first comes first."""
        ours = claim.gang.queue

        def key(candidate: Candidate) -> Key:
            queue, gang = candidate.gang.queue, candidate.gang
            return (
                self.victim_queue_key(queue, ours) if queue is not ours else (),
                Last(self.queue_key(queue)),
                Last(self.gang_opinion(gang)),
                Last(self.task_key(candidate.pod)),
            )

        return sorted(candidates, key=key)

    def waiting_tasks(self, gang: GangState) -> list[Pod]:
        """List the members of *gang* that wait, in task order.

        Best-effort ones come last, unless they count without a node anyway.
        """
        memo = gang.gang.memo
        key = ("tasks", self.policy)
        if key not in memo:
            tasks = sorted(gang.gang.waiting, key=self.task_key)
            if self.rules.members_need_nodes:
                tasks.sort(key=lambda pod: self.is_empty(pod.shape))
            memo[key] = tasks
        known: list[Pod] = memo[key]  # type: ignore[assignment]
        given = len(gang.placed) + len(gang.pipelined)
        if not given or given == len(known):
            return known if not given else []
        gone = {pod.uid for pod, _ in (*gang.placed, *gang.pipelined)}
        return [pod for pod in known if pod.uid not in gone]

    def waiting_runs(self, gang: GangState) -> list[list[Pod]]:
        """Cut the waiting members into runs that can be placed in one go."""
        if gang.placed or gang.pipelined:
            return runs_of(self.waiting_tasks(gang))
        memo = gang.gang.memo
        key = ("runs", self.policy)
        if key not in memo:
            memo[key] = runs_of(self.waiting_tasks(gang))
        return list(memo[key])  # type: ignore[call-overload, no-any-return]

    def is_empty(self, shape: Shape) -> bool:
        """Ask whether a pod of *shape* asks for nothing but a place (best effort)."""
        known = self._empty.get(shape)
        if known is None:
            known = self._empty[shape] = self.maths.is_empty(shape.requests)
        return known

    # ---------------------------------------------------------------- gangs

    def problem_of(self, gang: GangState) -> Problem | None:
        """Say why *gang* cannot be considered, None when it can."""
        return next((problem for valid in self._valid if (problem := valid(gang))), None)

    def lacking(self, gang: GangState) -> int:
        """Count the members that must be placed at least before *gang* is ready."""
        return max([lacking(gang) for lacking in self._lacking], default=0)

    def is_ready(self, gang: GangState) -> bool:
        """Ask whether *gang* may start."""
        return not any(lacking(gang) for lacking in self._lacking)

    def is_pipelined(self, gang: GangState) -> bool:
        """Ask whether *gang* could start once the room promised to it is released."""
        return votes.settle(self._pipelined, gang) is None

    @property
    def minds_pipelining(self) -> bool:
        """Ask whether any plugin judges what is kept for gangs that cannot start yet."""
        return any(self._pipelined)

    def is_starving(self, gang: GangState) -> bool:
        """Ask whether others may have to leave for *gang*."""
        for tier in self._starving:
            if tier:
                return all(starving(gang) for starving in tier)
        # kube-batch, whose groups have no phase, knows no such opinion.
        wants_more = self.rules.waiting_is_starving or gang.gang.group.is_phaseless
        return wants_more and bool(self.waiting_tasks(gang))

    # ---------------------------------------------------------------- queues

    def refusal_to_enqueue(self, gang: GangState) -> Problem | None:
        """Say why *gang* may not be let into its queue now, None when it may."""
        return votes.settle(self._enqueueable, gang)

    def tell_enqueued(self, gang: GangState) -> None:
        """Tell the plugins that *gang* was let in."""
        for enqueued in self._enqueued:
            enqueued(gang)

    def is_overused(self, queue: QueueUse) -> bool:
        """Ask whether *queue* has all it may have."""
        return any(overused(queue) for overused in self._overused)

    def allowance(self, gang: GangState, shape: Shape) -> int | Problem:
        """Count the pods of *shape* the queue of *gang* may still start, or say why none."""
        least = UNBOUNDED
        for allocatable in self._allocatable:
            answer: int | Problem = allocatable(gang, shape)
            if isinstance(answer, Problem):
                return answer
            least = min(least, answer)
        return least

    def may_take(self, gang: GangState, shape: Shape) -> bool:
        """Ask whether the queue of *gang* may start one more pod of *shape*."""
        allowed = self.allowance(gang, shape)
        return not isinstance(allowed, Problem) and allowed > 0

    def fits_due(self, gang: GangState) -> bool:
        """Ask whether what *gang* lost in this cycle would fit into its queue's due again."""
        if not self._allocatable:
            return False
        lost = [pod for pod in gang.gang.pods if pod.uid in gang.evicted]
        now, self.round = self.round, Round.DUE
        allowed = self.allowance(gang, lost[0].shape)
        self.round = now
        least = 1 if gang.firm else min(len(lost), gang.min_member)
        return not isinstance(allowed, Problem) and allowed >= least

    @property
    def limits_every_task(self) -> bool:
        """Ask whether a queue that has enough is noticed task by task, not only between turns."""
        return bool(self._allocatable) or not self._overused

    def is_preemptive(self, gang: GangState, shape: Shape) -> bool:
        """Ask whether others must give back room for one more pod of *gang*."""
        return all(preemptive(gang, shape) for preemptive in self._preemptive)

    def is_entitled(self, gang: GangState, needs: Resources) -> bool:
        """Ask whether the queue of *gang* has less than its due now and may have *needs* at all."""
        return all(entitled(gang, needs) for entitled in self._entitled)

    def deserved(self, queue: QueueUse) -> Vector | None:
        """Give what *queue* deserves, None when no plugin divides the cluster."""
        return next((vector for ask in self._deserved if (vector := ask(queue)) is not None), None)

    # ---------------------------------------------------------------- victims

    def may_leave(
        self, action: str, claim: Claim, candidates: Sequence[Candidate]
    ) -> list[Candidate]:
        """Keep the *candidates* that may be asked to leave for *claim*."""
        for tier in self._votes[action]:
            voted, left = votes.join(tier, claim, candidates, final=self.rules.vetoes_are_final)
            if voted and (left or self.rules.vetoes_are_final):
                return left
        return []

    def protects(self, action: str, claim: Claim, gang: GangState) -> bool:
        """See cheaply that nobody of *gang*, or of its queue and priority, may be asked."""
        return any(protects(action, claim, gang) for protects in self._protectors[action])

    # ---------------------------------------------------------------- nodes

    def slots(self, shape: Shape) -> Slots:
        """Give the free slots for *shape*."""
        known = self._slots.get(shape)
        if known is None:
            known = self._slots[shape] = Slots(self.room, shape, self.usable(shape), self._score)
        return known

    def usable(self, shape: Shape) -> Mask:
        """Mark the nodes that *shape* may use now."""
        mask = self.usable_at_all(shape)
        return mask & ~self.misfits(shape) if shape in self.snapshot.misfits else mask

    def misfits(self, shape: Shape) -> Mask:
        """Mark the nodes on which kube-scheduler would not have *shape* a moment ago."""
        facts = self.snapshot.nodes.facts
        mask = np.zeros(len(facts.nodes), dtype=bool)
        names = self.snapshot.misfits.get(shape, ())
        mask[[facts.index[name] for name in names if name in facts.index]] = True
        return mask

    def usable_at_all(self, shape: Shape) -> Mask:
        """Mark the nodes that *shape* may use; remembered until a node changes."""
        memo = self.snapshot.nodes.facts.memo
        key = ("usable", self.policy, shape)
        mask = memo.get(key)
        if mask is None:
            barred = self.obstacles(shape).values()
            ready = self.census.ready_nodes
            mask = memo[key] = ready & ~np.any([*barred, ~ready], axis=0)
        return mask  # type: ignore[return-value]

    def obstacles(self, shape: Shape) -> dict[str, Mask]:
        """Mark, by word, the nodes that *shape* may not use."""
        known = self._obstacles.get(shape)
        if known is None:
            known = self._obstacles[shape] = {"not ready": ~self.census.ready_nodes}
            for obstacles in self._blockers:
                known.update(obstacles(shape, self.snapshot.nodes.facts))
        return known

    def _score(self, shape: Shape, prospect: Prospect) -> Scores:
        if not self._scorers:
            return prospect.nothing
        first, *others = self._scorers
        total: Scores = first(shape, prospect)
        for scores in others:
            total = total + scores(shape, prospect)
        return total

    def close(self) -> None:
        """Let go of everything, so that nothing is left over for the garbage collector.

        Plugins, slots and indexes refer back to the session; in a large cluster such a circle
        holds tens of thousands of objects, once per cycle.
        """
        self.__dict__.clear()

    def arguments(self, action: str) -> Arguments:
        """Give the arguments of *action*."""
        return Arguments(action, self.policy.configurations.get(action, {}))


class Last:
    """A key that turns an order round."""

    __slots__ = ("key",)

    def __init__(self, key: Key) -> None:
        self.key = key

    def __lt__(self, other: Last) -> bool:
        return other.key < self.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Last) and self.key == other.key

    __hash__ = None  # type: ignore[assignment]


def _speaks(plugin: Plugin, method: str, callback: str, silenced: frozenset[str]) -> bool:
    return hasattr(plugin, method) and callback not in silenced
