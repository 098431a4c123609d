"""Gangs whose members are still being created: room for all of it before all of it exists.

A refusal is dear. kube-scheduler writes a condition and an event for it, we write a wake-up, and
the pod needs another turn. So the first member of a gang that comes to filter, while nobody waits
for the room, takes places for the whole minimum: its own, and *placeholders* that the members
after it take over as they come. The barrier holds them until the last one is there; if nobody
comes for a while, all of it is given back, and the gang is not let in so again before all of it
exists. Nor are others of its namespace for some time, also when it was deleted or made smaller
before that: whoever asks for room and leaves it unused would else keep his part of the cluster with
a pod now and then, under one name after the other.
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

#: A larger gang is left to the plan: taking its places would hold up kube-scheduler.
MOST_MEMBERS = 1_000
#: Nodes looked at before a gang is left to the plan, and how many with room are choice enough.
_MOST_NODES = 512
_CHOICE = 16
#: Where they had no room for all of a gang, they are looked at again after this.
_LOOK_AGAIN_S = 1.0
#: Who exists for so long is not arriving; whoever leads anew has given up nobody yet. Generous,
#: because it is the API server's clock and ours.
_ARRIVED_S = 60.0
#: How long nothing is kept for a namespace of which a gang did not come whole.
DISTRUST_S = Backoff(first_s=10.0, longest_s=120.0)


@dataclass(slots=True)
class _Arrival:
    """A gang that is coming: the places kept for members that are still to come."""

    shape: Shape
    #: Placeholders nobody has taken over yet.
    places: list[PodUid]
    min_member: int
    #: When the last member came.
    since_monotonic: float


class ArrivingGangs:
    """Lets gangs in as they arrive; belongs to the event loop like the ledger."""

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
        #: How long places are kept after the last member came.
        self._grace_s = grace_s
        self._listeners: list[Callable[[GangKey], None]] = []
        self._arrivals: dict[GangKey, _Arrival] = {}
        #: Gangs that did not come whole.
        self._given_up: set[GangKey] = set()
        #: Until when a namespace has nothing kept for members to come, and how often in a row.
        self._distrusted: dict[str, tuple[float, int]] = {}
        #: Until when no room is looked for that was not there for the whole of a gang.
        self._full_until: dict[GangKey, float] = {}

    def on_incomplete(self, listener: Callable[[GangKey], None]) -> None:
        """Call *listener* when no further member of a gang came in time."""
        self._listeners.append(listener)

    def admit(
        self, pod: Pod, group: PodGroup, queue: str, offered: Sequence[str]
    ) -> Reservation | None:
        """Take places for the minimum of a gang of which *pod* is the first to come."""
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
            # Its siblings would ask the same, one after the other, for as long as it waits.
            self._full_until[group.key] = now + _LOOK_AGAIN_S
        if nodes is None or not self._ledger.reserve(pod, group.key, nodes[0], queue):
            return None
        allowance.spend(queue, needs)
        self._keep(pod, group, queue, nodes[1:])
        return self._table.of(pod.uid)

    def claim(self, pod: Pod, key: GangKey) -> Reservation | None:
        """Let *pod* take over one of the places kept for its gang."""
        arrival = self._arrivals.get(key)
        if arrival is None or arrival.shape is not pod.shape:
            return None
        while arrival.places:
            if self._ledger.take_over(arrival.places[-1], pod):
                arrival.places.pop()
                arrival.since_monotonic = self._clock.monotonic()
                break
            if self._table.of(arrival.places[-1]) is not None:
                break  # the place is there; the pod has another one by now, or left
            arrival.places.pop()
        return self._table.of(pod.uid)

    def is_arriving(self, key: GangKey) -> bool:
        """Return whether places are kept for members of a gang that are still to come."""
        return key in self._arrivals

    def forget(self) -> None:
        """Keep no places any more, because we do not lead; the ledger drops what was promised."""
        self._arrivals.clear()
        self._given_up.clear()
        self._distrusted.clear()
        self._full_until.clear()

    def settle(self) -> None:
        """Return places to members the watch has shown, and give back what nobody will need.

        Called before every snapshot.
        """
        for key in tuple(self._arrivals):
            for pod in self._cluster.pods_of(key):
                is_waiting = pod.status is Status.PENDING and not pod.gated
                if is_waiting and self._table.of(pod.uid) is None:
                    self.claim(pod, key)
            self._give_back(key)
        self._given_up = {key for key in self._given_up if self._cluster.members(key)}
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
            return False  # whether they admit all of it only a plan asks
        is_doubted = (
            key in self._given_up
            or self._is_distrusted(group.namespace)
            or 0 < pod.created < self._clock.now() - _ARRIVED_S
        )
        return not is_doubted or self._here(key) >= group.min_member

    def _is_distrusted(self, namespace: str) -> bool:
        until, _ = self._distrusted.get(namespace, (float("-inf"), 0))
        return self._clock.monotonic() < until

    def _distrust(self, namespace: str, now: float) -> None:
        """Keep nothing for gangs of *namespace* for a while, the longer the more often."""
        until, times = self._distrusted.pop(namespace, (now, 0))
        # Gangs that were let in together and given up together are one time.
        times = times if now < until else times + 1
        self._distrusted[namespace] = now + DISTRUST_S.delay_s(times), times

    def _nodes(self, shape: Shape, group: PodGroup, offered: Sequence[str]) -> list[str] | None:
        """Choose nodes for the minimum, of the first that will do the fullest; None without."""
        slots: list[tuple[int, str]] = []
        found, count = 0, group.min_member
        barred = self._cluster.rejected_nodes.of(group.key)
        for name in islice(offered, _MOST_NODES):
            free = self._ledger.room.slots(name, shape) or 0
            if free > 0 and name not in barred:
                found += free
                slots.append((free, name))
            if found >= count and len(slots) >= _CHOICE:
                break
        if found < count:
            return None
        slots.sort()
        return [name for free, name in slots for _ in range(min(free, count))][:count]

    def _keep(self, pod: Pod, group: PodGroup, queue: str, nodes: Sequence[str]) -> None:
        arrival = _Arrival(pod.shape, [], group.min_member, self._clock.monotonic())
        for number, node in enumerate(nodes):
            uid = PodUid(f"{PLACEHOLDER}{group.key}:{number}")
            to_come = replace(pod, uid=uid, name=f"{group.name}-to-come-{number}", refusal="")
            if self._ledger.reserve(to_come, group.key, node, queue):
                arrival.places.append(uid)
        if arrival.places:
            self._arrivals[group.key] = arrival

    def _give_back(self, key: GangKey) -> None:
        arrival, group = self._arrivals[key], self._cluster.group(key)
        here = self._here(key)
        is_late = self._clock.monotonic() - arrival.since_monotonic > self._grace_s
        least = group.min_member if group else arrival.min_member
        wanted = least - here if here and not is_late else 0
        had_places = bool(arrival.places)
        while len(arrival.places) > max(0, wanted):
            self._table.release(arrival.places.pop())
        is_over, is_short = not arrival.places, is_late and here < least
        if is_over:
            del self._arrivals[key]
        # Who is deleted or made smaller in time has left the room unused no less.
        if is_short or (had_places and is_over and here < arrival.min_member):
            self._distrust(key.partition("/")[0], self._clock.monotonic())
        if is_short:
            self._given_up.add(key)
            for listener in self._listeners:
                listener(key)

    def _here(self, key: GangKey) -> int:
        """Count the members that exist; kube-scheduler may have shown us some before the watch."""
        unseen = (
            not each.pod.is_placeholder and self._cluster.pod(each.uid) is None
            for each in self._table.of_gang(key)
        )
        return self._cluster.members(key) + sum(unseen)
