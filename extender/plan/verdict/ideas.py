"""What could help a gang that waits, thought of from its reason; `remedies` tries it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from extender.model.gang import Gang
from extender.model.pod import Pod, PodUid, Shape, Status
from extender.model.queue import Queue, QueueState
from extender.model.reason import Reason
from extender.model.resources import NOTHING, PODS
from extender.model.snapshot import Snapshot
from extender.plan.census import Census
from extender.plan.queues.limits import upwards
from extender.plan.verdict.case import LAST, Case, Remedy, count_pods, more_of, others_waiting
from extender.plan.verdict.changes import (
    with_gang,
    with_members,
    with_queues,
    with_quota,
    with_room,
    without_pods,
)
from extender.plan.verdict.queue_ideas import higher_ceilings, larger_due, less_in_use
from extender.plan.verdict.room_ideas import more_room, nobody_first, our_nodes
from extender.plan.verdict.shortfall import amounts

#: More members than this are not made up to see what would become of them: a tenant writes the
#: number, a billion if he likes.
_MOST_MEMBERS = 2_000


def ideas(case: Case) -> Iterable[Remedy]:
    """Think of what could help against the reason, the likeliest first."""
    think = _IDEAS.get(case.verdict.reason)
    return think(case) if think is not None else ()


def untried(case: Case) -> str:
    """Say what the gang lacks where that cannot be tried; mostly nothing."""
    gang, lacking = case.gang, _lacks(case.gang)
    if case.verdict.reason is not Reason.NOT_ENOUGH_MEMBERS:
        return ""
    wanted = f"{more_of(lacking, 'pod')} that name {gang.key}"
    if not gang.pods:
        return f"{wanted}; not tried, for nobody knows yet what they ask for"
    return f"{wanted}; not tried, for they are too many" if lacking > _MOST_MEMBERS else ""


def _lacks(gang: Gang) -> int:
    """Count the members that do not exist."""
    return gang.group.min_member - (gang.ready - gang.placeholders + len(gang.waiting))


def _members(case: Case) -> Iterator[Remedy]:
    gang, lacking = case.gang, _lacks(case.gang)
    yield from _gates(case)
    if 0 < lacking <= _MOST_MEMBERS:
        more = _siblings(gang, lacking)
        places = {pod.uid for pod in gang.pods if pod.is_placeholder}
        have = gang.group.min_member - lacking

        def come(snapshot: Snapshot) -> Snapshot:
            return with_members(without_pods(snapshot, places), gang.key, more)

        yield Remedy(f"{more_of(lacking, 'pod')} that name {gang.key}; it has {have}", come)


def _roles(case: Case) -> Iterator[Remedy]:
    gang, words, more = case.gang, [], []
    # Their minima are no more than its members: none is asked for more than there are pods.
    for role, needed in sorted(gang.group.role_minima.items()):
        have = sum(pod.role == role and not pod.gated for pod in gang.pods)
        if have < needed:
            words.append(f"{more_of(needed - have, 'pod')} of role {role}")
            more += _siblings(gang, needed - have, role)
    if words:
        yield Remedy(" and ".join(words), partial(with_members, key=gang.key, more=more))


def _siblings(gang: Gang, number: int, role: str = "") -> list[Pod]:
    """Make *number* more members like those it has, of *role* if there are any."""
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
        free = tuple(replace(pod, gated=False) if pod.gated else pod for pod in gang.pods)
        words = f"the scheduling gates of {gated} of its pods taken away"
        yield Remedy(words, partial(with_gang, gang=replace(gang, pods=free)))


def _let_in(case: Case) -> Iterator[Remedy]:
    for quota in case.snapshot.quotas.get(case.gang.group.namespace, ()):
        words = f"a ResourceQuota {quota.namespace}/{quota.name} that allows more"
        yield Remedy(words, partial(with_quota, quota=replace(quota, hard=NOTHING)))
    asked = case.gang.group.min_resources
    if asked:
        yield Remedy(
            f"nodes with {amounts(asked)} more, its minResources",
            partial(with_room, shapes={Shape(requests=asked): 1}, like={}),
        )
    yield from less_in_use(case, (asked or NOTHING).without(PODS))


def _victims(case: Case) -> Iterator[Remedy]:
    asked = {each.uid for each in case.plan.evictions if each.beneficiary == case.key}
    leaving = {
        pod.uid
        for gang in case.snapshot.gangs.values()
        for pod in gang.by_status.get(Status.RELEASING, ())
    }
    words = (
        f"{count_pods(len(asked))} gone, asked to leave for it"
        if asked
        else "the leaving pods gone"
    )
    gone = leaving | (asked or {each.uid for each in case.plan.evictions})
    yield Remedy(words, partial(without_pods, gone=gone))
    if others := others_waiting(case):
        words = f"{words}, and no other gang waiting"
        yield Remedy(words, partial(without_pods, gone=gone | others), LAST)


def _patience(case: Case) -> Iterator[Remedy]:
    left = case.gang.backing_off_until - case.snapshot.now
    yield Remedy(
        f"{max(0.0, left):.0f} s more; then it is tried again",
        partial(with_gang, gang=replace(case.gang, backing_off_until=0.0)),
    )


def _found(case: Case) -> Iterator[Remedy]:
    gang = replace(case.gang, problem=None)
    yield Remedy(
        f"a Queue {gang.queue}, or another queue named in its PodGroup",
        lambda s: with_gang(with_queues(s, [Queue(name=gang.queue)]), gang),
    )


def _allowed(case: Case) -> Iterator[Remedy]:
    gang = replace(case.gang, problem=None)
    name = gang.group.namespace
    known = case.snapshot.namespaces.get(name)
    if known is not None and known.problem:
        yield Remedy(f"what is written on namespace {name} mended", partial(with_gang, gang=gang))
        return
    for queue in sorted(known.allowed or ()) if known is not None else ():
        if queue in case.snapshot.queues:
            words = f"queue {queue} named as its own, which namespace {name} may use"
            moved = replace(gang, queue=queue)
            yield Remedy(words, partial(with_gang, gang=moved), kind="another queue")
    yield Remedy(f"queue {gang.queue} allowed to namespace {name}", partial(with_gang, gang=gang))


def _opened(case: Case) -> Iterator[Remedy]:
    line = [each.queue for each in upwards(Census(case.snapshot).queues.get(case.queue.name))]
    shut = [replace(q, state=QueueState.OPEN) for q in line if q.state is not QueueState.OPEN]
    noun = "queue" if len(shut) == 1 else "queues"
    named = " and ".join(queue.name for queue in shut)
    yield Remedy(f"{noun} {named} opened again", partial(with_queues, queues=shut))


_IDEAS: dict[Reason, Callable[[Case], Iterable[Remedy]]] = {
    Reason.NOT_ENOUGH_MEMBERS: _members,
    Reason.NOT_ENOUGH_ROLES: _roles,
    Reason.NOT_ENOUGH_ROOM: more_room,
    Reason.EXCEEDS_CLUSTER: more_room,
    Reason.NODE_NOT_OURS: our_nodes,
    Reason.QUEUE_OVER_DESERVED: larger_due,
    Reason.QUEUE_AT_CAPABILITY: higher_ceilings,
    Reason.NAMESPACE_AT_MOST: higher_ceilings,
    Reason.NOT_ENQUEUED: _let_in,
    Reason.BEHIND_IN_ORDER: nobody_first,
    Reason.WAITING_FOR_VICTIMS: _victims,
    Reason.BACKING_OFF: _patience,
    Reason.QUEUE_NOT_FOUND: _found,
    Reason.QUEUE_NOT_ALLOWED: _allowed,
    Reason.QUEUE_CLOSED: _opened,
    Reason.GATED: _gates,
}
