"""Why a gang stands where it stands: the arithmetic, who is ahead of it, what would let it start.

Worked out when somebody asks, from the same snapshot and by the same plugins as the plan, so it
costs the planning nothing and cannot disagree with it: the rule by which another gang is ahead is
told by whoever made the part of their keys that differs first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from extender.model.gang import Gang, GangKey
from extender.model.reason import Reason
from extender.model.resources import NOTHING, PODS, Resources, total
from extender.model.snapshot import Snapshot
from extender.plan.census import Census
from extender.plan.decision import Eviction, Kept, Plan, QueueFigures, Standing, Verdict, Why
from extender.plan.opinions import Key
from extender.plan.policy.options import Policy
from extender.plan.queues.quota import TOP, tree, upwards
from extender.plan.room.state import GangState
from extender.plan.session import Session
from extender.plan.verdict.shortfall import Shortfall, amounts, shortfalls

#: So many of those ahead are named; the others are counted.
NAMED = 10


@dataclass(frozen=True, slots=True)
class Ahead:
    """A waiting gang whose turn comes first, and by what rule."""

    gang: GangKey
    queue: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All there is to say about one gang."""

    verdict: Verdict
    priority: int
    #: Members by how far they are.
    members: Mapping[str, int]
    #: Members that must find a node before it may start.
    missing: int
    queue: QueueFigures | None = None
    needs: tuple[Shortfall, ...] = ()
    ahead: tuple[Ahead, ...] = ()
    ahead_count: int = 0
    #: Pods asked to leave for it by this plan.
    victims: tuple[Eviction, ...] = ()
    #: Why pods are left alone now -> how many.
    protected: Mapping[str, int] = field(default_factory=dict)
    #: Idle room that it could use some of, but that is kept for others.
    kept: tuple[Kept, ...] = ()
    #: What would let it start; each sentence is enough by itself or says what is not.
    remedies: tuple[str, ...] = ()


def explain(snapshot: Snapshot, plan: Plan, policy: Policy, key: GangKey) -> Explanation | None:
    """Explain the verdict on a gang; None when the plan knows no such gang."""
    verdict, gang = plan.verdicts.get(key), snapshot.gangs.get(key)
    if verdict is None or gang is None:
        return None
    stuck = verdict.standing in (Standing.WAITING, Standing.INVALID)
    session = Session(Census(snapshot), policy)
    needs = shortfalls(session, plan, gang.waiting) if gang.waiting else ()
    ahead = _ahead(session, plan, key) if stuck else []
    told = Explanation(
        verdict=verdict,
        priority=gang.priority,
        members={status.value: len(pods) for status, pods in gang.by_status.items()},
        missing=max(0, gang.group.min_member - gang.ready),
        queue=plan.queues.get(gang.queue),
        needs=needs,
        ahead=tuple(ahead[:NAMED]),
        ahead_count=len(ahead),
        victims=tuple(each for each in plan.evictions if each.beneficiary == key),
        protected=dict(Counter(snapshot.protected.values()).most_common()) if stuck else {},
        kept=_kept_from(plan, gang) if stuck else (),
    )
    remedy = _REMEDIES.get(verdict.reason) if stuck else None
    case = _Case(snapshot, plan, gang, told)
    return replace(told, remedies=tuple(remedy(case))) if remedy else told


def _kept_from(plan: Plan, gang: Gang) -> tuple[Kept, ...]:
    """List the room that is kept for others and has something the members of *gang* ask for."""
    asked = total(pod.requests for pod in gang.waiting)
    return tuple(
        each
        for each in plan.kept
        if each.whom not in (gang.key, gang.queue)
        and any(asked.amount(name) > 0 for name in each.amounts)
    )


def _ahead(session: Session, plan: Plan, key: GangKey) -> list[Ahead]:
    """List the waiting gangs whose turn comes before that of *key*, the first of them first."""
    mine = session.census.state(key)
    if mine is None:
        return []

    def place(gang: GangState) -> Key:
        return session.queue_key(gang.queue), session.gang_key(gang)

    ours = place(mine)
    waiting = [each for each in session.census.contenders.values() if _waits(plan, each.key)]
    others = sorted((each for each in waiting if place(each) < ours), key=place)
    return [Ahead(other.key, other.queue.name, _why(session, other, mine)) for other in others]


def _waits(plan: Plan, key: GangKey) -> bool:
    verdict = plan.verdicts.get(key)
    return verdict is not None and verdict.standing is Standing.WAITING


def _why(session: Session, other: GangState, mine: GangState) -> str:
    """Say what decided: the first part of their keys in which they differ."""
    theirs, ours = other.queue, mine.queue
    if theirs is not ours:
        why = session.opinions.why_queue_first(theirs, ours)
        return why or _why_older(theirs.queue.created, ours.queue.created, f"queue {theirs.name}")
    if session.gang_key(other)[0] != session.gang_key(mine)[0]:
        return f"it runs with {other.gang.seated} of at least {other.min_member} members"
    why = session.opinions.why_gang_first(other, mine)
    return why or _why_older(other.created, mine.created, "it")


def _why_older(theirs: float, ours: float, who: str) -> str:
    if theirs < ours:
        return f"{who} is {ours - theirs:.0f} s older"
    return f"{who} is equal in all and first by name"


@dataclass(frozen=True, slots=True)
class _Case:
    snapshot: Snapshot
    plan: Plan
    gang: Gang
    #: All but the remedies.
    told: Explanation


def _more_members(case: _Case) -> Iterator[str]:
    group = case.gang.group
    have = case.gang.ready + len(case.gang.waiting)
    yield f"{_more(group.min_member - have, 'pod')} that name {case.gang.key}; it has {have}"
    yield from _gates(case)


def _more_roles(case: _Case) -> Iterator[str]:
    for role, needed in sorted(case.gang.group.role_minima.items()):
        have = sum(pod.role == role and not pod.gated for pod in case.gang.pods)
        if have < needed:
            yield f"{_more(needed - have, 'pod')} of role {role}"


def _more_room(case: _Case) -> Iterator[str]:
    for need in case.told.needs:
        short = min(need.members, case.told.missing) - need.slots
        if short <= 0:
            continue
        yield f"room for {_more(short, 'member')} of {amounts(need.each)} each"
        for near in need.nearest[:1]:
            yield f"node {near.node} takes one more with {amounts(near.lacks)} more"


def _larger_cluster(case: _Case) -> Iterator[str]:
    for need in case.told.needs:
        wanted = min(need.members, case.told.missing)
        if wanted > need.empty_slots:
            yield (
                f"nodes for {_more(wanted - need.empty_slots, 'member')} of {amounts(need.each)}"
                f" each: the cluster, empty, takes {need.empty_slots} of {wanted}"
            )


def _due(case: _Case) -> Iterator[str]:
    figures = case.told.queue
    if figures is None:
        return
    over = _least(case).beyond((figures.deserved - figures.allocated).positive()).positive()
    yield from _more_room(case)
    yield f"{amounts(over)} less in use by queue {figures.name}, or that much more of its due"
    yield f"a higher weight of queue {figures.name}, or fewer gangs waiting in other queues"


def _capability(case: _Case) -> Iterator[str]:
    """Name every ceiling it would break, from its queue upwards, and who keeps the rest."""
    plan, least = case.plan, _least(case)
    used = {name: figures.allocated for name, figures in plan.queues.items()}
    quotas = tree((s._replace(used=used.get(s.name, NOTHING)) for s in plan.stakes), plan.total)
    for quota in upwards(quotas.get(case.gang.queue)):
        after = least + Resources(quota.held)
        over = Resources({name: after.amount(name) - most for name, most in quota.most.items()})
        over = Resources({n: a for n, a in over.items() if least.amount(n) > 0}).positive()
        if over and quota.name != TOP:
            said = f"{amounts(over)} more capability of queue {quota.name}"
            yield f"{said}, or less in use by it"
        for each in plan.kept if over and quota.name == TOP else ():
            if each.why is Why.GUARANTEED and each.whom != case.gang.queue:
                yield f"queue {each.whom} lending its guarantee (`guarantee.lend: true`)"


def _let_in(case: _Case) -> Iterator[str]:
    asked = case.gang.group.min_resources
    if asked is not None:
        yield f"{amounts(asked)} (its minResources) in reach of queue {case.gang.queue}"


def _victims(case: _Case) -> Iterator[str]:
    asked = len(case.told.victims)
    yield f"the {asked} pods asked to leave, gone" if asked else "the pods that leave, gone"


def _patience(case: _Case) -> Iterator[str]:
    left = case.gang.backing_off_until - case.snapshot.now
    yield f"{max(0.0, left):.0f} s more; then it is tried again"


def _gates(case: _Case) -> Iterator[str]:
    gated = sum(pod.gated for pod in case.gang.pods)
    if gated:
        yield f"the scheduling gates of {gated} of its pods taken away"


def _more(number: int, noun: str) -> str:
    return f"{number} more {noun}" + ("" if number == 1 else "s")


def _least(case: _Case) -> Resources:
    """Add up what the members it lacks ask for."""
    return total(pod.requests for pod in case.gang.waiting[: case.told.missing]).without(PODS)


_REMEDIES: dict[Reason, Callable[[_Case], Iterable[str]]] = {
    Reason.NOT_ENOUGH_MEMBERS: _more_members,
    Reason.NOT_ENOUGH_ROLES: _more_roles,
    Reason.NOT_ENOUGH_ROOM: _more_room,
    Reason.EXCEEDS_CLUSTER: _larger_cluster,
    Reason.QUEUE_OVER_DESERVED: _due,
    Reason.QUEUE_AT_CAPABILITY: _capability,
    Reason.NOT_ENQUEUED: _let_in,
    Reason.BEHIND_IN_ORDER: lambda _: ["the gangs ahead of it started, or gone"],
    Reason.WAITING_FOR_VICTIMS: _victims,
    Reason.BACKING_OFF: _patience,
    Reason.QUEUE_NOT_FOUND: lambda case: [
        f"a Queue {case.gang.queue}, or another queue named in its PodGroup"
    ],
    Reason.QUEUE_CLOSED: lambda case: [f"queue {case.gang.queue} opened again"],
    Reason.GATED: _gates,
}
