"""The plan's tickets: proposed by the planner's thread, issued or refused by the event loop.

A plan is older than the moment it is published: filter may have let others in, a node may be
gone, a queue changed. So every ticket is judged once more where promises are made. That happens in
slices, because filter waits for it; a gang larger than a slice is *opening* until its last member
has a place, and nobody of it passes before.
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
    """Return the gangs of which nobody has started yet where nobody may, or in a queue they left."""
    return [key for key in cluster.reservations.gangs() if _is_shut_out(cluster, key)]


def _is_shut_out(cluster: Cluster, key: GangKey) -> bool:
    queues = {each.queue for each in _unused(cluster, key)}
    is_astray = any(map(cluster.is_closed, queues)) or _has_moved(cluster, key, queues)
    return bool(queues) and is_astray and not _has_begun(cluster, key)


def _has_moved(cluster: Cluster, key: GangKey, queues: set[str]) -> bool:
    group = cluster.group(key)
    if group is None or not group.dialect:
        return False  # its pods are all there is of it, and their labels were read as they came
    queue, problem = cluster.queue_of(key, group.namespace, group.queue)
    return problem is not None or queues != {queue}


def _has_begun(cluster: Cluster, key: GangKey) -> bool:
    """Return whether somebody of a gang is on a node or on the way; who is done is neither."""
    is_sent = any(each.stage >= Stage.BINDING for each in cluster.reservations.of_gang(key))
    return is_sent or any(pod.status in SCHEDULED_SET for pod in cluster.pods_of(key))


def keep_ceilings(cluster: Cluster, ledger: Ledger) -> None:
    """Take tickets back until every queue is within its ceiling, or nothing is left to take.

    First from who came least far, and of those from who came last.
    """
    if not ledger.allowance.is_exceeded():
        return
    gangs = {key: tuple(_unused(cluster, key)) for key in cluster.reservations.gangs()}
    for key in sorted(filter(gangs.get, gangs), key=lambda key: _came_far(gangs[key])):
        if _can_stop(cluster, key):
            _withdraw_if_over(ledger, key, gangs[key])


def _withdraw_if_over(ledger: Ledger, key: GangKey, unused: tuple[Reservation, ...]) -> None:
    queue, namespace = unused[0].queue, unused[0].pod.namespace
    room = sum((each.pod.requests for each in unused), NOTHING)
    if ledger.allowance.exceeds(queue, namespace, room):
        ledger.release_gang(key)
        ledger.allowance.count(queue, namespace, NOTHING - room)


def _unused(cluster: Cluster, key: GangKey) -> Iterator[Reservation]:
    """Return what nobody was sent for yet, held or not; who asks nobody starts in any case."""
    for each in cluster.reservations.of_gang(key):
        if each.stage <= Stage.WAITING and not each.pod.uses_no_resources:
            yield each


def _came_far(promises: tuple[Reservation, ...]) -> tuple[Stage, float]:
    return (
        max(each.stage for each in promises),
        -max(each.since_monotonic for each in promises),
    )


def _can_stop(cluster: Cluster, key: GangKey) -> bool:
    """Return whether a gang stays whole without its ticket."""
    group = cluster.group(key)
    if group is None or not _has_begun(cluster, key):
        return True
    return cluster.scheduled(key) >= group.min_member and all(
        cluster.scheduled_in_role(key, role) >= least for role, least in group.role_minima.items()
    )


#: A ticket is proposed so often in a row before its gang has to wait.
MOST_REFUSALS = 5
#: Members that get their place in one go: about a millisecond.
SLICE = 200
#: Runs something in the event loop and gives its answer, for a thread that may wait.
InLoop: TypeAlias = Callable[[Callable[[], bool]], bool]


def _at_once(step: Callable[[], bool]) -> bool:
    return step()


class _Place(NamedTuple):
    pod: Pod
    node: str


class _Part(NamedTuple):
    """Some of the places of one ticket."""

    gang: Gang
    places: tuple[_Place, ...]
    is_first: bool
    is_last: bool


class PlanApplier:
    """Issues what a plan proposes, as far as it still stands."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: Ledger,
        arrivals: ArrivingGangs,
        clock: Clock,
        in_loop: InLoop = _at_once,
    ) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._arrivals = arrivals
        self._clock = clock
        self._in_loop = in_loop
        self._started = clock.now()
        #: How often in a row the ticket of a gang did not stand.
        self._refused: dict[GangKey, int] = {}

    def settle(self) -> None:
        """Put promises in order before a snapshot is taken."""
        self._in_loop(self._settle)

    def _settle(self) -> bool:
        self._arrivals.settle()
        return self._ledger.check_due()

    def propose(self, snapshot: Snapshot, plan: Plan) -> bool:
        """Dispose of all tickets of *plan*; False when one could not be issued: plan anew."""
        parts = self._parts(snapshot, plan)
        self._refused = {key: n for key, n in self._refused.items() if key in plan.placements}
        # Looked for here, because filter waits for what is done in the loop.
        shut_out = not_admitted(self._cluster)
        self._in_loop(partial(self._renew, plan, shut_out))
        all_issued = True
        while batch := list(_slice(parts)):
            all_issued = self._in_loop(partial(self._issue, snapshot, batch)) and all_issued
        return all_issued

    def _renew(self, plan: Plan, shut_out: Iterable[GangKey]) -> bool:
        self._ledger.use_plan(plan)
        for key in shut_out:
            self._ledger.release_gang(key)
        keep_ceilings(self._cluster, self._ledger)
        return True

    def _parts(self, snapshot: Snapshot, plan: Plan) -> Iterator[_Part]:
        for ticket in plan.placements.values():
            gang = snapshot.gangs[ticket.gang]
            if self._needs_no_ticket(gang, plan):
                continue
            places = iter(self._places(gang, ticket))
            part = tuple(islice(places, SLICE))
            is_first = True
            while part:
                rest = tuple(islice(places, SLICE))
                yield _Part(gang, part, is_first, is_last=not rest)
                part, is_first = rest, False

    def _needs_no_ticket(self, gang: Gang, plan: Plan) -> bool:
        """Return whether it is an ordinary pod on its way to filter, where it passes in any case.

        kube-scheduler chooses for it there. Where somebody waits for room it needs its ticket: what
        its queue may start without one has been handed out.
        """
        queue = plan.direct_admission.get(gang.queue)
        if gang.group.dialect or gang.group.min_member > 1 or queue is None:
            return False
        return queue.left is None and not any(map(self._is_parked, gang.waiting))

    def _is_parked(self, pod: Pod) -> bool:
        """Return whether kube-scheduler has put *pod* aside, or may have before we listened.

        A snapshot may show a pod as it was before: what became of it in kube-scheduler's hands
        changes no plan.
        """
        now = self._cluster.pod(pod.uid) or pod
        was_refused = self._ledger.filter_results.refused_at(pod.uid) is not None
        return was_refused or bool(now.refusal) or pod.created <= self._started

    def _places(self, gang: Gang, ticket: GangPlacement) -> list[_Place]:
        pods = {pod.uid: pod for pod in gang.waiting}
        return [_Place(pods[uid], node) for uid, node in ticket.placements.items()]

    def _issue(self, snapshot: Snapshot, parts: list[_Part]) -> bool:
        """Judge and write down; in the event loop, so nobody comes in between."""
        all_issued = True
        for part in parts:
            key = part.gang.key
            if not part.is_first and key not in self._ledger.opening:
                continue  # an earlier part was refused
            if self._stands(snapshot, part):
                self._give(part)
                self._refused.pop(key, None)
            else:
                all_issued = False
                self._withdraw(key)
        return all_issued

    def _stands(self, snapshot: Snapshot, part: _Part) -> bool:
        """Return whether gang, queue, nodes and their room are still what the plan saw."""
        gang = part.gang
        if part.is_first and not self._is_same(gang):
            return False
        needs: dict[str, Resources] = {}
        for pod, node in part.places:
            if not self._still_waits(pod):
                return False
            needs[node] = needs[node] + pod.requests if node in needs else pod.requests
        nodes = snapshot.nodes.facts
        for name, need in needs.items():
            seen = nodes.nodes[nodes.index[name]]
            if not _is_as_good(self._cluster.node(name), seen) or not self._ledger.room.fits(
                name, need
            ):
                return False
        total = sum(needs.values(), NOTHING)
        namespace = gang.group.namespace
        return self._ledger.allowance.objection(gang.queue, namespace, total) is None

    def _still_waits(self, pod: Pod) -> bool:
        seen = self._cluster.pod(pod.uid)
        return seen is not None and seen.status is Status.PENDING and not seen.gated

    def _is_same(self, gang: Gang) -> bool:
        key, group = gang.key, gang.group
        if self._cluster.reservations.backs_off_for(key):
            return False
        if self._arrivals.is_arriving(key) and not gang.placeholders:
            return False  # it began to arrive since: its members have places that nobody saw
        if not group.dialect:
            return True  # its pods are all there is of it, and each is judged when it gets a place
        known = self._cluster.group(key)
        if known is None or known.uid != group.uid or known.min_member != group.min_member:
            return False
        queue, problem = self._cluster.queue_of(known.key, known.namespace, known.queue)
        return queue == gang.queue and problem is None

    def _give(self, part: _Part) -> None:
        key, ledger = part.gang.key, self._ledger
        for pod, node in part.places:
            ledger.reserve(pod, key, node, part.gang.queue)
        if not part.is_last:
            ledger.opening.add(key)
            return
        ledger.opening.discard(key)
        ledger.wakeups.wake_due(self._cluster.reservations.of_gang(key), self._clock.monotonic())

    def _withdraw(self, key: GangKey) -> None:
        """Give back the first parts of a ticket whose rest no longer stands.

        The next plan knows what this one did not. Should it propose the same again and again, the
        gang waits a while, or we would do nothing but plan.
        """
        if key in self._ledger.opening:
            self._ledger.opening.discard(key)
            self._cluster.reservations.expire(key)
        times = self._refused[key] = self._refused.get(key, 0) + 1
        if times > MOST_REFUSALS:
            del self._refused[key]
            self._ledger.expire_gang(key)


def _slice(parts: Iterator[_Part]) -> Iterator[_Part]:
    """Take parts until they make a slice."""
    count = 0
    while count < SLICE and (part := next(parts, None)) is not None:
        count += len(part.places)
        yield part


def _is_as_good(node: Node | None, seen: Node) -> bool:
    """Return whether a node stands as the plan saw it; its room is judged by itself."""
    if node is None or node is seen:
        return node is seen
    return (node.ready, node.managed, node.unschedulable, node.taints, node.labels) == (
        seen.ready,
        seen.managed,
        seen.unschedulable,
        seen.taints,
        seen.labels,
    )
