"""One cycle at work: the cluster, what was decided so far, and everybody's place in line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby

import numpy as np

from extender.model.gang import GangKey
from extender.model.pod import Pod, Shape, Status
from extender.model.reason import Problem
from extender.model.resources import NOTHING, PODS, Resources
from extender.planner import startable
from extender.planner.accounting import Accounting
from extender.planner.extension_points import ExtensionPoints, Key
from extender.planner.free_capacity import BackfillReservation, FreeCapacity
from extender.planner.nodes import Nodes
from extender.planner.plugin import Preemptor, Round, VictimCandidate
from extender.planner.plugins import registry
from extender.planner.plugins.nodes import Predicates
from extender.planner.policy import Policy, Vector
from extender.planner.quota import TOP, QueueLimits, queue_limits, share_limits, tree, using
from extender.planner.state import GangState, QueueUsage

#: After every number: names without one keep their order of creation.
_NO_INDEX = (1, 0)
#: Plugins that keep queues to what they may have.
_LIMITING = {"proportion", "capacity"}


class Session:
    """The plugins and actions of a policy at work on one snapshot; plugins see a `View` of it."""

    def __init__(self, census: Accounting, policy: Policy) -> None:
        self.accounting = census
        self.snapshot = census.snapshot
        self.policy = policy
        self.rules = policy.rules
        self.arithmetic = policy.rules.arithmetic
        self.capacity = FreeCapacity(census.snapshot.nodes)
        self.total = census.total
        self.queues = census.queues
        self.round = Round.DEFAULT
        #: Whether one queue's place among all may change by what another one gets.
        self.queues_interact = policy.is_of_a_tree
        #: What actions work out once and share.
        self.shared: dict[str, object] = {}
        #: Room kept for gangs that wait too long.
        self.fenced: dict[GangKey, list[BackfillReservation]] = {}
        #: Which of those could start first, and when at the earliest; None if nobody asked.
        self.first_start: tuple[GangKey, float] | None = None
        #: Gangs that were let into such room because they are gone by then, and that are not.
        self.let_in_meanwhile: set[GangKey] = set()
        self.too_long: set[GangKey] = set()
        #: Gangs for which it was not looked to the end who could leave.
        self.unsearched: set[GangKey] = set()
        #: Whether a pod of a shape asks for nothing but a place (best effort).
        self.is_empty: Callable[[Shape], bool] = cache(
            lambda shape: policy.rules.arithmetic.is_empty(shape.requests)
        )
        if policy.rules.reservations_fade:
            census.recheck_reservations()
        #: What queues are limited to and guaranteed, and used when the snapshot was taken.
        self.limits = _stakes(census, policy)
        self._grow_tree()
        self.opinions = self._open_plugins()
        self.places = Nodes(
            census.snapshot, census.ready_nodes, self.capacity, self.opinions, policy
        )
        self.ceilings = self._ceilings()
        self.startable, self.startable_by_share = self._wishes()
        if not policy.rules.members_need_nodes:
            self._count_empty_members()
        if not policy.rules.terminating_pods_free_capacity and any(
            isinstance(plugin, Predicates) for plugin in self.opinions.barring
        ):
            self.capacity.exclude_releasing(PODS)
        if "enqueue" not in policy.actions:
            for gang in census.contenders.values():
                if policy.rules.only_enqueue_keeps_out or gang.gang.group.is_phaseless:
                    gang.enqueue()

    def _open_plugins(self) -> ExtensionPoints:
        tiers = [
            [(registry.make(option, option.name, self.rules), option.silenced) for option in tier]
            for tier in self.policy.tiers
        ]
        for tier in tiers:
            for plugin, _ in tier:
                plugin.open(self)
        final = self.rules.vetoes_are_final
        return ExtensionPoints(
            tiers, vetoes_are_final=final, has_shares=bool(self.accounting.shares)
        )

    def _grow_tree(self) -> None:
        """Give every queue, and every share in one, its place in the tree.

        Volcano has no such tree: there it holds what namespaces have, and leaves queues alone.
        """
        stakes = self.limits
        if not self.rules.reservations_hold_together:
            stakes = tuple(s if s.namespace else s._replace(ceiling=NOTHING) for s in stakes)
            if not self.accounting.shares:
                return
        quotas = tree(stakes, self.total)
        for state in self.queues.values():
            state.quota = quotas.get(state.name)
        for name, use in self.accounting.shares.items():
            self.queues[use.share.queue].shares[use.share.namespace] = quotas[name]

    def _ceilings(self) -> Mapping[str, Vector]:
        """Give what queues could hold, where that is divided by our rules."""
        if not self.rules.reservations_hold_together or not self.limits:
            return {}
        return startable.ceilings(self.limits, self.total)

    def _wishes(self) -> tuple[Mapping[str, Resources], Mapping[str, Resources]]:
        """Add up what queues want, and namespaces of them, where that is divided by our rules."""
        if not self.ceilings:
            return {}, {}
        slots = self.places.count_if_empty
        return startable.startable(self.accounting, self.ceilings, self._wish_of, slots)

    def _wish_of(self, gang: GangState) -> startable.StartableRequest | None:
        if self.opinions.invalid_reason(gang) is not None:
            return None

        def work_out() -> startable.StartableRequest:
            tasks = self.waiting_tasks(gang)
            return startable.startable_request(
                gang.needed(tasks, self.opinions.missing_members(gang)), tasks
            )

        return gang.gang.memo.recall(("wish", self.policy), work_out)

    def _count_empty_members(self) -> None:
        for gang in self.accounting.contenders.values():
            pending = gang.gang.by_status.get(Status.PENDING, ())
            gang.empty = [pod for pod in pending if self.is_empty(pod.shape)]

    def gang_key(self, gang: GangState) -> Key:
        """Give the place of *gang* in its queue: total, and the same whatever the input order."""
        is_first = self.rules.partial_gangs_are_first and gang.key in self.snapshot.partial_gangs
        is_late = not (is_first and gang.ready < gang.min_member)
        has_no_room = not (self.rules.freed_capacity_is_reserved and gang.has_freed_capacity)
        return (is_late, *self.opinions.gang_order(gang), has_no_room, gang.created, gang.key)

    def queue_key(self, queue: QueueUsage) -> Key:
        """Give the place of *queue* among all."""
        return (*self.opinions.queue_order(queue), queue.queue.created, queue.name)

    def namespace_key(self, namespace: str) -> Key:
        """Give the place of *namespace* among all; the same for all where nobody orders them."""
        order = self.opinions.namespace_order(namespace)
        return (*order, namespace) if order else ()

    def task_key(self, pod: Pod) -> Key:
        """Give the place of *pod* in its gang: priority, index, creation, uid."""
        return (*self.opinions.task_order(pod), _index_of(pod.name), pod.created, pod.uid)

    def in_victim_order(
        self, claim: Preemptor, candidates: Iterable[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Sort *candidates* so that whoever should leave first comes first."""
        ours, opinions = claim.gang.queue, self.opinions

        def importance(one: VictimCandidate) -> Key:
            gang = one.gang
            return self.queue_key(gang.queue), opinions.gang_order(gang), self.task_key(one.pod)

        def distance(one: VictimCandidate) -> Key:
            queue = one.gang.queue
            return opinions.victim_queue_order(queue, ours) if queue is not ours else ()

        return sorted(sorted(candidates, key=importance, reverse=True), key=distance)

    def waiting_tasks(self, gang: GangState) -> list[Pod]:
        """List the members of *gang* that wait, in task order.

        Best-effort ones come last, unless they count without a node anyway.
        """
        known = gang.gang.memo.recall(("tasks", self.policy), lambda: self._in_task_order(gang))
        given = len(gang.placed) + len(gang.pipelined)
        if not given or given == len(known):
            return known if not given else []
        gone = {pod.uid for pod, _ in (*gang.placed, *gang.pipelined)}
        return [pod for pod in known if pod.uid not in gone]

    def _in_task_order(self, gang: GangState) -> list[Pod]:
        tasks = sorted(gang.gang.waiting, key=self.task_key)
        if self.rules.members_need_nodes:
            tasks.sort(key=lambda pod: self.is_empty(pod.shape))
        return tasks

    def waiting_runs(self, gang: GangState) -> list[list[Pod]]:
        """Cut the waiting members into runs that can be placed in one go."""
        if gang.placed or gang.pipelined:
            return _runs_of(self.waiting_tasks(gang))
        key = ("runs", self.policy)
        return list(gang.gang.memo.recall(key, lambda: _runs_of(self.waiting_tasks(gang))))

    def is_starving(self, gang: GangState) -> bool:
        """Ask whether others may have to leave for *gang*."""
        opinion = self.opinions.is_starving(gang)
        if opinion is not None:
            return opinion
        # kube-batch, whose groups have no phase, knows no such opinion.
        wants_more = self.rules.waiting_is_starving or gang.gang.group.is_phaseless
        return wants_more and bool(self.waiting_tasks(gang))

    def fits_deserved(self, gang: GangState, *, only_promises: bool = False) -> bool:
        """Ask whether what *gang* lost in this cycle would fit into its queue's due again.

        With *only_promises*, whether ceilings and guarantees alone would let it come back: who
        leaves for a gang of its own queue finds the due used by that.
        """
        if not self.opinions.limit_queues or gang.gang.problem is not None:
            return False  # an invalid gang does not start again
        lost = [pod for pod in gang.gang.pods if pod.uid in gang.evicted]
        now, self.round = self.round, Round.BORROW if only_promises else Round.DESERVED
        allowed = self.opinions.allowed_pods(gang, lost[0].shape)
        self.round = now
        least = 1 if gang.bound_or_done else min(len(lost), gang.min_member)
        return not isinstance(allowed, Problem) and allowed >= least

    def occupied(self, gang: GangState, needs: Resources | None = None) -> Problem | None:
        """Say that pods which are being deleted keep *gang* from starting by its queue's ceilings.

        For what it *needs*; else for what the trial under way has given it.
        """
        if not self.accounting.leaving or gang.quota is None:
            return None
        if needs is None:
            return gang.quota.blocked_by_terminating(gang.trying, is_taken=True)
        return gang.quota.blocked_by_terminating(needs, is_taken=False)

    def close(self) -> None:
        """Let go of everything, so that nothing is left over for the garbage collector.

        Plugins, slots and indexes refer back to the session; in a large cluster such a circle
        holds tens of thousands of objects, once per cycle.
        """
        self.__dict__.clear()


def _stakes(census: Accounting, policy: Policy) -> tuple[QueueLimits, ...]:
    """Give the stakes of all queues, none where the policy limits no queue; and all shares.

    Volcano knows neither the ceilings of ancestors nor guarantees beyond single queues. What a
    namespace has of a queue holds with every policy.
    """
    is_limiting = any(option.name in _LIMITING for tier in policy.tiers for option in tier)
    if not is_limiting and not census.shares:
        return ()
    stakes = [
        queue_limits(state.queue, state.parent.name if state.parent else TOP, state.allocated)
        for state in census.queues.values()
    ]
    if not policy.rules.reservations_hold_together:
        stakes = [each._replace(parent=TOP, guarantee=NOTHING) for each in stakes]
    if not is_limiting:
        stakes = [each._replace(ceiling=NOTHING, guarantee=NOTHING) for each in stakes]
    if census.shares:
        stakes += [share_limits(use.share, use.used) for use in census.shares.values()]
        used = {name: state.allocated for name, state in census.queues.items()}
        of_shares = {name: use.used for name, use in census.shares.items()}
        stakes = using(stakes, used, of_shares)
    if census.leaving and policy.rules.reservations_hold_together:
        stakes = [s._replace(leaving=census.leaving.get(s.name, NOTHING)) for s in stakes]
    return tuple(stakes)


def _index_of(name: str) -> tuple[int, int]:
    """Give the index in names such as `train-worker-11`: the last part of at least three."""
    head, _, last = name.rpartition("-")
    return (0, int(last)) if "-" in head and last.isascii() and last.isdigit() else _NO_INDEX


def _runs_of(tasks: Sequence[Pod]) -> list[list[Pod]]:
    """Cut *tasks* where shape or role changes; a member with a node in mind goes alone."""
    runs = groupby(tasks, key=lambda pod: (pod.shape, pod.role, pod.nominated and pod.uid))
    return [list(run) for _, run in runs]


@dataclass(eq=False)
class Demand:
    """Members of a gang that need nodes, all of them or none."""

    gang: GangState
    pods: list[Pod]

    @property
    def claim(self) -> Preemptor:
        """Give the claim plugins are asked about: the first of the pods speaks for all."""
        return Preemptor(self.gang, self.pods[0])

    @cached_property
    def by_shape(self) -> dict[Shape, list[Pod]]:
        """Group the pods by shape, the most demanding first."""
        groups: dict[Shape, list[Pod]] = {}
        for pod in self.pods:
            groups.setdefault(pod.shape, []).append(pod)
        return dict(sorted(groups.items(), key=lambda group: -max(group[0].requests.values())))

    @property
    def is_uniform(self) -> bool:
        """Ask whether all pods are alike."""
        return len(self.by_shape) == 1

    @cached_property
    def total(self) -> Resources:
        """Add up what the pods ask for."""
        return sum((shape.requests * len(pods) for shape, pods in self.by_shape.items()), NOTHING)

    def is_allowed(self, session: Session) -> bool:
        """Ask whether the gang's queue may take all pods now."""
        for shape, pods in self.by_shape.items():
            allowed = session.opinions.allowed_pods(self.gang, shape)
            if isinstance(allowed, Problem) or allowed < len(pods):
                return False
        return self.is_uniform or session.opinions.may_allocate(
            self.gang, Shape(requests=self.total)
        )

    def assign(self, session: Session, *, idle: bool = False) -> list[tuple[Pod, int]] | None:
        """Find rows for all pods in room that is idle or coming; None when there is not enough.

        With *idle*, room that is only coming does not count.
        """
        idle_room, coming = session.capacity.idle, session.capacity.coming
        room = idle_room + (np.minimum(coming, 0) if idle else coming)
        found: list[tuple[Pod, int]] = []
        for shape, pods in self.by_shape.items():
            counts = session.places.count(room, shape)
            rows = np.flatnonzero(counts)
            # The tightest nodes first: what is left stays in as large pieces as possible.
            rows = rows[np.argsort(counts[rows], kind="stable")]
            spread = np.repeat(rows, counts[rows])[: len(pods)]
            if len(spread) < len(pods):
                return None
            np.subtract.at(room, spread, session.capacity.row(shape))
            found.extend(zip(pods, spread.tolist(), strict=True))
        return found


def needed_pods(session: Session, gang: GangState, tasks: Sequence[Pod] | None = None) -> list[Pod]:
    """Choose the waiting members that bring *gang* to its minimum, roles that lack some first."""
    tasks = session.waiting_tasks(gang) if tasks is None else tasks
    lacking = session.opinions.missing_members(gang) - len(gang.pipelined)
    return gang.needed(tasks, lacking)
