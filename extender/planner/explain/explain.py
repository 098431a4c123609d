"""Explains the verdict on a gang: its arithmetic, the gangs ahead of it, and tested remedies.

An explanation is computed on request, from the same snapshot and by the same plugins as the plan.
So it costs the planning loop nothing and cannot contradict the plan. The plugin whose part of the
sort keys differs first states the rule by which another gang is ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TypeAlias

from extender.model.gang import Gang, GangKey, Phase
from extender.model.queue import share_name, share_text
from extender.model.reason import Reason
from extender.model.resources import total
from extender.model.snapshot import SchedulerStatus, Snapshot
from extender.planner.explain.case import LAST, Case, Remedy
from extender.planner.explain.ideas import ideas, untried
from extender.planner.extension_points import Key
from extender.planner.obstacles import Shortfall, counted, shortfalls
from extender.planner.plan import (
    Eviction,
    GangStatus,
    HeldCapacity,
    Plan,
    QueueFigures,
    ShareFigures,
    Verdict,
)
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from extender.planner.session import Session
from extender.planner.state import GangState

#: Bounds of the plans made for one explanation; a large cluster gets fewer, to bound the time.
_MOST_PLANS, _FEWEST_PLANS, _MOST_GANGS = 12, 5, 20_000
#: Limits of the remedies tried, and of those combined into one.
_MOST_IDEAS = 8
_MOST_COMBINED = 3
_NOTHING = "nothing an administrator could change"
_NOTHING_FOUND = "nothing was found that an administrator could change"


def remedies(snapshot: Snapshot, plan: Plan, policy: Policy, key: GangKey) -> tuple[str, ...]:
    """Return what would let the gang start; each sentence suffices, or states that nothing does."""
    case = Case(snapshot, plan, policy, key)
    if case.verdict.reason is Reason.SCHEDULER_SILENT:
        return (f"{_NOTHING} here: {case.verdict.reason.mend}",)
    if case.verdict.reason is Reason.POD_GROUP_MISSING:
        return (f"{_NOTHING}: its owner has to create or fix its PodGroup",)
    if words := untried(case):
        return (words,)
    candidates = list(islice(ideas(case), _MOST_IDEAS))
    if not candidates:
        return (_NOTHING_FOUND,)
    plans = min(_MOST_PLANS, max(_FEWEST_PLANS, _MOST_GANGS // (len(snapshot.gangs) or 1)))
    trials = _Trials(case, plans)
    found: dict[str, str] = {}
    for idea in candidates:
        kind = idea.kind or idea.text
        if kind not in (LAST, *found) and (words := trials.alone(snapshot, idea)):
            found[kind] = words
    if found:
        return tuple(found.values())
    together = (trials.together(snapshot, idea) for idea in candidates if idea.kind != LAST)
    last = (trials.alone(snapshot, idea) for idea in candidates if idea.kind == LAST)
    enough = next((words for words in chain(together, last) if words), "")
    if enough:
        return (enough,)
    if case.verdict.reason is Reason.BACKING_OFF:
        return (candidates[0].text,)  # the gang is retried then, whatever the result
    insufficient = "; ".join(idea.text for idea in candidates)
    return (f"{_NOTHING_FOUND}; not sufficient: {insufficient}",)


class _Trials:
    """Tries remedies with a limited number of plans."""

    def __init__(self, case: Case, plans: int) -> None:
        self._policy, self._key = case.policy, case.key
        #: Some controllers create the pods only after the gang is enqueued.
        self._was_not_enqueued = case.verdict.reason is Reason.NOT_ENQUEUED
        self._left = plans

    def alone(self, snapshot: Snapshot, idea: Remedy) -> str:
        """Return the words of *idea* if it lets the gang start."""
        return self._started(idea.text, self._planned(idea.apply(snapshot)))

    def together(self, snapshot: Snapshot, idea: Remedy) -> str:
        """Return the words of *idea* and of what is needed with it, if that suffices.

        One plan remains for what is tried last.
        """
        words: list[str] = []
        step: Remedy | None = idea
        while step is not None and len(words) < _MOST_COMBINED:
            words.append(step.text)
            snapshot = step.apply(snapshot)
            plan = self._planned(snapshot) if self._left > 1 else None
            if plan is None:
                return ""
            if sentence := self._started(", and ".join(words), plan):
                return sentence
            more = ideas(Case(snapshot, plan, self._policy, self._key))
            step = next((each for each in more if each.text not in words), None)
        return ""

    def _planned(self, snapshot: Snapshot) -> Plan | None:
        if not self._left:
            return None
        self._left -= 1
        return make_plan(snapshot, self._policy)

    def _started(self, words: str, plan: Plan | None) -> str:
        """Return *words* if the gang may start by *plan*, at once or after evictions for it."""
        verdict = plan.verdicts.get(self._key) if plan is not None else None
        if plan is None or verdict is None:
            return ""
        if verdict.status in (GangStatus.ADMITTED, GangStatus.RUNNING):
            return words
        is_enqueued = self._was_not_enqueued and verdict.phase is Phase.INQUEUE
        if is_enqueued and verdict.reason is Reason.NOT_ENOUGH_MEMBERS:
            return f"{words}, and then its pods"
        if verdict.reason is not Reason.WAITING_FOR_VICTIMS:
            return ""
        evicted = sum(each.beneficiary == self._key for each in plan.evictions)
        return f"{words}, after {counted(evicted, 'pod')} evicted for it" if evicted else ""


#: So many gangs ahead, and sizes of members, are listed; the others are only counted.
NAMED = 10
#: Returns what would let a gang start.
Remedying: TypeAlias = Callable[[Snapshot, Plan, Policy, GangKey], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class GangAhead:
    """A waiting gang that is ahead in the order, and the rule that puts it there."""

    gang: GangKey
    queue: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The verdict on one gang with its causes and remedies."""

    verdict: Verdict
    priority: int
    #: Members by status.
    members: Mapping[str, int]
    #: Members that must find a node before it may start.
    missing: int
    queue: QueueFigures | None = None
    #: The share of its namespace in the queue, where that is limited or guaranteed.
    share: ShareFigures | None = None
    #: Shortfalls of the first sizes of members, and the number of sizes.
    needs: tuple[Shortfall, ...] = ()
    needs_count: int = 0
    ahead: tuple[GangAhead, ...] = ()
    ahead_count: int = 0
    #: Pods that this plan evicts for it.
    victims: tuple[Eviction, ...] = ()
    #: Why pods are protected from eviction now -> how many.
    protected: Mapping[str, int] = field(default_factory=dict)
    #: Free capacity that it could use in part, but that is held for others.
    held: tuple[HeldCapacity, ...] = ()
    #: The schedulers of its waiting members.
    schedulers: tuple[SchedulerStatus, ...] = ()
    #: What would let it start, tested in the planner; each suffices, or states that nothing does.
    remedies: tuple[str, ...] = ()


def explain(
    snapshot: Snapshot,
    plan: Plan,
    policy: Policy,
    key: GangKey,
    remedied: Remedying = remedies,
) -> Explanation | None:
    """Explain the verdict on a gang; None when the plan has no such gang.

    *remedied* returns what would let it start; it takes by far the most time.
    """
    verdict, gang = plan.verdicts.get(key), snapshot.gangs.get(key)
    if verdict is None or gang is None:
        return None
    stuck = verdict.status in (GangStatus.WAITING, GangStatus.INVALID)
    shapes = Counter(pod.shape for pod in gang.waiting)
    shown = dict(islice(shapes.items(), NAMED))
    with Session(snapshot, policy) as session:
        needs = shortfalls(session, plan, shown) if shown else ()
        ahead = _ahead(session, plan, key) if stuck else []
    return Explanation(
        verdict=verdict,
        priority=gang.priority,
        members={status.value: len(pods) for status, pods in gang.by_status.items()},
        missing=max(0, gang.group.min_member - gang.ready),
        queue=plan.queues.get(gang.queue),
        share=plan.shares.get(share_name(gang.queue, gang.group.namespace)),
        needs=needs,
        needs_count=len(shapes),
        ahead=tuple(ahead[:NAMED]),
        ahead_count=len(ahead),
        victims=tuple(each for each in plan.evictions if each.beneficiary == key),
        protected=dict(Counter(snapshot.protected.values()).most_common()) if stuck else {},
        held=_held_for_others(plan, gang) if stuck else (),
        schedulers=tuple(
            snapshot.schedulers[name]
            for name in sorted(gang.schedulers & snapshot.schedulers.keys())
        ),
        remedies=remedied(snapshot, plan, policy, key) if stuck else (),
    )


def _held_for_others(plan: Plan, gang: Gang) -> tuple[HeldCapacity, ...]:
    """Return held capacity of others with resources that the members of *gang* request."""
    requests = total(pod.requests for pod in gang.waiting)
    own = (gang.key, gang.queue, share_text(gang.queue, gang.group.namespace))
    return tuple(
        each
        for each in plan.held
        if each.beneficiary not in own and any(requests.amount(name) > 0 for name in each.amounts)
    )


def _ahead(session: Session, plan: Plan, key: GangKey) -> list[GangAhead]:
    """Return the waiting gangs ahead of *key*, in order."""
    mine = session.accounting.state(key)
    if mine is None:
        return []

    def order(gang: GangState) -> Key:
        namespace = session.namespace_key(gang.gang.group.namespace)
        return namespace, session.queue_key(gang.queue), session.gang_key(gang)

    own = order(mine)
    waiting = [each for each in session.accounting.contenders.values() if _waits(plan, each.key)]
    others = sorted((each for each in waiting if order(each) < own), key=order)
    return [GangAhead(other.key, other.queue.name, _why(session, other, mine)) for other in others]


def _waits(plan: Plan, key: GangKey) -> bool:
    verdict = plan.verdicts.get(key)
    return verdict is not None and verdict.status is GangStatus.WAITING


def _why(session: Session, other: GangState, mine: GangState) -> str:
    """Return the rule behind the first part of their sort keys that differs."""
    there, here = other.gang.group.namespace, mine.gang.group.namespace
    if session.namespace_key(there) != session.namespace_key(here):
        why = session.plugins.why_namespace_first(there, here)
        return why or f"namespace {there} comes before {here}"
    theirs, ours = other.queue, mine.queue
    if theirs is not ours:
        why = session.plugins.why_queue_first(theirs, ours)
        return why or _why_older(theirs.queue.created, ours.queue.created, f"queue {theirs.name}")
    if session.gang_key(other)[0] != session.gang_key(mine)[0]:
        return f"it runs with {other.gang.scheduled} of at least {other.min_member} members"
    why = session.plugins.why_gang_first(other, mine)
    if not why and session.rules.freed_capacity_is_reserved:
        only_other = other.has_freed_capacity and not mine.has_freed_capacity
        why = "kube-scheduler freed capacity for it" if only_other else ""
    return why or _why_older(other.created, mine.created, "it")


def _why_older(theirs: float, ours: float, subject: str) -> str:
    if theirs < ours:
        return f"{subject} is {ours - theirs:.0f} s older"
    return f"{subject} is equal in everything else and first by name"
