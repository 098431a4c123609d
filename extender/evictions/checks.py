"""The last check of victims before their evictions are sent.

The planner has checked all of this before. It is checked again here, from the objects alone and
regardless of the policy file, because an eviction cannot be undone.
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

_BOUND_OR_DONE = SCHEDULED_SET | {Status.SUCCEEDED}


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """An eviction with its pod and gang from the snapshot."""

    eviction: Eviction
    gang: Gang
    pod: Pod


def find(evictions: Sequence[Eviction], snapshot: Snapshot) -> dict[PodUid, Victim]:
    """Return the victims of *evictions*, without pods that are not in the snapshot."""
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
    victims: Mapping[PodUid, Victim], snapshot: Snapshot, in_progress: Set[PodUid] = frozenset()
) -> dict[PodUid, str]:
    """Return why victims may not be evicted, by uid; empty when all of them may.

    Pods in *in_progress* are being evicted and count as gone.
    """
    found = {uid: why for uid, victim in victims.items() if (why := _objection(victim, snapshot))}
    for gang, evicted in _by_gang(victims.values()):
        if why := _below_minimum(gang, gang.pods, {pod.uid for pod in evicted} | in_progress):
            found.update(dict.fromkeys((pod.uid for pod in evicted), why))
    budgets = budgets_of(snapshot)
    counted = _counted(budgets, victims.values())
    before = _pending(budgets, victims.values() if counted else (), snapshot, in_progress)
    for number, uids in counted.items():
        left = max(0, budgets[number].allowed - before[number])
        if len(uids) > left:
            # Victims within the budget are as good as any others.
            why = f"{budgets.title(number)} allows {left} disruptions, not {len(uids)}"
            found.update(dict.fromkeys(uids[left:], why))
    return found


def has_changed(
    victims: Mapping[PodUid, Victim],
    pending: PendingEvictions,
    in_progress: Set[PodUid] = frozenset(),
) -> bool:
    """Return whether a gang changed after the snapshot and would fall below its minimum."""
    return any(
        _below_minimum(
            gang,
            pending.meanwhile.pods_of(gang.key),
            {pod.uid for pod in evicted} | in_progress,
            pending.granted,
        )
        for gang, evicted in _by_gang(victims.values())
    )


def exhausted(
    victims: Mapping[PodUid, Victim], snapshot: Snapshot, in_progress: Set[PodUid] = frozenset()
) -> list[DisruptionBudget]:
    """Return the budgets that cover some of *victims* and allow no disruption at all."""
    budgets = budgets_of(snapshot)
    pending = _pending(budgets, victims.values(), snapshot, in_progress)
    return [
        budgets[number]
        for number in _counted(budgets, victims.values())
        if budgets[number].allowed <= pending[number] and not budgets.is_too_many(number)
    ]


def guarded(victims: Mapping[PodUid, Victim], snapshot: Snapshot) -> set[PodUid]:
    """Return the victims that some budget selects."""
    budgets = budgets_of(snapshot)
    return {uid for uid, victim in victims.items() if budgets.selecting(victim.pod)}


def budgets_about(pod: Pod, snapshot: Snapshot) -> list[DisruptionBudget]:
    """Return the budgets that select *pod*; none where there are too many."""
    budgets = budgets_of(snapshot)
    return [budgets[each] for each in budgets.selecting(pod) if not budgets.is_too_many(each)]


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
    beneficiary = snapshot.gangs.get(victim.eviction.beneficiary)
    if beneficiary is None:
        return "the gang that needs its capacity is gone"
    same = beneficiary.queue == victim.gang.queue
    if victim.eviction.action == "preempt":
        return "" if same else f"preemption stays inside queue {beneficiary.queue}"
    if same:
        return (
            ""
            if _has_share(beneficiary, victim, snapshot)
            else "a queue does not reclaim from itself"
        )
    queue = snapshot.queues.get(victim.gang.queue)
    if queue is not None and not queue.reclaimable:
        return f"queue {queue.name} is not reclaimable"
    return ""


def _has_share(beneficiary: Gang, victim: Victim, snapshot: Snapshot) -> bool:
    """Return whether the beneficiary's namespace, not the victim's, has a guarantee there."""
    namespace = beneficiary.group.namespace
    own = snapshot.shares.get(share_name(beneficiary.queue, namespace))
    return own is not None and bool(own.guarantee) and namespace != victim.gang.group.namespace


def _by_gang(victims: Iterable[Victim]) -> list[tuple[Gang, list[Pod]]]:
    gangs: dict[str, tuple[Gang, list[Pod]]] = {}
    for victim in victims:
        gangs.setdefault(victim.gang.key, (victim.gang, []))[1].append(victim.pod)
    return list(gangs.values())


def _below_minimum(
    gang: Gang, pods: Iterable[Pod], gone: Set[PodUid], granted: Granted = lambda *_: 0
) -> str:
    """Return an objection when a gang would run on below its minimum, else an empty text."""
    stays = [pod for pod in pods if pod.uid not in gone]
    if not any(pod.status in ALLOCATED_SET for pod in stays):
        return ""
    # Members with reservations do not count: a reservation may expire.
    ready = [pod for pod in stays if pod.status in _BOUND_OR_DONE]
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
    """Return the victims that count against each budget, in order."""
    counted: dict[int, list[PodUid]] = {}
    for victim in victims:
        for number in budgets.covering(victim.pod):
            counted.setdefault(number, []).append(victim.pod.uid)
    return dict(sorted(counted.items()))


def _pending(
    budgets: BudgetIndex, victims: Iterable[Victim], snapshot: Snapshot, in_progress: Set[PodUid]
) -> Counter[int]:
    """Count the evictions in progress that the status of each budget does not show yet."""
    namespaces = {victim.pod.namespace for victim in victims} if in_progress else set()
    return Counter(
        number
        for gang in (snapshot.gangs.values() if namespaces else ())
        if gang.group.namespace in namespaces
        for pod in gang.pods
        if pod.uid in in_progress and pod.status in SCHEDULED_SET
        for number in budgets.covering(pod)
    )
