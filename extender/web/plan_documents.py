"""Write a plan as the documents of the API, for the operations port and the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import asdict

from extender.clock import timestamp_ms
from extender.findings.finding import Finding
from extender.forecast.estimate import NOT_COUNTED, Estimate
from extender.model.gang import GangKey
from extender.model.pod import PodUid
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
from extender.status.history import HistoryEntry
from extender.web import documents
from extender.web.background import TRYING

#: A gang may wait for thousands of others; the last to end are listed, all are counted.
_MAX_ENDINGS = 10
Since = Callable[[GangKey], float | None]
Estimates = Callable[[GangKey], Estimate | None]


def _unknown(_: GangKey) -> None:
    return None


class PlanDocuments:
    """Writes the documents of a plan; its *snapshot* names the pods.

    *since* returns when a gang began to wait, run or end, *estimates* when it will start.
    """

    def __init__(
        self,
        plan: Plan,
        snapshot: Snapshot,
        since: Since = _unknown,
        estimates: Estimates = _unknown,
    ) -> None:
        self._plan = plan
        self._snapshot = snapshot
        self._since = since
        self._estimates = estimates

    def plan(self) -> documents.Plan:
        """Return the whole plan."""
        return documents.Plan(
            generation=self._plan.generation,
            queues=self.queues(),
            shares=[_share(figures) for figures in self._plan.shares.values()],
            gangs=self.gangs(),
            binds=self._binds(),
            evictions=[_eviction(each) for each in self._plan.evictions],
            idle=_amounts(self._plan.unused.without(PODS)),
            held=[_held(each) for each in self._plan.held],
            schedulers=self._schedulers(self._snapshot.schedulers.values()),
        )

    def queues(self) -> list[documents.Queue]:
        """Return the figures of every queue."""
        return [_queue(figures) for figures in self._plan.queues.values()]

    def gangs(self) -> list[documents.Gang]:
        """Return the verdict on every gang."""
        return [
            self._gang(verdict, self._since(verdict.gang))
            for verdict in self._plan.verdicts.values()
        ]

    def explanation(
        self,
        explained: Explanation,
        *,
        now: float,
        reason_since: float | None,
        story: Sequence[HistoryEntry],
    ) -> documents.Explanation:
        """Return the explanation of one gang."""
        since = self._since(explained.verdict.gang)
        return documents.Explanation(
            **asdict(self._gang(explained.verdict, since)),
            priority=explained.priority,
            lasted_s=_lasted(since, now),
            reason_since=_time(reason_since),
            reason_lasted_s=_lasted(reason_since, now),
            members_by_status=dict(explained.members),
            missing=explained.missing,
            queue_figures=_queue(explained.queue) if explained.queue else None,
            share_figures=_share(explained.share) if explained.share else None,
            needs=[_need(each) for each in explained.needs],
            needs_count=explained.needs_count,
            ahead=[
                documents.Ahead(gang=each.gang, queue=each.queue, why=each.why)
                for each in explained.ahead
            ],
            ahead_count=explained.ahead_count,
            victims=[_eviction(each) for each in explained.victims],
            protected=dict(explained.protected),
            held=[_held(each) for each in explained.held],
            schedulers=self._schedulers(explained.schedulers),
            would_start_with=list(explained.remedies),
            is_trying=explained.remedies == TRYING,
            history=history_of(story),
        )

    def _gang(self, verdict: Verdict, since: float | None) -> documents.Gang:
        namespace, _, name = verdict.gang.partition("/")
        estimated = self._estimates(verdict.gang)
        placement = self._plan.placements.get(verdict.gang)
        return documents.Gang(
            namespace=namespace,
            name=name,
            queue=verdict.queue,
            min_member=verdict.min_member,
            members=verdict.members,
            phase=verdict.phase.value,
            verdict=verdict.status.value,
            reason=verdict.reason.value,
            message=verdict.message,
            since=_time(since),
            share=round(verdict.share, 6),
            estimate=_estimate(estimated) if estimated is not None else None,
            placements=self._named(verdict.gang, placement.placements) if placement else {},
            pipelined=self._named(verdict.gang, placement.pipelined) if placement else {},
        )

    def _binds(self) -> dict[str, str]:
        return {
            f"{key.partition('/')[0]}/{name}": node
            for key, placement in self._plan.placements.items()
            for name, node in self._named(key, placement.placements).items()
        }

    def _named(self, key: GangKey, nodes: Mapping[PodUid, str]) -> dict[str, str]:
        """Return nodes by the name of the pod instead of its uid."""
        gang = self._snapshot.gangs.get(key)
        names = {pod.uid: pod.name for pod in gang.pods} if gang else {}
        return dict(sorted((names.get(uid, str(uid)), node) for uid, node in nodes.items()))

    def _schedulers(self, statuses: Iterable[SchedulerStatus]) -> list[documents.Scheduler]:
        now = self._snapshot.now
        return [
            documents.Scheduler(
                name=each.name,
                liveness=each.liveness.value,
                called_at=timestamp_ms(each.called_at) if each.called_at else None,
                message=each.message(now),
                problem=each.problem(now),
            )
            for each in statuses
        ]


def findings_of(found: Iterable[Finding]) -> list[documents.Finding]:
    """Return the inconsistencies found in objects."""
    return [documents.Finding(each.kind, each.name, each.reason, each.message) for each in found]


def history_of(story: Iterable[HistoryEntry]) -> list[documents.Line]:
    """Return the history of a gang, oldest line first."""
    return [
        documents.Line(
            at=timestamp_ms(line.at), cycle=line.cycle, reason=line.word, message=line.text
        )
        for line in story
    ]


def _queue(figures: QueueFigures) -> documents.Queue:
    return documents.Queue(
        name=figures.name,
        weight=figures.weight,
        deserved=_amounts(figures.deserved),
        allocated=_amounts(figures.allocated),
        own=_amounts(figures.own),
        requested=_amounts(figures.requested),
        borrowed=_amounts(figures.borrowed),
        share=round(figures.share, 6),
        overused=figures.overused,
    )


def _share(figures: ShareFigures) -> documents.Share:
    return documents.Share(
        queue=figures.queue,
        namespace=figures.namespace,
        at_most=_amounts(figures.limit),
        at_least=_amounts(figures.guarantee),
        allocated=_amounts(figures.allocated),
        requested=_amounts(figures.requested),
    )


def _estimate(estimated: Estimate) -> documents.Estimate:
    return documents.Estimate(
        at=_time(estimated.at),
        not_before=_time(estimated.not_before),
        summary=estimated.summary,
        message=estimated.message,
        after=[
            documents.Ending(
                gang=each.gang,
                ends_at=timestamp_ms(each.at),
                lasts_s=round(each.duration.seconds, 1),
                basis=each.duration.ground.value,
                samples=each.duration.samples,
            )
            for each in estimated.after[-_MAX_ENDINGS:]
        ],
        after_count=len(estimated.after),
        not_counted=NOT_COUNTED,
    )


def _eviction(victim: Eviction) -> documents.Eviction:
    return documents.Eviction(
        pod=f"{victim.namespace}/{victim.name}",
        node=victim.node,
        action=victim.action,
        beneficiary=victim.beneficiary,
    )


def _held(capacity: HeldCapacity) -> documents.Held:
    return documents.Held(
        amounts=_amounts(capacity.amounts), beneficiary=capacity.beneficiary, why=capacity.why
    )


def _need(need: Shortfall) -> documents.Need:
    return documents.Need(
        members=need.members,
        each=_amounts(need.each.without(PODS)),
        slots=need.slots,
        empty_slots=need.empty_slots,
        takers=need.takers,
        obstacles=dict(need.obstacles),
        nearest=[
            documents.Nearest(node=near.node, lacks=_amounts(near.lacks)) for near in need.nearest
        ],
    )


def _amounts(resources: Resources) -> documents.Amounts:
    """Return amounts in the notation of Kubernetes, sorted by name."""
    return {name: write_amount(name, amount) for name, amount in sorted(resources.items())}


def _time(at: float | None) -> str | None:
    return timestamp_ms(at) if at is not None else None


def _lasted(since: float | None, now: float) -> float | None:
    return round(max(0.0, now - since), 1) if since is not None else None
