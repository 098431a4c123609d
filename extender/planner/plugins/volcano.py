"""Our plugins with Volcano's decisions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from extender.model.gang import Gang
from extender.model.pod import Pod, Status
from extender.model.queue import ROOT_QUEUE, Queue
from extender.model.reason import Problem, Reason
from extender.model.resources import CPU, MEMORY, PODS, Resources, total
from extender.model.snapshot import ResourceQuota
from extender.planner.plugin import Plugin, Preemptor, VictimCandidate, View
from extender.planner.plugins.admission import NamespaceQuota, stated
from extender.planner.plugins.capacity import Capacity, Entitlement, Entitlements
from extender.planner.plugins.drf import Drf
from extender.planner.plugins.gangs import GangMinimum, Pdb
from extender.planner.plugins.proportion import Proportion
from extender.planner.policy import (
    VOLCANO_ARITHMETIC,
    WHOLE_UNITS,
    Vector,
    exceeds_somewhere,
    within_somewhere,
)
from extender.planner.state import GangState, QueueUsage

#: Volcano takes an amount below this, in its own units, for zero.
_EMPTY = VOLCANO_ARITHMETIC.tolerance


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """What one queue requests of the cluster, and the bounds of what it gets."""

    weight: int
    requested: Vector
    ceiling: Vector
    guarantee: Vector


def divide(total: Vector, queues: Mapping[str, QueueRequest]) -> dict[str, Vector]:
    """Divide what remains by weight until nothing changes."""
    raw = {
        name: QueueRequest(
            request.weight, _raw(request.requested), _raw(request.ceiling), _raw(request.guarantee)
        )
        for name, request in queues.items()
    }
    deserved: dict[str, dict[str, float]] = {name: {CPU: 0.0, MEMORY: 0.0} for name in queues}
    remaining = {CPU: 0.0, MEMORY: 0.0} | _raw(total)
    met: set[str] = set()
    while weights := sum(request.weight for name, request in raw.items() if name not in met):
        before = remaining
        # Added up separately, as Volcano does: a single sum would round differently.
        increase: dict[str, float] = defaultdict(float)
        decrease: dict[str, float] = defaultdict(float)
        for name, request in raw.items():
            if name in met:
                continue
            old = deserved[name]
            new = deserved[name] = _raise(old, before, request, request.weight / weights)
            if _within(request.requested, new) or new == old:
                met.add(name)
            for each in {*old, *new}:
                change = new.get(each, 0.0) - old.get(each, 0.0)
                (increase if change > 0 else decrease)[each] += abs(change)
        remaining = {
            name: max(0.0, amount + decrease[name] - increase[name])
            for name, amount in before.items()
        }
        if remaining == before or _is_empty(remaining):
            break
    return {name: _natural(vector) for name, vector in deserved.items()}


def _raise(
    old: Mapping[str, float], remaining: Mapping[str, float], request: QueueRequest, part: float
) -> dict[str, float]:
    new = dict(old)
    for name, amount in remaining.items():
        new[name] = new.get(name, 0.0) + amount * part
    for name, amount in new.items():
        ceiling = request.ceiling.get(name, 0.0 if name in (CPU, MEMORY) else amount)
        new[name] = min(amount, ceiling, request.requested.get(name, 0.0))
    for name, amount in request.guarantee.items():
        new[name] = max(new.get(name, 0.0), amount)
    return new


def _within(left: Vector, right: Vector) -> bool:
    return all(
        amount < right.get(name, 0.0) or abs(amount - right.get(name, 0.0)) < _EMPTY
        for name, amount in left.items()
    )


def _is_empty(vector: Vector) -> bool:
    return all(amount < _EMPTY or name == PODS for name, amount in vector.items())


def _raw(vector: Vector) -> dict[str, float]:
    """Convert to Volcano's units."""
    return {n: float(amount) * (1 if n in WHOLE_UNITS else 1000) for n, amount in vector.items()}


def _natural(vector: Vector) -> dict[str, float]:
    return {n: amount / (1 if n in WHOLE_UNITS else 1000) for n, amount in vector.items()}


#: Shares closer than this are equal to Volcano.
_SAME = 1e-6


class VolcanoGang(GangMinimum):
    """Gated members may complete a gang, and no gang goes below its minimum."""

    def _could_complete(self, gang: GangState) -> Sequence[Pod]:
        return gang.gang.by_status.get(Status.PENDING, ())

    def preemptable(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Take from each gang, in the order given, as many as it has beyond its minimum."""
        left: dict[str, int] = {}
        allowed = []
        for candidate in candidates:
            gang = candidate.gang
            ready = left.setdefault(gang.key, gang.ready)
            if ready > gang.min_member:
                left[gang.key] = ready - 1
                allowed.append(candidate)
        return allowed

    reclaimable = preemptable


class VolcanoDrf(Drf):
    """Shares are compared with a tolerance, and candidates that stay count as gone too."""

    _counts_all_as_gone = True
    _same = _SAME

    def _is_fair(self, with_pod: float, left: float) -> bool:
        return with_pod < left + _SAME


class VolcanoPdb(Pdb):
    """Pods without labels stay, and a budget with an empty selector selects no pod."""

    def preemptable(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Leave pods without labels out of the victims."""
        return super().preemptable(preemptor, [one for one in candidates if one.pod.labels])

    reclaimable = preemptable

    def _budgets_of(self, pod: Pod) -> Sequence[int]:
        budgets = self._budgets
        found = budgets.covering(pod)
        return [each for each in found if budgets.is_too_many(each) or budgets[each].selector]


class VolcanoProportion(Proportion):
    """Deserved amounts converge, and a queue loses pods until it is within its own."""

    @cached_property
    def _limits(self) -> Mapping[str, Vector]:
        return _real_capabilities(self.session)

    def reclaimable(
        self, preemptor: Preemptor, candidates: Sequence[VictimCandidate]
    ) -> list[VictimCandidate]:
        """Allow victims of queues that use more than they deserve."""
        rest: dict[str, Resources] = {}
        allowed = []
        for candidate in candidates:
            queue = candidate.gang.queue
            used = rest.setdefault(queue.name, queue.allocated)
            if not self._arithmetic.within(used, self.deserved(queue)):
                rest[queue.name] = used - candidate.pod.requests
                allowed.append(candidate)
        return allowed

    def _divide(self, queues: Mapping[str, QueueUsage]) -> dict[str, Vector]:
        request = {
            name: QueueRequest(
                weight=state.queue.weight,
                requested=state.requested,
                ceiling=self._limits[name],
                guarantee=state.queue.guarantee,
            )
            for name, state in queues.items()
        }
        return divide(self.session.total, request)


class VolcanoQuota(NamespaceQuota):
    """All of `minResources` is requested, as if none of the gang's pods existed yet.

    Scopes are ignored, and so are gangs that an earlier cycle admitted.
    """

    def _is_incomplete(self, gang: Gang) -> bool:
        return False

    def _applies(self, quota: ResourceQuota) -> bool:
        return True

    def _missing_requests(self, gang: Gang, names: Iterable[str]) -> Resources:
        return Resources({name: stated(gang, name) for name in names}).positive()


class VolcanoEntitlements(Entitlements):
    """Inner queues keep the share they had, and one misplaced queue stops all."""

    def _is_live(self, *, is_leaf: bool) -> bool:
        return is_leaf

    def _ceilings(self) -> Mapping[str, Vector]:
        return _real_capabilities(self._session)

    def _check(self) -> dict[str, Problem]:
        misplaced = super()._check()
        if not misplaced and ROOT_QUEUE in self._all:
            return {}
        no_root = Problem(Reason.QUEUE_NOT_FOUND, "there is no queue named root")
        return dict.fromkeys(self._all, next(iter(misplaced.values()), no_root))

    def _is_at_top(self, queue: Queue) -> bool:
        return False


class VolcanoCapacity(Capacity):
    """A deserved amount met in one resource is met, and is never a limit by itself."""

    _entitlements = VolcanoEntitlements

    def _keeps_to_deserved(self, queue: QueueUsage) -> bool:
        return False

    def _stays_within_deserved(self, entitled: Entitlement, requested: Resources) -> bool:
        after = entitled.used + requested
        return within_somewhere(self._arithmetic, after, entitled.deserved, requested)

    def _has_too_much(self, entitled: Entitlement, rest: Resources, released: Resources) -> bool:
        if not self._names_any(released, entitled.deserved):
            return True
        return exceeds_somewhere(self._arithmetic, rest, entitled.deserved, released)


def _real_capabilities(session: View) -> Mapping[str, Vector]:
    """Return what every queue may use by itself, whatever is above it."""
    states = session.queues.values()
    others = session.total.beyond(total(each.queue.reserved for each in states))
    return {
        each.name: (others + each.queue.reserved).at_most(each.queue.ceiling) for each in states
    }


PLUGINS: Mapping[str, type[Plugin]] = {
    "capacity": VolcanoCapacity,
    "drf": VolcanoDrf,
    "gang": VolcanoGang,
    "pdb": VolcanoPdb,
    "proportion": VolcanoProportion,
    "resourcequota": VolcanoQuota,
}
