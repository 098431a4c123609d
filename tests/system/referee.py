"""The rules of the whole system, checked independently of its parts.

The referee knows what the API server has, what each watch has delivered, what kube-scheduler
assumed and could not place, and every call, answer, binding and wake-up. Only the reservations are
read from the extender. A breach names its rule, so that a story can say which one it is about.

An earlier state is no breach: a node that shrinks below its pods, or a queue that is over its
ceiling because its PodGroups moved, breaks no rule until more capacity is given there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

from extender.cache.changes import Change, Delete, Kind, SeenPod, Upsert
from extender.hooks.gate import Filtered
from extender.model.gang import GangKey, Membership
from extender.model.node import Node
from extender.model.pod import FINISHED_SET, Pod, PodUid
from extender.model.queue import DEFAULT_QUEUE, NamespaceShare, Queue
from extender.model.resources import CPU, MEMORY, NOTHING, Resources
from extender.ports import BindOrder
from extender.sim.api_server import ApiServer
from extender.sim.clock import VirtualClock
from extender.sim.kube_scheduler import KubeScheduler

from .system import System, SystemReservation

#: An unschedulable pod with a reservation is woken within this time (a second and a tick).
WAKE_S = 1.3
#: A reservation outlives its pod by no more than this, once the watch has shown its deletion.
ORPHAN_S = 5.0
#: A reservation outlives its gang by no more than this: its own lifetime.
GANGLESS_S = 30.0
#: Bindings that were sent together are answered within this time.
PARTIAL_S = 15.0
CYCLE_S = 1.3
#: A gang that waits for less than this has no backfill reservation yet.
FENCED_S = 500.0


#: Where all pods of these stories are.
NAMESPACE = "a"

#: How many lines of a story are shown with a breach.
STORY_LINES = 200


class Breach(AssertionError):
    """A rule was broken."""

    def __init__(self, rule: str, story: str) -> None:
        super().__init__(rule, story)  # as it was made, so that it can be sent to another process
        self.rule = rule
        self.story = story

    def __str__(self) -> str:
        return f"{self.rule}: {self.story}"


class Referee:
    """Watches one story."""

    def __init__(
        self, time: VirtualClock, api: ApiServer, scheduler: KubeScheduler, system: System
    ) -> None:
        self._time = time
        self._api = api
        self._scheduler = scheduler
        self._system = system
        #: Rules that are not checked, for a search for other breaches.
        self.ignored: frozenset[str] = frozenset()
        self._order = count(1)
        self._breaches: list[Breach] = []
        self._story: deque[str] = deque(maxlen=STORY_LINES)
        #: The cycle after this one has seen everything that was delivered.
        self._unplanned_until = 0
        # What the extender's watch has delivered.
        self._received_nodes: dict[str, Node] = {}
        self._received_pods: dict[PodUid, Pod] = {}
        self._gone_since: dict[PodUid, float] = {}
        #: Pods that had a reservation when the watch showed their end.
        self._orphans: set[PodUid] = set()
        self._groupless_since: dict[GangKey, float] = {}
        self._memberless_since: dict[GangKey, float] = {}
        # The calls to the extender, and its actions.
        self._refused: dict[PodUid, int] = {}
        self._woken: dict[PodUid, tuple[int, float]] = {}
        self._wakes_read = 0
        self._cycle_wanted: tuple[float, int] | None = None
        # What was counted last time.
        self._reserved_since: dict[PodUid, float] = {}
        self._taken: dict[str, Resources] = {}
        self._used: dict[str, Resources] = {}
        self._totals: list[tuple[int, Resources]] = []
        self._queues: dict[GangKey, str] = {}
        self._partial_since: dict[GangKey, float] = {}
        #: Gangs that were complete once, and gangs that lost a member.
        self._started: set[GangKey] = set()
        self._hurt: set[GangKey] = set()

    # ── events ────────────────────────────────────────────────────────────────────────────

    def received(self, change: Change) -> None:
        """Note what the extender's watch has delivered."""
        self.note(f"the extender receives {_name(change)}")
        if not _is_waiting_pod(change):
            self._unplanned_until = self._system.cycles + self._system.is_planning
        if isinstance(change, Delete):
            if change.kind is Kind.NODE:
                self._received_nodes.pop(change.key, None)
            elif change.kind is Kind.POD:
                self._received_pods.pop(PodUid(change.key), None)
                self._gone_since[PodUid(change.key)] = self._time.monotonic()
                if change.key in self._reserved_since:
                    self._orphans.add(PodUid(change.key))
            elif change.kind is Kind.GROUP:
                self._groupless_since[GangKey(change.key)] = self._time.monotonic()
        elif isinstance(change, Upsert):
            if isinstance(change.item, Node):
                self._received_nodes[change.item.name] = change.item
            elif isinstance(change.item, SeenPod):
                self._received_pods[change.item.pod.uid] = change.item.pod

    @property
    def has_found_something(self) -> bool:
        return bool(self._breaches)

    def disturbed(self, gang: GangKey) -> None:
        """Note that something happened to a gang that may leave it incomplete."""
        self._hurt.add(gang)

    def note(self, what: str) -> None:
        """Record what happens, to be shown with a breach."""
        self._story.append(f"{self._time.monotonic():7.2f} {what}")

    def crashed(self, words: str) -> None:
        """Note an unexpected exception of a part. The parts log it and continue."""
        self._breach("crash", words)

    def cycle_requested(self) -> None:
        """Note the request of a planning cycle."""
        if self._cycle_wanted is None:
            self._cycle_wanted = (self._time.monotonic(), self._system.cycles)

    def filtered(
        self,
        pod: Pod,
        member: Membership,
        offered: Sequence[str],
        before: Sequence[SystemReservation],
        answer: Filtered,
    ) -> None:
        """Judge one answer of filter."""
        self.note(f"filter {pod.name} of {list(offered)}: {list(answer.nodes) or 'refused'}")
        if answer.nodes:
            self._refused.pop(pod.uid, None)
        else:
            self._refused[pod.uid] = next(self._order)
            if not member.named and self._blocks_no_other_pod(pod, member, offered):
                self._breach("refusal", f"{pod.name} is refused, though it blocks no other pod")
        if not set(answer.nodes) <= set(offered):
            self._breach("subset", f"{pod.name} got {answer.nodes}, offered {offered}")
        mine = next((each for each in before if each.uid == pod.uid), None)
        if mine is not None and member.named and self._is_good_for(pod, mine.node):
            after = [each for each in self._system.reservations() if each.gang == member.key]
            if len(after) < len(before):
                self._breach(
                    "reservation",
                    f"{pod.name} has {mine.node}, was offered {list(offered)}, and its gang has"
                    f" {len(after)} of {len(before)} reservations left",
                )

    def _blocks_no_other_pod(self, pod: Pod, member: Membership, offered: Sequence[str]) -> bool:
        """Return whether only the pod's queue is in use and no waiting pod can use its capacity.

        Only in clear cases: the plan has seen everything, and nothing is reserved.
        """
        others = [seen for uid, seen in self._api.pods.items() if uid != pod.uid]
        queue = member.queue or DEFAULT_QUEUE
        is_plain = (
            self._system.cycles > self._unplanned_until
            and not self._system.is_planning
            and not self._system.reservations()
            and not self._api.bindings
            and {self._queue_of(seen.pod.uid, {}) for seen in others} <= {queue}
            and len(self._line(queue)) == 1
            and self._may_have(queue, pod.requests)
        )
        return (
            is_plain
            and all(seen.pod.node or self._is_stuck_beside(seen, pod) for seen in others)
            and any(pod.requests.fits_in(self._idle(name)) for name in offered)
        )

    def _is_stuck_beside(self, seen: SeenPod, pod: Pod) -> bool:
        """Return whether a waiting pod lacks what no node has and *pod* does not request."""
        idle = sum((self._idle(name) for name in self._api.nodes), NOTHING)
        return self._is_young(seen) and any(
            amount and not idle.amount(name) and not pod.requests.amount(name)
            for name, amount in seen.pod.requests.items()
        )

    def _is_good_for(self, pod: Pod, name: str) -> bool:
        return self._scheduler.fits(pod, name) and _stands(self._received_nodes.get(name))

    def answered(self, order: BindOrder, error: str) -> None:
        """Judge the answer to a bind call."""
        self.note(f"bind {order.name} on {order.node}: {error or 'bound'}")
        seen = self._api.pods.get(order.uid)
        if not error and seen is not None and seen.pod.node != order.node:
            self._breach("success", f"{order.name} is said to be on {order.node}, and is not")

    def sent(self, orders: Sequence[BindOrder]) -> None:
        """Judge bindings as they are sent."""
        self.note(f"bindings sent: {[(order.name, order.node) for order in orders]}")
        for order in orders:
            seen = self._api.pods.get(order.uid)
            if seen is not None:
                self._judge_node(order, seen)
        for gang in {self._gang_of(order.uid) for order in orders}:
            if gang is not None:
                self._judge_whole(gang, orders)

    def _judge_node(self, order: BindOrder, seen: SeenPod) -> None:
        node = self._received_nodes.get(order.node)
        is_member = seen.membership.named and self._minimum(seen.membership.key) > 1
        if is_member and not _stands(node):
            self._breach("node", f"{order.name} is bound to {order.node}, seen tainted or gone")
        there = {uid: each for uid, each in self._bound_on(order.node).items() if uid != order.uid}
        taken = sum(there.values(), seen.pod.requests)
        if node is not None and not taken.fits_in(node.allocatable):
            self._breach(
                "node", f"{order.name} is bound to {order.node}, which is too small by now"
            )

    def _judge_whole(self, gang: GangKey, orders: Sequence[BindOrder]) -> None:
        least = self._minimum(gang)
        coming = {order.uid for order in (*orders, *self._api.bindings)}
        whole = [
            each
            for each in self._api.pods_of(gang)
            if each.pod.node or each.pod.uid in coming
        ]  # fmt: skip
        if len(whole) >= least:
            self._started.add(gang)
        elif gang not in self._started | self._hurt:
            self._breach("whole", f"{len(whole)} of {gang} are bound, it needs {least}")

    # ── after every step ──────────────────────────────────────────────────────────────────

    def check(self) -> None:
        """Count everything anew."""
        self._read_wakes()
        reservations = self._system.reservations()
        self._note_queues()
        self._check_capacity(reservations)
        self._check_owners(reservations)
        self._check_awake(reservations)
        self._check_reservations_of_waiting_gangs(reservations)
        self._check_partly_bound()
        self._check_wanted_pass()
        self._raise()

    def _read_wakes(self) -> None:
        for at, order in self._api.wakes[self._wakes_read :]:
            self._woken[order.uid] = (next(self._order), at)
            self.note(f"{order.name} is woken for {order.node}")
        self._wakes_read = len(self._api.wakes)

    def _note_queues(self) -> None:
        for key, group in self._api.groups.items():
            self._queues[key] = group.queue or DEFAULT_QUEUE
        for seen in self._api.pods.values():
            if not seen.membership.named:
                self._queues[seen.membership.key] = seen.membership.queue or DEFAULT_QUEUE

    # Capacity, ceilings, guarantees

    def _check_capacity(self, reservations: Sequence[SystemReservation]) -> None:
        now = self._count(reservations)
        for name, there in now.items():
            taken = sum(there.values(), NOTHING)
            grown = taken.beyond(self._taken.get(name, NOTHING))
            self._taken[name] = taken
            self._judge_capacity(name, list(there), taken, grown)
        self._taken = {name: taken for name, taken in self._taken.items() if name in now}
        self._judge_queues(now, {each.uid: each.gang for each in reservations})

    def _count(
        self, reservations: Sequence[SystemReservation]
    ) -> dict[str, dict[PodUid, Resources]]:
        """Count the pods that use capacity, by node: bound, binding, waiting, reserved."""
        now: dict[str, dict[PodUid, Resources]] = {}
        for uid, node, needs in self._takers(reservations):
            now.setdefault(node, {})[uid] = needs
        return now

    def _takers(
        self, reservations: Sequence[SystemReservation]
    ) -> Iterable[tuple[PodUid, str, Resources]]:
        pods = self._api.pods
        for uid, seen in pods.items():
            if seen.pod.node and seen.pod.status not in FINISHED_SET:
                yield uid, seen.pod.node, seen.pod.requests
        on_their_way = [(each.uid, each.node) for each in self._api.bindings]
        on_their_way += list(self._scheduler.calls.items())
        for uid, node in on_their_way:
            if uid in pods and not pods[uid].pod.node:
                yield uid, node, pods[uid].pod.requests
        for each in reservations:
            if each.is_placeholder or (each.uid in pods and not pods[each.uid].pod.node):
                yield each.uid, each.node, each.requests

    def _judge_capacity(
        self, name: str, pods: Sequence[PodUid], taken: Resources, grown: Resources
    ) -> None:
        views = [each.allocatable for each in self._views(name)]
        if not views:
            return
        capacity = views[0].at_least(views[-1])
        if any(
            amount and taken.amount(each) > capacity.amount(each) for each, amount in grown.items()
        ):
            self._breach(
                "capacity", f"{name} has {_short(capacity)}, given {_short(taken)}: {pods}"
            )

    def _views(self, name: str) -> list[Node]:
        views = (self._api.nodes.get(name), self._received_nodes.get(name))
        return [each for each in views if each is not None]

    def _judge_queues(
        self, now: Mapping[str, Mapping[PodUid, Resources]], gangs: Mapping[PodUid, GangKey]
    ) -> None:
        all_pods = {uid: needs for there in now.values() for uid, needs in there.items()}
        used: dict[str, Resources] = {}
        for uid, needs in all_pods.items():
            for name in self._line(self._queue_of(uid, gangs)):
                used[name] = used.get(name, NOTHING) + needs
        for name, amounts in used.items():
            grown = amounts.beyond(self._used.get(name, NOTHING))
            for words in self._over_ceiling(name, amounts, grown):
                self._breach("ceiling", f"{name} has {words}")
            for words in self._into_guarantees(name, used, grown, self._planned_total()):
                self._breach("guarantee", f"{name} was given more: {words}")
        self._used = used

    def _over_ceiling(self, name: str, used: Resources, needs: Resources) -> Iterator[str]:
        """Return where a queue has more than it may, of what was just given."""
        queue = self._api.queues.get(name)
        for each, most in queue.capability.items() if queue else ():
            is_stated = most > 0 or each not in (CPU, MEMORY)
            if is_stated and needs.amount(each) > 0 and used.amount(each) > most:
                yield f"{used.amount(each)} of at most {most} {each}"
        for share in self._shares_of(name):
            # All pods are of one namespace, so it uses what the queue does.
            for each, most in share.limit.items() if share.namespace == NAMESPACE else ():
                if needs.amount(each) > 0 and used.amount(each) > most:
                    words = f"{used.amount(each)} of at most {most} {each}"
                    yield f"{words} for namespace {NAMESPACE}"

    def _shares_of(self, queue: str) -> list[NamespaceShare]:
        every = (share for each in self._api.namespaces.values() for share in each.shares)
        return [share for share in every if share.queue == queue]

    def _into_guarantees(
        self, name: str, used: Mapping[str, Resources], needs: Resources, total: Resources
    ) -> Iterator[str]:
        """Return where a queue above its own guarantee was given capacity guaranteed to others."""
        queues = self._api.queues.values()
        parents = {queue.parent for queue in queues}
        if name in parents:
            return
        leaves = {*used, *self._api.queues} - parents
        shares = [share for queue in queues for share in self._shares_of(queue.name)]
        kinds = [each.guarantee for each in queues] + [each.guarantee for each in shares]
        for each in sorted({each for guarantee in kinds for each in guarantee}):
            own = self._guarantee(name).amount(each)
            if not needs.amount(each) or used.get(name, NOTHING).amount(each) <= own:
                continue
            kept = sum(
                max(used.get(leaf, NOTHING).amount(each), self._guarantee(leaf).amount(each))
                for leaf in leaves
            ) + sum(
                share.guarantee.amount(each) for share in shares if share.namespace != NAMESPACE
            )
            if kept > total.amount(each):
                yield f"{kept} of {total.amount(each)} {each} are used or guaranteed"

    def _guarantee(self, name: str) -> Resources:
        return self._api.queues.get(name, Queue(name=name)).guarantee

    def _planned_total(self) -> Resources:
        """Return the highest total since the snapshot of the last plan, which its queues use."""
        self._totals.append((self._system.cycles, self._total()))
        least = self._system.cycles - 1
        self._totals = [each for each in self._totals if each[0] >= least]
        most = NOTHING
        for _, total in self._totals:
            most = most.at_least(total)
        return most

    def _total(self) -> Resources:
        """Add up the allocatable resources of all nodes, including those that take no pods."""
        names = {*self._api.nodes, *self._received_nodes}
        views = ([each.allocatable for each in self._views(name)] for name in names)
        return sum((both[0].at_least(both[-1]) for both in views), NOTHING)

    def _queue_of(self, uid: PodUid, gangs: Mapping[PodUid, GangKey]) -> str:
        seen = self._api.pods.get(uid)
        key = seen.membership.key if seen else gangs.get(uid)
        if seen is not None and seen.membership.named and key not in self._api.groups:
            # Without its PodGroup it waits in no queue, but what it uses counts at home.
            return DEFAULT_QUEUE if seen.pod.node or uid in gangs else ""
        return self._queues.get(key, DEFAULT_QUEUE) if key else DEFAULT_QUEUE

    def _line(self, name: str) -> list[str]:
        """Return a queue and its ancestors."""
        line: list[str] = []
        while name and name not in line:
            line.append(name)
            name = self._api.queues.get(name, Queue(name=name)).parent
        return line

    # Owners

    def _check_owners(self, reservations: Sequence[SystemReservation]) -> None:
        now = self._time.monotonic()
        for each in reservations:
            if each.uid not in self._reserved_since:
                self.note(f"{each.uid} of {each.gang} is reserved on {each.node}")
        for uid in self._reserved_since.keys() - {each.uid for each in reservations}:
            self.note(f"the reservation of {uid} ended")
        self._reserved_since = {
            each.uid: self._reserved_since.get(each.uid, now) for each in reservations
        }
        sent = {each.uid for each in self._api.bindings}
        for each in reservations:
            if each.uid in sent:
                continue
            since = self._ownerless_since(each)
            if since is not None and now > since:
                self._breach("owner", f"{each.uid} of {each.gang} on {each.node} has no owner")

    def _ownerless_since(self, each: SystemReservation) -> float | None:
        """Return the time since which no pod may have this reservation."""
        if each.is_placeholder:
            if self._api.pods_of(each.gang) or self._api.to_extender:
                self._memberless_since.pop(each.gang, None)
                return None
            now = self._time.monotonic()
            return self._memberless_since.setdefault(each.gang, now) + ORPHAN_S
        if each.uid in self._gone_since:
            if each.uid in self._orphans:
                return self._gone_since[each.uid] + ORPHAN_S
            # kube-scheduler may ask for a pod whose deletion it does not know yet. The extender
            # cannot tell it from one that is too new to be known.
            return self._reserved_since[each.uid] + GANGLESS_S
        seen = self._api.pods.get(each.uid)
        if seen is not None and seen.membership.named and each.gang not in self._api.groups:
            lost = self._groupless_since.get(each.gang)
            return None if lost is None else lost + GANGLESS_S
        return None

    # Wake-ups

    def _check_awake(self, reservations: Sequence[SystemReservation]) -> None:
        now = self._time.monotonic()
        for each in reservations:
            parked_at = self._scheduler.unschedulable.get(each.uid)
            has_place = each.node and each.is_tentative
            if not has_place or parked_at is None or not self._knows_unschedulable(each.uid):
                continue
            since = max(self._reserved_since[each.uid], parked_at)
            if now - since > WAKE_S and not self._was_woken(each.uid):
                self._breach("awake", f"{each.uid} has {each.node} and sleeps for {now - since} s")

    def _knows_unschedulable(self, uid: PodUid) -> bool:
        seen = self._received_pods.get(uid)
        return uid in self._refused or bool(seen and seen.refusal)

    def _was_woken(self, uid: PodUid) -> bool:
        on_its_way = (
            isinstance(news.change, Upsert)
            and isinstance(news.change.item, SeenPod)
            and news.change.item.pod.uid == uid
            for news in self._api.to_scheduler
        )
        number, at = self._woken.get(uid, (0, float("-inf")))
        was = at >= self._reserved_since[uid] and number > self._refused.get(uid, 0)
        return was or any(on_its_way)

    # Gangs with waiting binds

    def _check_reservations_of_waiting_gangs(
        self, reservations: Sequence[SystemReservation]
    ) -> None:
        have = {each.uid for each in reservations}
        called = {self._gang_of(uid) for uid in self._scheduler.calls if uid in self._api.pods}
        for uid, assumed in self._scheduler.assumed.items():
            seen = self._api.pods.get(uid)
            if seen is None or assumed.call is not None or assumed.answered or seen.pod.node:
                continue
            gang = seen.membership.key
            is_fine = gang in self._api.groups and _stands(self._received_nodes.get(assumed.node))
            waits = gang in called and gang not in self._started
            if waits and seen.membership.named and is_fine and uid not in have:
                self._breach(
                    "waiting", f"{uid} is in PreBind, the other binds wait, its reservation ended"
                )

    def _check_partly_bound(self) -> None:
        now = self._time.monotonic()
        for key, group in self._api.groups.items():
            bound = sum(bool(each.pod.node) for each in self._api.pods_of(key))
            if not 0 < bound < group.min_member or key in self._hurt:
                self._partial_since.pop(key, None)
                continue
            since = self._partial_since.setdefault(key, now)
            if now - since > PARTIAL_S:
                self._breach("partial", f"{bound} of {group.min_member} of {key} are bound")

    # Planning cycles

    def _check_wanted_pass(self) -> None:
        if self._cycle_wanted is None:
            return
        since, cycles = self._cycle_wanted
        if self._system.cycles > cycles:
            self._cycle_wanted = None
        elif self._time.monotonic() - since > CYCLE_S:
            self._cycle_wanted = None
            self._breach("cycle", "a cycle was requested, and none was made")

    # ── after the last step ───────────────────────────────────────────────────────────────

    def check_everything_that_fits_has_started(self) -> None:
        """Look for a gang that fits and did not start, in cases where clearly nothing prevents it.

        The policy may have its reasons, not repeated here, if pods of several queues wait, if
        a gang has a backfill reservation, or if a node shrank below its pods (its queue may
        then use all there is, though another node has capacity).
        """
        waiting = [seen for seen in self._api.pods.values() if not seen.pod.node]
        names = {self._queue_of(seen.pod.uid, {}) for seen in waiting}
        is_plain = len(names) == 1 and not any(map(self._is_overfull, self._api.nodes))
        if is_plain and all(map(self._is_young, waiting)):
            for key in sorted({seen.membership.key for seen in waiting}):
                members = [seen for seen in waiting if seen.membership.key == key]
                if not any(map(self._is_hopeless, members)) and self._fits(key, members):
                    self._breach("progress", f"{key} fits and is complete, and does not start")
        self._raise()

    def _is_overfull(self, name: str) -> bool:
        """Return whether a node has more pods than capacity, because it shrank."""
        taken = sum(self._bound_on(name).values(), NOTHING)
        return not taken.fits_in(self._api.nodes[name].allocatable)

    def _is_young(self, seen: SeenPod) -> bool:
        """Return whether a pod waits too short a time for a backfill reservation."""
        return self._time.now() - seen.pod.created < FENCED_S

    def _is_hopeless(self, seen: SeenPod) -> bool:
        """Return whether kube-scheduler would place this pod on no node, however empty."""
        name = seen.pod.name
        return name in self._scheduler.volumes and not self._scheduler.volumes[name]

    def _fits(self, key: GangKey, members: Sequence[SeenPod]) -> bool:
        named = members[0].membership.named
        if (named and key not in self._api.groups) or len({id(m.pod.shape) for m in members}) > 1:
            return False
        running = sum(bool(each.pod.node) for each in self._api.pods_of(key))
        needed = max(self._minimum(key) - running, 1) if named else 1
        requests = members[0].pod.requests
        return (
            len(members) >= needed
            and self._slots(requests) >= needed
            and self._may_have(self._queue_of(members[0].pod.uid, {}), requests * needed)
        )

    def _slots(self, requests: Resources) -> int:
        """Count the pods of this size that the nodes would take."""
        unused = (self._idle(name) for name in self._api.nodes)
        return sum(
            max(0, min(capacity.amount(each) // most for each, most in requests.items() if most))
            for capacity in unused
        )

    def _idle(self, name: str) -> Resources:
        """Return the unused resources of a node; none if it takes no pods."""
        node = self._api.nodes.get(name)
        if node is None or not _stands(node):
            return NOTHING
        return node.allocatable - sum(self._bound_on(name).values(), NOTHING)

    def _may_have(self, name: str, more: Resources) -> bool:
        """Return whether a queue may use *more* than what is bound, by ceilings and guarantees."""
        if name not in {*self._api.queues, DEFAULT_QUEUE}:
            return False
        used: dict[str, Resources] = {}
        for uid, seen in self._api.pods.items():
            for each in self._line(self._queue_of(uid, {})) if seen.pod.node else ():
                used[each] = used.get(each, NOTHING) + seen.pod.requests
        for each in self._line(name):
            used[each] = used.get(each, NOTHING) + more
        over = [w for each in self._line(name) for w in self._over_ceiling(each, used[each], more)]
        nodes = (node.allocatable for node in self._api.nodes.values() if _stands(node))
        return not over and not list(self._into_guarantees(name, used, more, sum(nodes, NOTHING)))

    # ── facts ─────────────────────────────────────────────────────────────────────────────

    def _gang_of(self, uid: PodUid) -> GangKey | None:
        seen = self._api.pods.get(uid)
        return seen.membership.key if seen and seen.membership.named else None

    def _minimum(self, key: GangKey) -> int:
        group = self._api.groups.get(key)
        return group.min_member if group else 1

    def _bound_on(self, name: str) -> dict[PodUid, Resources]:
        there = {
            uid: seen.pod.requests
            for uid, seen in self._api.pods.items()
            if seen.pod.node == name and seen.pod.status not in FINISHED_SET
        }
        for order in self._api.bindings:
            if order.node == name and order.uid in self._api.pods:
                there[order.uid] = self._api.pods[order.uid].pod.requests
        return there

    def _breach(self, rule: str, story: str) -> None:
        """Record a breach for the next check: the parts survive exceptions raised inside them."""
        if rule not in self.ignored:
            breach = Breach(rule, story)
            breach.add_note("What happened:\n  " + "\n  ".join(self._story))
            self._breaches.append(breach)

    def _raise(self) -> None:
        if self._breaches:
            raise self._breaches[0]


def _stands(node: Node | None) -> bool:
    return node is not None and node.ready and not node.unschedulable and not node.taints


def _name(change: Change) -> str:
    if isinstance(change, Delete):
        return f"the end of {change.key}"
    item = change.item if isinstance(change, Upsert) else None
    if isinstance(item, SeenPod):
        return f"{item.pod.name} on {item.pod.node or 'no node'} {item.pod.refusal[-30:]!r}"
    return getattr(item, "name", "?")


def _is_waiting_pod(change: Change) -> bool:
    item = change.item if isinstance(change, Upsert) else None
    return isinstance(item, SeenPod) and not item.pod.node


def _short(amounts: Resources) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if name not in (MEMORY, "pods")}
