"""PodDisruptionBudgets as gangs, kube-batch's old way: opt-in, for pods that name no group.

Who runs a set of pods of which at least so many must be up has often said so already, in a budget.
With the setting, such pods are a gang of that size: `minAvailable` is its `minMember`. kube-batch
took the budget's owner for the gang; most budgets have none, but all have a selector, so that
decides here.

Only a whole number makes a gang, as there. A percentage is one of pods that may not exist yet, and
`maxUnavailable` says nothing of how many must start together; such budgets leave pods as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from extender.model.budgets import MOST_BUDGETS, MOST_WORDS, selects
from extender.model.gang import IMPLICIT, GangKey, Membership
from extender.model.pod import Pod, Requirement
from extender.model.snapshot import DisruptionBudget

#: Before the name of a budget, as the kind of a controller stands before its name.
KIND = "poddisruptionbudget"
#: Of a selector, so many labels are weighed up, and so many values of one, to file it under.
_WEIGHED = 16
#: Of many budgets that select the same pod, so many are named.
_NAMED = 3
_TOO_MANY = (
    f"more PodDisruptionBudgets may select a pod of it than are looked at ({MOST_BUDGETS}, with"
    f" {MOST_WORDS:,} words); write fewer, or selectors that name different labels"
)

#: One that a budget insists on, as a key and a value; None stands for those who insist on none.
_Label = tuple[str, str] | None


class Moved(NamedTuple):
    """Which pods a change may move: those of a namespace that have one of these labels."""

    namespace: str
    labels: frozenset[_Label]

    def has(self, labels: Mapping[str, str]) -> bool:
        """Ask whether a pod with *labels* is among them."""
        return any(each is None or labels.get(each[0]) == each[1] for each in self.labels)


class BudgetGangs:
    """Answers from what was heard of budgets; any thread may ask."""

    def __init__(self) -> None:
        #: Those that say how many must be up, by namespace.
        self._shelves: dict[str, _Shelf] = {}

    def change(self, old: DisruptionBudget | None, new: DisruptionBudget | None) -> Moved | None:
        """Take a change in; name the pods that it may move, None when it moves nobody."""
        changed = old or new
        if _speaks(old) == _speaks(new) or changed is None:
            return None
        shelf = self._shelves.setdefault(changed.namespace, _Shelf())
        labels = shelf.replace(changed.name, new if _speaks(new) else None)
        if not shelf.filed:
            del self._shelves[changed.namespace]
        return Moved(changed.namespace, labels)

    def membership(self, pod: Pod, member: Membership) -> Membership:
        """Give the gang of *pod*, which by itself is a *member* of a group or of none."""
        shelf = self._shelves.get(pod.namespace)
        if shelf is None or member.named or member.native or not pod.ours or pod.exempt:
            return member
        near = shelf.near(pod.labels)
        if near is None:
            return replace(member, problem=member.problem or _TOO_MANY)
        found = sorted(
            (budget for budget in near if selects(budget.selector, pod.labels)),
            # The largest counts, like the highest number where pods disagree; then the first name.
            key=lambda budget: (-(budget.least or 0), budget.name),
        )
        if not found:
            return member
        first = found[0]
        if first.least is None:
            said = f"its minAvailable is {first.part}, and only a whole number makes one"
            remark = f"PodDisruptionBudget {first.name} makes no gang of it: {said}"
            return replace(member, remark=remark)
        remark = f"its minimum is minAvailable of PodDisruptionBudget {first.name}"
        if others := [each.name for each in found[1:] if each.least is not None]:
            remark += f", the largest that selects its pods beside {', '.join(others[:_NAMED])}"
            remark += f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        return Membership(
            key=GangKey(f"{pod.namespace}/{KIND}{IMPLICIT}{first.name}"),
            named=True,
            min_member=first.least,
            queue=member.queue,
            problem=member.problem,
            remark=remark,
        )


class _Shelf:
    """The budgets of one namespace, each filed under labels of which its pods have one.

    Where it is filed depends on which others came before it, and with it whether too many are near
    a pod; never which of a few select it.
    """

    def __init__(self) -> None:
        #: Each with its words; every value is replaced as a whole, for readers.
        self.filed: dict[_Label, tuple[tuple[int, DisruptionBudget], ...]] = {}
        self._labels: dict[str, frozenset[_Label]] = {}

    def near(self, labels: Mapping[str, str]) -> list[DisruptionBudget] | None:
        """Give the budgets that may select a pod with *labels*; None when they are too many."""
        found = list(self.filed.get(None, ()))
        for label in labels.items():
            if len(found) > MOST_BUDGETS:
                break
            found += self.filed.get(label, ())
        if len(found) > MOST_BUDGETS or sum(words for words, _ in found) > MOST_WORDS:
            return None
        return [budget for _, budget in found]

    def replace(self, name: str, new: DisruptionBudget | None) -> frozenset[_Label]:
        """File a budget of that name, or take it out; give the labels it stood and stands under."""
        before, after = self._labels.pop(name, frozenset()), frozenset[_Label]()
        if new is not None:
            after = self._labels[name] = self._choose(new.selector)
        # In this order: whoever looks it up meanwhile may find both, but never none.
        for label in (*after, *(before - after)):
            filed = [each for each in self.filed.get(label, ()) if each[1].name != name]
            if new is not None and label in after:
                filed.append((sum(1 + len(need.values) for need in new.selector), new))
            if filed:
                self.filed[label] = tuple(filed)
            else:
                self.filed.pop(label, None)
        return before | after

    def _choose(self, selector: Iterable[Requirement]) -> frozenset[_Label]:
        """Choose among the sets of labels of which a pod must have one the one with the fewest."""
        return min(
            _insisted_on(selector),
            key=lambda labels: sum(len(self.filed.get(label, ())) for label in labels),
            default=frozenset({None}),
        )


def _insisted_on(selector: Iterable[Requirement]) -> Iterator[frozenset[_Label]]:
    for need in islice(selector, _WEIGHED):
        if need.operator == "In" and len(need.values) <= _WEIGHED:
            yield frozenset((need.key, value) for value in need.values)


def _speaks(budget: DisruptionBudget | None) -> tuple[object, ...] | None:
    """Give what decides about gangs; None for a budget that has nothing to say of them."""
    if budget is None or (budget.least is None and not budget.part):
        return None
    return budget.least, budget.part, budget.selector
