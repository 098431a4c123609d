"""The state of one cycle: the cluster, what is decided so far, and the order of gangs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from typing import Any, TypeVar

import numpy as np

from extender.model.gang import GangKey
from extender.model.pod import Pod, Shape, Status
from extender.model.reason import Problem
from extender.model.resources import PODS, Resources, total
from extender.model.snapshot import Snapshot
from extender.planner import startable
from extender.planner.accounting import Accounting
from extender.planner.extension_points import Key, open_plugins
from extender.planner.free_capacity import FreeCapacity, NodeHold
from extender.planner.nodes import Nodes
from extender.planner.plugin import Preemptor, Round, VictimCandidate
from extender.planner.plugins.nodes import Predicates
from extender.planner.policy import Policy, Vector
from extender.planner.quota import ceilings
from extender.planner.state import GangState, QueueUsage

#: After every number: names without one keep their order of creation.
_NO_INDEX = (1, 0)
T = TypeVar("T")


class Session:
    """The plugins and actions of a policy on one snapshot; plugins see it as a `View`."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.rules = policy.rules
        self.arithmetic = policy.rules.arithmetic
        self.accounting = Accounting(snapshot)
        self.total = self.accounting.total
        self.queues = self.accounting.queues
        self.capacity = FreeCapacity(snapshot.nodes)
        self.round = Round.DEFAULT
        #: Whether what one queue is given may change the order of other queues.
        self.queues_interact = policy.divides_a_tree
        #: Capacity held for gangs that wait too long.
        self.holds: dict[GangKey, list[NodeHold]] = {}
        #: Which of those could start first, and the earliest moment; None if not computed.
        self.first_start: tuple[GangKey, float] | None = None
        #: Short gangs placed in held capacity because they end before it is needed, and those that
        #: do not.
        self.in_held_capacity: set[GangKey] = set()
        self.too_long: set[GangKey] = set()
        #: Gangs whose search for victims was cut short by the work limit.
        self.search_cut_short: set[GangKey] = set()
        #: Whether a shape requests nothing but a place on a node (best effort).
        self.is_best_effort: Callable[[Shape], bool] = cache(
            lambda shape: policy.rules.arithmetic.is_empty(shape.requests)
        )
        self._results: dict[object, Any] = {}

        # From the snapshot alone: plugins read these when they are opened.
        if self.rules.reservations_fade:
            self.accounting.recheck_reservations()
        self.limits = self.accounting.limit_queues(policy)
        hold_together = self.rules.reservations_hold_together
        self.ceilings: Mapping[str, Vector] = (
            ceilings(self.limits, self.total) if hold_together else {}
        )
        self.plugins = open_plugins(self)

        # From the answers of the plugins.
        self.nodes = Nodes(snapshot, self.capacity, self.plugins, policy)
        self.startable, self.startable_by_share = self._startable()
        if not self.rules.members_need_nodes:
            self._count_best_effort()
        if not self.rules.terminating_pods_free_capacity and any(
            isinstance(plugin, Predicates) for plugin in self.plugins.node_filters
        ):
            self.capacity.exclude_releasing(PODS)
        if "enqueue" not in policy.actions:
            for gang in self.accounting.contenders.values():
                if self.rules.only_enqueue_keeps_out or gang.gang.group.is_phaseless:
                    gang.enqueue()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        """Drop all references, so that nothing is left for the garbage collector.

        Plugins, rankings and indexes refer back to the session. In a large cluster such a cycle of
        references holds tens of thousands of objects, once per planning cycle.
        """
        self.__dict__.clear()

    @contextmanager
    def in_round(self, current: Round) -> Iterator[None]:
        """Run the block in another round."""
        before, self.round = self.round, current
        yield
        self.round = before

    def once(self, compute: Callable[[Session], T]) -> T:
        """Return the result of *compute*, which is called only the first time."""
        if compute not in self._results:
            self._results[compute] = compute(self)
        result: T = self._results[compute]
        return result

    def _startable(self) -> tuple[Mapping[str, Resources], Mapping[str, Resources]]:
        """Return the startable requests of queues, and of namespace shares, under our rules."""
        if not self.ceilings:
            return {}, {}
        slots = self.nodes.count_if_empty
        return startable.startable(self.accounting, self.ceilings, self._request_of, slots)

    def _request_of(self, gang: GangState) -> startable.StartableRequest | None:
        if self.plugins.invalid_reason(gang) is not None:
            return None

        def count() -> startable.StartableRequest:
            return startable.startable_request(self.needed_pods(gang), self.waiting_tasks(gang))

        return gang.gang.memo.recall(("startable", self.policy), count)

    def _count_best_effort(self) -> None:
        for gang in self.accounting.contenders.values():
            pending = gang.gang.by_status.get(Status.PENDING, ())
            gang.best_effort = [pod for pod in pending if self.is_best_effort(pod.shape)]

    def gang_key(self, gang: GangState) -> Key:
        """Return the key of *gang* in its queue: total, and independent of the input order."""
        is_first = self.rules.partial_gangs_are_first and gang.key in self.snapshot.partial_gangs
        comes_later = not (is_first and gang.ready < gang.min_member)
        has_no_freed_capacity = not (
            self.rules.freed_capacity_is_reserved and gang.has_freed_capacity
        )
        return (
            comes_later,
            *self.plugins.gang_order(gang),
            has_no_freed_capacity,
            gang.created,
            gang.key,
        )

    def queue_key(self, queue: QueueUsage) -> Key:
        """Return the key of *queue* among all queues."""
        return (*self.plugins.queue_order(queue), queue.queue.created, queue.name)

    def namespace_key(self, namespace: str) -> Key:
        """Return the key of *namespace* among all; equal for all where no plugin orders them."""
        order = self.plugins.namespace_order(namespace)
        return (*order, namespace) if order else ()

    def task_key(self, pod: Pod) -> Key:
        """Return the key of *pod* in its gang: priority, index, creation, uid."""
        return (*self.plugins.task_order(pod), _index_of(pod.name), pod.created, pod.uid)

    def in_victim_order(
        self, preemptor: Preemptor, candidates: Iterable[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Return *candidates* in the order in which they should be evicted."""
        ours, plugins = preemptor.gang.queue, self.plugins

        def importance(one: VictimCandidate) -> Key:
            gang = one.gang
            return self.queue_key(gang.queue), plugins.gang_order(gang), self.task_key(one.pod)

        def distance(one: VictimCandidate) -> Key:
            queue = one.gang.queue
            return plugins.victim_queue_order(queue, ours) if queue is not ours else ()

        return sorted(sorted(candidates, key=importance, reverse=True), key=distance)

    def waiting_tasks(self, gang: GangState) -> list[Pod]:
        """Return the waiting members of *gang*, in task order.

        Best-effort ones come last, unless they count without a node anyway.
        """
        known = gang.gang.memo.recall(("tasks", self.policy), lambda: self._in_task_order(gang))
        placed = len(gang.placed) + len(gang.pipelined)
        if not placed or placed == len(known):
            return known if not placed else []
        placed_uids = {pod.uid for pod, _ in (*gang.placed, *gang.pipelined)}
        return [pod for pod in known if pod.uid not in placed_uids]

    def needed_pods(self, gang: GangState, tasks: Sequence[Pod] | None = None) -> list[Pod]:
        """Return the *tasks* that bring *gang* to its minimum, roles that lack some first.

        Without *tasks* they are chosen from all waiting members.
        """
        tasks = self.waiting_tasks(gang) if tasks is None else tasks
        return gang.needed(tasks, self.plugins.missing_members(gang) - len(gang.pipelined))

    def demand(self, gang: GangState) -> Demand:
        """Return the members that bring *gang* to its minimum, as a demand."""
        return Demand(gang, self.needed_pods(gang))

    def _in_task_order(self, gang: GangState) -> list[Pod]:
        tasks = sorted(gang.gang.waiting, key=self.task_key)
        if self.rules.members_need_nodes:
            tasks.sort(key=lambda pod: self.is_best_effort(pod.shape))
        return tasks

    def waiting_runs(self, gang: GangState) -> list[list[Pod]]:
        """Split the waiting members into runs that can be placed at once."""
        if gang.placed or gang.pipelined:
            return _runs_of(self.waiting_tasks(gang))
        key = ("runs", self.policy)
        return list(gang.gang.memo.recall(key, lambda: _runs_of(self.waiting_tasks(gang))))

    def may_evict_for(self, gang: GangState) -> bool:
        """Return whether pods may be evicted for *gang*."""
        vote = self.plugins.is_starving(gang)
        if vote is not None:
            return vote
        # kube-batch, whose groups have no phase, has no such vote.
        wants_more = self.rules.waiting_is_starving or gang.gang.group.is_phaseless
        return wants_more and bool(self.waiting_tasks(gang))

    def fits_deserved(self, gang: GangState, *, only_limits: bool = False) -> bool:
        """Return whether the queue of *gang* deserves capacity for its evicted members.

        With *only_limits*, return whether ceilings and guarantees alone would let it come back. A
        gang evicted for a gang of its own queue finds the deserved amount used by that gang.
        """
        if not self.plugins.limit_queues or gang.gang.problem is not None:
            return False  # an invalid gang does not start again
        lost = [pod for pod in gang.gang.pods if pod.uid in gang.evicted]
        with self.in_round(Round.BORROW if only_limits else Round.DESERVED):
            allowed = self.plugins.allowed_pods(gang, lost[0].shape)
        least = 1 if gang.bound_or_done else min(len(lost), gang.min_member)
        return not isinstance(allowed, Problem) and allowed >= least

    def blocked_by_terminating(
        self, gang: GangState, needs: Resources | None = None
    ) -> Problem | None:
        """Return the ceiling that keeps *gang* from starting until terminating pods are gone.

        It is checked for *needs*, or else for what the current trial has placed.
        """
        if not self.accounting.terminating or gang.quota is None:
            return None
        if needs is None:
            return gang.quota.blocked_by_terminating(gang.in_trial, is_taken=True)
        return gang.quota.blocked_by_terminating(needs, is_taken=False)


def _index_of(name: str) -> tuple[int, int]:
    """Return the index in names such as `train-worker-11`: the last part of at least three."""
    head, _, last = name.rpartition("-")
    return (0, int(last)) if "-" in head and last.isascii() and last.isdigit() else _NO_INDEX


def _runs_of(tasks: Sequence[Pod]) -> list[list[Pod]]:
    """Split *tasks* where shape or role changes; a nominated member is a run of its own."""
    runs = groupby(tasks, key=lambda pod: (pod.shape, pod.role, pod.nominated and pod.uid))
    return [list(run) for _, run in runs]


@dataclass(eq=False)
class Demand:
    """Members of a gang that need nodes, all of them or none."""

    gang: GangState
    pods: list[Pod]

    @property
    def preemptor(self) -> Preemptor:
        """Return the preemptor that plugins are called with: the first pod stands for all."""
        return Preemptor(self.gang, self.pods[0])

    @cached_property
    def by_shape(self) -> dict[Shape, list[Pod]]:
        """Group the pods by shape, the largest requests first."""
        groups: dict[Shape, list[Pod]] = {}
        for pod in self.pods:
            groups.setdefault(pod.shape, []).append(pod)
        return dict(sorted(groups.items(), key=lambda group: -max(group[0].requests.values())))

    @property
    def is_uniform(self) -> bool:
        """Return whether all pods have the same shape."""
        return len(self.by_shape) == 1

    @cached_property
    def total(self) -> Resources:
        """Return the sum of the requests of the pods."""
        return total(shape.requests * len(pods) for shape, pods in self.by_shape.items())

    def is_allowed(self, session: Session) -> bool:
        """Return whether the gang's queue may start all pods now."""
        for shape, pods in self.by_shape.items():
            allowed = session.plugins.allowed_pods(self.gang, shape)
            if isinstance(allowed, Problem) or allowed < len(pods):
                return False
        return self.is_uniform or session.plugins.may_allocate(
            self.gang, Shape(requests=self.total)
        )

    def assign(self, session: Session, *, only_free: bool = False) -> list[tuple[Pod, int]] | None:
        """Return rows for all pods in free or releasing capacity; None when there is not enough.

        With *only_free*, capacity that is being released does not count.
        """
        free, releasing = session.capacity.free, session.capacity.releasing
        capacity = free + (np.minimum(releasing, 0) if only_free else releasing)
        found: list[tuple[Pod, int]] = []
        for shape, pods in self.by_shape.items():
            counts = session.nodes.count(capacity, shape)
            rows = np.flatnonzero(counts)
            # The tightest nodes first, so that the capacity left stays in large pieces.
            rows = rows[np.argsort(counts[rows], kind="stable")]
            spread = np.repeat(rows, counts[rows])[: len(pods)]
            if len(spread) < len(pods):
                return None
            np.subtract.at(capacity, spread, session.capacity.row(shape))
            found.extend(zip(pods, spread.tolist(), strict=True))
        return found
