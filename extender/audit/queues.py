"""Queues that make no sense, by themselves or beside each other.

Nobody is kept from running by a finding: the plan has an answer for every such queue (a guarantee
above its ceiling is cut, a circle of parents is opened). But the answer is not what was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from extender.audit.finding import QUEUE, WITHOUT_EFFECT, Finding, Flaw, did_you_mean
from extender.model.queue import ROOT_QUEUE, Queue
from extender.model.resources import NOTHING, Resources, total, write_amount
from extender.plan.queues.limits import stated

UNREADABLE = "Unreadable"
WEIGHT_ZERO = "WeightZero"
GUARANTEE_ABOVE_CAPABILITY = "GuaranteeAboveCapability"
DESERVED_ABOVE_CAPABILITY = "DeservedAboveCapability"
PARENT_MISSING = "ParentMissing"
PARENT_CIRCLE = "ParentCircle"
GUARANTEES_ABOVE_PARENT = "GuaranteesAboveParent"
GUARANTEES_ABOVE_CLUSTER = "GuaranteesAboveCluster"
REASONS = {
    UNREADABLE: Flaw(
        "a field cannot be read, or an amount or the weight is negative",
        "its gangs are invalid (`QueueNotFound`)",
    ),
    WITHOUT_EFFECT: Flaw(
        "it sets what has no effect here, such as `dequeueStrategy: fifo`",
        "nothing depends on it",
    ),
    WEIGHT_ZERO: Flaw(
        "weight 0, which our CRD and Volcano's forbid and kube-batch's does not",
        "it deserves its guarantee and nothing else",
    ),
    GUARANTEE_ABOVE_CAPABILITY: Flaw(
        "it is guaranteed more than it may have", "the guarantee is cut"
    ),
    DESERVED_ABOVE_CAPABILITY: Flaw("it deserves more than it may have", "the due is cut"),
    PARENT_MISSING: Flaw(
        "its parent does not exist; the nearest name is given",
        "it counts as a queue at the top; with hierarchical `capacity` its gangs wait",
    ),
    PARENT_CIRCLE: Flaw(
        "it is below itself",
        "the circle is opened at one place; with hierarchical `capacity` gangs there wait",
    ),
    GUARANTEES_ABOVE_PARENT: Flaw(
        "queues below it are guaranteed more together than it is itself or, where it is guaranteed"
        " nothing, than it may have",
        "its ceiling holds: guarantees are cut to it, from the top down and then by name",
    ),
    GUARANTEES_ABOVE_CLUSTER: Flaw(
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
    if queue.without_effect:
        several = len(queue.without_effect) > 1
        yield (
            WITHOUT_EFFECT,
            f"{' and '.join(queue.without_effect)} of queue {queue.name}"
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
        self._children: dict[str, list[Queue]] = {}
        for queue in queues.values():
            if (above := self._above(queue)) is not None:
                self._children.setdefault(above.name, []).append(queue)

    def line(self, queue: Queue) -> Iterator[tuple[str, str]]:
        """Find what is wrong with whom *queue* says it is below."""
        parent = queue.parent
        if parent and parent != ROOT_QUEUE and parent not in self._queues:
            others = self._queues.keys() - {queue.name}
            yield (
                PARENT_MISSING,
                f"queue {queue.name} is below queue {parent}, which does not exist; create it or"
                f" change spec.parent{did_you_mean(parent, others)}",
            )
        if circle := self._circle(queue):
            around = " below ".join((*circle, queue.name))
            yield (
                PARENT_CIRCLE,
                f"queue {queue.name} is below itself ({around}); change spec.parent of one of them",
            )

    def below(self, queue: Queue) -> Iterator[tuple[str, str]]:
        """Find guarantees below *queue* that it could not keep together."""
        line = (queue.name,)
        promised = total(self._needs(each, line) for each in self._children.get(queue.name, ()))
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
        needs = {queue.name: self._needs(queue) for queue in tops}
        promised = total(needs.values())
        limit = Resources({name: cluster.amount(name) for name in promised})
        for queue in tops:
            ours = Resources({n: promised.amount(n) for n, a in needs[queue.name].items() if a > 0})
            if over := _over(ours, limit):
                name, amount, has = over
                yield (
                    queue,
                    GUARANTEES_ABOVE_CLUSTER,
                    f"all queues together are guaranteed {amount} {name} and the cluster has {has};"
                    f" lower the guarantee of {queue.name} or of another",
                )

    def _needs(self, queue: Queue, above: tuple[str, ...] = ()) -> Resources:
        """Give what is guaranteed to *queue* or to those below, whichever is more, up to its limit.

        What is above that is found there.
        """
        if queue.name in above:
            return NOTHING
        line = (*above, queue.name)
        below = total(self._needs(child, line) for child in self._children.get(queue.name, ()))
        return below.at_least(queue.guarantee).at_most(stated(queue.capability))

    def _is_top(self, queue: Queue) -> bool:
        above = self._above(queue)
        return queue.name != ROOT_QUEUE and (above is None or above.name == ROOT_QUEUE)

    def _above(self, queue: Queue) -> Queue | None:
        if queue.name == ROOT_QUEUE:
            return None
        return self._queues.get(queue.parent or ROOT_QUEUE)

    def _circle(self, queue: Queue) -> tuple[str, ...]:
        """Give the way from *queue* up to itself again; empty when there is none."""
        line, above = [queue.name], self._queues.get(queue.parent)
        while above is not None and above.name not in line:
            line.append(above.name)
            above = self._queues.get(above.parent)
        return tuple(line) if above is not None and above.name == queue.name else ()


def _over(amounts: Resources, limit: Resources) -> tuple[str, str, str] | None:
    """Name the first of *amounts* above what *limit* says of it, with both amounts."""
    for name, amount in sorted(amounts.items()):
        most = limit.get(name)
        if most is not None and amount > most:
            return name, write_amount(name, amount), write_amount(name, most)
    return None


def _found(queue: Queue, reason: str, message: str) -> Finding:
    return Finding(QUEUE, queue.name, reason, message)
