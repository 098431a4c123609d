"""What do we answer? Filter, prioritize and preempt, from the published plan and the live mirror.

Rule 1: nothing here plans, waits or does I/O; these calls sit in kube-scheduler's serial loop.
Rule 2: an answer is a subset of the question; where no node is left, every one has a reason.
Rule 3: the only trace a call leaves is tentative: a reservation that passed, moved or fell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from extender.cache.cluster import Cluster
from extender.cache.inflight import Reservation, Stage
from extender.cache.misfits import PASSED_OVER_S
from extender.cache.passers import Passers
from extender.model.gang import GangKey, PodGroup
from extender.model.membership import Membership
from extender.model.pod import Pod, PodUid
from extender.model.reason import Reason
from extender.model.resources import NOTHING
from extender.plan.decision import Plan, Standing
from extender.preemption import Preemption
from extender.promises.arrivals import Arrivals

#: kube-scheduler's scale for extenders goes from 0 to 10.
TOP_SCORE = 10


class Filtered(NamedTuple):
    """The nodes that remain, and the reason for each that does not."""

    nodes: Sequence[str]
    refused: Mapping[str, str] = {}
    #: passed, steered, or the word of the refusal; for metrics.
    outcome: str = "passed"


class Gate:
    """Stands between kube-scheduler and the nodes."""

    def __init__(
        self,
        cluster: Cluster,
        arrivals: Arrivals,
        plan: Callable[[], Plan],
        lost_its_node: Callable[[GangKey], None],
        prefer: str = "nothing",
    ) -> None:
        self._cluster = cluster
        self._inflight = cluster.inflight
        self._arrivals = arrivals
        self._plan = plan
        #: Told when a reservation could not be honoured, so that its gang is planned anew.
        self._lost_its_node = lost_its_node
        #: pack, spread or nothing: see the setting.
        self._prefer = prefer
        self._preemption = Preemption(cluster, plan)
        #: Pods we let pass, for a bind that is quicker than our watch.
        self.passers = Passers()
        #: Pods we refused: parked in kube-scheduler until somebody wakes them.
        self.parked: set[PodUid] = set()

    def filter(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        """Say which of the *offered* nodes *pod* may use now."""
        if _passes_through(pod, member):
            self.passers.note(pod, member)
            return Filtered(offered)
        if not member.named:
            return self._lone(pod, member, offered)
        reservation = self._inflight.of(pod.uid) or self._arrivals.claim(pod, member.key)
        if reservation is not None:
            return self._steer(pod, member, reservation, offered)
        group = self._cluster.group(member.key) or _unwritten(pod, member)
        if group is None or group.problem:
            return self._refuse(pod, offered, Reason.POD_GROUP_MISSING)
        return self._unpromised(pod, member, group, offered)

    def _unpromised(
        self, pod: Pod, member: Membership, group: PodGroup, offered: Sequence[str]
    ) -> Filtered:
        """Answer for a member no room is kept for: let it in now, if that delays nobody."""
        queue, problem = self._cluster.queue_of(group.namespace, group.queue)
        if problem is not None:
            return self._refuse(pod, offered, problem.reason)
        if self._cluster.seated(member.key) >= group.min_member:
            if self._arrivals.allowance.take(queue, pod.requests):
                return self._beside_reservations(pod, member, offered)
        elif self._is_undecided(member.key):
            place = self._arrivals.admit(pod, group, queue, offered, self._plan().fences)
            if place is not None:
                return self._steer(pod, member, place, offered)
        return self._refuse(pod, offered, self._why(member.key, group.min_member))

    def prioritize(self, pod: Pod, offered: Sequence[str]) -> dict[str, int]:
        """Prefer the reserved node, then what was configured, beside kube-scheduler's scores."""
        reservation = self._inflight.of(pod.uid)
        scores = self._scores(offered)
        if reservation is not None and reservation.node in scores:
            scores[reservation.node] = TOP_SCORE
        return scores

    def _scores(self, offered: Sequence[str]) -> dict[str, int]:
        """Score from the emptiest to the fullest, or the other way; small differences count."""
        if self._prefer == "nothing":
            return dict.fromkeys(offered, 0)
        full = {name: self._cluster.fullness(name) for name in offered}
        least, most = min(full.values(), default=0.0), max(full.values(), default=0.0)
        span = (most - least) or 1.0
        packs = self._prefer == "pack"
        return {
            name: round((TOP_SCORE - 1) * ((each - least) if packs else (most - each)) / span)
            for name, each in full.items()
        }

    def preempt(
        self, pod: Pod, member: Membership, victims: Mapping[str, Sequence[str]]
    ) -> dict[str, Sequence[str]]:
        """Keep the candidate nodes whose victims may go; none at all is a veto."""
        return self._preemption.judge(pod, member, victims)

    def _lone(self, pod: Pod, member: Membership, offered: Sequence[str]) -> Filtered:
        """Let an ordinary pod pass as if we were not there, if its queue may start pods now."""
        queue, problem = self._cluster.queue_of(pod.namespace, member.queue)
        if problem is not None:
            return self._refuse(pod, offered, problem.reason)
        # kube-scheduler chooses better than a promise made before it looked.
        was_promised = self._inflight.release(pod.uid)
        if not was_promised and not self._arrivals.allowance.take(queue, pod.requests):
            return self._refuse(pod, offered, self._why(member.key, 1))
        return self._beside_reservations(pod, member, offered)

    def _beside_reservations(
        self, pod: Pod, member: Membership, offered: Sequence[str]
    ) -> Filtered:
        """Pass every node on which *pod* leaves the room promised to others untouched."""
        fences = self._plan().fences
        promised = self._inflight.reserved_nodes()
        if not promised and not fences:
            return self._pass(pod, member, offered)
        nodes = [
            name
            for name in offered
            if (name not in promised and name not in fences) or self._has_room(pod, name)
        ]
        if not nodes:
            return self._refuse(pod, offered, Reason.BEHIND_IN_ORDER)
        return self._pass(pod, member, nodes, _refusals(offered, nodes, Reason.BEHIND_IN_ORDER))

    def _steer(
        self, pod: Pod, member: Membership, reservation: Reservation, offered: Sequence[str]
    ) -> Filtered:
        """Answer with the reserved node; if it is not on offer, move the reservation."""
        node = reservation.node
        if node not in offered:
            node = next((name for name in offered if self._has_room(pod, name)), "")
            if not node:
                self._cluster.misfits.note(pod.shape, reservation.node, PASSED_OVER_S)
                self._lost_its_node(reservation.gang)
                return self._refuse(pod, offered, Reason.NOT_ENOUGH_ROOM)
            self._inflight.move(pod.uid, node)
        self._inflight.advance(pod.uid, Stage.PASSED)
        self.parked.discard(pod.uid)
        self.passers.note(pod, member)
        # Why the others are left out matters only where no node is left.
        return Filtered((node,), outcome="steered")

    def _has_room(self, pod: Pod, name: str) -> bool:
        slots = self._cluster.slots(name, pod.shape, self._plan().fences.get(name, NOTHING))
        return slots is None or slots > 0  # None: kube-scheduler knows the node, we do not yet

    def _is_undecided(self, key: GangKey) -> bool:
        """Ask whether no plan has looked at the gang as a whole yet."""
        verdict = self._plan().verdicts.get(key)
        return verdict is None or verdict.reason is Reason.NOT_ENOUGH_MEMBERS

    def _why(self, key: GangKey, min_member: int) -> Reason:
        """Name the reason of a member without reservation; it may be newer than the plan."""
        if self._cluster.members(key) < min_member:
            return Reason.NOT_ENOUGH_MEMBERS
        verdict = self._plan().verdicts.get(key)
        if verdict is None or verdict.standing in (Standing.ADMITTED, Standing.RUNNING):
            return Reason.BEHIND_IN_ORDER
        return verdict.reason

    def _pass(
        self,
        pod: Pod,
        member: Membership,
        nodes: Sequence[str],
        refused: Mapping[str, str] | None = None,
    ) -> Filtered:
        self.parked.discard(pod.uid)
        self.passers.note(pod, member)
        return Filtered(nodes, refused or {})

    def _refuse(self, pod: Pod, offered: Sequence[str], reason: Reason) -> Filtered:
        self.parked.add(pod.uid)
        return Filtered((), dict.fromkeys(offered, reason.sentence), reason.value)


def _passes_through(pod: Pod, member: Membership) -> bool:
    """Ask whether *pod* is none of our business, or too important to wait for us."""
    return not pod.ours or bool(pod.node) or member.native or pod.is_critical


def _unwritten(pod: Pod, member: Membership) -> PodGroup | None:
    """Give the group that *pod* declares by itself, before the watch has shown it to us."""
    if member.min_member is None or member.problem:
        return None
    name = member.key.partition("/")[2]
    return PodGroup(
        namespace=pod.namespace, name=name, min_member=member.min_member, queue=member.queue
    )


def _refusals(offered: Sequence[str], kept: Sequence[str], reason: Reason) -> dict[str, str]:
    if len(offered) == len(kept):
        return {}
    keep = set(kept)
    return {name: reason.sentence for name in offered if name not in keep}
