"""May these pods be asked to leave? The last look before evictions go out.

The plan has asked all of this before. It is asked again here, from the objects alone and
whatever the policy file says, because an eviction cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from extender.model.gang import Gang
from extender.model.pod import ALLOCATED_SET, SEATED_SET, Pod, PodUid, Status
from extender.model.queue import share_name
from extender.model.snapshot import DisruptionBudget, Snapshot
from extender.plan.decision import Eviction
from extender.plan.plugins.pdb import covers

_FIRM = SEATED_SET | {Status.SUCCEEDED}


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """An eviction with the pod and the gang it concerns, as the snapshot has them."""

    eviction: Eviction
    gang: Gang
    pod: Pod


def find(evictions: Sequence[Eviction], snapshot: Snapshot) -> dict[PodUid, Victim]:
    """Look the pods of *evictions* up; those that are not in the snapshot are left out."""
    wanted = {eviction.uid: eviction for eviction in evictions}
    namespaces = {eviction.namespace for eviction in evictions}
    return {
        pod.uid: Victim(wanted[pod.uid], gang, pod)
        for gang in snapshot.gangs.values()
        if gang.group.namespace in namespaces
        for pod in gang.pods
        if pod.uid in wanted
    }


def objections(
    victims: Mapping[PodUid, Victim], snapshot: Snapshot, leaving: Set[PodUid] = frozenset()
) -> dict[PodUid, str]:
    """Say of each victim that may not be asked to leave, why; empty when all of them may.

    Those in *leaving* have been asked before and are as good as gone.
    """
    said = {uid: why for uid, victim in victims.items() if (why := _objection(victim, snapshot))}
    for gang, asked in _by_gang(victims.values()):
        if why := _tear(gang, {pod.uid for pod in asked} | leaving):
            said.update(dict.fromkeys((pod.uid for pod in asked), why))
    for budget in budgets_near(victims.values(), snapshot):
        said.update(_forbidden(budget, victims.values(), snapshot, leaving))
    return said


def exhausted(
    victims: Mapping[PodUid, Victim], snapshot: Snapshot, leaving: Set[PodUid] = frozenset()
) -> list[DisruptionBudget]:
    """List the budgets that cover some of *victims* and allow nobody at all."""
    return [
        budget
        for budget in budgets_near(victims.values(), snapshot)
        if any(_counts(budget, victim.pod) for victim in victims.values())
        and budget.allowed <= _asked_of(budget, snapshot, leaving)
    ]


def budgets_near(victims: Iterable[Victim], snapshot: Snapshot) -> list[DisruptionBudget]:
    """List the budgets of the namespaces that *victims* are in."""
    namespaces = {victim.pod.namespace for victim in victims}
    return [budget for budget in snapshot.budgets if budget.namespace in namespaces]


def _objection(victim: Victim, snapshot: Snapshot) -> str:
    pod = victim.pod
    if not pod.ours:
        return "it belongs to another scheduler"
    if pod.is_exempt:
        return pod.why_exempt
    if not pod.preemptable:
        return "it is marked as not preemptable"
    if pod.status not in SEATED_SET:
        return "it is not running"
    return _wrong_queue(victim, snapshot)


def _wrong_queue(victim: Victim, snapshot: Snapshot) -> str:
    claimant = snapshot.gangs.get(victim.eviction.beneficiary)
    if claimant is None:
        return "the gang that wanted its room is gone"
    same = claimant.queue == victim.gang.queue
    if victim.eviction.action == "preempt":
        return "" if same else f"preemption stays inside queue {claimant.queue}"
    if same:
        return (
            "" if _has_share(claimant, victim, snapshot) else "a queue does not reclaim from itself"
        )
    queue = snapshot.queues.get(victim.gang.queue)
    if queue is not None and not queue.reclaimable:
        return f"queue {queue.name} is not reclaimable"
    return ""


def _has_share(claimant: Gang, victim: Victim, snapshot: Snapshot) -> bool:
    """Ask whether the claimant's namespace has a part of the queue that is not the victim's."""
    namespace = claimant.group.namespace
    own = snapshot.shares.get(share_name(claimant.queue, namespace))
    return own is not None and bool(own.least) and namespace != victim.gang.group.namespace


def _by_gang(victims: Iterable[Victim]) -> list[tuple[Gang, list[Pod]]]:
    leaving: dict[str, tuple[Gang, list[Pod]]] = {}
    for victim in victims:
        leaving.setdefault(victim.gang.key, (victim.gang, []))[1].append(victim.pod)
    return list(leaving.values())


def _tear(gang: Gang, gone: Set[PodUid]) -> str:
    """Say what is wrong when a gang would go on with fewer members than it needs."""
    stays = [pod for pod in gang.pods if pod.uid not in gone]
    if not any(pod.status in ALLOCATED_SET for pod in stays):
        return ""
    # Promised members do not count: a promise may lapse.
    ready = [pod for pod in stays if pod.status in _FIRM]
    group = gang.group
    if len(ready) < group.min_member:
        return f"{len(ready)} of {group.min_member} needed members of {gang.key} would be left"
    for role, needed in group.role_minima.items():
        left = sum(pod.role == role for pod in ready)
        if left < needed:
            return f"{left} of {needed} needed {role} members of {gang.key} would be left"
    return ""


def _asked_of(budget: DisruptionBudget, snapshot: Snapshot, leaving: Set[PodUid]) -> int:
    """Count the pods that were asked to leave and that *budget* does not show yet."""
    return sum(
        pod.uid in leaving and pod.status in SEATED_SET and _counts(budget, pod)
        for gang in (snapshot.gangs.values() if leaving else ())
        if gang.group.namespace == budget.namespace
        for pod in gang.pods
    )


def _forbidden(
    budget: DisruptionBudget,
    victims: Iterable[Victim],
    snapshot: Snapshot,
    leaving: Set[PodUid],
) -> dict[PodUid, str]:
    """Name the victims beyond what *budget* allows; the others are no worse than any."""
    counted = [victim.pod.uid for victim in victims if _counts(budget, victim.pod)]
    if not counted:
        return {}
    left = max(0, budget.allowed - _asked_of(budget, snapshot, leaving))
    if len(counted) <= left:
        return {}
    why = (
        f"PodDisruptionBudget {budget.namespace}/{budget.name} allows {left}"
        f" disruptions, not {len(counted)}"
    )
    return dict.fromkeys(counted[left:], why)


def _counts(budget: DisruptionBudget, pod: Pod) -> bool:
    return pod.namespace == budget.namespace and covers(budget, pod)
