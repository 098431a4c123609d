"""May these pods be asked to leave? The last look before evictions go out.

The plan has asked all of this before. It is asked again here, from the objects alone and
whatever the policy file says, because an eviction cannot be taken back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from extender.cache.gang_history import Granted, PendingEvictions
from extender.model.budgets import BudgetIndex, budgets_of
from extender.model.gang import Gang
from extender.model.pod import ALLOCATED_SET, SCHEDULED_SET, Pod, PodUid, Status
from extender.model.queue import share_name
from extender.model.snapshot import DisruptionBudget, Snapshot
from extender.planner.plan import Eviction

_FIRM = SCHEDULED_SET | {Status.SUCCEEDED}


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
        if why := _tear(gang, gang.pods, {pod.uid for pod in asked} | leaving):
            said.update(dict.fromkeys((pod.uid for pod in asked), why))
    budgets = budgets_of(snapshot)
    counted = _counted(budgets, victims.values())
    before = _asked(budgets, victims.values() if counted else (), snapshot, leaving)
    for number, uids in counted.items():
        left = max(0, budgets[number].allowed - before[number])
        if len(uids) > left:
            # Those within it are no worse than any.
            why = f"{budgets.title(number)} allows {left} disruptions, not {len(uids)}"
            said.update(dict.fromkeys(uids[left:], why))
    return said


def has_changed(
    victims: Mapping[PodUid, Victim], goodbyes: PendingEvictions, leaving: Set[PodUid] = frozenset()
) -> bool:
    """Ask whether a gang would be torn as it is by now: others join or leave it while we plan."""
    return any(
        _tear(
            gang,
            goodbyes.meanwhile.pods_of(gang.key),
            {pod.uid for pod in asked} | leaving,
            goodbyes.granted,
        )
        for gang, asked in _by_gang(victims.values())
    )


def exhausted(
    victims: Mapping[PodUid, Victim], snapshot: Snapshot, leaving: Set[PodUid] = frozenset()
) -> list[DisruptionBudget]:
    """List the budgets that cover some of *victims* and allow nobody at all."""
    budgets = budgets_of(snapshot)
    asked = _asked(budgets, victims.values(), snapshot, leaving)
    return [
        budgets[number]
        for number in _counted(budgets, victims.values())
        if budgets[number].allowed <= asked[number] and not budgets.is_crowd(number)
    ]


def guarded(victims: Mapping[PodUid, Victim], snapshot: Snapshot) -> set[PodUid]:
    """Name the victims about whom some budget has a say."""
    budgets = budgets_of(snapshot)
    return {uid for uid, victim in victims.items() if budgets.selecting(victim.pod)}


def budgets_about(pod: Pod, snapshot: Snapshot) -> list[DisruptionBudget]:
    """List the budgets that have a say about *pod*; none where they are too many to tell."""
    budgets = budgets_of(snapshot)
    return [budgets[each] for each in budgets.selecting(pod) if not budgets.is_crowd(each)]


def _objection(victim: Victim, snapshot: Snapshot) -> str:
    pod = victim.pod
    if not pod.ours:
        return "it belongs to another scheduler"
    if pod.is_exempt:
        return pod.why_exempt
    if not pod.preemptable:
        return "it is marked as not preemptable"
    if pod.status not in SCHEDULED_SET:
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
    return own is not None and bool(own.guarantee) and namespace != victim.gang.group.namespace


def _by_gang(victims: Iterable[Victim]) -> list[tuple[Gang, list[Pod]]]:
    leaving: dict[str, tuple[Gang, list[Pod]]] = {}
    for victim in victims:
        leaving.setdefault(victim.gang.key, (victim.gang, []))[1].append(victim.pod)
    return list(leaving.values())


def _tear(
    gang: Gang, pods: Iterable[Pod], gone: Set[PodUid], granted: Granted = lambda *_: 0
) -> str:
    """Say what is wrong when a gang would go on with fewer members than it needs."""
    stays = [pod for pod in pods if pod.uid not in gone]
    if not any(pod.status in ALLOCATED_SET for pod in stays):
        return ""
    # Promised members do not count: a promise may lapse.
    ready = [pod for pod in stays if pod.status in _FIRM]
    group = gang.group
    left = len(ready) - granted(gang.key, None, gone)
    if left < group.min_member:
        return f"{left} of {group.min_member} needed members of {gang.key} would be left"
    for role, needed in group.role_minima.items():
        left = sum(pod.role == role for pod in ready) - granted(gang.key, role, gone)
        if left < needed:
            return f"{left} of {needed} needed {role} members of {gang.key} would be left"
    return ""


def _counted(budgets: BudgetIndex, victims: Iterable[Victim]) -> dict[int, list[PodUid]]:
    """Name, for every budget of which they would use up some, the victims that do; in order."""
    counted: dict[int, list[PodUid]] = {}
    for victim in victims:
        for number in budgets.covering(victim.pod):
            counted.setdefault(number, []).append(victim.pod.uid)
    return dict(sorted(counted.items()))


def _asked(
    budgets: BudgetIndex, victims: Iterable[Victim], snapshot: Snapshot, leaving: Set[PodUid]
) -> Counter[int]:
    """Count the pods that were asked to leave and that their budgets do not show yet."""
    namespaces = {victim.pod.namespace for victim in victims} if leaving else set()
    return Counter(
        number
        for gang in (snapshot.gangs.values() if namespaces else ())
        if gang.group.namespace in namespaces
        for pod in gang.pods
        if pod.uid in leaving and pod.status in SCHEDULED_SET
        for number in budgets.covering(pod)
    )
