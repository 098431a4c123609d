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
from typing import TypeAlias

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


#: The values of the labels, and the value of the series.
_Sample: TypeAlias = tuple[Sequence[str], float]


def _family(
    name: str, meaning: str, labels: Sequence[str], samples: Iterable[_Sample]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, meaning, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


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
        counts = Counter((each.kind, each.reason) for each in self._findings() or ())
        yield _family(
            "gang_extender_findings",
            "Inconsistent objects.",
            ["kind", "reason"],
            sorted(counts.items()),
        )


class WatchCollector(_Scraped):
    """Exports how long each watch has been silent."""

    def __init__(self, silence: Callable[[], Mapping[str, float]]) -> None:
        self._silence = silence

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield one series per watched resource."""
        yield _family(
            "gang_extender_watch_silence_seconds",
            "Seconds since the API server last sent anything about a resource; for the resource"
            " `API server`, since its last answer of any kind.",
            ["resource"],
            (((resource,), seconds) for resource, seconds in sorted(self._silence().items())),
        )


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
    stuck = sum(each.status in _STUCK for each in plan.verdicts.values())
    return _family(
        "gang_extender_series_left_out",
        "What is not exported: queues and waiting gangs beyond the cap, and amounts of resources"
        " that no node has and no queue names, or beyond the cap of a queue.",
        ["what"],
        [
            (["gangs"], max(0, stuck - MOST_GANGS)),
            (["queues"], queues),
            (["resources"], resources),
        ],
    )


def _queue_amounts(queues: Iterable[QueueFigures]) -> Iterator[GaugeMetricFamily]:
    for field, _, meaning in _AMOUNTS:
        yield _family(
            f"gang_extender_queue_{field}",
            f"{meaning}: cpu in cores, the rest in whole units; a parent queue includes its"
            " children, so do not add up both.",
            ["queue", "resource"],
            (
                ((figures.name, name), amount / 1000 if name == CPU else amount)
                for figures in queues
                for name, amount in getattr(figures, field).items()
            ),
        )


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
            samples = (((each.name,), float(getattr(each, field))) for each in queues)
            yield _family(f"{prefix}_queue_{field}", meaning, [label], samples)


def _volcano_amounts(queues: Iterable[QueueFigures]) -> Iterator[GaugeMetricFamily]:
    for field, word, meaning in _AMOUNTS:
        amounts: dict[str, Resources] = {each.name: getattr(each, field) for each in queues}
        yield _family(
            f"volcano_queue_{word}_milli_cpu",
            f"{meaning} of cpu, in thousandths.",
            ["queue_name"],
            (((queue,), each.amount(CPU)) for queue, each in amounts.items()),
        )
        yield _family(
            f"volcano_queue_{word}_memory_bytes",
            f"{meaning} of memory, in bytes.",
            ["queue_name"],
            (((queue,), each.amount(MEMORY)) for queue, each in amounts.items()),
        )
        yield _family(
            f"volcano_queue_{word}_scalar_resources",
            f"{meaning} of everything else, in thousandths.",
            ["queue_name", "resource"],
            (
                ((queue, name), amount * 1000)
                for queue, each in amounts.items()
                for name, amount in each.without(CPU, MEMORY, PODS).items()
            ),
        )


def _pod_groups(last: CycleResult, queues: set[str]) -> Iterator[GaugeMetricFamily]:
    counts: Counter[tuple[str, Phase]] = Counter(
        (verdict.queue, verdict.phase)
        for key, verdict in last.plan.verdicts.items()
        if key in last.snapshot.gangs and last.snapshot.gangs[key].group.dialect
    )
    for phase in Phase:
        yield _family(
            f"volcano_queue_pod_group_{phase.value.lower()}_count",
            f"PodGroups of the queue in phase {phase.value}.",
            ["queue_name"],
            [((queue,), counts[queue, phase]) for queue in sorted(queues)],
        )


def _gangs(plan: Plan) -> GaugeMetricFamily:
    counts = Counter((each.status.value, each.reason.value) for each in plan.verdicts.values())
    return _family(
        "gang_extender_gangs",
        "Gangs by verdict and reason, as of the last cycle.",
        ["verdict", "reason"],
        counts.items(),
    )


def _waits(last: CycleResult, queues: Mapping[str, QueueFigures]) -> Iterator[GaugeMetricFamily]:
    longest, longest_starved = dict.fromkeys(queues, 0.0), dict.fromkeys(queues, 0.0)
    for verdict in last.plan.verdicts.values():
        figures, gang = queues.get(verdict.queue), last.snapshot.gangs.get(verdict.gang)
        if verdict.status is not GangStatus.WAITING or figures is None or gang is None:
            continue
        age_s = max(0.0, last.snapshot.now - _waits_since(gang))
        longest[figures.name] = max(longest[figures.name], age_s)
        if verdict.reason in _FOR_CAPACITY and _is_within_deserved(gang, figures):
            longest_starved[figures.name] = max(longest_starved[figures.name], age_s)
    yield _family(
        "gang_extender_oldest_waiting_seconds",
        "Waiting time of the gang of the queue that has waited longest, since its first waiting pod"
        " was created; 0 without waiting gangs.",
        ["queue"],
        (((queue,), seconds) for queue, seconds in longest.items()),
    )
    yield _family(
        "gang_extender_starved_seconds",
        "The same for complete gangs that wait for capacity and would keep their queue within what"
        " it deserves.",
        ["queue"],
        (((queue,), seconds) for queue, seconds in longest_starved.items()),
    )


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
    yield _family(
        "volcano_unschedule_job_count", "Gangs that cannot start.", (), [((), len(stuck))]
    )
    yield _family(
        "volcano_unschedule_task_count",
        f"Missing members that a gang needs to start; of at most {MOST_GANGS} gangs.",
        ["job_id"],
        (((verdict.gang,), _lacking(last, verdict)) for verdict in stuck[:MOST_GANGS]),
    )


def _lacking(last: CycleResult, verdict: Verdict) -> int:
    gang = last.snapshot.gangs.get(verdict.gang)
    return max(0, verdict.min_member - (gang.ready if gang else 0))
