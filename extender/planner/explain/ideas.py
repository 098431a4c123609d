"""Suggests changes that could help a waiting gang, by its reason; `remedies` tests them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from extender.model.gang import Gang, GangKey
from extender.model.pod import ALLOCATED_SET, Pod, PodUid, Shape, Status
from extender.model.queue import NamespaceShare, Queue, QueueState, share_name, share_text
from extender.model.reason import Reason
from extender.model.resources import NOTHING, PODS, Resources, total
from extender.model.snapshot import Snapshot
from extender.planner.accounting import Accounting
from extender.planner.explain.case import (
    LAST,
    Case,
    Remedy,
    others_waiting,
    some,
    with_all_nodes,
    with_capacity,
    with_gang,
    with_less_used,
    with_members,
    with_open_nodes,
    with_queues,
    with_quota,
    with_shares,
    without_pods,
)
from extender.planner.obstacles import amounts, counted, shortfalls
from extender.planner.plan import HoldReason
from extender.planner.quota import TOP, QuotaNode, tree, upwards, using
from extender.planner.session import Session

#: Limit of the new nodes in one remedy.
_MOST_NODES = 2_000
#: Limit of the sizes of members that are examined one by one.
_MOST_SHAPES = 10


def more_capacity(case: Case) -> Iterator[Remedy]:
    """Suggest opening closed nodes, more capacity for all members, more on one node."""
    if len(case.wanted) > _MOST_SHAPES:
        yield from _capacity_for_all(case)
        return
    with Session(case.snapshot, case.policy) as session:
        needs = shortfalls(session, case.plan, case.wanted)
        found = dict(zip(case.wanted, needs, strict=True))
        nodes = case.snapshot.nodes.nodes
        like = {
            shape: nodes[int(rows[0])]
            for shape in case.wanted
            if len(rows := session.nodes.usable_at_all(shape).nonzero()[0])
        }
        opened = any(session.nodes.count_if_opened(shape) for shape in case.wanted)
    if opened:
        yield Remedy(_opened_text(case.snapshot), with_open_nodes)
    short = {s: n - found[s].slots for s, n in case.wanted.items() if n > found[s].slots}
    enough_for_each = [{shape: 1} for shape in case.wanted] if len(case.wanted) > 1 else []
    for lacking in [short] if short else [*enough_for_each, dict(case.wanted)]:
        if sum(lacking.values()) <= _MOST_NODES:
            words = " and ".join(
                f"{counted(count, 'more member')} of {amounts(s.requests)} each"
                for s, count in lacking.items()
            )
            rest = [
                f"{found[s].empty_slots} of {case.wanted[s]}"
                for s in lacking
                if found[s].empty_slots < case.wanted[s]
            ]
            size = f": the cluster, empty, takes {', '.join(rest)}" if rest else ""
            enlarged = partial(with_capacity, shapes=lacking, like=like)
            yield Remedy(f"capacity for {words}{size}", enlarged)
            if short and (others := others_waiting(case)):
                words = f"capacity for {words}{size}, and no other gang waiting"
                yield Remedy(words, lambda s: enlarged(without_pods(s, others)), LAST)  # noqa: B023
    if sum(short.values()) == 1:
        for near in next(iter(found[s] for s in short)).nearest[:1]:
            yield Remedy(
                f"{amounts(near.lacks)} more free on node {near.node}",
                partial(with_less_used, name=near.node, amounts=near.lacks),
            )


def _capacity_for_all(case: Case) -> Iterator[Remedy]:
    """Suggest nodes for a whole gang with many sizes of members."""
    members = case.wanted.total()
    if members <= _MOST_NODES:
        words = f"capacity for {counted(members, 'more member')} of {len(case.wanted)} sizes"
        yield Remedy(words, partial(with_capacity, shapes=case.wanted, like={}))


def _opened_text(snapshot: Snapshot) -> str:
    closed = [node for node in snapshot.nodes.nodes if node.is_closed and node.managed]
    noun = "node" if len(closed) == 1 else "nodes"
    if all(node.ready for node in closed):
        state = "uncordoned"
    else:
        state = "ready and uncordoned" if any(n.unschedulable for n in closed) else "ready again"
    return f"{noun} {some([node.name for node in closed])} {state}"


def nothing_ahead(case: Case) -> Iterator[Remedy]:
    """Suggest removing the gangs ahead, and then more capacity."""
    first = [str(key) for key, each in case.plan.placements.items() if each.placements]
    first += [held.beneficiary for held in case.plan.held if held.reason is HoldReason.STARVING]
    first = [key for key in first if key != case.key and key in case.snapshot.gangs]
    if first:
        waiting = {pod.uid for key in first for pod in case.snapshot.gangs[GangKey(key)].waiting}
        verb = "is" if len(first) == 1 else "are"
        words = f"{some(first)} gone, which {verb} ahead"
        yield Remedy(words, partial(without_pods, gone=waiting))
    yield from more_capacity(case)


def our_nodes(case: Case) -> Iterator[Remedy]:
    """Suggest labelling the nodes that are not managed."""
    others = [node.name for node in case.snapshot.nodes.nodes if not node.managed]
    noun = "node" if len(others) == 1 else "nodes"
    yield Remedy(f"a label of --node-selector on {noun} {some(others)}", with_all_nodes)
    yield from more_capacity(case)


#: The factors by which a weight is raised.
_FACTORS = (2, 4, 16)


def larger_share(case: Case) -> Iterator[Remedy]:
    """Suggest less usage, a larger deserved share, and more capacity to borrow."""
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
                partial(with_queues, queues=[replace(queue, weight=weight)]),
                kind="weight",
            )
    yield from more_capacity(case)


def less_in_use(case: Case, over: Resources, namespace: str = "") -> Iterator[Remedy]:
    """Suggest removing the last gangs of its queue, as many as use the excess *over*.

    Only gangs of *namespace*, if given: that namespace is over its limit.
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
        pods = {pod.uid for gang in gone for pod in gang.pods if pod.status in ALLOCATED_SET}
        queue = case.gang.queue
        subject = f"namespace {share_text(queue, namespace)}" if namespace else f"queue {queue}"
        words = f"{amounts(over)} less in use by {subject}"
        yield Remedy(words, partial(without_pods, gone=pods))


def higher_ceilings(case: Case) -> Iterator[Remedy]:
    """Suggest raising every ceiling it would exceed, from its queue upwards, and less reserved."""
    plan, needs = case.plan, case.needs
    used = {name: figures.own for name, figures in plan.queues.items()}
    of_shares = {name: figures.allocated for name, figures in plan.shares.items()}
    quotas = tree(using(plan.limits, used, of_shares), plan.total)
    own_share = quotas.get(share_name(case.gang.queue, case.gang.group.namespace))
    raised: list[Queue] = []
    granted: list[NamespaceShare] = []
    words: list[str] = []
    first: tuple[Resources, str] = NOTHING, ""
    for quota in upwards(own_share or quotas.get(case.gang.queue)):
        over = _over(quota, needs)
        needs = needs.beyond(quota.unused_guarantee)
        queue, share = case.snapshot.queues.get(quota.name), case.snapshot.shares.get(quota.name)
        if over and (queue is not None or share is not None):
            first = first if first[0] else (over, quota.namespace)
        if over and queue is not None:
            raised.append(replace(queue, capability=queue.capability + over))
            words.append(f"{amounts(over)} more capability of queue {queue.name}")
        if over and share is not None:
            granted.append(replace(share, limit=share.limit + over))
            words.append(f"a limit {amounts(over)} higher for {quota.text}")
        if over and not quota.namespace:
            yield from _keeping_less(case, quota, quotas.values())
        if over and quota.name == TOP:
            yield from _lending(case)
            yield from more_capacity(case)
    if words:
        yield Remedy(" and ".join(words), lambda s: with_shares(with_queues(s, raised), granted))
    yield from less_in_use(case, *first)


def _over(quota: QuotaNode, needs: Resources) -> Resources:
    """Return by how much *needs* would exceed the ceiling of *quota*."""
    after = needs + Resources(quota.taken) + Resources(quota.terminating)
    over = Resources({n: after.amount(n) - most for n, most in quota.ceiling.items()})
    return Resources({n: a for n, a in over.items() if needs.amount(n) > 0}).positive()


def _keeping_less(case: Case, above: QuotaNode, quotas: Iterable[QuotaNode]) -> Iterator[Remedy]:
    """Suggest cutting the guarantees of namespaces below *above* to what they use."""
    keeping = [
        quota
        for quota in quotas
        if quota.namespace and quota.unused_guarantee and above in upwards(quota)
        if quota.namespace != case.gang.group.namespace
    ]
    for quota in keeping[:2]:
        share = case.snapshot.shares[quota.name]
        less = replace(share, guarantee=share.guarantee.beyond(quota.unused_guarantee).positive())
        words = f"{amounts(quota.unused_guarantee)} less guaranteed to {quota.text}"
        yield Remedy(words, partial(with_shares, shares=[less]))


def _lending(case: Case) -> Iterator[Remedy]:
    """Suggest that queues lend their guarantee: each of two, or all of them."""
    lenders = [
        replace(queue, lends_guarantee=True)
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


#: Limit of the members that are added to a snapshot: a tenant sets the number, even to a billion.
_MOST_MEMBERS = 2_000


def ideas(case: Case) -> Iterable[Remedy]:
    """Return the changes that could help against the reason, the likeliest first."""
    suggest = _IDEAS.get(case.verdict.reason)
    return suggest(case) if suggest is not None else ()


def untried(case: Case) -> str:
    """Return what the gang lacks where that cannot be tested; mostly empty."""
    gang, lacking = case.gang, _lacks(case.gang)
    if case.verdict.reason is not Reason.NOT_ENOUGH_MEMBERS:
        return ""
    wanted = f"{counted(lacking, 'more pod')} that name {gang.key}"
    if not gang.pods:
        return f"{wanted}; not tried: their requests are not known yet"
    return f"{wanted}; not tried: they are too many" if lacking > _MOST_MEMBERS else ""


def _lacks(gang: Gang) -> int:
    """Count the members that do not exist."""
    return gang.group.min_member - (gang.ready - gang.placeholders + len(gang.waiting))


def _members(case: Case) -> Iterator[Remedy]:
    gang, lacking = case.gang, _lacks(case.gang)
    yield from _gates(case)
    if 0 < lacking <= _MOST_MEMBERS:
        more = _siblings(gang, lacking)
        placeholders = {pod.uid for pod in gang.pods if pod.is_placeholder}
        have = gang.group.min_member - lacking

        def add(snapshot: Snapshot) -> Snapshot:
            return with_members(without_pods(snapshot, placeholders), gang.key, more)

        yield Remedy(f"{counted(lacking, 'more pod')} that name {gang.key}; it has {have}", add)


def _roles(case: Case) -> Iterator[Remedy]:
    gang, words, more = case.gang, [], []
    # The minima add up to at most minMember: no role needs more pods than exist.
    for role, needed in sorted(gang.group.role_minima.items()):
        have = sum(pod.role == role and not pod.gated for pod in gang.pods)
        if have < needed:
            words.append(f"{counted(needed - have, 'more pod')} of role {role}")
            more += _siblings(gang, needed - have, role)
    if words:
        yield Remedy(" and ".join(words), partial(with_members, key=gang.key, more=more))


def _siblings(gang: Gang, number: int, role: str = "") -> list[Pod]:
    """Create *number* more members like those it has, of *role* if there are any."""
    models = [pod for pod in gang.pods if role and pod.role == role] or list(gang.pods)
    return [
        replace(
            models[-1],
            uid=PodUid(f"~new-{role}-{index}"),
            name=f"new-{role}-{index}",
            role=role or models[-1].role,
            status=Status.PENDING,
            node="",
            nominated="",
            gated=False,
        )
        for index in range(number if models else 0)
    ]


def _gates(case: Case) -> Iterator[Remedy]:
    gang = case.gang
    gated = sum(pod.gated for pod in gang.pods)
    if gated:
        ungated = tuple(replace(pod, gated=False) if pod.gated else pod for pod in gang.pods)
        words = f"the scheduling gates of {gated} of its pods removed"
        yield Remedy(words, partial(with_gang, gang=replace(gang, pods=ungated)))


def _enqueue(case: Case) -> Iterator[Remedy]:
    for quota in case.snapshot.quotas.get(case.gang.group.namespace, ()):
        words = f"a ResourceQuota {quota.namespace}/{quota.name} that allows more"
        yield Remedy(words, partial(with_quota, quota=replace(quota, hard=NOTHING)))
    minimum = case.gang.group.min_resources
    if minimum:
        yield Remedy(
            f"nodes with {amounts(minimum)} more, its minResources",
            partial(with_capacity, shapes={Shape(requests=minimum): 1}, like={}),
        )
    yield from less_in_use(case, (minimum or NOTHING).without(PODS))


def _victims(case: Case) -> Iterator[Remedy]:
    evicted = {each.uid for each in case.plan.evictions if each.beneficiary == case.key}
    terminating = {
        pod.uid
        for gang in case.snapshot.gangs.values()
        for pod in gang.by_status.get(Status.RELEASING, ())
    }
    words = (
        f"{counted(len(evicted), 'pod')} gone, evicted for it"
        if evicted
        else "the terminating pods gone"
    )
    gone = terminating | (evicted or {each.uid for each in case.plan.evictions})
    yield Remedy(words, partial(without_pods, gone=gone))
    if others := others_waiting(case):
        words = f"{words}, and no other gang waiting"
        yield Remedy(words, partial(without_pods, gone=gone | others), LAST)


def _backoff(case: Case) -> Iterator[Remedy]:
    left = case.gang.backing_off_until - case.snapshot.now
    yield Remedy(
        f"{max(0.0, left):.0f} s more; then it is retried",
        partial(with_gang, gang=replace(case.gang, backing_off_until=0.0)),
    )


def _existing_queue(case: Case) -> Iterator[Remedy]:
    gang = replace(case.gang, problem=None)
    yield Remedy(
        f"a Queue {gang.queue}, or another queue named in its PodGroup",
        lambda s: with_gang(with_queues(s, [Queue(name=gang.queue)]), gang),
    )


def _allowed_queue(case: Case) -> Iterator[Remedy]:
    gang = replace(case.gang, problem=None)
    name = gang.group.namespace
    known = case.snapshot.namespaces.get(name)
    if known is not None and known.problem:
        yield Remedy(f"the annotations of namespace {name} fixed", partial(with_gang, gang=gang))
        return
    for queue in sorted(known.allowed or ()) if known is not None else ():
        if queue in case.snapshot.queues:
            words = f"queue {queue}, which namespace {name} may use, named in its PodGroup"
            moved = replace(gang, queue=queue)
            yield Remedy(words, partial(with_gang, gang=moved), kind="another queue")
    words = f"queue {gang.queue} allowed for namespace {name}"
    yield Remedy(words, partial(with_gang, gang=gang))


def _open_queue(case: Case) -> Iterator[Remedy]:
    line = [each.queue for each in upwards(Accounting(case.snapshot).queues.get(case.queue.name))]
    closed = [replace(q, state=QueueState.OPEN) for q in line if q.state is not QueueState.OPEN]
    noun = "queue" if len(closed) == 1 else "queues"
    named = " and ".join(queue.name for queue in closed)
    yield Remedy(f"{noun} {named} opened again", partial(with_queues, queues=closed))


_IDEAS: dict[Reason, Callable[[Case], Iterable[Remedy]]] = {
    Reason.NOT_ENOUGH_MEMBERS: _members,
    Reason.NOT_ENOUGH_ROLES: _roles,
    Reason.INSUFFICIENT_CAPACITY: more_capacity,
    Reason.EXCEEDS_CLUSTER: more_capacity,
    Reason.NODE_NOT_MANAGED: our_nodes,
    Reason.QUEUE_OVER_DESERVED: larger_share,
    Reason.QUEUE_AT_CAPABILITY: higher_ceilings,
    Reason.NAMESPACE_OVER_LIMIT: higher_ceilings,
    Reason.NOT_ENQUEUED: _enqueue,
    Reason.BEHIND_IN_ORDER: nothing_ahead,
    Reason.WAITING_FOR_VICTIMS: _victims,
    Reason.BACKING_OFF: _backoff,
    Reason.QUEUE_NOT_FOUND: _existing_queue,
    Reason.QUEUE_NOT_ALLOWED: _allowed_queue,
    Reason.QUEUE_CLOSED: _open_queue,
    Reason.GATED: _gates,
}
