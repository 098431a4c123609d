"""Which disruption budgets have a say about a pod, found by its labels instead of one by one.

Every budget is filed under a label it insists on, the rarest one; who has not got that label need
not look at it. People may write budgets that insist on none, or thousands that all insist on the
same one. So no more than a bounded number is looked at for one pod: beyond that the pod is taken
to be covered by a budget that allows nobody to leave. The API server would refuse such evictions
anyway, where two of them cover a pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from extender.model.matching import meets_requirement
from extender.model.pod import Pod, PodUid, Requirement
from extender.model.snapshot import DisruptionBudget, Snapshot

#: So many budgets are looked at for one pod, and so many words of them.
MOST_BUDGETS, MOST_WORDS = 64, 1_000
#: Of a selector, so many labels are weighed up, and so many values of one, to file it under.
_WEIGHED = 16
#: Pods whose budgets are remembered.
_PODS = 100_000
#: A label that a budget insists on.
_Label = tuple[str, str]


def budgets_of(snapshot: Snapshot) -> BudgetIndex:
    """Give the index of a snapshot; the same one until a budget or a node changes."""
    budgets = snapshot.budgets
    memo = snapshot.nodes.facts.memo
    return memo.recall("budgets", lambda: BudgetIndex(budgets), about=budgets)


class BudgetIndex:
    """Budgets by number, in the order they were given."""

    def __init__(self, budgets: Sequence[DisruptionBudget]) -> None:
        self._budgets = list(budgets)
        #: By namespace: those filed under a label, and those that insist on none.
        self._filed: dict[str, dict[_Label, list[int]]] = {}
        self._loose: dict[str, list[int]] = {}
        #: By namespace, the one that stands for too many.
        self._crowd: dict[str, int] = {}
        #: Namespaces with so many that some pod of theirs may be covered by that one.
        self.crowded: list[str] = []
        self._words = [_words(budget.selector) for budget in budgets]
        self._known: dict[PodUid, tuple[Mapping[str, str], tuple[int, ...]]] = {}
        for namespace, numbers in _by_namespace(budgets).items():
            self._file(namespace, numbers)

    def __bool__(self) -> bool:
        """Ask whether there is any."""
        return bool(self._loose)

    def __getitem__(self, number: int) -> DisruptionBudget:
        """Give a budget by its number."""
        return self._budgets[number]

    def is_crowd(self, number: int) -> bool:
        """Ask whether *number* is no budget but stands for too many of them."""
        return number >= len(self._words)

    def title(self, number: int) -> str:
        """Name a budget for people."""
        budget = self._budgets[number]
        if self.is_crowd(number):
            return f"one of too many PodDisruptionBudgets in namespace {budget.namespace}"
        return f"PodDisruptionBudget {budget.namespace}/{budget.name}"

    def covering(self, pod: Pod) -> list[int]:
        """Give the budgets of which evicting *pod* would use up some, in order."""
        found = self.selecting(pod)
        return [each for each in found if pod.name not in self._budgets[each].disrupted]

    def selecting(self, pod: Pod) -> tuple[int, ...]:
        """Give the budgets that have a say about *pod*, in order."""
        if pod.namespace not in self._loose:
            return ()
        known = self._known.get(pod.uid)
        if known is not None and known[0] is pod.labels:
            return known[1]
        found = self._find(pod)
        if len(self._known) >= _PODS:
            self._known.clear()
        self._known[pod.uid] = (pod.labels, found)
        return found

    def _find(self, pod: Pod) -> tuple[int, ...]:
        filed = self._filed[pod.namespace]
        found = list(self._loose[pod.namespace])
        for label in pod.labels.items() if filed else ():
            found += filed.get(label, ())
            if len(found) > MOST_BUDGETS:
                break
        if self._are_too_many(found):
            return (self._crowd[pod.namespace],)
        budgets, labels = self._budgets, pod.labels
        return tuple(sorted(each for each in found if selects(budgets[each].selector, labels)))

    def _are_too_many(self, found: Sequence[int]) -> bool:
        return len(found) > MOST_BUDGETS or sum(self._words[each] for each in found) > MOST_WORDS

    def _file(self, namespace: str, numbers: list[int]) -> None:
        offers = {number: list(_offers(self._budgets[number].selector)) for number in numbers}
        seen = Counter(label for each in offers.values() for labels in each for label in labels)
        filed = self._filed[namespace] = {}
        loose = self._loose[namespace] = []
        for number, choices in offers.items():
            if not choices:
                # More than these are never looked at one by one.
                if len(loose) <= MOST_BUDGETS:
                    loose.append(number)
                continue
            for label in min(choices, key=lambda labels: sum(seen[label] for label in labels)):
                filed.setdefault(label, []).append(number)
        if any(map(self._are_too_many, (loose, *filed.values()))):
            self.crowded.append(namespace)
        self._crowd[namespace] = len(self._budgets)
        self._budgets.append(DisruptionBudget(namespace=namespace, name=""))


def _by_namespace(budgets: Sequence[DisruptionBudget]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for number, budget in enumerate(budgets):
        numbers.setdefault(budget.namespace, []).append(number)
    return numbers


def _offers(selector: Sequence[Requirement]) -> Iterator[list[_Label]]:
    """Give the sets of labels of which a pod must have one, for some parts of *selector*."""
    for need in selector[:_WEIGHED]:
        if need.operator == "In" and len(need.values) <= _WEIGHED:
            yield [(need.key, value) for value in dict.fromkeys(need.values)]


def _words(selector: Sequence[Requirement]) -> int:
    return sum(1 + len(need.values) for need in selector)


def selects(selector: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Ask whether *labels* meet every requirement of *selector*."""
    return all(meets_requirement(need, labels.get(need.key)) for need in selector)
