"""The one ledger of promises: whatever keeps room for a pod is made, moved and ended here.

A promise is one record (`cache/inflight`), with one owner (its pod, in its gang), one deadline and
one way out: seen bound, given back, or lapsed.

    made by              when                                              stage
    the plan             its ticket is issued (`tickets`)                  TICKETED
    filter               a gang arrives (`arrivals`): the whole minimum    TICKETED
    filter               an ordinary pod, or a surplus member, passes      PASSED, SOMEWHERE
    filter               one passes that asks nobody: exempt, native       PASSED, SOMEWHERE
    bind                 it waits; its binding is sent; it is bound        HELD, COMMITTING, BOUND
    bind                 nobody knows what became of its binding           DOUBTED

Rule 1: only the event loop makes promises, where filter and bind live; the planner's thread
proposes. So judging and making is one step: nobody comes in between.
Rule 2: every promise is judged by everything there is: the node's room beside all other promises
and fences, the ceilings of the queue and its ancestors and the guarantees of others, and whether
gang, queue and node are still what was seen.
Rule 3: nothing here waits or does I/O. The watch ends promises from its own threads, which only
frees room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from heapq import heappop, heappush

from extender.cache.cluster import Cluster
from extender.cache.gang_history import FITS_NOWHERE_S, PASSED_OVER_S
from extender.cache.reservation_table import ANY_NODE, Reservation, Stage
from extender.durations import Backoff
from extender.model.gang import GangKey, Membership
from extender.model.matching import accepts, is_schedulable_for
from extender.model.pod import Pod, PodUid
from extender.planner.plan import GangStatus, Plan
from extender.ports import Clock, WakeOrder
from extender.reservations.capacity import NodeCapacity, QueueAllowance
from extender.reservations.wakeups import FilterResults, WakeUps

#: How much longer a ticket lasts while kube-scheduler is busy with others.
BUSY_FACTOR = 6
#: kube-scheduler that asked nothing for this long has nothing left to ask.
IDLE_S = 1.0
#: How long a gang waits whose ticket lapsed: room kept for a gang that never comes is room lost.
LAPSE_PAUSE = Backoff(first_s=10.0, longest_s=120.0)
#: And an ordinary pod, which keeps little: it may only have been behind thousands of others.
LONE_PAUSE = Backoff(first_s=1.0, longest_s=120.0)
#: How often the ledger looks after its promises, and after how many at a time, because filter
#: waits meanwhile.
LOOK_S = 0.5
_MOST_LOOKS = 50
#: How long after the last look at a promise, by its stage: at those on their way the sooner. Who
#: is refused, or parked when the place is promised, is looked at at once.
_NEXT_LOOK_S = {Stage.RESERVED: 10.0, Stage.FILTERED: 1.0}
_WOKEN_LOOK_S = 2.0
_FAR_LOOK_S = 5.0


class Ledger:
    """All promises; every method but those of the watch belongs to the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        wake: Callable[[list[WakeOrder]], None],
        ticket_s: float,
    ) -> None:
        self._cluster = cluster
        self._table = cluster.reservations
        self._clock = clock
        self._ticket_s = ticket_s
        #: When kube-scheduler last asked about any pod.
        self._asked_at = float("-inf")
        self.filter_results = FilterResults()
        self.allowance = QueueAllowance(
            self._table.mark_spent, lambda: cluster.total, cluster.share
        )
        self.room = NodeCapacity(cluster)
        self.wakeups = WakeUps(cluster, self.filter_results, wake, self._is_busy)
        #: Whoever is gone after so long may be let into room that is kept from everybody else.
        self._brief_s = 0.0
        #: Gangs of whose ticket only a part has been issued so far.
        self.opening: set[GangKey] = set()
        #: How often in a row each gang did not use its ticket.
        self._lapses: dict[GangKey, int] = {}
        #: Who may have a place and be parked: looked at before all others.
        self._called: deque[PodUid] = deque()
        #: (when, uid): who is to be looked at next; only the moment in `_next_look` counts.
        self._looks: list[tuple[float, PodUid]] = []
        self._next_look: dict[PodUid, float] = {}
        self._listeners: list[Callable[[GangKey, float], None]] = []
        self._on_withdrawn: list[Callable[[GangKey], None]] = []

    def on_expired(self, listener: Callable[[GangKey, float], None]) -> None:
        """Call *listener* with a gang that could not use its ticket, and how long it waits now."""
        self._listeners.append(listener)

    def asked(self) -> None:
        """Record that kube-scheduler works through its queue: who has a place may yet come."""
        self._asked_at = self._clock.monotonic()

    def now(self) -> float:
        """Tell the time by which promises last."""
        return self._clock.monotonic()

    def refused(self, uid: PodUid) -> None:
        """Remember that filter refused a pod: should it have a place, it must be woken."""
        self.filter_results.refused(uid)
        if self._table.of(uid) is not None:
            self._called.append(uid)

    # ── making ────────────────────────────────────────────────────────────────────────────

    def use_plan(self, plan: Plan) -> None:
        """Judge by *plan* from now on."""
        self.allowance.renew(plan)
        self.room.reserve_for_backfill(plan.reservations, plan.reservations_missing)
        self._brief_s = plan.brief_s
        if self._lapses:
            over = (GangStatus.RUNNING, GangStatus.FINISHED, None)
            self._lapses = {
                key: lapses
                for key, lapses in self._lapses.items()
                if (plan.verdicts[key].standing if key in plan.verdicts else None) not in over
            }

    def reserved_node(self, uid: PodUid) -> Reservation | None:
        """Return the promise of a certain node to a pod, None without any."""
        known = self._table.of(uid)
        return known if known is not None and known.node != ANY_NODE else None

    def reserve(self, pod: Pod, gang: GangKey, node: str, queue: str) -> bool:
        """Write down a ticket that was judged; False when the pod needs none any more."""
        return self._write_down(pod, gang, node, queue, Stage.RESERVED)

    def _write_down(self, pod: Pod, gang: GangKey, node: str, queue: str, stage: Stage) -> bool:
        is_new = self._table.of(pod.uid) is None
        now = self._clock.monotonic()
        if not self._table.reserve(pod, gang, node, now, stage=stage, queue=queue):
            return False
        if is_new:
            self.allowance.count(queue, pod.namespace, pod.requests)
        self._look_after(pod, now)
        return True

    def take_over(self, placeholder: PodUid, pod: Pod) -> bool:
        """Let *pod* have the place of a *placeholder*; False when it is gone or not needed."""
        if not self._table.take_over(placeholder, pod):
            return False
        self._look_after(pod, self._clock.monotonic())
        return True

    def _look_after(self, pod: Pod, now: float) -> None:
        self._look_later(pod.uid, now)
        if pod.refusal or self.filter_results.refused_at(pod.uid) is not None:
            self._called.append(pod.uid)

    def admit(self, pod: Pod, member: Membership) -> None:
        """Count a pod that asks nobody: it may go anywhere, and its queue uses what it needs."""
        if self._table.of(pod.uid) is None:
            queue = self._cluster.used_in_queue(*self._wish(pod, member.key, member.queue))
            self._write_down(pod, member.key, ANY_NODE, queue, Stage.FILTERED)

    def admit_directly(
        self, pod: Pod, gang: GangKey, queue: str, offered: Sequence[str]
    ) -> Sequence[str] | None:
        """Let a pod pass that waits for nobody: the nodes on which others' room stays untouched.

        None when its queue may not start it now. With no node left nothing is promised.
        """
        known = self._table.of(pod.uid)
        if known is None:
            return self._pass_anew(pod, gang, queue, offered)
        if known.stage is Stage.UNKNOWN:
            return (known.node,) if known.node in offered else ()  # it may be there already
        if known.stage <= Stage.FILTERED:
            # kube-scheduler chooses better than a promise made before it looked.
            self._table.advance(pod.uid, Stage.FILTERED, pod=pod)
            self._table.move(pod.uid, ANY_NODE)
        nodes = self._nodes_beside_promises(pod, offered)
        if known.stage <= Stage.FILTERED:
            if nodes:
                self._table.move(pod.uid, self._only(nodes, pod))
            elif known.node != ANY_NODE:
                self._table.move(pod.uid, known.node)
                if known.node in offered and self._keeps_its_place(pod, known.node):
                    return (known.node,)
                self._table.revert(pod.uid, known.node)
        return nodes

    def _keeps_its_place(self, pod: Pod, node: str) -> bool:
        """Return whether a pod may go to the node it is promised, where newcomers may not."""
        slots = self.room.slots(node, pod.shape)
        if slots is not None and slots >= 0:
            return True
        # A brief one may have been let into room that is kept from everybody else.
        return pod.most_s <= self._brief_s and self.room.fits_reservations(node, pod.shape)

    def _pass_anew(
        self, pod: Pod, gang: GangKey, queue: str, offered: Sequence[str]
    ) -> Sequence[str] | None:
        if not self.allowance.may_start(queue, pod.namespace, pod.requests):
            return None
        nodes = self._nodes_beside_promises(pod, offered)
        if nodes and self._write_down(pod, gang, self._only(nodes, pod), queue, Stage.FILTERED):
            self.allowance.spend(queue, pod.requests)
        return nodes

    def _only(self, nodes: Sequence[str], pod: Pod) -> str:
        """Return the node a pod is sure to go to; our watch may be behind and see no room there."""
        is_sure = len(nodes) == 1 and (self.room.slots(nodes[0], pod.shape) or 0) > 0
        return nodes[0] if is_sure else ANY_NODE

    def _nodes_beside_promises(self, pod: Pod, offered: Sequence[str]) -> Sequence[str]:
        if self.room.is_untouched:
            return offered
        # Others are on their way to a node we do not know yet. kube-scheduler counts them there
        # and must find the promised room free even if they all go to one. Who is refused for it
        # gets a ticket, for a certain node, from the next plan.
        known = self._table.of(pod.uid)
        is_one = known is not None and known.node == ANY_NODE
        unplaced = max(0, self._table.count_on(ANY_NODE) - is_one)
        return self.room.nodes_for(pod.shape, offered, 1 + unplaced)

    # ── moving ────────────────────────────────────────────────────────────────────────────

    def choose_node(self, pod: Pod, promise: Reservation, offered: Sequence[str]) -> str:
        """Return the one node of a promised pod, moved to one on offer if need be; else nothing.

        An offer that misses the promised node costs nobody a ticket: kube-scheduler looks at a
        sample, or first at a node it was nominated to long ago. The promise moves to a node with
        room, or trades places; if neither helps, the pod is nominated to its node and asked to
        come again. Only if kube-scheduler leaves out a node it was nominated to, the node is a
        misfit, and the ticket falls.
        """
        node = promise.node if promise.node in offered else ""
        if promise.gang in self.opening:
            return ""
        if promise.stage >= Stage.BINDING:
            return node  # what was sent is on its way there, and nowhere else
        if not node:
            node = self._another(pod, promise, offered)
            if not node:
                self._missed(pod, promise, offered)
                return ""
        self._table.advance(pod.uid, Stage.FILTERED, pod=pod)
        self.wakeups.came(pod.uid, self._clock.monotonic())
        return node

    def _another(self, pod: Pod, promise: Reservation, offered: Sequence[str]) -> str:
        barred = self._cluster.rejected_nodes.of(promise.gang)
        if name := self.room.first_for(pod.shape, offered, barred):
            return name if self._table.move(pod.uid, name) else ""
        for name in offered:
            if name not in barred and self._trade(promise, name):
                return name
        return ""

    def _trade(self, promise: Reservation, name: str) -> bool:
        """Change places with a ticket on *name* whose pod has not come yet.

        Nobody is sent to a node that shrank or was tainted after it was promised.
        """
        if not self._still_stands(promise):
            return False
        for other in self._table.on_node(name):
            if (
                other.stage is Stage.RESERVED
                and other.shape is promise.shape
                and promise.node not in self._cluster.rejected_nodes.of(other.gang)
            ):
                return self._table.swap(promise.uid, other.uid)
        return False

    def _still_stands(self, promise: Reservation) -> bool:
        """Return whether a promised node still has the room, and still takes such pods."""
        node, slots = self._cluster.node(promise.node), self.room.slots(promise.node, promise.shape)
        has_room = slots is not None and slots >= 0
        return node is not None and has_room and accepts(node, promise.shape)

    def _missed(self, pod: Pod, promise: Reservation, offered: Sequence[str]) -> None:
        now = self._clock.monotonic()
        is_stale_nomination = list(offered) == [pod.nominated]
        if is_stale_nomination or not self.wakeups.was_nominated(promise, now):
            if promise.stage is Stage.FILTERED:
                self._table.revert(pod.uid, promise.node)
            if not is_stale_nomination:
                self.wakeups.wake([promise], now)
            return
        self._cluster.rejected_nodes.note(promise.gang, promise.node, PASSED_OVER_S)
        self.expire_gang(promise.gang)

    # ── binding ───────────────────────────────────────────────────────────────────────────

    def may_bind(self, uid: PodUid, node: str) -> bool:
        """Return whether a pod that waits for nobody may be bound to *node* now.

        Its room may have been promised away since it passed filter, or the node got worse; then
        kube-scheduler tries again. Where we promised nothing, its count is the better one.
        """
        known, pod = self._table.of(uid), self._pod(uid)
        is_there = known is not None and known.node == node
        if known is not None and is_there and known.stage > Stage.WAITING:
            return True
        if pod is None or pod.uses_no_resources:
            return True
        seen, is_native = self._cluster.node(node), self.is_native(uid)
        if seen is not None and not is_native and not is_schedulable_for(seen, pod.shape):
            return False  # tainted or cordoned since; not ready is for taints to say
        if is_there:
            return self._keeps_its_place(pod, node)
        if not self.room.nodes_for(pod.shape, (node,)):
            return False
        return known is not None or is_native or self._is_allowed(pod, uid)

    def is_native(self, uid: PodUid) -> bool:
        """Return whether kube-scheduler itself assembles its gang: refusing one would tear it."""
        seen, passer = self._cluster.seen(uid), self.filter_results.filtered(uid)
        member = seen[1] if seen else passer.membership if passer else None
        return member is not None and member.native

    def _is_allowed(self, pod: Pod, uid: PodUid) -> bool:
        """Return whether the queue has room for a pod whose promise lapsed, or was made before us."""
        queue, problem = self._cluster.queue_of(*self._wish_of(pod, uid))
        if problem is not None:
            return False
        return self.allowance.objection(queue, pod.namespace, pod.requests) is None

    def _wish_of(self, pod: Pod, uid: PodUid) -> tuple[GangKey | None, str, str]:
        """Return a pod's gang, its namespace, and the queue that one of them names."""
        passer = self.filter_results.filtered(uid)
        return self._wish(pod, self.gang_of(uid), passer.membership.queue if passer else "")

    def _wish(self, pod: Pod, gang: GangKey | None, named: str) -> tuple[GangKey | None, str, str]:
        group = self._cluster.group(gang) if gang is not None else None
        return gang, pod.namespace, group.queue if group else named

    def mark_waiting(self, uid: PodUid, node: str) -> None:
        """Keep room for a pod whose bind waits; that of an earlier one may yet take effect."""
        if not self._is_doubted(uid):
            self._table.advance(uid, Stage.WAITING, node)

    def mark_binding(self, uid: PodUid, node: str) -> None:
        """Keep room for a pod whose binding is being sent."""
        if self._table.advance(uid, Stage.BINDING, node):
            return
        pod, gang = self._pod(uid), self.gang_of(uid)
        if pod is not None and gang is not None:
            queue = self._cluster.used_in_queue(*self._wish_of(pod, uid))
            self._write_down(pod, gang, node, queue, Stage.BINDING)

    def mark_bound(self, uid: PodUid, node: str) -> None:
        """Keep room for a bound pod until the mirror shows it."""
        self._table.advance(uid, Stage.BOUND, node)

    def keep_reserved(self, uid: PodUid, node: str) -> None:
        """Let a pod whose binding failed keep its room as a ticket."""
        self._table.revert(uid, node)
        self._called.append(uid)

    def mark_unknown(self, uid: PodUid, node: str) -> None:
        """Keep room for a pod of whose binding nobody knows, until the mirror shows the truth."""
        self._table.advance(uid, Stage.UNKNOWN, node)

    def release(self, uid: PodUid) -> None:
        """Return the room of a pod back, unless a binding of it may yet take effect there."""
        if not self._is_doubted(uid):
            self._table.release(uid)

    def _is_doubted(self, uid: PodUid) -> bool:
        known = self._table.of(uid)
        return known is not None and known.stage is Stage.UNKNOWN

    def back_off(self, gang: GangKey, span_s: float) -> None:
        """Do not try a gang for *span_s*, and keep no room meanwhile for those who never came.

        What others of it held is given back by now: with half of its room a gang only stands in
        the way of another that has the other half.
        """
        if span_s:
            self.release_gang(gang)
        self._table.back_off(gang, span_s)

    def gang_of(self, uid: PodUid) -> GangKey | None:
        """Return the gang of a pod of ours, also of one that only filter has seen so far."""
        gang = self._cluster.gang_of(uid)
        if gang is not None:
            return gang
        passer = self.filter_results.filtered(uid)
        if passer is None:
            return self._cluster.gang_of(uid)  # shown by the watch, so forgotten, in between
        return passer.membership.key if passer.pod.ours else None

    def _pod(self, uid: PodUid) -> Pod | None:
        passer = self.filter_results.filtered(uid)
        return self._cluster.pod(uid) or (passer.pod if passer else None)

    # ── ending ────────────────────────────────────────────────────────────────────────────

    def expire_gang(self, key: GangKey) -> None:
        """Return the room promised to a gang that could not use it, and let it wait a while."""
        lapses = self._lapses[key] = self._lapses.get(key, 0) + 1
        group = self._cluster.group(key)
        pause = LAPSE_PAUSE if group is not None and group.min_member > 1 else LONE_PAUSE
        pause_s = pause.delay_s(lapses)
        self.wakeups.take_back(self._table.of_gang(key))
        self._table.expire(key)
        self._table.back_off(key, pause_s)
        with ExitStack() as telling:  # all of them, though one may fail
            for listener in reversed(self._listeners):
                telling.callback(listener, key, pause_s)

    def release_gang(self, key: GangKey) -> None:
        """Return what was promised to a gang that must not start now, through no fault of its."""
        self.wakeups.take_back(self._table.of_gang(key))
        self._table.expire(key)
        for listener in self._on_withdrawn:
            listener(key)

    def on_released(self, listener: Callable[[GangKey], None]) -> None:
        """Call *listener* with gangs of which those who are held must not start either."""
        self._on_withdrawn.append(listener)

    def forget(self) -> None:
        """Drop every promise that kube-scheduler does not count on yet: it is not ours to keep.

        Nobody is told to wait for it, and no nomination is taken back: whoever leads plans anew.
        """
        self._table.release_all()
        self.opening.clear()
        self._lapses.clear()

    def scheduler_called(self, uid: PodUid, pod: Pod | None) -> None:
        """Hear from the watch, in its own thread, what became of a pod."""
        self.filter_results.seen(uid, pod)
        known = self._table.of(uid)
        if pod is None or known is None or not pod.refusal or pod.is_woken:
            return
        self._table.pod_unschedulable(uid, pod.refusal)
        self._called.append(uid)

    def check_due(self) -> bool:
        """Wake who overslept and end what has lapsed; True while there is more to look at now.

        Called every `LOOK_S`; some hundred promises at a time, because filter waits meanwhile.
        """
        now = self._clock.monotonic()
        for _ in range(_MOST_LOOKS):
            if self._called:
                uid = self._called.popleft()
            elif self._looks and self._looks[0][0] <= now:
                at, uid = heappop(self._looks)
                if self._next_look.get(uid) != at:
                    continue  # looked at since
            else:
                return False
            known = self._table.of(uid)
            try:
                if known is not None:
                    self._look(known, now)
            finally:
                # A look that failed must not be the last one: what it keeps would be kept for ever.
                self._look_later(uid, now)
        return True

    def _look(self, promise: Reservation, now: float) -> None:
        if promise.stage >= Stage.WAITING:
            self._table.drop_unsettled(promise, now)
        elif now - promise.since_monotonic >= self._patience_s:
            self._lapse(promise)
        elif promise.gang not in self.opening and self.wakeups.is_due(promise, now):
            self.wakeups.wake([promise], now)

    def _lapse(self, promise: Reservation) -> None:
        if promise.stage is Stage.FILTERED and self._waits_for_nobody(promise):
            self._table.release(promise.uid)  # its bind is judged anew, should it come
            return
        siblings = self._table.of_gang(promise.gang)
        if any(each.stage in (Stage.WAITING, Stage.BINDING, Stage.UNKNOWN) for each in siblings):
            return  # one of them is busy with its volumes, and the others are held for it
        # Woken, and kube-scheduler did not even ask us: nothing it saw would do.
        misfits = {
            each.node
            for each in siblings
            if each.stage <= Stage.FILTERED
            and (pod := self._cluster.pod(each.uid)) is not None
            and pod.fits_no_node
        }
        if misfits:
            self._cluster.rejected_nodes.note_all(promise.gang, misfits, FITS_NOWHERE_S)
        self.expire_gang(promise.gang)

    def _waits_for_nobody(self, promise: Reservation) -> bool:
        """Return whether it is an ordinary pod, or a member of a gang that runs."""
        group = self._cluster.group(promise.gang)
        return (
            promise.node == ANY_NODE
            or group is None
            or max(1, self._cluster.scheduled(promise.gang)) >= group.min_member
        )

    def _look_later(self, uid: PodUid, now: float) -> None:
        known = self._table.of(uid)
        if known is None:
            self._next_look.pop(uid, None)
            self.wakeups.forget(uid)
            return
        rest_s = _NEXT_LOOK_S.get(known.stage, _FAR_LOOK_S)
        at = now + (_WOKEN_LOOK_S if self.wakeups.has_woken(uid) else rest_s)
        lapses_at = known.since_monotonic + self._ticket_s
        self._next_look[uid] = at = lapses_at if now < lapses_at < at else at
        heappush(self._looks, (at, uid))

    @property
    def _patience_s(self) -> float:
        return self._ticket_s * (BUSY_FACTOR if self._is_busy() else 1)

    def _is_busy(self) -> bool:
        return self._clock.monotonic() - self._asked_at < IDLE_S
