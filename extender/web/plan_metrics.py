"""Export the last plan as Prometheus metrics, computed at each scrape.

Nothing is stored between scrapes, so a deleted queue or gang leaves no series. The number of
series is bounded by what exists, and by a cap for what tenants create.

Metrics with the same meaning as in kube-batch and Volcano have their names, too, so that
dashboards and alerts written for them still work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from extender.findings.finding import Finding
from extender.model.gang import Gang, Phase
from extender.model.pod import Status
from extender.model.queue import Queue
from extender.model.reason import Reason
from extender.model.resources import CPU, MEMORY, NOTHING, PODS, Resources, total
from extender.planner.plan import GangStatus, Plan, QueueFigures, Verdict
from extender.status.history import CycleResult

#: The maximum number of series per metric with the name of a gang or a queue.
MOST_GANGS = 500
MOST_QUEUES = 500
#: The maximum per queue. Pods may request any name, so only resources of nodes or queues count.
MOST_RESOURCES = 64
_STUCK = (GangStatus.WAITING, GangStatus.INVALID)
#: Reasons of gangs that could start with more free capacity, or if they were next.
_FOR_CAPACITY = (
    Reason.INSUFFICIENT_CAPACITY,
    Reason.BEHIND_IN_ORDER,
    Reason.WAITING_FOR_VICTIMS,
    Reason.BACKING_OFF,
)
_AMOUNTS = (
    ("deserved", "deserved", "What the queue deserves"),
    ("allocated", "allocated", "What the gangs of the queue use"),
    ("requested", "request", "What the gangs of the queue use or wait for"),
)


class _Scraped(Collector):
    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing: the registry would otherwise collect a plan to learn the names."""
        return []


class PlanCollector(_Scraped):
    """Exports the gauges of the last plan."""

    def __init__(self, last: Callable[[], CycleResult | None]) -> None:
        self._last = last

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of the last plan; none before the first."""
        last = self._last()
        if last is None:
            return
        every = list(last.plan.queues.values())
        queues, omitted = _bounded(every[:MOST_QUEUES], last)
        yield from _queue_amounts(queues)
        yield from _queue_figures(queues)
        yield from _volcano_amounts(queues)
        yield from _pod_groups(last, {figures.name for figures in queues})
        yield _gangs(last.plan)
        yield from _waits(last, {figures.name: figures for figures in queues})
        yield from _unscheduled(last)
        yield _omitted(last.plan, omitted, len(every) - len(queues))


class FindingCollector(_Scraped):
    """Exports the number of findings by kind of object and reason."""

    def __init__(self, findings: Callable[[], Sequence[Finding] | None]) -> None:
        self._findings = findings

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one series per kind and reason; none without findings."""
        family = GaugeMetricFamily(
            "gang_extender_findings",
            "Inconsistent objects.",
            labels=["kind", "reason"],
        )
        counts = Counter((each.kind, each.reason) for each in self._findings() or ())
        for (kind, reason), count in sorted(counts.items()):
            family.add_metric([kind, reason], count)
        yield family


class WatchCollector(_Scraped):
    """Exports how long each watch has been silent."""

    def __init__(self, silence: Callable[[], Mapping[str, float]]) -> None:
        self._silence = silence

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one series per watched resource."""
        family = GaugeMetricFamily(
            "gang_extender_watch_silence_seconds",
            "Seconds since the API server last sent anything about a resource; for the resource"
            " `API server`, since its last answer of any kind.",
            labels=["resource"],
        )
        for resource, seconds in sorted(self._silence().items()):
            family.add_metric([resource], seconds)
        yield family


def _bounded(queues: Iterable[QueueFigures], last: CycleResult) -> tuple[list[QueueFigures], int]:
    """Return *queues* with the amounts that are exported, and how many amounts are not.

    Tenants could create any number of names that only pods use.
    """
    offered = frozenset(last.snapshot.nodes.dimensions)
    shown, omitted = [], 0
    for figures in queues:
        known = offered | _named(last.snapshot.queues.get(figures.name)) | figures.deserved.keys()
        amounts = [_select(getattr(figures, field), known) for field, *_ in _AMOUNTS]
        omitted += sum(len(getattr(figures, field)) for field, *_ in _AMOUNTS)
        omitted -= sum(map(len, amounts))
        deserved, allocated, requested = amounts
        shown.append(replace(figures, deserved=deserved, allocated=allocated, requested=requested))
    return shown, omitted


def _named(queue: Queue | None) -> frozenset[str]:
    if queue is None:
        return frozenset()
    return frozenset((*queue.capability, *queue.deserved, *queue.guarantee))


def _select(amounts: Resources, known: Set[str]) -> Resources:
    names = [name for name in amounts if name in known]
    if len(names) == len(amounts) <= MOST_RESOURCES:
        return amounts
    names.sort(key=lambda name: ("/" in name, name))
    return Resources({name: amounts[name] for name in names[:MOST_RESOURCES]})


def _omitted(plan: Plan, resources: int, queues: int) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "gang_extender_series_left_out",
        "What is not exported: queues and waiting gangs beyond the cap, and amounts of resources"
        " that no node has and no queue names, or beyond the cap of a queue.",
        labels=["what"],
    )
    stuck = sum(each.status in _STUCK for each in plan.verdicts.values())
    for what, count in (
        ("gangs", max(0, stuck - MOST_GANGS)),
        ("queues", queues),
        ("resources", resources),
    ):
        family.add_metric([what], count)
    return family


def _queue_amounts(queues: Iterable[QueueFigures]) -> Iterator[GaugeMetricFamily]:
    for field, _, meaning in _AMOUNTS:
        family = GaugeMetricFamily(
            f"gang_extender_queue_{field}",
            f"{meaning}: cpu in cores, the rest in whole units; a parent queue includes its"
            " children, so do not add up both.",
            labels=["queue", "resource"],
        )
        for figures in queues:
            for name, amount in getattr(figures, field).items():
                family.add_metric([figures.name, name], amount / 1000 if name == CPU else amount)
        yield family


def _queue_figures(queues: Iterable[QueueFigures]) -> Iterator[GaugeMetricFamily]:
    for prefix, label in (("gang_extender", "queue"), ("volcano", "queue_name")):
        for field, meaning in (
            (
                "share",
                "The largest used fraction of any resource it deserves; for a parent, of its own"
                " gangs, with hierarchical capacity of its subtree.",
            ),
            ("weight", "The weight of the queue."),
            ("overused", "1 if the queue uses all it deserves."),
        ):
            family = GaugeMetricFamily(f"{prefix}_queue_{field}", meaning, labels=[label])
            for figures in queues:
                family.add_metric([figures.name], float(getattr(figures, field)))
            yield family


def _volcano_amounts(queues: Iterable[QueueFigures]) -> Iterator[GaugeMetricFamily]:
    for field, word, meaning in _AMOUNTS:
        cpu = GaugeMetricFamily(
            f"volcano_queue_{word}_milli_cpu",
            f"{meaning} of cpu, in thousandths.",
            labels=["queue_name"],
        )
        memory = GaugeMetricFamily(
            f"volcano_queue_{word}_memory_bytes",
            f"{meaning} of memory, in bytes.",
            labels=["queue_name"],
        )
        scalars = GaugeMetricFamily(
            f"volcano_queue_{word}_scalar_resources",
            f"{meaning} of everything else, in thousandths.",
            labels=["queue_name", "resource"],
        )
        for figures in queues:
            amounts: Resources = getattr(figures, field)
            cpu.add_metric([figures.name], amounts.amount(CPU))
            memory.add_metric([figures.name], amounts.amount(MEMORY))
            for name, amount in amounts.without(CPU, MEMORY, PODS).items():
                scalars.add_metric([figures.name, name], amount * 1000)
        yield from (cpu, memory, scalars)


def _pod_groups(last: CycleResult, queues: set[str]) -> Iterator[GaugeMetricFamily]:
    counts: Counter[tuple[str, Phase]] = Counter(
        (verdict.queue, verdict.phase)
        for key, verdict in last.plan.verdicts.items()
        if key in last.snapshot.gangs and last.snapshot.gangs[key].group.dialect
    )
    for phase in Phase:
        family = GaugeMetricFamily(
            f"volcano_queue_pod_group_{phase.value.lower()}_count",
            f"PodGroups of the queue in phase {phase.value}.",
            labels=["queue_name"],
        )
        for queue in sorted(queues):
            family.add_metric([queue], counts[queue, phase])
        yield family


def _gangs(plan: Plan) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "gang_extender_gangs",
        "Gangs by verdict and reason, as of the last cycle.",
        labels=["verdict", "reason"],
    )
    counts = Counter((each.status, each.reason) for each in plan.verdicts.values())
    for (status, reason), count in counts.items():
        family.add_metric([status.value, reason.value], count)
    return family


def _waits(last: CycleResult, queues: Mapping[str, QueueFigures]) -> Iterator[GaugeMetricFamily]:
    oldest = GaugeMetricFamily(
        "gang_extender_oldest_waiting_seconds",
        "Waiting time of the gang of the queue that has waited longest, since its first waiting pod"
        " was created; 0 without waiting gangs.",
        labels=["queue"],
    )
    starved = GaugeMetricFamily(
        "gang_extender_starved_seconds",
        "The same for complete gangs that wait for capacity and would keep their queue within what"
        " it deserves.",
        labels=["queue"],
    )
    longest, longest_starved = dict.fromkeys(queues, 0.0), dict.fromkeys(queues, 0.0)
    for verdict in last.plan.verdicts.values():
        figures, gang = queues.get(verdict.queue), last.snapshot.gangs.get(verdict.gang)
        if verdict.status is not GangStatus.WAITING or figures is None or gang is None:
            continue
        age_s = max(0.0, last.snapshot.now - _waits_since(gang))
        longest[figures.name] = max(longest[figures.name], age_s)
        if verdict.reason in _FOR_CAPACITY and _is_within_deserved(gang, figures):
            longest_starved[figures.name] = max(longest_starved[figures.name], age_s)
    for queue in queues:
        oldest.add_metric([queue], longest[queue])
        starved.add_metric([queue], longest_starved[queue])
    yield from (oldest, starved)


def _waits_since(gang: Gang) -> float:
    waiting = [pod.created for pod in gang.pods if pod.status is Status.PENDING]
    return max(gang.group.created, min(waiting, default=0.0))


def _is_within_deserved(gang: Gang, figures: QueueFigures) -> bool:
    lacking = gang.group.min_member - gang.ready
    waiting = [pod.requests for pod in gang.pods if pod.status is Status.PENDING]
    requested = total(waiting[:lacking]) if lacking > 0 else NOTHING
    after = figures.allocated + requested
    within = all(after.amount(name) <= deserved for name, deserved in figures.deserved.items())
    return bool(requested) and bool(figures.deserved) and within


def _unscheduled(last: CycleResult) -> Iterator[GaugeMetricFamily]:
    stuck = [each for each in last.plan.verdicts.values() if each.status in _STUCK]
    jobs = GaugeMetricFamily("volcano_unschedule_job_count", "Gangs that cannot start.")
    jobs.add_metric([], len(stuck))
    yield jobs
    tasks = GaugeMetricFamily(
        "volcano_unschedule_task_count",
        f"Missing members that a gang needs to start; of at most {MOST_GANGS} gangs.",
        labels=["job_id"],
    )
    for verdict in stuck[:MOST_GANGS]:
        tasks.add_metric([verdict.gang], _lacking(last, verdict))
    yield tasks


def _lacking(last: CycleResult, verdict: Verdict) -> int:
    gang = last.snapshot.gangs.get(verdict.gang)
    return max(0, verdict.min_member - (gang.ready if gang else 0))
