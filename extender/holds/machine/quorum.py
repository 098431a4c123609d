"""Are there enough members, in total and of each role?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from operator import attrgetter
from typing import TypeAlias

from extender.holds.machine.assembly import Assembly, Hold, Seats
from extender.holds.machine.messages import Facts
from extender.model.gang import PodGroup
from extender.model.pod import Pod, PodUid, Status

_PROMISE = attrgetter("uid", "min_member", "min_by_role", "problem")


def is_same_promise(one: PodGroup | None, other: PodGroup | None) -> bool:
    """Ask whether nothing changed that a gang is judged by; most changes are of status only."""
    if one is None or other is None:
        return one is other
    return _PROMISE(one) == _PROMISE(other)


def seats(group: PodGroup, facts: Facts) -> Seats:
    """Count the members on a node."""
    key = group.key
    return Seats(
        facts.seated(key),
        {role: facts.seated_in_role(key, role) for role in group.role_minima},
    )


def is_satisfied(group: PodGroup, seated: Seats) -> bool:
    """Ask whether the gang runs already, so that further members need not wait."""
    return _are_enough(group, (), seated)


def is_reached(group: PodGroup, holds: Collection[Hold], seated: Seats) -> bool:
    """Ask whether seated and held members together are enough; none of *holds* may be seated."""
    return _are_enough(group, [hold.role for hold in holds], seated)


#: A PodGroup as somebody showed it, and who sits already by its roles.
Demand: TypeAlias = tuple[PodGroup, Seats]


def needed(demands: Iterable[Demand], holds: Collection[Hold]) -> tuple[Hold, ...]:
    """Give those of *holds* who make the gang whole, by all of *demands*."""
    found: dict[PodUid, Hold] = {}
    for group, seated in demands:
        found |= {hold.uid: hold for hold in _needed(group, holds, seated)}
    return tuple(found.values())


def _needed(group: PodGroup, holds: Iterable[Hold], seated: Seats) -> list[Hold]:
    missing = {
        role: max(0, least - seated.by_role[role]) for role, least in group.role_minima.items()
    }
    needed: list[Hold] = []
    others: list[Hold] = []
    for hold in holds:
        is_missing = missing.get(hold.role, 0) > 0
        if is_missing:
            missing[hold.role] -= 1
        (needed if is_missing else others).append(hold)
    free = max(0, group.min_member - seated.total - len(needed))
    return [*needed, *others[:free]]


def is_complete(assembly: Assembly, stayed: Iterable[PodUid]) -> bool:
    """Ask whether those of the bound who *stayed* are enough beside who was there before."""
    roles = [assembly.bound[uid] for uid in stayed]
    return _are_enough(assembly.group, roles, assembly.seated_before)


def _are_enough(group: PodGroup, coming: Collection[str], seated: Seats) -> bool:
    if seated.total + len(coming) < group.min_member:
        return False
    roles = Counter(coming if group.role_minima else ())
    return all(
        seated.by_role[role] + roles[role] >= least for role, least in group.role_minima.items()
    )


def is_within_reach(assembly: Assembly, facts: Facts) -> bool:
    """Ask whether the members that exist could still be enough."""
    hopeful = [pod.role for pod in facts.pods_of(assembly.key) if may_come(pod, assembly)]
    nobody = Seats(0, dict.fromkeys(assembly.group.role_minima, 0))
    return _are_enough(assembly.group, hopeful, nobody)


def may_come(pod: Pod, assembly: Assembly) -> bool:
    """Ask whether a member is seated, or may yet come to the barrier."""
    if pod.status is Status.FAILED or pod.status is Status.RELEASING or pod.gated:
        return False
    return pod.uid not in assembly.stuck


def waits_for_victims(pod: Pod, facts: Facts) -> bool:
    """Ask whether kube-scheduler did find a node for a pod, and only waits for others to leave it.

    It nominates the pod there in the same write that says it fits no node now. A nomination to the
    reserved node is our own, written to wake the pod; so is one that comes later.
    """
    return bool(pod.nominated) and pod.nominated != facts.reserved_node(pod.uid)
