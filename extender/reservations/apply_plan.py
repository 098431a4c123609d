"""Applies the placements of a plan: the planner's thread proposes, the event loop decides.

A plan is older than the moment it is published: filter may have admitted other pods, a node may be
gone, a queue may have changed. So every placement is checked again where reservations are created.
That happens in slices, because filter waits meanwhile. A gang larger than a slice is *opening*
until its last member has a reservation, and filter admits none of its pods before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeAlias

from extender.cache.cluster import Cluster
from extender.cache.reservation_table import Reservation, Stage
from extender.model.gang import Gang, GangKey
from extender.model.node import Node
from extender.model.pod import SCHEDULED_SET, Pod, Status
from extender.model.resources import NOTHING, Resources
from extender.model.snapshot import Snapshot
from extender.planner.plan import GangPlacement, Plan
from extender.ports import Clock
from extender.reservations.arrivals import ArrivingGangs
from extender.reservations.ledger import Ledger


def not_admitted(cluster: Cluster) -> list[GangKey]:
    """Return gangs without a started member whose namespace or queue no longer admits them."""
    return [key for key in cluster.reservations.gangs() if _is_not_admitted(cluster, key)]


def _is_not_admitted(cluster: Cluster, key: GangKey) -> bool:
    queues = {each.queue for each in _unsent(cluster, key)}
    may_not_stay = any(map(cluster.is_closed, queues)) or _queue_changed(cluster, key, queues)
    return bool(queues) and may_not_stay and not _has_started(cluster, key)


def _queue_changed(cluster: Cluster, key: GangKey, queues: set[str]) -> bool:
    group = cluster.group(key)
    if group is None or not group.dialect:
        return False  # its pods define it, and their labels were read as they came
    queue, problem = cluster.queue_of(key, group.namespace, group.queue)
    return problem is not None or queues != {queue}


def _has_started(cluster: Cluster, key: GangKey) -> bool:
    """Return whether a member is on a node or its binding was sent; a finished one is neither."""
    is_sent = any(each.stage >= Stage.BINDING for each in cluster.reservations.of_gang(key))
    return is_sent or any(pod.status in SCHEDULED_SET for pod in cluster.pods_of(key))


def enforce_limits(cluster: Cluster, ledger: Ledger) -> None:
    """Release reservations until every queue is within its limit, or nothing is left to release.

    First those of the gang that has come least far; of equal ones, the one that came last.
    """
    if not ledger.allowance.is_exceeded():
        return
    gangs = {key: tuple(_unsent(cluster, key)) for key in cluster.reservations.gangs()}
    for key in sorted(filter(gangs.get, gangs), key=lambda key: _progress(gangs[key])):
        if _can_stop(cluster, key):
            _release_if_over(ledger, key, gangs[key])


def _release_if_over(ledger: Ledger, key: GangKey, unsent: tuple[Reservation, ...]) -> None:
    queue, namespace = unsent[0].queue, unsent[0].pod.namespace
    requests = sum((each.pod.requests for each in unsent), NOTHING)
    if ledger.allowance.exceeds(queue, namespace, requests):
        ledger.release_gang(key)
        ledger.allowance.count(queue, namespace, NOTHING - requests)


def _unsent(cluster: Cluster, key: GangKey) -> Iterator[Reservation]:
    """Return reservations without a sent binding; unmanaged pods need none of the plan."""
    for each in cluster.reservations.of_gang(key):
        if each.stage <= Stage.WAITING and not each.pod.is_unmanaged:
            yield each


def _progress(reservations: tuple[Reservation, ...]) -> tuple[Stage, float]:
    return (
        max(each.stage for each in reservations),
        -max(each.since_monotonic for each in reservations),
    )


def _can_stop(cluster: Cluster, key: GangKey) -> bool:
    """Return whether a gang stays complete without its reservations."""
    group = cluster.group(key)
    if group is None or not _has_started(cluster, key):
        return True
    return cluster.scheduled(key) >= group.min_member and all(
        cluster.scheduled_in_role(key, role) >= least for role, least in group.role_minima.items()
    )


#: How often in a row a placement may be rejected before the gang backs off.
MOST_REFUSALS = 5
#: Members that are reserved in one slice: about a millisecond.
SLICE = 200
#: Runs a function in the event loop and returns its result, for a thread that may wait.
InLoop: TypeAlias = Callable[[Callable[[], bool]], bool]


def at_once(step: Callable[[], bool]) -> bool:
    """Run *step* in the calling thread."""
    return step()


class _Placement(NamedTuple):
    pod: Pod
    node: str


class _Part(NamedTuple):
    """Some of the members of one placement."""

    gang: Gang
    placements: tuple[_Placement, ...]
    is_first: bool
    is_last: bool


class PlanApplier:
    """Applies what a plan proposes, as far as it is still valid."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: Ledger,
        arrivals: ArrivingGangs,
        clock: Clock,
        in_loop: InLoop = at_once,
    ) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._arrivals = arrivals
        self._clock = clock
        self._in_loop = in_loop
        self._started = clock.now()
        #: How often in a row the placement of a gang was rejected.
        self._rejections: dict[GangKey, int] = {}

    def settle(self) -> None:
        """Bring reservations up to date before a snapshot is taken."""
        self._in_loop(self._settle)

    def _settle(self) -> bool:
        self._arrivals.settle()
        return self._ledger.check_due()

    def propose(self, snapshot: Snapshot, plan: Plan) -> bool:
        """Apply the placements of *plan*; False when one was rejected: a new plan is needed."""
        parts = self._parts(snapshot, plan)
        self._rejections = {key: n for key, n in self._rejections.items() if key in plan.placements}
        # Computed here, because filter waits for what runs in the event loop.
        rejected_gangs = not_admitted(self._cluster)
        self._in_loop(partial(self._use_plan, plan, rejected_gangs))
        all_applied = True
        while batch := list(_slice(parts)):
            all_applied = self._in_loop(partial(self._apply, snapshot, batch)) and all_applied
        return all_applied

    def _use_plan(self, plan: Plan, rejected_gangs: Iterable[GangKey]) -> bool:
        self._ledger.use_plan(plan)
        for key in rejected_gangs:
            self._ledger.release_gang(key)
        enforce_limits(self._cluster, self._ledger)
        return True

    def _parts(self, snapshot: Snapshot, plan: Plan) -> Iterator[_Part]:
        for placement in plan.placements.values():
            gang = snapshot.gangs[placement.gang]
            if self._needs_no_placement(gang, plan):
                continue
            placements = iter(self._placements(gang, placement))
            part = tuple(islice(placements, SLICE))
            is_first = True
            while part:
                rest = tuple(islice(placements, SLICE))
                yield _Part(gang, part, is_first, is_last=not rest)
                part, is_first = rest, False

    def _needs_no_placement(self, gang: Gang, plan: Plan) -> bool:
        """Return whether it is a single pod that filter is going to admit in any case.

        There kube-scheduler chooses its node. Where gangs wait for capacity the pod needs a
        placement: all that its queue may start without one has been used.
        """
        queue = plan.direct_admission.get(gang.queue)
        if gang.group.dialect or gang.group.min_member > 1 or queue is None:
            return False
        return queue.left is None and not any(map(self._is_unschedulable, gang.waiting))

    def _is_unschedulable(self, pod: Pod) -> bool:
        """Return whether *pod* is unschedulable in kube-scheduler, or may be since before.

        A snapshot may show an older state of the pod: a new condition does not change the plan.
        """
        now = self._cluster.pod(pod.uid) or pod
        was_refused = self._ledger.filter_results.refused_at(pod.uid) is not None
        return was_refused or bool(now.refusal) or pod.created <= self._started

    def _placements(self, gang: Gang, placement: GangPlacement) -> list[_Placement]:
        pods = {pod.uid: pod for pod in gang.waiting}
        return [_Placement(pods[uid], node) for uid, node in placement.placements.items()]

    def _apply(self, snapshot: Snapshot, parts: list[_Part]) -> bool:
        """Check and reserve; in the event loop, so that nothing happens in between."""
        all_applied = True
        for part in parts:
            key = part.gang.key
            if not part.is_first and key not in self._ledger.opening:
                continue  # an earlier part was rejected
            if self._is_valid(snapshot, part):
                self._reserve(part)
                self._rejections.pop(key, None)
            else:
                all_applied = False
                self._reject(key)
        return all_applied

    def _is_valid(self, snapshot: Snapshot, part: _Part) -> bool:
        """Return whether gang, queue, nodes and free capacity are still as the plan saw them."""
        gang = part.gang
        if part.is_first and not self._is_same(gang):
            return False
        needs: dict[str, Resources] = {}
        for pod, node in part.placements:
            if not self._still_waits(pod):
                return False
            needs[node] = needs[node] + pod.requests if node in needs else pod.requests
        nodes = snapshot.nodes.facts
        for name, need in needs.items():
            seen = nodes.nodes[nodes.index[name]]
            if not _is_unchanged(self._cluster.node(name), seen) or not self._ledger.capacity.fits(
                name, need
            ):
                return False
        total = sum(needs.values(), NOTHING)
        namespace = gang.group.namespace
        return self._ledger.allowance.check(gang.queue, namespace, total) is None

    def _still_waits(self, pod: Pod) -> bool:
        seen = self._cluster.pod(pod.uid)
        return seen is not None and seen.status is Status.PENDING and not seen.gated

    def _is_same(self, gang: Gang) -> bool:
        key, group = gang.key, gang.group
        if self._cluster.reservations.backs_off_for(key):
            return False
        if self._arrivals.is_arriving(key) and not gang.placeholders:
            return False  # it began to arrive since: the plan did not see its reservations
        if not group.dialect:
            return True  # its pods define it, and each is checked when it gets a reservation
        known = self._cluster.group(key)
        if known is None or known.uid != group.uid or known.min_member != group.min_member:
            return False
        queue, problem = self._cluster.queue_of(known.key, known.namespace, known.queue)
        return queue == gang.queue and problem is None

    def _reserve(self, part: _Part) -> None:
        key, ledger = part.gang.key, self._ledger
        for pod, node in part.placements:
            ledger.reserve(pod, key, node, part.gang.queue)
        if not part.is_last:
            ledger.opening.add(key)
            return
        ledger.opening.discard(key)
        ledger.wakeups.wake_due(self._cluster.reservations.of_gang(key), self._clock.monotonic())

    def _reject(self, key: GangKey) -> None:
        """Release the first parts of a placement whose rest is no longer valid.

        The next plan knows what this one did not. If it proposes the same again and again, the gang
        backs off. Otherwise the extender would do nothing but plan.
        """
        if key in self._ledger.opening:
            self._ledger.opening.discard(key)
            self._cluster.reservations.expire(key)
        times = self._rejections[key] = self._rejections.get(key, 0) + 1
        if times > MOST_REFUSALS:
            del self._rejections[key]
            self._ledger.expire_gang(key)


def _slice(parts: Iterator[_Part]) -> Iterator[_Part]:
    """Yield parts until they fill a slice."""
    count = 0
    while count < SLICE and (part := next(parts, None)) is not None:
        count += len(part.placements)
        yield part


def _is_unchanged(node: Node | None, seen: Node) -> bool:
    """Return whether a node is as the plan saw it; its capacity is checked separately."""
    if node is None or node is seen:
        return node is seen
    return (node.ready, node.managed, node.unschedulable, node.taints, node.labels) == (
        seen.ready,
        seen.managed,
        seen.unschedulable,
        seen.taints,
        seen.labels,
    )
