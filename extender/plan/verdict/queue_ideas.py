"""What could help where a queue has too little: less in use, more due, higher ceilings, loans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from extender.model.gang import Gang
from extender.model.pod import ALLOCATED_SET, Pod
from extender.model.queue import Queue, Share, share_name, share_words
from extender.model.resources import NOTHING, Resources, total
from extender.model.snapshot import Snapshot
from extender.plan.queues.limits import upwards
from extender.plan.queues.quota import TOP, Quota, tree, using
from extender.plan.verdict.case import Case, Remedy, some
from extender.plan.verdict.changes import with_queues, with_shares, without_pods
from extender.plan.verdict.room_ideas import more_room
from extender.plan.verdict.shortfall import amounts

#: By how much a weight is raised.
_FACTORS = (2, 4, 16)


def larger_due(case: Case) -> Iterator[Remedy]:
    """Think of less in use, of more due, and of more room to lend."""
    queue, figures = case.queue, case.plan.queues.get(case.gang.queue)
    if figures is not None:
        yield from less_in_use(case, (case.uses + case.needs).beyond(figures.deserved).positive())
    if queue.deserved:
        after = case.uses + case.needs
        more = Resources({n: a for n, a in after.items() if n in queue.deserved})
        over = more.beyond(queue.deserved).positive()
        if over:
            yield Remedy(
                f"{amounts(over)} more deserved by queue {queue.name}",
                lambda s: with_queues(s, [replace(queue, deserved=queue.deserved + over)]),
            )
    else:
        for factor in _FACTORS:
            weight = max(1, queue.weight) * factor
            yield Remedy(
                f"weight {weight} of queue {queue.name} instead of {queue.weight}",
                partial(_with_weight, queue=queue, weight=weight),
                kind="weight",
            )
    yield from more_room(case)


def _with_weight(snapshot: Snapshot, queue: Queue, weight: int) -> Snapshot:
    return with_queues(snapshot, [replace(queue, weight=weight)])


def less_in_use(case: Case, over: Resources, namespace: str = "") -> Iterator[Remedy]:
    """Think of the last gangs of its queue gone, as many as use what is *over*.

    Only those of *namespace*, where that has too much.
    """
    running = [
        gang
        for gang in case.snapshot.gangs.values()
        if gang.queue == case.gang.queue and gang.key != case.key and gang.allocated
        if not namespace or gang.group.namespace == namespace
    ]
    running.sort(key=lambda gang: (gang.priority, -gang.group.created))
    gone: list[Gang] = []
    while running and over.beyond(total(gang.allocated for gang in gone)).positive():
        gone.append(running.pop(0))
    if over and not over.beyond(total(gang.allocated for gang in gone)).positive():
        pods = {pod.uid for gang in gone for pod in _on_nodes(gang)}
        queue = case.gang.queue
        whom = f"namespace {share_words(queue, namespace)}" if namespace else f"queue {queue}"
        words = f"{amounts(over)} less in use by {whom}"
        yield Remedy(words, partial(without_pods, gone=pods))


def _on_nodes(gang: Gang) -> Iterator[Pod]:
    for status, pods in gang.by_status.items():
        if status in ALLOCATED_SET:
            yield from pods


def higher_ceilings(case: Case) -> Iterator[Remedy]:
    """Think of every ceiling it would break, from its queue upwards, and of who keeps the rest."""
    plan, needs = case.plan, case.needs
    used = {name: figures.own for name, figures in plan.queues.items()}
    of_shares = {name: figures.allocated for name, figures in plan.shares.items()}
    quotas = tree(using(plan.stakes, used, of_shares), plan.total)
    own_share = quotas.get(share_name(case.gang.queue, case.gang.group.namespace))
    raised: list[Queue] = []
    granted: list[Share] = []
    words: list[str] = []
    first: tuple[Resources, str] = NOTHING, ""
    for quota in upwards(own_share or quotas.get(case.gang.queue)):
        over = _over(quota, needs)
        needs = needs.beyond(quota.kept)
        queue, share = case.snapshot.queues.get(quota.name), case.snapshot.shares.get(quota.name)
        if over and (queue is not None or share is not None):
            first = first if first[0] else (over, quota.namespace)
        if over and queue is not None:
            raised.append(replace(queue, capability=queue.capability + over))
            words.append(f"{amounts(over)} more capability of queue {queue.name}")
        if over and share is not None:
            granted.append(replace(share, most=share.most + over))
            words.append(f"{amounts(over)} more at most for {quota.words}")
        if over and not quota.namespace:
            yield from _keeping_less(case, quota, quotas.values())
        if over and quota.name == TOP:
            yield from _lending(case)
            yield from more_room(case)
    if words:
        yield Remedy(" and ".join(words), lambda s: with_shares(with_queues(s, raised), granted))
    yield from less_in_use(case, *first)


def _over(quota: Quota, needs: Resources) -> Resources:
    """Give by how much *needs* more would exceed the ceiling of *quota*."""
    after = needs + Resources(quota.held) + Resources(quota.leaving)
    over = Resources({n: after.amount(n) - most for n, most in quota.most.items()})
    return Resources({n: a for n, a in over.items() if needs.amount(n) > 0}).positive()


def _keeping_less(case: Case, above: Quota, quotas: Iterable[Quota]) -> Iterator[Remedy]:
    """Think of namespaces below *above* for which room is kept: each has only what it uses."""
    keeping = [
        quota
        for quota in quotas
        if quota.namespace and quota.kept and above in upwards(quota)
        if quota.namespace != case.gang.group.namespace
    ]
    for quota in keeping[:2]:
        share = case.snapshot.shares[quota.name]
        less = replace(share, least=share.least.beyond(quota.kept).positive())
        words = f"{amounts(quota.kept)} less kept for {quota.words}, its at-least"
        yield Remedy(words, partial(with_shares, shares=[less]))


def _lending(case: Case) -> Iterator[Remedy]:
    """Think of those whose guarantee is idle: each lends it, or all of them do."""
    lenders = [
        replace(queue, lends=True)
        for name, queue in case.snapshot.queues.items()
        if queue.reserved and name != case.gang.queue
    ]
    how = "guarantee (`guarantee.lend: true`)"
    for lender in lenders[:2]:
        words = f"queue {lender.name} lending its {how}"
        yield Remedy(words, partial(with_queues, queues=[lender]))
    if len(lenders) > 1:
        words = f"queues {some([each.name for each in lenders])} lending their {how}"
        yield Remedy(words, partial(with_queues, queues=lenders))
