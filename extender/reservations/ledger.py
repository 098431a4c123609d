"""The one ledger of reservations: it creates, advances and ends each of them.

A reservation is one record (`cache/reservation_table`) with one owner (its pod, in its gang), one
deadline and one end: the pod is seen bound, or the reservation is released or expires.

    made by    when                                               stage
    the plan   its placement is applied (`apply_plan`)            RESERVED
    filter     a gang arrives (`arrivals`): the whole minimum     RESERVED
    filter     a single pod or surplus member is admitted         FILTERED, on ANY_NODE
    filter     an exempt or native pod is admitted                FILTERED, on ANY_NODE
    bind       it waits; its binding is sent; it is bound         WAITING, BINDING, BOUND
    bind       the outcome of its binding is not known            UNKNOWN

Rule 1: only the event loop, where filter and bind live, creates reservations; the planner's thread
proposes. So check and creation are one step, and nothing happens in between.
Rule 2: every reservation is checked against everything: the free capacity of the node besides all
other reservations and those for starving gangs, the limits of the queue and its ancestors, the
guarantees of others, and whether gang, queue and node are still as they were.
Rule 3: nothing here waits or does I/O. The watch ends reservations from its own threads, which only
frees capacity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from heapq import heappop, heappush

from extender.cache.cluster import Cluster
from extender.cache.gang_history import FITS_NOWHERE_S, NOT_CHOSEN_S
from extender.cache.reservation_table import ANY_NODE, Reservation, Stage
from extender.durations import Backoff
from extender.model.gang import GangKey, Membership
from extender.model.matching import accepts, is_schedulable_for
from extender.model.pod import Pod, PodUid
from extender.model.reason import Problem
from extender.model.resources import Resources
from extender.planner.plan import GangStatus, Plan
from extender.ports import Clock, WakeOrder
from extender.reservations.capacity import NodeCapacity, QueueAllowance
from extender.reservations.wakeups import FilteredPod, FilterResults, WakeUps

#: How much longer a reservation lasts while kube-scheduler is busy with other pods.
BUSY_FACTOR = 6
#: After so long without a call, kube-scheduler has no pod left in its queue.
IDLE_S = 1.0
#: Backoff of a gang whose reservations expired: capacity for a gang that never comes is wasted.
GANG_BACKOFF = Backoff(first_s=10.0, longest_s=120.0)
#: Backoff of a single pod, which reserves little and may only be behind thousands of others.
SINGLE_POD_BACKOFF = Backoff(first_s=1.0, longest_s=120.0)
#: How often the ledger checks its reservations, and how many at a time, because filter waits
#: meanwhile.
LOOK_S = 0.5
_MAX_CHECKS = 50
#: How long after its last check a reservation is checked again, by its stage. A pod that is
#: refused, or unschedulable when its node is reserved, is checked at once.
_CHECK_AFTER_S = {Stage.RESERVED: 10.0, Stage.FILTERED: 1.0}
_CHECK_WOKEN_AFTER_S = 2.0
_CHECK_OTHERS_AFTER_S = 5.0


class Ledger:
    """All reservations; every method but those for the watch belongs to the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        wake: Callable[[list[WakeOrder]], None],
        reservation_s: float,
    ) -> None:
        self._cluster = cluster
        self._table = cluster.reservations
        self._clock = clock
        self._timeout_s = reservation_s
        #: When filter last answered for any pod; soon after that, reserved pods may yet come.
        self._called_at = float("-inf")
        self.filter_results = FilterResults()
        self.allowance = QueueAllowance(cluster)
        self.capacity = NodeCapacity(cluster)
        self.wakeups = WakeUps(cluster, self.filter_results, wake, self._is_busy)
        #: A pod that runs at most so long may use capacity that is reserved for starving gangs.
        self._brief_s = 0.0
        #: Gangs whose placement is applied only in part so far.
        self.opening: set[GangKey] = set()
        #: How often in a row the reservations of each gang expired.
        self._expirations: dict[GangKey, int] = {}
        #: Pods that may have a reservation and be unschedulable: checked before all others.
        self._urgent: deque[PodUid] = deque()
        #: (when, uid) of the next checks; only the time in `_next_check` is valid.
        self._checks: list[tuple[float, PodUid]] = []
        self._next_check: dict[PodUid, float] = {}
        self._listeners: list[Callable[[GangKey, float], None]] = []
        self._release_listeners: list[Callable[[GangKey], None]] = []

    def on_expired(self, listener: Callable[[GangKey, float], None]) -> None:
        """Call *listener* with a gang whose reservations expired, and with its backoff."""
        self._listeners.append(listener)

    # ── filter results ────────────────────────────────────────────────────────────────────

    def passed(self, pod: Pod, member: Membership) -> None:
        """Record that filter admitted a pod."""
        self._called_at = self._clock.monotonic()
        self.filter_results.passed(pod, member)

    def refused(self, uid: PodUid) -> None:
        """Record that filter refused a pod: if it has a reservation, it must be woken."""
        self._called_at = self._clock.monotonic()
        self.filter_results.refused(uid)
        if self._table.of(uid) is not None:
            self._urgent.append(uid)

    def filtered(self, uid: PodUid) -> FilteredPod | None:
        """Return an admitted pod as filter saw it, until the watch shows it."""
        return self.filter_results.filtered(uid)

    def has_passed(self, uid: PodUid) -> bool:
        """Return whether filter last admitted a pod, and it has not been seen on a node since."""
        return self.filter_results.has_passed(uid)

    def is_gone(self, uid: PodUid) -> bool:
        """Return whether the watch has shown that a pod is gone, before kube-scheduler perhaps."""
        return self.filter_results.is_gone(uid)

    # ── create ────────────────────────────────────────────────────────────────────────────

    def use_plan(self, plan: Plan) -> None:
        """Check against *plan* from now on."""
        self.allowance.renew(plan)
        self.capacity.keep_free(plan.held_on_nodes, plan.missing_on_nodes)
        self._brief_s = plan.brief_s
        if self._expirations:
            gone = (GangStatus.RUNNING, GangStatus.FINISHED, None)
            self._expirations = {
                key: expirations
                for key, expirations in self._expirations.items()
                if (plan.verdicts[key].status if key in plan.verdicts else None) not in gone
            }

    def reservation_on_node(self, uid: PodUid) -> Reservation | None:
        """Return the reservation of a pod on a certain node; None without any."""
        known = self._table.of(uid)
        return known if known is not None and known.node != ANY_NODE else None

    def reserve(self, pod: Pod, gang: GangKey, node: str, queue: str) -> bool:
        """Record a reservation that was checked; False when the pod needs none any more."""
        return self._record(pod, gang, node, queue, Stage.RESERVED)

    def _record(self, pod: Pod, gang: GangKey, node: str, queue: str, stage: Stage) -> bool:
        is_new = self._table.of(pod.uid) is None
        now = self._clock.monotonic()
        if not self._table.reserve(pod, gang, node, now, stage=stage, queue=queue):
            return False
        if is_new:
            self.allowance.count(queue, pod.namespace, pod.requests)
        self._check_soon(pod, now)
        return True

    def take_over(self, placeholder: PodUid, pod: Pod) -> bool:
        """Replace a *placeholder* by *pod*; False when it is gone or not needed."""
        if not self._table.take_over(placeholder, pod):
            return False
        self._check_soon(pod, self._clock.monotonic())
        return True

    def _check_soon(self, pod: Pod, now: float) -> None:
        self._schedule_check(pod.uid, now)
        if pod.refusal or self.filter_results.refused_at(pod.uid) is not None:
            self._urgent.append(pod.uid)

    def admit(self, pod: Pod, member: Membership) -> None:
        """Count a pod that is never refused: on any node, and in its queue."""
        if self._table.of(pod.uid) is None:
            queue = self._cluster.used_in_queue(*self._queue_request(pod, member.key, member.queue))
            self._record(pod, member.key, ANY_NODE, queue, Stage.FILTERED)

    def admit_directly(
        self, pod: Pod, gang: GangKey, queue: str, offered: Sequence[str]
    ) -> Sequence[str] | None:
        """Return the nodes for a pod that need not wait, without the capacity reserved for others.

        None when its queue may not start it now. If no node is left, nothing is reserved.
        """
        known = self._table.of(pod.uid)
        if known is None:
            return self._admit_new(pod, gang, queue, offered)
        if known.stage is Stage.UNKNOWN:
            return (known.node,) if known.node in offered else ()  # it may be there already
        if known.stage <= Stage.FILTERED:
            # kube-scheduler chooses better than a reservation made before it looked.
            self._table.advance(pod.uid, Stage.FILTERED, pod=pod)
            self._table.move(pod.uid, ANY_NODE)
        nodes = self._available_nodes(pod, offered)
        if known.stage <= Stage.FILTERED:
            if nodes:
                self._table.move(pod.uid, self._certain_node(nodes, pod))
            elif known.node != ANY_NODE:
                self._table.move(pod.uid, known.node)
                if known.node in offered and self._may_keep_node(pod, known.node):
                    return (known.node,)
                self._table.revert(pod.uid, known.node)
        return nodes

    def _may_keep_node(self, pod: Pod, node: str) -> bool:
        """Return whether a pod may use its reserved node where new pods may not."""
        slots = self.capacity.slots(node, pod.shape)
        if slots is not None and slots >= 0:
            return True
        # A pod that ends soon may have been admitted to capacity of a starving gang.
        return pod.most_s <= self._brief_s and self.capacity.fits_reservations(node, pod.shape)

    def _admit_new(
        self, pod: Pod, gang: GangKey, queue: str, offered: Sequence[str]
    ) -> Sequence[str] | None:
        if not self.allowance.may_start(queue, pod.namespace, pod.requests):
            return None
        nodes = self._available_nodes(pod, offered)
        if nodes and self._record(pod, gang, self._certain_node(nodes, pod), queue, Stage.FILTERED):
            self.allowance.spend(queue, pod.requests)
        return nodes

    def _certain_node(self, nodes: Sequence[str], pod: Pod) -> str:
        """Return the node if it is certain; the watch may be behind and show no free capacity."""
        is_sure = len(nodes) == 1 and (self.capacity.slots(nodes[0], pod.shape) or 0) > 0
        return nodes[0] if is_sure else ANY_NODE

    def _available_nodes(self, pod: Pod, offered: Sequence[str]) -> Sequence[str]:
        if self.capacity.is_untouched:
            return offered
        # Other pods are on their way to a node that is not known yet. kube-scheduler counts them
        # there, and must find the reserved capacity free even if all of them use one node. A pod
        # that is refused for this gets a reservation on a certain node from the next plan.
        known = self._table.of(pod.uid)
        is_counted = known is not None and known.node == ANY_NODE
        unplaced = max(0, self._table.count_on(ANY_NODE) - is_counted)
        return self.capacity.nodes_for(pod.shape, offered, 1 + unplaced)

    # ── advance ───────────────────────────────────────────────────────────────────────────

    def assign_node(self, pod: Pod, reservation: Reservation, offered: Sequence[str]) -> str:
        """Return the node of a reserved pod, moved to an offered one if needed; empty without any.

        If kube-scheduler does not offer the reserved node, no gang loses its reservation:
        kube-scheduler looks at a sample, or first at a node the pod was nominated to long ago. The
        reservation moves to a node with free capacity, or two are swapped. If neither works, the
        pod is nominated to its node and must come again. Only if kube-scheduler leaves out a node
        that it was nominated to, the node counts as rejected, and the reservations of the gang
        expire.
        """
        node = reservation.node if reservation.node in offered else ""
        if reservation.gang in self.opening:
            return ""
        if reservation.stage >= Stage.BINDING:
            return node  # its binding was sent to that node and to no other
        if not node:
            node = self._other_node(pod, reservation, offered)
            if not node:
                self._node_not_offered(pod, reservation, offered)
                return ""
        self._table.advance(pod.uid, Stage.FILTERED, pod=pod)
        self.wakeups.pod_filtered(pod.uid, self._clock.monotonic())
        return node

    def _other_node(self, pod: Pod, reservation: Reservation, offered: Sequence[str]) -> str:
        rejected = self._cluster.rejected_nodes.of(reservation.gang)
        if name := self.capacity.first_for(pod.shape, offered, rejected):
            return name if self._table.move(pod.uid, name) else ""
        for name in offered:
            if name not in rejected and self._swap(reservation, name):
                return name
        return ""

    def _swap(self, reservation: Reservation, name: str) -> bool:
        """Swap with a reservation on *name* whose pod has not come yet.

        No pod is sent to a node that shrank or was tainted after it was reserved.
        """
        if not self._is_valid(reservation):
            return False
        for other in self._table.on_node(name):
            if (
                other.stage is Stage.RESERVED
                and other.shape is reservation.shape
                and reservation.node not in self._cluster.rejected_nodes.of(other.gang)
            ):
                return self._table.swap(reservation.uid, other.uid)
        return False

    def _is_valid(self, reservation: Reservation) -> bool:
        """Return whether a reserved node still has the capacity and still accepts such pods."""
        node = self._cluster.node(reservation.node)
        slots = self.capacity.slots(reservation.node, reservation.shape)
        fits = slots is not None and slots >= 0
        return node is not None and fits and accepts(node, reservation.shape)

    def _node_not_offered(self, pod: Pod, reservation: Reservation, offered: Sequence[str]) -> None:
        now = self._clock.monotonic()
        is_stale_nomination = list(offered) == [pod.nominated]
        if is_stale_nomination or not self.wakeups.was_nominated(reservation, now):
            if reservation.stage is Stage.FILTERED:
                self._table.revert(pod.uid, reservation.node)
            if not is_stale_nomination:
                self.wakeups.wake([reservation], now)
            return
        self._cluster.rejected_nodes.note(reservation.gang, reservation.node, NOT_CHOSEN_S)
        self.expire_gang(reservation.gang)

    # ── bind ──────────────────────────────────────────────────────────────────────────────

    def may_bind(self, uid: PodUid, node: str) -> bool:
        """Return whether a pod that does not wait may be bound to *node* now.

        Its capacity may have been reserved for others since filter admitted it, or the node
        changed. Then kube-scheduler tries again. Without reservations, the count of kube-scheduler
        is better.
        """
        known, pod = self._table.of(uid), self.pod_or_filtered(uid)
        is_there = known is not None and known.node == node
        if known is not None and is_there and known.stage > Stage.WAITING:
            return True
        if pod is None or pod.is_unmanaged:
            return True
        seen, is_native = self._cluster.node(node), self.is_native(uid)
        if seen is not None and not is_native and not is_schedulable_for(seen, pod.shape):
            return False  # tainted or cordoned since; for a node that is not ready taints decide
        if is_there:
            return self._may_keep_node(pod, node)
        if not self.capacity.nodes_for(pod.shape, (node,)):
            return False
        return known is not None or is_native or self._queue_allows(pod, uid)

    def is_native(self, uid: PodUid) -> bool:
        """Return whether kube-scheduler itself assembles its gang; refusing one would split it."""
        seen, filtered = self._cluster.seen(uid), self.filter_results.filtered(uid)
        member = seen[1] if seen else filtered.membership if filtered else None
        return member is not None and member.native

    def check_queue(self, queue: str, namespace: str, amounts: Resources) -> Problem | None:
        """Return which limit or guarantee *amounts* more of a queue would break; None when none."""
        return self.allowance.check(queue, namespace, amounts)

    def _queue_allows(self, pod: Pod, uid: PodUid) -> bool:
        """Return whether the queue admits a pod whose reservation expired, or is not ours."""
        queue, problem = self._cluster.queue_of(*self._queue_request_of(pod, uid))
        if problem is not None:
            return False
        return self.allowance.check(queue, pod.namespace, pod.requests) is None

    def _queue_request_of(self, pod: Pod, uid: PodUid) -> tuple[GangKey | None, str, str]:
        """Return the gang of a pod, its namespace, and the queue that gang or pod names."""
        filtered = self.filter_results.filtered(uid)
        named = filtered.membership.queue if filtered else ""
        return self._queue_request(pod, self.gang_of(uid), named)

    def _queue_request(
        self, pod: Pod, gang: GangKey | None, named: str
    ) -> tuple[GangKey | None, str, str]:
        group = self._cluster.group(gang) if gang is not None else None
        return gang, pod.namespace, group.queue if group else named

    def mark_waiting(self, uid: PodUid, node: str) -> None:
        """Keep the reservation of a pod whose bind waits; one of UNKNOWN outcome stays so."""
        if not self._is_unknown(uid):
            self._table.advance(uid, Stage.WAITING, node)

    def mark_binding(self, uid: PodUid, node: str) -> None:
        """Keep the reservation of a pod whose binding is being sent."""
        if self._table.advance(uid, Stage.BINDING, node):
            return
        pod, gang = self.pod_or_filtered(uid), self.gang_of(uid)
        if pod is not None and gang is not None:
            queue = self._cluster.used_in_queue(*self._queue_request_of(pod, uid))
            self._record(pod, gang, node, queue, Stage.BINDING)

    def mark_bound(self, uid: PodUid, node: str) -> None:
        """Keep the reservation of a bound pod until the watch shows it."""
        self._table.advance(uid, Stage.BOUND, node)

    def keep_reserved(self, uid: PodUid, node: str) -> None:
        """Make a pod whose binding failed RESERVED again."""
        self._table.revert(uid, node)
        self._urgent.append(uid)

    def mark_unknown(self, uid: PodUid, node: str) -> None:
        """Keep the reservation of a pod with an unknown outcome until the watch shows the truth."""
        self._table.advance(uid, Stage.UNKNOWN, node)

    def release(self, uid: PodUid) -> None:
        """Release a reservation, unless a binding of the pod may yet take effect there."""
        if not self._is_unknown(uid):
            self._table.release(uid)

    def _is_unknown(self, uid: PodUid) -> bool:
        known = self._table.of(uid)
        return known is not None and known.stage is Stage.UNKNOWN

    def back_off(self, gang: GangKey, span_s: float) -> None:
        """Do not start a gang for *span_s*, and release what is reserved for members to come.

        The reservations of its waiting members are released by now. With half of its capacity a
        gang would only block another gang that has the other half.
        """
        if span_s:
            self.release_gang(gang)
        self._table.back_off(gang, span_s)

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Return the gang of one of our pods, also of a pod that only filter has seen so far."""
        # Filter's first: it is forgotten once the watch shows the pod, so one of both is there.
        filtered = self.filter_results.filtered(uid)
        gang = self._cluster.gang_of(uid)
        if gang is None and filtered is not None and filtered.pod.ours:
            return filtered.membership.key
        return gang

    def pod_or_filtered(self, uid: PodUid) -> Pod | None:
        """Return a pod as last seen, or as filter saw it before the watch showed it."""
        # The record of filter is read first. It is dropped once the watch shows the pod, so one of
        # the two is there.
        filtered = self.filter_results.filtered(uid)
        return self._cluster.pod(uid) or (filtered.pod if filtered else None)

    # ── end ───────────────────────────────────────────────────────────────────────────────

    def expire_gang(self, key: GangKey) -> None:
        """Release the reservations of a gang that did not use them, and let it back off."""
        expirations = self._expirations[key] = self._expirations.get(key, 0) + 1
        group = self._cluster.group(key)
        backoff = GANG_BACKOFF if group is not None and group.min_member > 1 else SINGLE_POD_BACKOFF
        backoff_s = backoff.delay_s(expirations)
        self.wakeups.clear_nominations(self._table.of_gang(key))
        self._table.expire(key)
        self._table.back_off(key, backoff_s)
        with ExitStack() as stack:  # calls every listener, even if one fails
            for listener in reversed(self._listeners):
                stack.callback(listener, key, backoff_s)

    def release_gang(self, key: GangKey) -> None:
        """Release the reservations of a gang that must not start now, without a backoff."""
        self.wakeups.clear_nominations(self._table.of_gang(key))
        self._table.expire(key)
        for listener in self._release_listeners:
            listener(key)

    def on_released(self, listener: Callable[[GangKey], None]) -> None:
        """Call *listener* with gangs whose waiting members must not start either."""
        self._release_listeners.append(listener)

    def forget(self) -> None:
        """Drop every reservation that kube-scheduler does not count yet, because the term is over.

        No gang backs off, and no nomination is cleared: the next leader plans anew.
        """
        self._table.release_all()
        self.opening.clear()
        self._expirations.clear()

    def pod_changed(self, uid: PodUid, pod: Pod | None) -> None:
        """Called by the watch, in its own thread, with the new state of a pod."""
        self.filter_results.seen(uid, pod)
        known = self._table.of(uid)
        if pod is None or known is None or not pod.refusal or pod.is_woken:
            return
        self._table.pod_unschedulable(uid, pod.refusal)
        self._urgent.append(uid)

    def check_due(self) -> bool:
        """Wake pods that did not come and end what has expired; return whether more is due now.

        Called every `LOOK_S`, for a limited number of reservations, because filter waits meanwhile.
        """
        now = self._clock.monotonic()
        for _ in range(_MAX_CHECKS):
            if self._urgent:
                uid = self._urgent.popleft()
            elif self._checks and self._checks[0][0] <= now:
                at, uid = heappop(self._checks)
                if self._next_check.get(uid) != at:
                    continue  # checked since
            else:
                return False
            known = self._table.of(uid)
            try:
                if known is not None:
                    self._check(known, now)
            finally:
                # A check that failed must not be the last one, or the capacity would stay reserved.
                self._schedule_check(uid, now)
        return True

    def _check(self, reservation: Reservation, now: float) -> None:
        if reservation.stage >= Stage.WAITING:
            self._table.drop_unsettled(reservation, now)
        elif now - reservation.since_monotonic >= self._current_timeout_s:
            self._expire(reservation)
        elif reservation.gang not in self.opening and self.wakeups.is_due(reservation, now):
            self.wakeups.wake([reservation], now)

    def _expire(self, reservation: Reservation) -> None:
        if reservation.stage is Stage.FILTERED and self._is_independent(reservation):
            self._table.release(reservation.uid)  # its bind is checked anew, should it come
            return
        siblings = self._table.of_gang(reservation.gang)
        if any(each.stage in (Stage.WAITING, Stage.BINDING, Stage.UNKNOWN) for each in siblings):
            return  # one of them waits for its volumes, and the others wait for it
        # Woken, and kube-scheduler did not even call filter: no node that it checked would do.
        rejected = {
            each.node
            for each in siblings
            if each.stage <= Stage.FILTERED
            and (pod := self._cluster.pod(each.uid)) is not None
            and pod.fits_no_node
        }
        if rejected:
            self._cluster.rejected_nodes.note_all(reservation.gang, rejected, FITS_NOWHERE_S)
        self.expire_gang(reservation.gang)

    def _is_independent(self, reservation: Reservation) -> bool:
        """Return whether it is a single pod, or a member of a gang that runs."""
        group = self._cluster.group(reservation.gang)
        return (
            reservation.node == ANY_NODE
            or group is None
            or max(1, self._cluster.scheduled(reservation.gang)) >= group.min_member
        )

    def _schedule_check(self, uid: PodUid, now: float) -> None:
        known = self._table.of(uid)
        if known is None:
            self._next_check.pop(uid, None)
            self.wakeups.forget(uid)
            return
        delay_s = _CHECK_AFTER_S.get(known.stage, _CHECK_OTHERS_AFTER_S)
        at = now + (_CHECK_WOKEN_AFTER_S if self.wakeups.has_woken(uid) else delay_s)
        expires_at = known.since_monotonic + self._timeout_s
        self._next_check[uid] = at = expires_at if now < expires_at < at else at
        heappush(self._checks, (at, uid))

    @property
    def _current_timeout_s(self) -> float:
        return self._timeout_s * (BUSY_FACTOR if self._is_busy() else 1)

    def _is_busy(self) -> bool:
        return self._clock.monotonic() - self._called_at < IDLE_S
