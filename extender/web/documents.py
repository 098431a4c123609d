"""The plan as JSON: one shape for the operations port, the command line and saved files."""

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
#: A gang may wait for thousands: of those that end last so many are listed, all are counted.
_ENDINGS = 10
Since = Callable[[GangKey], float | None]
Estimates = Callable[[GangKey], Estimate | None]


def _never(key: GangKey) -> float | None:
    return None


def _nobody_asks(key: GangKey) -> Estimate | None:
    return None


def plan(
    current: Plan,
    snapshot: Snapshot | None = None,
    since: Since = _never,
    estimates: Estimates = _nobody_asks,
) -> Document:
    """Give the whole plan; with its *snapshot*, pods are named where they go.

    *since* tells when a gang began to wait, to run, or to be over, *estimates* when it will start.
    """
    return {
        "generation": current.generation,
        "queues": queues(current),
        "shares": [share(figures) for figures in current.shares.values()],
        "gangs": gangs(current, snapshot, since, estimates),
        "binds": _binds(current, snapshot) if snapshot else {},
        "evictions": [eviction(each) for each in current.evictions],
        "idle": amounts(current.unused.without(PODS)),
        "kept": [kept(each) for each in current.held],
        "schedulers": schedulers(snapshot.schedulers.values(), snapshot.now) if snapshot else [],
    }


def schedulers(callers: Iterable[SchedulerStatus], now: float) -> list[Document]:
    """Give what we hear of the kube-scheduler behind each scheduler name."""
    return [
        {
            "name": each.name,
            "voice": each.liveness.value,
            "asked_at": timestamp_ms(each.called_at) if each.called_at else None,
            "words": each.words(now),
            "complaint": each.complaint(now),
        }
        for each in callers
    ]


def queues(current: Plan) -> list[Document]:
    """Give every queue's figures."""
    return [queue(figures) for figures in current.queues.values()]


def queue(figures: QueueFigures) -> Document:
    """Give what one queue deserves, uses and wants."""
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
    """Give what one namespace may have of a queue, has at least, uses and wants."""
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
    since: Since = _never,
    estimates: Estimates = _nobody_asks,
) -> list[Document]:
    """Give every gang's verdict."""
    return [
        gang(verdict, current, snapshot, since, estimates) for verdict in current.verdicts.values()
    ]


def gang(
    verdict: Verdict,
    current: Plan,
    snapshot: Snapshot | None = None,
    since: Since = _never,
    estimates: Estimates = _nobody_asks,
) -> Document:
    """Give the verdict on one gang, since when it waits or runs, and where its members go."""
    told = estimates(verdict.gang)
    namespace, _, name = verdict.gang.partition("/")
    began = since(verdict.gang)
    ticket = current.placements.get(verdict.gang)
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
        "estimate": estimate(told) if told is not None else None,
        "placements": _named(verdict.gang, ticket.placements, snapshot) if ticket else {},
        "pipelined": _named(verdict.gang, ticket.pipelined, snapshot) if ticket else {},
    }


def estimate(told: Estimate) -> Document:
    """Give when a gang will start: `at`, `not_before`, or neither where nobody can tell."""
    return {
        "at": timestamp_ms(told.at) if told.at is not None else None,
        "not_before": timestamp_ms(told.not_before) if told.not_before is not None else None,
        "brief": told.brief,
        "words": told.words,
        "after": [
            {
                "gang": each.gang,
                "ends_at": timestamp_ms(each.at),
                "lasts_s": round(each.lasting.seconds, 1),
                "ground": each.lasting.ground.value,
                "samples": each.lasting.samples,
            }
            for each in told.after[-_ENDINGS:]
        ],
        "after_count": len(told.after),
        "not_counted": NOT_COUNTED,
    }


def eviction(order: Eviction) -> Document:
    """Give one pod that is asked to leave."""
    return {
        "pod": f"{order.namespace}/{order.name}",
        "node": order.node,
        "action": order.action,
        "for": order.beneficiary,
    }


def kept(room: HeldCapacity) -> Document:
    """Give idle room that is kept for somebody, or from everybody."""
    return {"amounts": amounts(room.amounts), "for": room.whom, "why": room.words}


def explanation(
    told: Explanation,
    current: Plan,
    snapshot: Snapshot,
    *,
    now: float,
    since: float | None,
    reason_since: float | None,
    story: Sequence[JournalLine],
    estimates: Estimates = _nobody_asks,
) -> Document:
    """Give all there is to say about one gang."""
    return {
        **gang(told.verdict, current, snapshot, lambda _: since, estimates),
        "priority": told.priority,
        "lasted_s": _lasted(since, now),
        "reason_since": timestamp_ms(reason_since) if reason_since is not None else None,
        "reason_lasted_s": _lasted(reason_since, now),
        "members_by_status": dict(told.members),
        "missing": told.missing,
        "queue_figures": queue(told.queue) if told.queue else None,
        "share_figures": share(told.share) if told.share else None,
        "needs": [_need(each) for each in told.needs],
        "needs_count": told.needs_count,
        "ahead": [{"gang": each.gang, "queue": each.queue, "why": each.why} for each in told.ahead],
        "ahead_count": told.ahead_count,
        "victims": [eviction(each) for each in told.victims],
        "protected": dict(told.protected),
        "kept": [kept(each) for each in told.held],
        "schedulers": schedulers(told.schedulers, snapshot.now),
        "would_start_with": list(told.remedies),
        "is_trying": told.remedies == TRYING,
        "story": lines(story),
    }


def findings(found: Sequence[Finding]) -> list[Document]:
    """Give what makes no sense as it is written."""
    return [
        {"kind": each.kind, "name": each.name, "reason": each.reason, "message": each.message}
        for each in found
    ]


def lines(story: Sequence[JournalLine]) -> list[Document]:
    """Give a story, oldest line first."""
    return [
        {"at": timestamp_ms(line.at), "cycle": line.cycle, "word": line.word, "text": line.text}
        for line in story
    ]


def amounts(resources: Resources) -> dict[str, str]:
    """Write amounts as Kubernetes does, sorted by name."""
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
        for key, ticket in current.placements.items()
        for name, node in _named(key, ticket.placements, snapshot).items()
    }


def _named(key: GangKey, nodes: Mapping[Any, str], snapshot: Snapshot | None) -> dict[str, str]:
    """Name pods instead of their uids, which mean nothing to people."""
    members = snapshot.gangs.get(key) if snapshot else None
    if members is None:
        return {str(uid): node for uid, node in nodes.items()}
    names = {pod.uid: pod.name for pod in members.pods}
    return dict(sorted((names.get(uid, str(uid)), node) for uid, node in nodes.items()))
