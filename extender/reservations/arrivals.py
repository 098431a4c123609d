"""Gangs whose members are still being created: capacity for all of it before all of it exists.

A refusal is expensive: kube-scheduler writes a condition and an event, the extender writes a
wake-up, and the pod needs another attempt. So the first member that comes to filter, while no gang
waits for the capacity, reserves the whole minimum: its own node, and *placeholders* that later
members take over. Their binds wait until the last one is there. If no member comes for a while, all
of it is released, and the gang is not admitted in this way again before all of it exists.

Nor are other gangs of its namespace for some time. The same holds for a gang that was deleted or
made smaller in time. Otherwise a namespace could keep capacity unused with a pod now and then,
under ever new names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from extender.cache.cluster import Cluster
from extender.cache.reservation_table import Reservation
from extender.durations import Backoff
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import PLACEHOLDER, Pod, PodUid, Shape, Status
from extender.ports import Clock
from extender.reservations.ledger import Ledger

#: A larger gang is left to the plan: reserving for it would keep kube-scheduler waiting.
MOST_MEMBERS = 1_000
#: The most nodes that are checked, and how many with free capacity are enough to choose from.
_MOST_NODES = 512
_CHOICE = 16
#: After so long, nodes that did not fit a whole gang are checked again.
_LOOK_AGAIN_S = 1.0
#: A pod that exists for so long is not arriving; a new leader does not know incomplete gangs.
#: Generous, because two clocks are compared: that of the API server and ours.
_ARRIVED_S = 60.0
#: How long nothing is reserved for a namespace after one of its gangs stayed incomplete.
DISTRUST_S = Backoff(first_s=10.0, longest_s=120.0)


@dataclass(slots=True)
class _Arrival:
    """A gang that arrives, with the placeholders for members that are still to come."""

    shape: Shape
    #: Placeholders that no member has taken over yet.
    placeholders: list[PodUid]
    min_member: int
    #: When the last member came.
    since_monotonic: float


class ArrivingGangs:
    """Admits gangs as they arrive; belongs to the event loop like the ledger."""

    def __init__(
        self,
        cluster: Cluster,
        ledger: Ledger,
        clock: Clock,
        *,
        grace_s: float,
    ) -> None:
        self._cluster = cluster
        self._table = cluster.reservations
        self._ledger = ledger
        self._clock = clock
        #: How long placeholders are kept after the last member came.
        self._grace_s = grace_s
        self._listeners: list[Callable[[GangKey], None]] = []
        self._arrivals: dict[GangKey, _Arrival] = {}
        #: Gangs that stayed incomplete.
        self._incomplete: set[GangKey] = set()
        #: Until when nothing is reserved for a namespace, and how often in a row.
        self._distrusted: dict[str, tuple[float, int]] = {}
        #: Until when nodes are not checked again for a gang that did not fit as a whole.
        self._full_until: dict[GangKey, float] = {}

    @property
    def backoffs(self) -> int:
        """The number of gangs and namespaces for which nothing is reserved for a while."""
        return len(self._full_until) + len(self._distrusted)

    def on_incomplete(self, listener: Callable[[GangKey], None]) -> None:
        """Call *listener* when no further member of a gang came in time."""
        self._listeners.append(listener)

    def admit(
        self, pod: Pod, group: PodGroup, queue: str, offered: Sequence[str]
    ) -> Reservation | None:
        """Reserve the minimum of a gang of which *pod* is the first to come."""
        allowance, needs = self._ledger.allowance, pod.requests * group.min_member
        if not self._may_arrive(pod, group) or not allowance.admits_gangs(queue):
            return None
        if not allowance.may_start(queue, group.namespace, needs):
            return None
        now = self._clock.monotonic()
        if now < self._full_until.get(group.key, now):
            return None
        nodes = self._nodes(pod.shape, group, offered)
        if nodes is None:
            # Its other members would try the same one after the other, for as long as it waits.
            self._full_until[group.key] = now + _LOOK_AGAIN_S
        if nodes is None or not self._ledger.reserve(pod, group.key, nodes[0], queue):
            return None
        allowance.spend(queue, needs)
        self._reserve_placeholders(pod, group, queue, nodes[1:])
        return self._table.of(pod.uid)

    def claim(self, pod: Pod, key: GangKey) -> Reservation | None:
        """Let *pod* take over a placeholder of its gang."""
        arrival = self._arrivals.get(key)
        if arrival is None or arrival.shape is not pod.shape:
            return None
        while arrival.placeholders:
            if self._ledger.take_over(arrival.placeholders[-1], pod):
                arrival.placeholders.pop()
                arrival.since_monotonic = self._clock.monotonic()
                break
            if self._table.of(arrival.placeholders[-1]) is not None:
                break  # the placeholder is there; the pod has another reservation, or is gone
            arrival.placeholders.pop()
        return self._table.of(pod.uid)

    def is_arriving(self, key: GangKey) -> bool:
        """Return whether placeholders are kept for members of a gang."""
        return key in self._arrivals

    def forget(self) -> None:
        """Forget all placeholders, because this replica does not lead; the ledger drops them."""
        self._arrivals.clear()
        self._incomplete.clear()
        self._distrusted.clear()
        self._full_until.clear()

    def settle(self) -> None:
        """Let members that the watch has shown take over placeholders, and release unneeded ones.

        Called before every snapshot.
        """
        for key in tuple(self._arrivals):
            for pod in self._cluster.pods_of(key):
                is_waiting = pod.status is Status.PENDING and not pod.gated
                if is_waiting and self._table.of(pod.uid) is None:
                    self.claim(pod, key)
            self._release_unneeded(key)
        self._incomplete = {key for key in self._incomplete if self._cluster.members(key)}
        now = self._clock.monotonic()
        self._full_until = {key: at for key, at in self._full_until.items() if at > now}
        for namespace, (until, _) in tuple(self._distrusted.items()):
            if now > until + DISTRUST_S.longest_s:
                del self._distrusted[namespace]

    def _may_arrive(self, pod: Pod, group: PodGroup) -> bool:
        key = group.key
        if group.min_member > MOST_MEMBERS or group.min_by_role or self._table.of_gang(key):
            return False
        if self._cluster.scheduled(key) or self._table.backs_off_for(key):
            return False
        if group.min_resources is not None and self._cluster.has_quotas(group.namespace):
            return False  # only a plan checks whether the quotas admit the whole gang
        must_be_complete = (
            key in self._incomplete
            or self._is_distrusted(group.namespace)
            or 0 < pod.created < self._clock.now() - _ARRIVED_S
        )
        return not must_be_complete or self._existing(key) >= group.min_member

    def _is_distrusted(self, namespace: str) -> bool:
        until, _ = self._distrusted.get(namespace, (float("-inf"), 0))
        return self._clock.monotonic() < until

    def _distrust(self, namespace: str, now: float) -> None:
        """Reserve nothing for gangs of *namespace* for a while, longer each time."""
        until, times = self._distrusted.pop(namespace, (now, 0))
        # Gangs that were admitted together and expired together count once.
        times = times if now < until else times + 1
        self._distrusted[namespace] = now + DISTRUST_S.delay_s(times), times

    def _nodes(self, shape: Shape, group: PodGroup, offered: Sequence[str]) -> list[str] | None:
        """Return nodes for the minimum, the fullest of the first that fit; None without."""
        slots: list[tuple[int, str]] = []
        found, count = 0, group.min_member
        rejected = self._cluster.rejected_nodes.of(group.key)
        for name in islice(offered, _MOST_NODES):
            free = self._ledger.capacity.slots(name, shape) or 0
            if free > 0 and name not in rejected:
                found += free
                slots.append((free, name))
            if found >= count and len(slots) >= _CHOICE:
                break
        if found < count:
            return None
        slots.sort()
        return [name for free, name in slots for _ in range(min(free, count))][:count]

    def _reserve_placeholders(
        self, pod: Pod, group: PodGroup, queue: str, nodes: Sequence[str]
    ) -> None:
        arrival = _Arrival(pod.shape, [], group.min_member, self._clock.monotonic())
        for number, node in enumerate(nodes):
            uid = PodUid(f"{PLACEHOLDER}{group.key}:{number}")
            to_come = replace(pod, uid=uid, name=f"{group.name}-to-come-{number}", refusal="")
            if self._ledger.reserve(to_come, group.key, node, queue):
                arrival.placeholders.append(uid)
        if arrival.placeholders:
            self._arrivals[group.key] = arrival

    def _release_unneeded(self, key: GangKey) -> None:
        arrival, group = self._arrivals[key], self._cluster.group(key)
        existing = self._existing(key)
        is_late = self._clock.monotonic() - arrival.since_monotonic > self._grace_s
        least = group.min_member if group else arrival.min_member
        wanted = least - existing if existing and not is_late else 0
        had_places = bool(arrival.placeholders)
        while len(arrival.placeholders) > max(0, wanted):
            self._table.release(arrival.placeholders.pop())
        is_done, is_short = not arrival.placeholders, is_late and existing < least
        if is_done:
            del self._arrivals[key]
        # A gang that is deleted or made smaller in time has left its capacity unused all the same.
        if is_short or (had_places and is_done and existing < arrival.min_member):
            self._distrust(key.partition("/")[0], self._clock.monotonic())
        if is_short:
            self._incomplete.add(key)
            for listener in self._listeners:
                listener(key)

    def _existing(self, key: GangKey) -> int:
        """Return the number of existing members; filter may have seen some before the watch."""
        unseen = (
            not each.pod.is_placeholder and self._cluster.pod(each.uid) is None
            for each in self._table.of_gang(key)
        )
        return self._cluster.members(key) + sum(unseen)
