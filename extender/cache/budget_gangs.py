"""Gangs from PodDisruptionBudgets, as in kube-batch: opt-in, for pods that name no PodGroup.

A PodDisruptionBudget often already states how many pods of a set must be up. With the setting, the
pods that it selects are a gang, and `minAvailable` is its `minMember`. kube-batch went by the owner
of the budget. Most budgets have no owner, but all have a selector, so the selector decides here.

As in kube-batch, only a whole number makes a gang. A percentage refers to pods that may not exist
yet. `maxUnavailable` does not state how many pods must start together. Such budgets make no gang.
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

#: Prefix of the gang's name, in place of the kind of a controller.
KIND = "poddisruptionbudget"
#: At most so many requirements of a selector are indexed, each with at most so many values.
_MAX_INDEXED = 16
#: Of several budgets that select the same pod, at most so many are named in the remark.
_NAMED = 3
_TOO_MANY = (
    f"more PodDisruptionBudgets may select one of its pods than are checked ({MOST_BUDGETS}, with"
    f" {MOST_WORDS:,} words); write fewer, or selectors that name different labels"
)

#: A required label, as a key and a value; None for budgets that require no label.
_Label = tuple[str, str] | None


class AffectedPods(NamedTuple):
    """The pods that a change affects: those of a namespace that have one of these labels."""

    namespace: str
    labels: frozenset[_Label]

    def includes(self, labels: Mapping[str, str]) -> bool:
        """Return whether a pod with *labels* is affected."""
        return any(each is None or labels.get(each[0]) == each[1] for each in self.labels)


class BudgetGangs:
    """Resolves the gangs that budgets make; any thread may call it."""

    def __init__(self) -> None:
        #: The budgets that state how many pods must be up, by namespace.
        self._namespaces: dict[str, _NamespaceBudgets] = {}

    @property
    def namespaces(self) -> int:
        """The number of namespaces with budgets that make gangs."""
        return len(self._namespaces)

    def change(
        self, old: DisruptionBudget | None, new: DisruptionBudget | None
    ) -> AffectedPods | None:
        """Apply a change and return the pods whose gang may change; None without any."""
        changed = old or new
        if _gang_terms(old) == _gang_terms(new) or changed is None:
            return None
        budgets = self._namespaces.setdefault(changed.namespace, _NamespaceBudgets())
        labels = budgets.replace(changed.name, new if _gang_terms(new) else None)
        if not budgets.by_label:
            del self._namespaces[changed.namespace]
        return AffectedPods(changed.namespace, labels)

    def membership(self, pod: Pod, member: Membership) -> Membership:
        """Return the membership of *pod*; *member* is what the pod itself declares."""
        budgets = self._namespaces.get(pod.namespace)
        if budgets is None or member.named or member.native or not pod.ours or pod.exempt:
            return member
        candidates = budgets.candidates(pod.labels)
        if candidates is None:
            return replace(member, problem=member.problem or _TOO_MANY)
        selecting = sorted(
            (budget for budget in candidates if selects(budget.selector, pod.labels)),
            # The largest counts, like the highest number where pods disagree; then the first name.
            key=lambda budget: (-(budget.least or 0), budget.name),
        )
        if not selecting:
            return member
        first = selecting[0]
        if first.least is None:
            why = f"its minAvailable is {first.part}, and only a whole number makes one"
            remark = f"PodDisruptionBudget {first.name} makes no gang of it: {why}"
            return replace(member, remark=remark)
        remark = f"its minimum is minAvailable of PodDisruptionBudget {first.name}"
        if others := [each.name for each in selecting[1:] if each.least is not None]:
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


class _NamespaceBudgets:
    """The budgets of one namespace, each indexed by labels of which its pods must have one.

    The index entry of a budget depends on which budgets came before it. So does whether a pod has
    too many candidates. Which of a few budgets select a pod does not depend on it.
    """

    def __init__(self) -> None:
        #: Each budget with its number of words; values are replaced as a whole, for readers.
        self.by_label: dict[_Label, tuple[tuple[int, DisruptionBudget], ...]] = {}
        self._labels: dict[str, frozenset[_Label]] = {}

    def candidates(self, labels: Mapping[str, str]) -> list[DisruptionBudget] | None:
        """Return the budgets that may select a pod with *labels*; None when there are too many."""
        selecting = list(self.by_label.get(None, ()))
        for label in labels.items():
            if len(selecting) > MOST_BUDGETS:
                break
            selecting += self.by_label.get(label, ())
        if len(selecting) > MOST_BUDGETS or sum(words for words, _ in selecting) > MOST_WORDS:
            return None
        return [budget for _, budget in selecting]

    def replace(self, name: str, new: DisruptionBudget | None) -> frozenset[_Label]:
        """Add, replace or remove a budget; return the labels of its old and new index entries."""
        before, after = self._labels.pop(name, frozenset()), frozenset[_Label]()
        if new is not None:
            after = self._labels[name] = self._choose(new.selector)
        # In this order: a concurrent reader may find both entries, but always at least one.
        for label in (*after, *(before - after)):
            entries = [each for each in self.by_label.get(label, ()) if each[1].name != name]
            if new is not None and label in after:
                entries.append((sum(1 + len(need.values) for need in new.selector), new))
            if entries:
                self.by_label[label] = tuple(entries)
            else:
                self.by_label.pop(label, None)
        return before | after

    def _choose(self, selector: Iterable[Requirement]) -> frozenset[_Label]:
        """Return the required labels with the fewest index entries, of all requirements."""
        return min(
            _required_labels(selector),
            key=lambda labels: sum(len(self.by_label.get(label, ())) for label in labels),
            default=frozenset({None}),
        )


def _required_labels(selector: Iterable[Requirement]) -> Iterator[frozenset[_Label]]:
    for need in islice(selector, _MAX_INDEXED):
        if need.operator == "In" and len(need.values) <= _MAX_INDEXED:
            yield frozenset((need.key, value) for value in need.values)


def _gang_terms(budget: DisruptionBudget | None) -> tuple[object, ...] | None:
    """Return the fields that define a gang; None for a budget that makes none."""
    if budget is None or (budget.least is None and not budget.part):
        return None
    return budget.least, budget.part, budget.selector
