"""Encode the plan as JSON: one format for the operations port, the CLI and saved files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from extender.clock import timestamp_ms
from extender.findings.finding import Finding
from extender.forecast.estimate import NOT_COUNTED, Estimate
from extender.model.gang import GangKey
from extender.model.resources import PODS, Resources, write_amount
from extender.model.snapshot import SchedulerStatus, Snapshot
from extender.planner.explain.explain import Explanation
from extender.planner.obstacles import Shortfall
from extender.planner.plan import (
    Eviction,
    HeldCapacity,
    Plan,
    QueueFigures,
    ShareFigures,
    Verdict,
)
from extender.status.history import JournalLine
from extender.web.background import TRYING

Document = dict[str, Any]
#: A gang may wait for thousands of others; the last to end are listed, all are counted.
_MAX_ENDINGS = 10
Since = Callable[[GangKey], float | None]
Estimates = Callable[[GangKey], Estimate | None]


def _unknown(key: GangKey) -> float | None:
    return None


def _no_estimate(key: GangKey) -> Estimate | None:
    return None


def plan(
    current: Plan,
    snapshot: Snapshot | None = None,
    since: Since = _unknown,
    estimates: Estimates = _no_estimate,
) -> Document:
    """Return the whole plan; with its *snapshot*, placements name pods.

    *since* returns when a gang began to wait, run or end, *estimates* when it will start.
    """
    return {
        "generation": current.generation,
        "queues": queues(current),
        "shares": [share(figures) for figures in current.shares.values()],
        "gangs": gangs(current, snapshot, since, estimates),
        "binds": _binds(current, snapshot) if snapshot else {},
        "evictions": [eviction(each) for each in current.evictions],
        "idle": amounts(current.unused.without(PODS)),
        "held": [held(each) for each in current.held],
        "schedulers": schedulers(snapshot.schedulers.values(), snapshot.now) if snapshot else [],
    }


def schedulers(statuses: Iterable[SchedulerStatus], now: float) -> list[Document]:
    """Return the activity of the kube-scheduler behind each scheduler name."""
    return [
        {
            "name": each.name,
            "liveness": each.liveness.value,
            "called_at": timestamp_ms(each.called_at) if each.called_at else None,
            "message": each.words(now),
            "problem": each.complaint(now),
        }
        for each in statuses
    ]


def queues(current: Plan) -> list[Document]:
    """Return the figures of every queue."""
    return [queue(figures) for figures in current.queues.values()]


def queue(figures: QueueFigures) -> Document:
    """Return what one queue deserves, uses and requests."""
    return {
        "name": figures.name,
        "weight": figures.weight,
        "deserved": amounts(figures.deserved),
        "allocated": amounts(figures.allocated),
        "own": amounts(figures.own),
        "requested": amounts(figures.requested),
        "borrowed": amounts(figures.borrowed),
        "share": round(figures.share, 6),
        "overused": figures.overused,
    }


def share(figures: ShareFigures) -> Document:
    """Return the limit, guarantee, usage and requests of a namespace in a queue."""
    return {
        "queue": figures.queue,
        "namespace": figures.namespace,
        "at_most": amounts(figures.limit),
        "at_least": amounts(figures.guarantee),
        "allocated": amounts(figures.allocated),
        "requested": amounts(figures.requested),
    }


def gangs(
    current: Plan,
    snapshot: Snapshot | None = None,
    since: Since = _unknown,
    estimates: Estimates = _no_estimate,
) -> list[Document]:
    """Return the verdict on every gang."""
    return [
        gang(verdict, current, snapshot, since, estimates) for verdict in current.verdicts.values()
    ]


def gang(
    verdict: Verdict,
    current: Plan,
    snapshot: Snapshot | None = None,
    since: Since = _unknown,
    estimates: Estimates = _no_estimate,
) -> Document:
    """Return the verdict on one gang, since when it holds, and the placements of its members."""
    estimated = estimates(verdict.gang)
    namespace, _, name = verdict.gang.partition("/")
    began = since(verdict.gang)
    placement = current.placements.get(verdict.gang)
    return {
        "namespace": namespace,
        "name": name,
        "queue": verdict.queue,
        "min_member": verdict.min_member,
        "members": verdict.members,
        "phase": verdict.phase.value,
        "verdict": verdict.standing.value,
        "reason": verdict.reason.value,
        "message": verdict.message,
        "since": timestamp_ms(began) if began is not None else None,
        "share": round(verdict.share, 6),
        "estimate": estimate(estimated) if estimated is not None else None,
        "placements": _named(verdict.gang, placement.placements, snapshot) if placement else {},
        "pipelined": _named(verdict.gang, placement.pipelined, snapshot) if placement else {},
    }


def estimate(estimated: Estimate) -> Document:
    """Return when a gang will start: `at`, `not_before`, or neither if that is unknown."""
    return {
        "at": timestamp_ms(estimated.at) if estimated.at is not None else None,
        "not_before": timestamp_ms(estimated.not_before)
        if estimated.not_before is not None
        else None,
        "summary": estimated.brief,
        "message": estimated.words,
        "after": [
            {
                "gang": each.gang,
                "ends_at": timestamp_ms(each.at),
                "lasts_s": round(each.duration.seconds, 1),
                "basis": each.duration.ground.value,
                "samples": each.duration.samples,
            }
            for each in estimated.after[-_MAX_ENDINGS:]
        ],
        "after_count": len(estimated.after),
        "not_counted": NOT_COUNTED,
    }


def eviction(victim: Eviction) -> Document:
    """Return one pod to evict."""
    return {
        "pod": f"{victim.namespace}/{victim.name}",
        "node": victim.node,
        "action": victim.action,
        "for": victim.beneficiary,
    }


def held(capacity: HeldCapacity) -> Document:
    """Return unused capacity that is held for some pods, or from all."""
    return {
        "amounts": amounts(capacity.amounts),
        "for": capacity.beneficiary,
        "why": capacity.words,
    }


def explanation(
    explained: Explanation,
    current: Plan,
    snapshot: Snapshot,
    *,
    now: float,
    since: float | None,
    reason_since: float | None,
    story: Sequence[JournalLine],
    estimates: Estimates = _no_estimate,
) -> Document:
    """Return the explanation of one gang."""
    return {
        **gang(explained.verdict, current, snapshot, lambda _: since, estimates),
        "priority": explained.priority,
        "lasted_s": _lasted(since, now),
        "reason_since": timestamp_ms(reason_since) if reason_since is not None else None,
        "reason_lasted_s": _lasted(reason_since, now),
        "members_by_status": dict(explained.members),
        "missing": explained.missing,
        "queue_figures": queue(explained.queue) if explained.queue else None,
        "share_figures": share(explained.share) if explained.share else None,
        "needs": [_need(each) for each in explained.needs],
        "needs_count": explained.needs_count,
        "ahead": [
            {"gang": each.gang, "queue": each.queue, "why": each.why} for each in explained.ahead
        ],
        "ahead_count": explained.ahead_count,
        "victims": [eviction(each) for each in explained.victims],
        "protected": dict(explained.protected),
        "held": [held(each) for each in explained.held],
        "schedulers": schedulers(explained.schedulers, snapshot.now),
        "would_start_with": list(explained.remedies),
        "is_trying": explained.remedies == TRYING,
        "history": lines(story),
    }


def findings(found: Sequence[Finding]) -> list[Document]:
    """Return the inconsistencies found in objects."""
    return [
        {"kind": each.kind, "name": each.name, "reason": each.reason, "message": each.message}
        for each in found
    ]


def lines(story: Sequence[JournalLine]) -> list[Document]:
    """Return the history of a gang, oldest line first."""
    return [
        {
            "at": timestamp_ms(line.at),
            "cycle": line.cycle,
            "reason": line.word,
            "message": line.text,
        }
        for line in story
    ]


def amounts(resources: Resources) -> dict[str, str]:
    """Return amounts in the notation of Kubernetes, sorted by name."""
    return {name: write_amount(name, amount) for name, amount in sorted(resources.items())}


def _lasted(since: float | None, now: float) -> float | None:
    return round(max(0.0, now - since), 1) if since is not None else None


def _need(need: Shortfall) -> Document:
    return {
        "members": need.members,
        "each": amounts(need.each.without(PODS)),
        "slots": need.slots,
        "empty_slots": need.empty_slots,
        "takers": need.takers,
        "obstacles": dict(need.obstacles),
        "nearest": [{"node": near.node, "lacks": amounts(near.lacks)} for near in need.nearest],
    }


def _binds(current: Plan, snapshot: Snapshot) -> dict[str, str]:
    return {
        f"{key.partition('/')[0]}/{name}": node
        for key, placement in current.placements.items()
        for name, node in _named(key, placement.placements, snapshot).items()
    }


def _named(key: GangKey, nodes: Mapping[Any, str], snapshot: Snapshot | None) -> dict[str, str]:
    """Return nodes by the name of the pod instead of its uid."""
    members = snapshot.gangs.get(key) if snapshot else None
    if members is None:
        return {str(uid): node for uid, node in nodes.items()}
    names = {pod.uid: pod.name for pod in members.pods}
    return dict(sorted((names.get(uid, str(uid)), node) for uid, node in nodes.items()))
