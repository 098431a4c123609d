"""PodDisruptionBudgets as gangs, kube-batch's old way: opt-in, for pods that name no group.

Who runs a set of pods of which at least so many must be up has often said so already, in a budget.
With the setting, such pods are a gang of that size: `minAvailable` is its `minMember`. kube-batch
took the budget's owner for the gang; most budgets have none, but all have a selector, so that
decides here.

Only a whole number makes a gang, as there. A percentage is one of pods that may not exist yet, and
`maxUnavailable` says nothing of how many must start together; such budgets leave pods as they are.
"""

from __future__ import annotations

from dataclasses import replace

from extender.model.gang import SHADOW, GangKey, Membership
from extender.model.pod import Pod
from extender.model.snapshot import DisruptionBudget
from extender.plan.budgets import selects

#: Before the name of a budget, as the kind of a controller stands before its name.
KIND = "poddisruptionbudget"


class BudgetGangs:
    """Answers from what was heard of budgets; replaced as a whole by namespace, for readers."""

    def __init__(self) -> None:
        #: Those that say how many must be up, by namespace, the first choice first.
        self._budgets: dict[str, tuple[DisruptionBudget, ...]] = {}

    def change(self, old: DisruptionBudget | None, new: DisruptionBudget | None) -> str:
        """Take a change in; name the namespace whose pods it may move, empty when it moves none."""
        before, after = _speaks(old), _speaks(new)
        changed = old or new
        if before == after or changed is None:
            return ""
        others = [
            each for each in self._budgets.get(changed.namespace, ()) if each.name != changed.name
        ]
        if after is not None and new is not None:
            others.append(new)
        # The largest counts, like the highest number where pods disagree; then the first by name.
        others.sort(key=lambda budget: (-(budget.least or 0), budget.name))
        if others:
            self._budgets[changed.namespace] = tuple(others)
        else:
            self._budgets.pop(changed.namespace, None)
        return changed.namespace

    def membership(self, pod: Pod, member: Membership) -> Membership:
        """Give the gang of *pod*, which by itself is a *member* of a group or of none."""
        near = self._budgets.get(pod.namespace)
        if not near or member.named or member.native or not pod.ours or pod.exempt:
            return member
        found = [budget for budget in near if selects(budget.selector, pod.labels)]
        if not found:
            return member
        first = found[0]
        if first.least is None:
            said = f"its minAvailable is {first.part}, and only a whole number makes one"
            remark = f"PodDisruptionBudget {first.name} makes no gang of it: {said}"
            return replace(member, remark=remark)
        remark = f"its minimum is minAvailable of PodDisruptionBudget {first.name}"
        if others := [each.name for each in found[1:] if each.least is not None]:
            remark += f", the largest that selects its pods beside {', '.join(others)}"
        return Membership(
            key=GangKey(f"{pod.namespace}/{KIND}{SHADOW}{first.name}"),
            named=True,
            min_member=first.least,
            queue=member.queue,
            problem=member.problem,
            remark=remark,
        )


def _speaks(budget: DisruptionBudget | None) -> tuple[object, ...] | None:
    """Give what decides about gangs; None for a budget that has nothing to say of them."""
    if budget is None or (budget.least is None and not budget.part):
        return None
    return budget.least, budget.part, budget.selector
