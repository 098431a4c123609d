"""Gangs whose members are still being created: room for all of it before all of it exists.

A refusal is dear. kube-scheduler writes a condition and an event for it, we write a wake-up, and
the pod needs another turn. So the first member of a gang that comes to filter, while nobody waits
for the room, takes places for the whole minimum: its own, and *spares* that the members after it
take over as they come. The barrier holds them until the last one is there; if nobody comes for a
while, all of it is given back, and the gang is not let in so again before more of it exists.

Hooks and the planning thread both come here; every step is one operation of a dict, a list or
the table of promises, so nobody waits for anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from extender.cache.cluster import Cluster
from extender.cache.inflight import Reservation
from extender.model.gang import GangKey, PodGroup
from extender.model.pod import SPARE, Pod, PodUid, Shape, Status
from extender.model.resources import NOTHING, Resources
from extender.plan.decision import OpenQueue, Plan
from extender.ports import Clock

#: A larger gang is left to the plan: taking its places would hold up kube-scheduler.
MOST_MEMBERS = 1_000
#: Nodes looked at before a gang is left to the plan, and how many with room are choice enough.
_MOST_NODES = 512
_CHOICE = 16


class Allowance:
    """How much each queue may still take before the next plan has counted it."""

    def __init__(self) -> None:
        self._queues: Mapping[str, OpenQueue] = {}
        self._spent: dict[str, Resources] = {}
        self._spent_before: dict[str, Resources] = {}

    def welcomes_gangs(self, queue: str) -> bool:
        """Ask whether a gang may start in *queue* without waiting for a plan."""
        return queue in self._queues and self._queues[queue].is_quiet

    def take(self, queue: str, amounts: Resources) -> bool:
        """Spend *amounts*; False, and nothing is spent, when that is more than is left."""
        if queue not in self._queues:
            return False
        left = self._queues[queue].left
        if left is None:
            return True
        spent = self._spent.get(queue, NOTHING) + amounts
        if not (spent + self._spent_before.get(queue, NOTHING)).fits_in(left):
            return False
        self._spent[queue] = spent
        return True

    def counting(self) -> None:
        """Hear that a snapshot is being taken: it shows what was spent until now."""
        self._spent_before, self._spent = self._spent, {}

    def renew(self, plan: Plan) -> None:
        """Begin anew with what *plan* leaves, less what was spent since its snapshot."""
        self._queues, self._spent_before = plan.open_queues, {}


@dataclass(slots=True)
class _Spares:
    """Places kept for members of one gang that are still to come."""

    shape: Shape
    uids: list[PodUid]
    min_member: int
    since_monotonic: float


class Arrivals:
    """Lets gangs in as they arrive."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        grace_s: float,
        still_incomplete: Callable[[GangKey], None] = lambda gang: None,
    ) -> None:
        self._cluster = cluster
        self._inflight = cluster.inflight
        self._clock = clock
        #: How long places are kept after the last member came.
        self._grace_s = grace_s
        #: Told when no further member of a gang came in time.
        self._still_incomplete = still_incomplete
        self._spares: dict[GangKey, _Spares] = {}
        #: Gangs that did not come whole, with how many of each existed then.
        self._given_up: dict[GangKey, int] = {}
        self.allowance = Allowance()
        #: Nodes on which places were taken since the last snapshot.
        self.taken: set[str] = set()

    def admit(
        self,
        pod: Pod,
        group: PodGroup,
        queue: str,
        offered: Sequence[str],
        fences: Mapping[str, Resources],
    ) -> Reservation | None:
        """Take places for the minimum of a gang of which *pod* is the first to come."""
        key, count, now = group.key, group.min_member, self._clock.monotonic()
        if count > MOST_MEMBERS or group.min_by_role or self._inflight.of_gang(key):
            return None
        if not self.allowance.welcomes_gangs(queue) or self._cluster.seated(key):
            return None
        if self._inflight.backing_off_until(key) > self._clock.now():
            return None
        if self._here(key) <= self._given_up.get(key, -1):
            return None
        places = self._places(pod.shape, count, offered, fences)
        if places is None or not self.allowance.take(queue, pod.requests * count):
            return None
        self.taken.update(places)
        if not self._inflight.reserve(pod, key, places[0], now):
            return None
        self._keep(pod, group, places[1:], now)
        return self._inflight.of(pod.uid)

    def claim(self, pod: Pod, key: GangKey) -> Reservation | None:
        """Let *pod* take over one of the places kept for its gang."""
        spares = self._spares.get(key)
        if spares is None or spares.shape is not pod.shape:
            return None
        while (uid := _pop(spares.uids)) is not None:
            if self._inflight.take_over(uid, pod):
                spares.since_monotonic = self._clock.monotonic()
                break
            if self._inflight.of(uid) is not None:
                # Not the place is gone: the pod has one by now, from the other thread, or left.
                spares.uids.append(uid)
                break
        return self._inflight.of(pod.uid)

    def is_arriving(self, key: GangKey) -> bool:
        """Ask whether places are kept for members of a gang that are still to come."""
        return key in self._spares

    def settle(self) -> list[Reservation]:
        """Give spares to members the watch has shown, and give back what nobody will need.

        Called before every snapshot; gives the places that were taken over.
        """
        claimed = []
        for key in tuple(self._spares):
            for pod in self._cluster.pods_of(key):
                is_waiting = pod.status is Status.PENDING and not pod.gated
                if is_waiting and self._inflight.of(pod.uid) is None:
                    place = self.claim(pod, key)
                    claimed += [place] if place else []
            self._give_back(key)
        for key in tuple(self._given_up):
            if not self._cluster.members(key):
                del self._given_up[key]
        self.allowance.counting()
        self.taken.clear()
        return claimed

    def _places(
        self, shape: Shape, count: int, offered: Sequence[str], fences: Mapping[str, Resources]
    ) -> list[str] | None:
        """Choose nodes for *count* pods, of the first that will do the fullest; None without."""
        slots: list[tuple[int, str]] = []
        found = 0
        for name in islice(offered, _MOST_NODES):
            free = self._cluster.slots(name, shape, fences.get(name, NOTHING)) or 0
            if free > 0:
                free = 1 if shape.host_ports else free
                found += free
                slots.append((free, name))
            if found >= count and len(slots) >= _CHOICE:
                break
        if found < count:
            return None
        slots.sort()
        return [name for free, name in slots for _ in range(min(free, count))][:count]

    def _keep(self, pod: Pod, group: PodGroup, places: Sequence[str], now: float) -> None:
        spares = _Spares(pod.shape, [], group.min_member, now)
        for number, node in enumerate(places):
            uid = PodUid(f"{SPARE}{group.key}:{number}")
            spare = replace(pod, uid=uid, name=f"{group.name}-to-come-{number}", refusal="")
            if self._inflight.reserve(spare, group.key, node, now):
                spares.uids.append(spare.uid)
        if spares.uids:
            self._spares[group.key] = spares

    def _give_back(self, key: GangKey) -> None:
        spares, group = self._spares[key], self._cluster.group(key)
        here = self._here(key)
        is_late = self._clock.monotonic() - spares.since_monotonic > self._grace_s
        least = group.min_member if group else spares.min_member
        wanted = least - here if here and not is_late else 0
        while len(spares.uids) > max(0, wanted) and (uid := _pop(spares.uids)) is not None:
            self._inflight.release(uid)
        if not spares.uids:
            del self._spares[key]
        if is_late and here < least:
            self._given_up[key] = here
            self._still_incomplete(key)

    def _here(self, key: GangKey) -> int:
        """Count the members that exist; kube-scheduler may have shown us some before the watch."""
        unseen = (
            not each.pod.is_spare and self._cluster.pod(each.uid) is None
            for each in self._inflight.of_gang(key)
        )
        return self._cluster.members(key) + sum(unseen)


def _pop(uids: list[PodUid]) -> PodUid | None:
    """Take one, if the other thread was not quicker."""
    try:
        return uids.pop()
    except IndexError:
        return None
