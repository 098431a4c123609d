"""A scenario as it is written (nodes, queues, arrivals), its checks and its jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from extender import yaml_loader
from extender.errors import InvalidInput
from extender.model.node import Node
from extender.model.pod import Shape
from extender.model.queue import DEFAULT_QUEUE, Queue
from extender.model.resources import PODS, Resources
from extender.sim.distributions import Clause, Distribution, amounts, draw, seconds
from extender.sim.traces import TraceSpec
from extender.sim.workloads import Job

#: Limits of one scenario.
MOST_NODES = 5_000
MOST_GANGS = 100_000
MOST_PODS = 500_000
LONGEST_S = 31 * 86400.0
_PODS_OF_A_NODE = 110
#: The longest text of a validation error, in characters.
_LONGEST_ERROR = 300
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
Count = Annotated[int, Meta(ge=0, le=MOST_PODS)]


class NodePool(Clause, kw_only=True):
    """Identical nodes: `name-0`, `name-1` and so on."""

    name: str = "node"
    count: Annotated[int, Meta(ge=1, le=MOST_NODES)] = 1
    has: dict[str, str | int | float]


class QueueSpec(Clause, kw_only=True):
    """A queue."""

    name: str
    weight: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    capability: dict[str, str | int | float] = {}
    guarantee: dict[str, str | int | float] = {}
    deserved: dict[str, str | int | float] = {}
    reclaimable: bool = True


class Stream(Clause, kw_only=True):
    """Gangs of one kind: their number, arrivals, sizes and durations."""

    queue: str
    name: str = "gang"
    count: Annotated[int, Meta(ge=1, le=MOST_GANGS)] = 1
    #: Arrival times are uniformly random between these two.
    after: str | float = 0
    before: str | float | None = None
    #: Or at a fixed interval.
    every: str | float | None = None
    size: int | Distribution = 1
    #: minMember; the size by default.
    least: Annotated[int, Meta(ge=1)] | None = None
    each: dict[str, str | int | float]
    lasts: str | float | Distribution
    #: Whether its PodGroups declare the duration.
    declared: bool = False
    #: activeDeadlineSeconds of its pods.
    deadline: str | float = 0
    priority: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    plain: bool = False


class NodeFailure(Clause, kw_only=True):
    """A node that fails or comes back at a time."""

    at: str | float
    lose: str | None = None
    restore: str | None = None


class Scenario(Clause, kw_only=True):
    """A whole scenario."""

    about: str = ""
    span: str | float
    seed: int = 0
    #: The interval between two planning cycles.
    pace: str | float | None = None
    #: The file of a saved cluster: nodes and queues in addition to those of the scenario.
    snapshot: str | None = None
    nodes: list[NodePool] = []
    queues: list[QueueSpec] = []
    arrivals: list[Stream] = []
    trace: TraceSpec | None = None
    mishaps: list[NodeFailure] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalInput:
    """What a scenario reads from other files."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)
    jobs: Sequence[Job] = ()


NO_INPUT = ExternalInput()


def read(text: str, name: str) -> Scenario:
    """Parse and check a scenario that reads no other files."""
    scenario = parse(text, name)
    check(scenario, NO_INPUT, name)
    return scenario


def parse(text: str, name: str) -> Scenario:
    """Parse a scenario; `check` validates its meaning."""
    try:
        scenario = msgspec.convert(yaml_loader.load(text), Scenario)
        if not 0 < span_s(scenario) <= LONGEST_S:
            raise InvalidInput(f"span is {scenario.span}; write more than 0s and at most 31d")
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error
    except msgspec.ValidationError as error:
        message = str(error).replace(" - at `$", " at `").replace("`$", "`")
        if len(message) > _LONGEST_ERROR:
            message = f"{message[:_LONGEST_ERROR]}…"  # an unknown key or a path may be long
        raise InvalidInput(f"{name}: {message}; docs/what-if.md lists the fields") from error
    return scenario


def check(scenario: Scenario, external: ExternalInput, name: str) -> None:
    """Raise `InvalidInput` for the first error of a scenario with its external input."""
    try:
        _check(scenario, external)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error


def _check(scenario: Scenario, external: ExternalInput) -> None:
    if not scenario.arrivals and scenario.trace is None:
        raise InvalidInput("the scenario has no arrivals; add arrivals or a trace")
    _check_names(scenario)
    if sum(pool.count for pool in scenario.nodes) + len(external.nodes) > MOST_NODES:
        raise InvalidInput(f"there are more than {MOST_NODES} nodes; reduce their number")
    if sum(stream.count for stream in scenario.arrivals) + len(external.jobs) > MOST_GANGS:
        raise InvalidInput(f"more than {MOST_GANGS} gangs arrive; reduce their number")
    # Amounts and times are validated by parsing them.
    nodes, queues = nodes_of(scenario, external), queues_of(scenario, external)
    if not nodes:
        raise InvalidInput("there are no nodes; add nodes, or a snapshot with nodes")
    _check_queues(scenario, queues)
    _check_mishaps(scenario, nodes)
    pace_s(scenario)
    jobs_of(scenario, external)


def _check_names(scenario: Scenario) -> None:
    parts: dict[str, list[str]] = {
        "nodes": [each.name for each in scenario.nodes],
        "queues": [each.name for each in scenario.queues],
        "arrivals": [each.name for each in scenario.arrivals],
        "trace": [scenario.trace.name] if scenario.trace is not None else [],
    }
    for kind, names in parts.items():
        for each in names:
            if not _NAME.fullmatch(each):
                raise InvalidInput(
                    f"the name {each[:60]!r} in {kind} is not a Kubernetes name; use lowercase"
                    " letters, digits and dashes, at most 42"
                )
            if kind != "arrivals" and names.count(each) > 1:
                raise InvalidInput(f"{kind} has {each!r} twice; rename one of them")


def _check_queues(scenario: Scenario, queues: Mapping[str, Queue]) -> None:
    trace = scenario.trace
    named = [(f"arrivals {stream.name} name", stream.queue) for stream in scenario.arrivals]
    if trace is not None and trace.queue is not None:
        named.append(("trace names", trace.queue))
    for reference, queue in named:
        if queue not in queues and queue != DEFAULT_QUEUE:
            raise InvalidInput(
                f"{reference} the queue {queue[:60]!r}, which is not in queues; add it there"
            )


def _check_mishaps(scenario: Scenario, nodes: Mapping[str, Node]) -> None:
    for failure in scenario.mishaps:
        seconds(failure.at, "at")
        node = failure.lose or failure.restore
        if node is None or (failure.lose and failure.restore):
            raise InvalidInput("a mishap needs either lose or restore, with the name of a node")
        if node not in nodes:
            raise InvalidInput(
                f"a mishap names the node {node[:60]!r}, which is not in nodes; a valid name is"
                f" {min(nodes)}"
            )


def span_s(scenario: Scenario) -> float:
    """Return the span in seconds."""
    return seconds(scenario.span, "span")


def nodes_of(scenario: Scenario, external: ExternalInput = NO_INPUT) -> dict[str, Node]:
    """Return the nodes by name, those of a snapshot first."""
    nodes = dict(external.nodes)
    for pool in scenario.nodes:
        allocatable = amounts({PODS: _PODS_OF_A_NODE, **pool.has})
        for name in (f"{pool.name}-{number}" for number in range(pool.count)):
            if name in external.nodes:
                raise InvalidInput(f"nodes has {name!r}, and so has the snapshot; rename it")
            nodes[name] = Node(name=name, allocatable=allocatable)
    return nodes


def queues_of(scenario: Scenario, external: ExternalInput = NO_INPUT) -> dict[str, Queue]:
    """Return the queues by name; those of the scenario replace saved ones."""
    queues = dict(external.queues)
    for spec in scenario.queues:
        queues[spec.name] = Queue(
            name=spec.name,
            weight=spec.weight,
            capability=amounts(spec.capability),
            guarantee=amounts(spec.guarantee),
            deserved=amounts(spec.deserved),
            reclaimable=spec.reclaimable,
        )
    return queues


def jobs_of(scenario: Scenario, external: ExternalInput = NO_INPUT) -> list[Job]:
    """Draw all jobs; the same seed draws the same jobs."""
    shapes: dict[Resources, Shape] = {}
    jobs: list[Job] = [*external.jobs]
    span = span_s(scenario)
    for place, stream in enumerate(scenario.arrivals):
        # One generator for each: a change of one stream leaves the others as they are.
        rng = Random(f"{scenario.seed}/{place}/{stream.name}")  # noqa: S311
        requests = amounts(stream.each, pods=1)
        shape = shapes.setdefault(requests, Shape(requests=requests))
        first = seconds(stream.after, "after")
        last = seconds(stream.before, "before") if stream.before is not None else span
        deadline_s = seconds(stream.deadline, "deadline")
        for number in range(stream.count):
            size = _size(stream, rng)
            lasts_s = max(1.0, draw(stream.lasts, rng, "lasts"))
            if stream.every is not None:
                at = first + seconds(stream.every, "every") * number
            else:
                at = rng.uniform(first, max(first, last))
            min_member = size if stream.least is None else min(stream.least, size)
            jobs.append(
                Job(
                    namespace=stream.queue,
                    name=f"{stream.name}-{place}-{number}",
                    queue=stream.queue,
                    size=size,
                    min_member=1 if stream.plain else min_member,
                    shape=shape,
                    lasts_s=min(lasts_s, deadline_s or lasts_s),
                    declared_s=lasts_s if stream.declared else 0.0,
                    deadline_s=deadline_s,
                    arrives_s=round(at, 3),
                    priority=stream.priority,
                    priority_class=f"rank-{stream.priority}" if stream.priority else "",
                    is_plain=stream.plain,
                )
            )
    if sum(job.size for job in jobs) > MOST_PODS:
        raise InvalidInput(f"more than {MOST_PODS} pods arrive; reduce the number or size of gangs")
    return sorted(jobs, key=lambda job: (job.arrives_s, job.name))


def _size(stream: Stream, rng: Random) -> int:
    if stream.plain:
        return 1
    size = round(draw(stream.size, rng, "size"))
    if not 1 <= size <= 10_000:
        raise InvalidInput(f"arrivals {stream.name}: the size is {size}; write 1 to 10000")
    return size


def pace_s(scenario: Scenario) -> float:
    """Return the interval between two cycles: a few thousand cycles are enough for any span."""
    if scenario.pace is not None:
        return max(0.25, seconds(scenario.pace, "pace"))
    return max(0.25, span_s(scenario) / 2880)


def check_ignored(scenario: Scenario, name: str) -> None:
    """Raise `InvalidInput` for arrivals with a field that has no effect."""
    for stream in scenario.arrivals:
        if conflict := _conflict(stream):
            raise InvalidInput(f"{name}: arrivals {stream.name}: {conflict}")


def _conflict(stream: Stream) -> str:
    if stream.plain and (stream.size != 1 or stream.least is not None):
        return "plain pods have no gang, so no size and no least; use count, or remove plain"
    if stream.before is None:
        return ""
    if stream.every is not None:
        return "every and before exclude each other; remove one of them"
    if seconds(stream.before, "before") < seconds(stream.after, "after"):
        return f"before {stream.before} is earlier than after {stream.after}; write a later time"
    return ""


def ignored_fields(scenario: Scenario, external: ExternalInput) -> Iterator[str]:
    """Yield remarks on what lies after the end; the trace reader reports its own jobs."""
    span, of_trace = span_s(scenario), {id(job) for job in external.jobs}
    jobs = [job for job in jobs_of(scenario, external) if id(job) not in of_trace]
    if late := sum(job.arrives_s > span for job in jobs):
        yield f"arrivals: {late} of {len(jobs)} gangs would arrive after the span"
    at = [seconds(failure.at, "at") for failure in scenario.mishaps]
    if late := sum(each > span for each in at):
        yield f"mishaps: {late} of {len(at)} would happen after the span"
