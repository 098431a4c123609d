"""Finds the disruption budgets that select a pod by its labels instead of one by one.

Every budget is indexed under the rarest label that it requires; only pods with that label are
compared with it. A user may write budgets that require no label, or thousands that all require the
same one. So the number of budgets compared with one pod is bounded. Beyond it the pod counts as
covered by a budget that allows no disruption. The API server refuses such evictions anyway, where
two budgets cover a pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from extender.model.matching import meets_requirement
from extender.model.pod import Pod, PodUid, Requirement
from extender.model.snapshot import DisruptionBudget, Snapshot

#: Limits of the comparison with one pod: budgets, and the terms of their selectors together.
MOST_BUDGETS, MOST_WORDS = 64, 1_000
#: Limit of the requirements, and of the values of one, that are considered as index labels.
_MAX_CONSIDERED = 16
#: Pods whose budgets are cached.
_MAX_CACHED = 100_000
#: A label that a budget requires.
_Label = tuple[str, str]


def budgets_of(snapshot: Snapshot) -> BudgetIndex:
    """Return the index of a snapshot; the same one until a budget or a node changes."""
    budgets = snapshot.budgets
    memo = snapshot.nodes.facts.memo
    return memo.recall("budgets", lambda: BudgetIndex(budgets), about=budgets)


class BudgetIndex:
    """Budgets by number, in the order they were given."""

    def __init__(self, budgets: Sequence[DisruptionBudget]) -> None:
        self._budgets = list(budgets)
        #: By namespace: the budgets indexed under a label, and those that require none.
        self._by_label: dict[str, dict[_Label, list[int]]] = {}
        self._unlabeled: dict[str, list[int]] = {}
        #: By namespace, the number that stands for too many budgets.
        self._crowd: dict[str, int] = {}
        #: Namespaces with so many budgets that this number may cover some of their pods.
        self.crowded: list[str] = []
        self._sizes = [_size(budget.selector) for budget in budgets]
        self._cached: dict[PodUid, tuple[Mapping[str, str], tuple[int, ...]]] = {}
        for namespace, numbers in _by_namespace(budgets).items():
            self._add(namespace, numbers)

    def __bool__(self) -> bool:
        """Return whether there is any budget."""
        return bool(self._unlabeled)

    def __getitem__(self, number: int) -> DisruptionBudget:
        """Return a budget by its number."""
        return self._budgets[number]

    def is_too_many(self, number: int) -> bool:
        """Return whether *number* is no budget but stands for too many of them."""
        return number >= len(self._sizes)

    def title(self, number: int) -> str:
        """Return the name of a budget for messages."""
        budget = self._budgets[number]
        if self.is_too_many(number):
            return f"one of too many PodDisruptionBudgets in namespace {budget.namespace}"
        return f"PodDisruptionBudget {budget.namespace}/{budget.name}"

    def covering(self, pod: Pod) -> list[int]:
        """Return the budgets that an eviction of *pod* would count against, in order."""
        found = self.selecting(pod)
        return [each for each in found if pod.name not in self._budgets[each].disrupted]

    def selecting(self, pod: Pod) -> tuple[int, ...]:
        """Return the budgets that select *pod*, in order."""
        if pod.namespace not in self._unlabeled:
            return ()
        cached = self._cached.get(pod.uid)
        if cached is not None and cached[0] is pod.labels:
            return cached[1]
        found = self._find(pod)
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[pod.uid] = (pod.labels, found)
        return found

    def _find(self, pod: Pod) -> tuple[int, ...]:
        by_label = self._by_label[pod.namespace]
        found = list(self._unlabeled[pod.namespace])
        for label in pod.labels.items() if by_label else ():
            found += by_label.get(label, ())
            if len(found) > MOST_BUDGETS:
                break
        if self._are_too_many(found):
            return (self._crowd[pod.namespace],)
        budgets, labels = self._budgets, pod.labels
        return tuple(sorted(each for each in found if selects(budgets[each].selector, labels)))

    def _are_too_many(self, found: Sequence[int]) -> bool:
        return len(found) > MOST_BUDGETS or sum(self._sizes[each] for each in found) > MOST_WORDS

    def _add(self, namespace: str, numbers: list[int]) -> None:
        options = {number: list(_options(self._budgets[number].selector)) for number in numbers}
        seen = Counter(label for each in options.values() for labels in each for label in labels)
        by_label = self._by_label[namespace] = {}
        unlabeled = self._unlabeled[namespace] = []
        for number, choices in options.items():
            if not choices:
                # One more than the limit is enough: more are never compared one by one.
                if len(unlabeled) <= MOST_BUDGETS:
                    unlabeled.append(number)
                continue
            for label in min(choices, key=lambda labels: sum(seen[label] for label in labels)):
                by_label.setdefault(label, []).append(number)
        if any(map(self._are_too_many, (unlabeled, *by_label.values()))):
            self.crowded.append(namespace)
        self._crowd[namespace] = len(self._budgets)
        self._budgets.append(DisruptionBudget(namespace=namespace, name=""))


def _by_namespace(budgets: Sequence[DisruptionBudget]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for number, budget in enumerate(budgets):
        numbers.setdefault(budget.namespace, []).append(number)
    return numbers


def _options(selector: Sequence[Requirement]) -> Iterator[list[_Label]]:
    """Yield sets of labels of which a selected pod has one, for some parts of *selector*."""
    for need in selector[:_MAX_CONSIDERED]:
        if need.operator == "In" and len(need.values) <= _MAX_CONSIDERED:
            yield [(need.key, value) for value in dict.fromkeys(need.values)]


def _size(selector: Sequence[Requirement]) -> int:
    return sum(1 + len(need.values) for need in selector)


def selects(selector: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Return whether *labels* meet every requirement of *selector*."""
    return all(meets_requirement(need, labels.get(need.key)) for need in selector)
