"""Findings about queues, by themselves or together.

A finding keeps no gang from running: the planner handles every such queue. It cuts a guarantee
above its ceiling, and a cycle of parents at one place. But the result is not what was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from extender.findings.finding import (
    IGNORED_FIELD,
    MOST_HINTS,
    QUEUE,
    Finding,
    Problem,
    did_you_mean,
)
from extender.model.queue import ROOT_QUEUE, Queue
from extender.model.queue_tree import MAX_DEPTH, queue_tree
from extender.model.resources import NOTHING, Resources, total, write_amount

UNREADABLE = "Unreadable"
WEIGHT_ZERO = "WeightZero"
GUARANTEE_ABOVE_CAPABILITY = "GuaranteeAboveCapability"
DESERVED_ABOVE_CAPABILITY = "DeservedAboveCapability"
PARENT_MISSING = "ParentMissing"
PARENT_CYCLE = "ParentCycle"
TOO_DEEP = "TooDeep"
GUARANTEES_ABOVE_PARENT = "GuaranteesAboveParent"
GUARANTEES_ABOVE_CLUSTER = "GuaranteesAboveCluster"
#: Limit of the queues of a cycle in a message.
_MOST_IN_CYCLE = 8
REASONS = {
    UNREADABLE: Problem(
        "a field cannot be read, or an amount or the weight is negative",
        "its gangs are invalid (`QueueNotFound`)",
    ),
    IGNORED_FIELD: Problem(
        "it sets a field that has no effect here, such as `dequeueStrategy: fifo`",
        "nothing depends on it",
    ),
    WEIGHT_ZERO: Problem(
        "weight 0, which the CRDs here and of Volcano forbid and that of kube-batch does not",
        "it deserves its guarantee and nothing else",
    ),
    GUARANTEE_ABOVE_CAPABILITY: Problem(
        "its guarantee exceeds its capability", "the guarantee is cut"
    ),
    DESERVED_ABOVE_CAPABILITY: Problem(
        "its deserved share exceeds its capability", "the deserved share is cut"
    ),
    PARENT_MISSING: Problem(
        "its parent does not exist; the message suggests the nearest name",
        "it counts as a queue at the top; with hierarchical `capacity` its gangs wait",
    ),
    PARENT_CYCLE: Problem(
        "it is its own ancestor",
        "the cycle is cut at one place; with hierarchical `capacity` gangs there wait",
    ),
    TOO_DEEP: Problem(
        f"it is more than {MAX_DEPTH - 1} levels below the top",
        "its gangs are invalid (`QueueNotFound`); its running gangs count in the queues above",
    ),
    GUARANTEES_ABOVE_PARENT: Problem(
        "the guarantees of queues below it together exceed its own guarantee or, without one, its"
        " capability",
        "its ceiling holds: guarantees are cut to it, from the top down and then by name",
    ),
    GUARANTEES_ABOVE_CLUSTER: Problem(
        "the guarantees of all queues together exceed all nodes, ready or not",
        "the first gangs to start get them",
    ),
}


def of_queues(queues: Mapping[str, Queue], cluster: Resources) -> list[Finding]:
    """Return the findings about all *queues*, in a *cluster* with such capacity.

    Nothing is compared with the cluster before nodes are known.
    """
    tree = _Tree(queues)
    found = [_found(queue, *each) for queue in queues.values() for each in _alone(queue)]
    found += [_found(queue, *each) for queue in queues.values() for each in tree.parent(queue)]
    found += [_found(queue, *each) for queue in queues.values() for each in tree.below(queue)]
    if cluster:
        found += [_found(*each) for each in tree.together(cluster)]
    return sorted(found, key=lambda each: (each.name, each.reason, each.message))


def _alone(queue: Queue) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with one queue by itself."""
    if queue.problem:
        yield UNREADABLE, f"queue {queue.name} cannot be used: {queue.problem}"
    elif not queue.weight:
        yield (
            WEIGHT_ZERO,
            f"queue {queue.name} has weight 0 and so no share of its own; set spec.weight to 1 or"
            " more",
        )
    if queue.ignored_fields:
        several = len(queue.ignored_fields) > 1
        yield (
            IGNORED_FIELD,
            f"{' and '.join(queue.ignored_fields)} of queue {queue.name}"
            f" {'have' if several else 'has'} no effect here; remove {'them' if several else 'it'}",
        )
    most = queue.ceiling
    named = (
        (GUARANTEE_ABOVE_CAPABILITY, "is guaranteed", "guarantee.resource", queue.guarantee),
        (DESERVED_ABOVE_CAPABILITY, "deserves", "deserved", queue.deserved),
    )
    for reason, verb, field, amounts in named:
        if over := _over(amounts, most):
            name, amount, limit = over
            yield (
                reason,
                f"queue {queue.name} {verb} {amount} {name} and may have at most {limit};"
                f" lower spec.{field} or raise spec.capability",
            )


class _Tree:
    """The findings about parents and guarantees in the tree of queues."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self._tree = queue_tree(queues)
        self._hints = MOST_HINTS
        #: By name the guarantees below it, and the larger of those and its own, up to its
        #: capability: what exceeds that is a finding of its own.
        self._below: dict[str, Resources] = {}
        self._needs: dict[str, Resources] = {}
        for name in reversed(self._tree.level):
            queue = queues[name]
            below = self._below.setdefault(name, NOTHING)
            needs = below.at_least(queue.guarantee).at_most(queue.ceiling)
            self._needs[name] = needs
            if (parent := self._tree.parents.get(name)) is not None:
                self._below[parent] = self._below.get(parent, NOTHING) + needs

    def parent(self, queue: Queue) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with the parent of *queue*."""
        parent = queue.parent
        if parent and parent != ROOT_QUEUE and parent not in self._queues:
            yield (
                PARENT_MISSING,
                f"queue {queue.name} is below queue {parent}, which does not exist; create it or"
                f" change spec.parent{self._hint(queue, parent)}",
            )
        if cycle := self._tree.cycles.get(queue.name):
            yield (
                PARENT_CYCLE,
                f"queue {queue.name} is its own ancestor ({_around(cycle, queue.name)}); change"
                " spec.parent of one of them",
            )
        elif (level := self._tree.level[queue.name]) > MAX_DEPTH:
            yield (
                TOO_DEEP,
                f"queue {queue.name} is {level - 1} levels below the top, and {MAX_DEPTH - 1} is"
                " the maximum; change spec.parent of it or of one above",
            )

    def below(self, queue: Queue) -> Iterator[tuple[str, str]]:
        """Yield guarantees below *queue* that cannot be met together."""
        guaranteed = self._below[queue.name]
        least, most = queue.guarantee, queue.ceiling
        for limit, verb in (
            (least, "is itself guaranteed only"),
            (Resources({n: a for n, a in most.items() if n not in least}), "may have at most"),
        ):
            if over := _over(guaranteed, limit):
                name, amount, bound = over
                yield (
                    GUARANTEES_ABOVE_PARENT,
                    f"the queues below {queue.name} are guaranteed {amount} {name} together, and"
                    f" it {verb} {bound}; lower their guarantees or raise its own",
                )
                return

    def together(self, cluster: Resources) -> Iterator[tuple[Queue, str, str]]:
        """Yield guarantees that the cluster cannot meet together, reported on the top queues."""
        tops = [queue for queue in self._queues.values() if self._is_top(queue)]
        guaranteed = total(self._needs[queue.name] for queue in tops)
        limit = Resources({name: cluster.amount(name) for name in guaranteed})
        for queue in tops:
            needs = self._needs[queue.name]
            relevant = Resources({n: guaranteed.amount(n) for n, a in needs.items() if a > 0})
            if over := _over(relevant, limit):
                name, amount, has = over
                yield (
                    queue,
                    GUARANTEES_ABOVE_CLUSTER,
                    f"all queues together are guaranteed {amount} {name} and the cluster has {has};"
                    f" lower the guarantee of {queue.name} or of another",
                )

    def _is_top(self, queue: Queue) -> bool:
        parent = self._tree.parents.get(queue.name)
        return queue.name != ROOT_QUEUE and parent in (None, ROOT_QUEUE)

    def _hint(self, queue: Queue, parent: str) -> str:
        self._hints -= 1
        if self._hints < 0:
            return ""
        return did_you_mean(parent, self._queues.keys() - {queue.name})


def _around(cycle: Sequence[str], name: str) -> str:
    """Return the path up from *name* to itself; of a long one the beginning."""
    place = cycle.index(name)
    path = [*cycle[place:], *cycle[:place]]
    if len(path) > _MOST_IN_CYCLE:
        path = [*path[:_MOST_IN_CYCLE], f"{len(path) - _MOST_IN_CYCLE} more"]
    return " below ".join((*path, name))


def _over(amounts: Resources, limit: Resources) -> tuple[str, str, str] | None:
    """Return the first of *amounts* above its *limit*, with both amounts."""
    for name, amount in sorted(amounts.items()):
        most = limit.get(name)
        if most is not None and amount > most:
            return name, write_amount(name, amount), write_amount(name, most)
    return None


def _found(queue: Queue, reason: str, message: str) -> Finding:
    return Finding(QUEUE, queue.name, reason, message)
