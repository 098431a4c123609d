"""What saved objects lack that could change the plan made from them.

kubectl leaves out kinds that it was not asked for without a word, and a plan without them looks
just like one with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.cache.changes import Kind, kind_of
from extender.cli.show import count
from extender.model.gang import SHADOW, Gang, Phase, PodGroup
from extender.model.queue import Namespace, PriorityClass
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan
from extender.plan.policy.options import Policy
from extender.whatif.objects import Objects

#: The plugin that looks at quotas.
_NEEDS_QUOTAS = "resourcequota"
#: So many names are given.
_NAMED = 5


def missing(
    found: Objects,
    snapshot: Snapshot,
    plan: Plan,
    policy: Policy,
    *,
    budgets_are_gangs: bool = False,
) -> Iterator[str]:
    """Name each kind that *found* lacks and that could change *plan*, with what it would do."""
    items = [change.item for change in found.changes]
    kinds = {kind_of(item) for item in items}
    if snapshot.gangs and Kind.NODE not in kinds:
        yield "Nodes: without them nothing can start"
    known = {item.name for item in items if isinstance(item, Namespace)}
    if unknown := {gang.group.namespace for gang in snapshot.gangs.values()} - known:
        yield f"Namespaces ({_names(unknown)}): they say which queues their gangs use"
    classes = {item.name for item in items if isinstance(item, PriorityClass)}
    asked = {item.priority_class for item in items if isinstance(item, PodGroup)}
    if unknown := asked - classes - {""}:
        yield f"PriorityClasses ({_names(unknown)}): PodGroups name them and count as without one"
    if budgets_are_gangs and Kind.BUDGET not in kinds:
        where = {gang.group.namespace for gang in snapshot.gangs.values() if _names_none(gang)}
        if where:
            yield f"PodDisruptionBudgets ({_names(where)}): they make gangs of pods without a group"
    elif plan.evictions and Kind.BUDGET not in kinds:
        number = len(plan.evictions)
        who = f"{count(number, 'pod')} {'is' if number == 1 else 'are'} asked to leave"
        yield f"PodDisruptionBudgets: {who}, and a budget could forbid it"
    if Kind.QUOTA not in kinds and _NEEDS_QUOTAS in policy.plugins:
        states = snapshot.gangs.values()
        if unknown := {gang.group.namespace for gang in states if _is_judged_by_quotas(gang)}:
            what = "gangs there create pods that a quota might not admit"
            yield f"ResourceQuotas ({_names(unknown)}): {what}"


def _names_none(gang: Gang) -> bool:
    """Ask whether the pods of *gang* name no group."""
    return SHADOW in gang.group.name and gang.group.min_member == 1


def _is_judged_by_quotas(gang: Gang) -> bool:
    """Ask whether *gang* says what it needs, is not let in yet, and has not all of its pods."""
    group = gang.group
    is_outside = gang.problem is None and group.phase is Phase.PENDING
    return is_outside and group.min_resources is not None and len(gang.pods) < group.min_member


def _names(names: set[str]) -> str:
    ordered = sorted(names)
    more = [f"{len(ordered) - _NAMED} more"] if len(ordered) > _NAMED else []
    return ", ".join([*ordered[:_NAMED], *more])
