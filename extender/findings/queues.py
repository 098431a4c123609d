"""Queues that make no sense, by themselves or beside each other.

Nobody is kept from running by a finding: the plan has an answer for every such queue (a guarantee
above its ceiling is cut, a circle of parents is opened). But the answer is not what was written.
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
from extender.planner.quota import stated

UNREADABLE = "Unreadable"
WEIGHT_ZERO = "WeightZero"
GUARANTEE_ABOVE_CAPABILITY = "GuaranteeAboveCapability"
DESERVED_ABOVE_CAPABILITY = "DeservedAboveCapability"
PARENT_MISSING = "ParentMissing"
PARENT_CYCLE = "ParentCycle"
TOO_DEEP = "TooDeep"
GUARANTEES_ABOVE_PARENT = "GuaranteesAboveParent"
GUARANTEES_ABOVE_CLUSTER = "GuaranteesAboveCluster"
#: So many queues of a circle are named.
_AROUND = 8
REASONS = {
    UNREADABLE: Problem(
        "a field cannot be read, or an amount or the weight is negative",
        "its gangs are invalid (`QueueNotFound`)",
    ),
    IGNORED_FIELD: Problem(
        "it sets what has no effect here, such as `dequeueStrategy: fifo`",
        "nothing depends on it",
    ),
    WEIGHT_ZERO: Problem(
        "weight 0, which our CRD and Volcano's forbid and kube-batch's does not",
        "it deserves its guarantee and nothing else",
    ),
    GUARANTEE_ABOVE_CAPABILITY: Problem(
        "it is guaranteed more than it may have", "the guarantee is cut"
    ),
    DESERVED_ABOVE_CAPABILITY: Problem("it deserves more than it may have", "the due is cut"),
    PARENT_MISSING: Problem(
        "its parent does not exist; the nearest name is given",
        "it counts as a queue at the top; with hierarchical `capacity` its gangs wait",
    ),
    PARENT_CYCLE: Problem(
        "it is below itself",
        "the circle is opened at one place; with hierarchical `capacity` gangs there wait",
    ),
    TOO_DEEP: Problem(
        f"it is more than {MAX_DEPTH - 1} levels below the top",
        "its gangs are invalid (`QueueNotFound`); what runs in it counts in those above",
    ),
    GUARANTEES_ABOVE_PARENT: Problem(
        "queues below it are guaranteed more together than it is itself or, where it is guaranteed"
        " nothing, than it may have",
        "its ceiling holds: guarantees are cut to it, from the top down and then by name",
    ),
    GUARANTEES_ABOVE_CLUSTER: Problem(
        "all queues together are guaranteed more than all nodes have, ready or not",
        "whoever comes first has them",
    ),
}


def of_queues(queues: Mapping[str, Queue], cluster: Resources) -> list[Finding]:
    """Find what makes no sense in *queues*, all there are, in a *cluster* that has so much.

    What nobody has seen yet is not held against anybody: without nodes nothing is compared
    with the cluster.
    """
    family = _Family(queues)
    found = [_found(queue, *each) for queue in queues.values() for each in _alone(queue)]
    found += [_found(queue, *each) for queue in queues.values() for each in family.line(queue)]
    found += [_found(queue, *each) for queue in queues.values() for each in family.below(queue)]
    if cluster:
        found += [_found(*each) for each in family.together(cluster)]
    return sorted(found, key=lambda each: (each.name, each.reason, each.message))


def _alone(queue: Queue) -> Iterator[tuple[str, str]]:
    """Find what one queue by itself has wrong."""
    if queue.problem:
        yield UNREADABLE, f"queue {queue.name} cannot be used: {queue.problem}"
    elif not queue.weight:
        yield (
            WEIGHT_ZERO,
            f"queue {queue.name} has weight 0 and so no part of its own; set spec.weight to 1 or"
            " more",
        )
    if queue.ignored_fields:
        several = len(queue.ignored_fields) > 1
        yield (
            IGNORED_FIELD,
            f"{' and '.join(queue.ignored_fields)} of queue {queue.name}"
            f" {'have' if several else 'has'} no effect here; remove {'them' if several else 'it'}",
        )
    most = stated(queue.capability)
    named = (
        (GUARANTEE_ABOVE_CAPABILITY, "is guaranteed", "guarantee.resource", queue.guarantee),
        (DESERVED_ABOVE_CAPABILITY, "deserves", "deserved", queue.deserved),
    )
    for reason, says, field, amounts in named:
        if over := _over(amounts, most):
            name, amount, limit = over
            yield (
                reason,
                f"queue {queue.name} {says} {amount} {name} and may have at most {limit};"
                f" lower spec.{field} or raise spec.capability",
            )


class _Family:
    """Who is below whom."""

    def __init__(self, queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self._kin = queue_tree(queues)
        self._hints = MOST_HINTS
        #: By name what is guaranteed below it, and what to it or those below, whichever is more
        #: and up to its limit: what is above that is found there.
        self._below: dict[str, Resources] = {}
        self._needs: dict[str, Resources] = {}
        for name in reversed(self._kin.level):
            queue = queues[name]
            below = self._below.setdefault(name, NOTHING)
            needs = below.at_least(queue.guarantee).at_most(stated(queue.capability))
            self._needs[name] = needs
            if (above := self._kin.parents.get(name)) is not None:
                self._below[above] = self._below.get(above, NOTHING) + needs

    def line(self, queue: Queue) -> Iterator[tuple[str, str]]:
        """Find what is wrong with whom *queue* says it is below."""
        parent = queue.parent
        if parent and parent != ROOT_QUEUE and parent not in self._queues:
            yield (
                PARENT_MISSING,
                f"queue {queue.name} is below queue {parent}, which does not exist; create it or"
                f" change spec.parent{self._hint(queue, parent)}",
            )
        if circle := self._kin.cycles.get(queue.name):
            yield (
                PARENT_CYCLE,
                f"queue {queue.name} is below itself ({_around(circle, queue.name)}); change"
                " spec.parent of one of them",
            )
        elif (level := self._kin.level[queue.name]) > MAX_DEPTH:
            yield (
                TOO_DEEP,
                f"queue {queue.name} is {level - 1} levels below the top, and {MAX_DEPTH - 1} is"
                " the most; change spec.parent of it or of one above",
            )

    def below(self, queue: Queue) -> Iterator[tuple[str, str]]:
        """Find guarantees below *queue* that it could not keep together."""
        promised = self._below[queue.name]
        least, most = queue.guarantee, stated(queue.capability)
        for limit, says in (
            (least, "is itself guaranteed only"),
            (Resources({n: a for n, a in most.items() if n not in least}), "may have at most"),
        ):
            if over := _over(promised, limit):
                name, amount, bound = over
                yield (
                    GUARANTEES_ABOVE_PARENT,
                    f"the queues below {queue.name} are guaranteed {amount} {name} together, and"
                    f" it {says} {bound}; lower their guarantees or raise its own",
                )
                return

    def together(self, cluster: Resources) -> Iterator[tuple[Queue, str, str]]:
        """Find guarantees that the cluster could not keep all at once; named at the top."""
        tops = [queue for queue in self._queues.values() if self._is_top(queue)]
        promised = total(self._needs[queue.name] for queue in tops)
        limit = Resources({name: cluster.amount(name) for name in promised})
        for queue in tops:
            needs = self._needs[queue.name]
            ours = Resources({n: promised.amount(n) for n, a in needs.items() if a > 0})
            if over := _over(ours, limit):
                name, amount, has = over
                yield (
                    queue,
                    GUARANTEES_ABOVE_CLUSTER,
                    f"all queues together are guaranteed {amount} {name} and the cluster has {has};"
                    f" lower the guarantee of {queue.name} or of another",
                )

    def _is_top(self, queue: Queue) -> bool:
        above = self._kin.parents.get(queue.name)
        return queue.name != ROOT_QUEUE and above in (None, ROOT_QUEUE)

    def _hint(self, queue: Queue, parent: str) -> str:
        self._hints -= 1
        if self._hints < 0:
            return ""
        return did_you_mean(parent, self._queues.keys() - {queue.name})


def _around(circle: Sequence[str], name: str) -> str:
    """Give the way up from *name* to itself; of a long one the beginning."""
    place = circle.index(name)
    way = [*circle[place:], *circle[:place]]
    if len(way) > _AROUND:
        way = [*way[:_AROUND], f"{len(way) - _AROUND} more"]
    return " below ".join((*way, name))


def _over(amounts: Resources, limit: Resources) -> tuple[str, str, str] | None:
    """Name the first of *amounts* above what *limit* says of it, with both amounts."""
    for name, amount in sorted(amounts.items()):
        most = limit.get(name)
        if most is not None and amount > most:
            return name, write_amount(name, amount), write_amount(name, most)
    return None


def _found(queue: Queue, reason: str, message: str) -> Finding:
    return Finding(QUEUE, queue.name, reason, message)
