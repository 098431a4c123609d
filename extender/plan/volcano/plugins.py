"""Our plugins, deciding as Volcano's do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from extender.model.gang import Gang
from extender.model.pod import Pod, Status
from extender.model.queue import ROOT_QUEUE, Queue
from extender.model.reason import Problem, Reason
from extender.model.resources import Resources
from extender.model.snapshot import ResourceQuota
from extender.plan.arithmetic import Vector, exceeds_somewhere, within_somewhere
from extender.plan.plugin import Candidate, Claim, Plugin, View
from extender.plan.plugins.capacity import Capacity
from extender.plan.plugins.drf import Drf
from extender.plan.plugins.gang import GangMinimum
from extender.plan.plugins.pdb import Pdb
from extender.plan.plugins.proportion import Proportion
from extender.plan.plugins.resourcequota import NamespaceQuota, stated
from extender.plan.queues import limits
from extender.plan.queues.entitlement import Entitlement, Entitlements
from extender.plan.room.state import GangState, QueueUse
from extender.plan.volcano import deserved

#: Shares closer than this are the same to Volcano.
_SAME = 1e-6


class VolcanoGang(GangMinimum):
    """Gated members may complete a gang, and no gang goes below its minimum."""

    def _coming(self, gang: GangState) -> Sequence[Pod]:
        return gang.gang.by_status.get(Status.PENDING, ())

    def preemptable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
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
    """Shares are compared with a tolerance, and those it lets stay count as gone, too."""

    _counts_all_as_gone = True
    _same = _SAME

    def _is_fair(self, claimed: float, left: float) -> bool:
        return claimed < left + _SAME


class VolcanoPdb(Pdb):
    """Pods without labels stay, and a budget with an empty selector selects nobody."""

    def preemptable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Leave pods without labels out of the victims."""
        return super().preemptable(claim, [one for one in candidates if one.pod.labels])

    reclaimable = preemptable

    def _budgets_of(self, pod: Pod) -> Sequence[int]:
        budgets = self._budgets
        found = budgets.covering(pod)
        return [each for each in found if budgets.is_crowd(each) or budgets[each].selector]


class VolcanoProportion(Proportion):
    """Dues converge, and what a queue gives counts down until it has no more than its due."""

    @cached_property
    def _limits(self) -> Mapping[str, Vector]:
        return _real_capabilities(self.session)

    def reclaimable(self, claim: Claim, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Allow victims of queues that use more than they deserve."""
        rest: dict[str, Resources] = {}
        allowed = []
        for candidate in candidates:
            queue = candidate.gang.queue
            used = rest.setdefault(queue.name, queue.allocated)
            if not self._maths.within(used, self.deserved(queue)):
                rest[queue.name] = used - candidate.pod.requests
                allowed.append(candidate)
        return allowed

    def _divide(self, queues: Mapping[str, QueueUse]) -> dict[str, Vector]:
        wants = {
            name: deserved.Wants(
                weight=state.queue.weight,
                requested=state.requested,
                ceiling=self._limits[name],
                guarantee=state.queue.guarantee,
            )
            for name, state in queues.items()
        }
        return deserved.divide(self.session.total, wants)


class VolcanoQuota(NamespaceQuota):
    """All of what a group says it needs is asked for, as if none of its pods existed yet.

    Scopes are not looked at, and gangs let in by an earlier cycle are forgotten.
    """

    def _is_awaited(self, gang: Gang) -> bool:
        return False

    def _concerns(self, quota: ResourceQuota) -> bool:
        return True

    def _asked(self, gang: Gang, names: Iterable[str]) -> Resources:
        return Resources({name: stated(gang, name) for name in names}).positive()


class VolcanoEntitlements(Entitlements):
    """Inner queues keep the share they had, and one queue in a wrong place stops all."""

    def _is_live(self, *, is_leaf: bool) -> bool:
        return is_leaf

    def _ceilings(self) -> Mapping[str, Vector]:
        return _real_capabilities(self._session)

    def _check(self) -> dict[str, Problem]:
        broken = super()._check()
        if not broken and ROOT_QUEUE in self._all:
            return {}
        no_root = Problem(Reason.QUEUE_NOT_FOUND, "there is no queue named root")
        return dict.fromkeys(self._all, next(iter(broken.values()), no_root))

    def _is_at_top(self, queue: Queue) -> bool:
        return False


class VolcanoCapacity(Capacity):
    """A due that holds in one resource of several is met, and is never a limit by itself."""

    _entitlements = VolcanoEntitlements

    def _keeps_to_due(self, queue: QueueUse) -> bool:
        return False

    def _is_due(self, entitled: Entitlement, asked: Resources) -> bool:
        after = entitled.used + asked
        return within_somewhere(self._maths, after, entitled.deserved, asked)

    def _has_too_much(self, entitled: Entitlement, rest: Resources, given: Resources) -> bool:
        if not self._concerns(given, entitled.deserved):
            return True
        return exceeds_somewhere(self._maths, rest, entitled.deserved, given)


def _real_capabilities(session: View) -> Mapping[str, Vector]:
    """Give what every queue may use by itself, whatever is above it."""
    states = session.queues.values()
    kept = limits.reserved(state.queue for state in states)
    return {each.name: limits.real_capability(each.queue, session.total, kept) for each in states}


PLUGINS: Mapping[str, type[Plugin]] = {
    "capacity": VolcanoCapacity,
    "drf": VolcanoDrf,
    "gang": VolcanoGang,
    "pdb": VolcanoPdb,
    "proportion": VolcanoProportion,
    "resourcequota": VolcanoQuota,
}
