"""A scenario: nodes, queues and what arrives, as people write it, and the jobs it comes to."""

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

#: What one scenario may come to.
MOST_NODES = 5_000
MOST_GANGS = 100_000
MOST_PODS = 500_000
LONGEST_S = 31 * 86400.0
_PODS_OF_A_NODE = 110
#: What stands wrong in a scenario is told with so many letters.
_LONGEST_ERROR = 300
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")
Count = Annotated[int, Meta(ge=0, le=MOST_PODS)]


class NodePool(Clause, kw_only=True):
    """Nodes that are alike: `name-0` and on."""

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
    """Gangs of one kind: how many, when, how large and how long."""

    queue: str
    name: str = "gang"
    count: Annotated[int, Meta(ge=1, le=MOST_GANGS)] = 1
    #: They come at times drawn evenly between these.
    after: str | float = 0
    before: str | float | None = None
    #: Or one after the other.
    every: str | float | None = None
    size: int | Distribution = 1
    #: The minimum; without it all of them.
    least: Annotated[int, Meta(ge=1)] | None = None
    each: dict[str, str | int | float]
    lasts: str | float | Distribution
    #: It says how long it lasts, and the kubelet ends its pods after so long.
    declared: bool = False
    deadline: str | float = 0
    priority: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    plain: bool = False


class NodeFailure(Clause, kw_only=True):
    """A node that goes away at a time, or comes back."""

    at: str | float
    lose: str | None = None
    restore: str | None = None


class Scenario(Clause, kw_only=True):
    """All of it."""

    about: str = ""
    span: str | float
    seed: int = 0
    #: Seconds between two passes of the planner.
    pace: str | float | None = None
    #: A saved cluster: nodes and queues besides those that are written here.
    snapshot: str | None = None
    nodes: list[NodePool] = []
    queues: list[QueueSpec] = []
    arrivals: list[Stream] = []
    trace: TraceSpec | None = None
    mishaps: list[NodeFailure] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalInput:
    """What a scenario takes from other files."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)
    jobs: Sequence[Job] = ()


NO_INPUT = ExternalInput()


def read(text: str, name: str) -> Scenario:
    """Read a scenario that takes nothing from other files."""
    scenario = parse(text, name)
    check(scenario, NO_INPUT, name)
    return scenario


def parse(text: str, name: str) -> Scenario:
    """Read a scenario as it is written; what it means is not looked at yet."""
    try:
        scenario = msgspec.convert(yaml_loader.load(text), Scenario)
        if not 0 < span_s(scenario) <= LONGEST_S:
            raise InvalidInput(f"span is {scenario.span}; give more than 0s and at most 31d")
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error
    except msgspec.ValidationError as error:
        said = str(error).replace(" - at `$", " at `").replace("`$", "`")
        if len(said) > _LONGEST_ERROR:
            said = f"{said[:_LONGEST_ERROR]}…"  # somebody's key, or a path of many
        raise InvalidInput(f"{name}: {said}; docs/simulate.md says what may stand there") from error
    return scenario


def check(scenario: Scenario, given: ExternalInput, name: str) -> None:
    """Raise `BadInput` that names what is wrong in a scenario with what it was given."""
    try:
        _check(scenario, given)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error


def _check(scenario: Scenario, given: ExternalInput) -> None:
    if not scenario.arrivals and scenario.trace is None:
        raise InvalidInput("nothing arrives; give arrivals, or a trace")
    _check_names(scenario)
    if sum(pool.count for pool in scenario.nodes) + len(given.nodes) > MOST_NODES:
        raise InvalidInput(f"there are more than {MOST_NODES} nodes; give fewer")
    if sum(stream.count for stream in scenario.arrivals) + len(given.jobs) > MOST_GANGS:
        raise InvalidInput(f"more than {MOST_GANGS} gangs arrive; let fewer come")
    # Whatever cannot be read in amounts and times is found by reading it.
    nodes, queues = nodes_of(scenario, given), queues_of(scenario, given)
    if not nodes:
        raise InvalidInput("there are no nodes; give nodes, or a snapshot that has some")
    _check_queues(scenario, queues)
    _check_mishaps(scenario, nodes)
    pace_s(scenario)
    jobs_of(scenario, given)


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
                    f"the name {each[:60]!r} in {kind} is not a Kubernetes name; use small letters,"
                    " digits and dashes, at most 42"
                )
            if kind != "arrivals" and names.count(each) > 1:
                raise InvalidInput(f"{kind} has {each!r} twice; name one of them otherwise")


def _check_queues(scenario: Scenario, queues: Mapping[str, Queue]) -> None:
    trace = scenario.trace
    named = [(f"arrivals {stream.name} name", stream.queue) for stream in scenario.arrivals]
    if trace is not None and trace.queue is not None:
        named.append(("trace names", trace.queue))
    for who, queue in named:
        if queue not in queues and queue != DEFAULT_QUEUE:
            raise InvalidInput(
                f"{who} the queue {queue[:60]!r}, which is not in queues; add it there"
            )


def _check_mishaps(scenario: Scenario, nodes: Mapping[str, Node]) -> None:
    for mishap in scenario.mishaps:
        seconds(mishap.at, "at")
        about = mishap.lose or mishap.restore
        if about is None or (mishap.lose and mishap.restore):
            raise InvalidInput("a mishap needs either lose or restore, with the name of a node")
        if about not in nodes:
            raise InvalidInput(
                f"a mishap names the node {about[:60]!r}, which is not in nodes; they are called"
                f" like {min(nodes)}"
            )


def span_s(scenario: Scenario) -> float:
    """Give how long it goes, in seconds."""
    return seconds(scenario.span, "span")


def node_names(pool: NodePool) -> list[str]:
    """Name the nodes of a pool."""
    return [f"{pool.name}-{number}" for number in range(pool.count)]


def nodes_of(scenario: Scenario, given: ExternalInput = NO_INPUT) -> dict[str, Node]:
    """Give the nodes by name, those of a snapshot first."""
    nodes = dict(given.nodes)
    for pool in scenario.nodes:
        has = amounts({PODS: _PODS_OF_A_NODE, **pool.has})
        for name in node_names(pool):
            if name in given.nodes:
                raise InvalidInput(
                    f"nodes has {name!r}, and so has the snapshot; name it otherwise"
                )
            nodes[name] = Node(name=name, allocatable=has)
    return nodes


def queues_of(scenario: Scenario, given: ExternalInput = NO_INPUT) -> dict[str, Queue]:
    """Give the queues by name; one that is written here is meant in place of a saved one."""
    return {**given.queues, **{wish.name: queue_of(wish) for wish in scenario.queues}}


def queue_of(wish: QueueSpec) -> Queue:
    """Make the queue that was wished for."""
    return Queue(
        name=wish.name,
        weight=wish.weight,
        capability=amounts(wish.capability),
        guarantee=amounts(wish.guarantee),
        deserved=amounts(wish.deserved),
        reclaimable=wish.reclaimable,
    )


def jobs_of(scenario: Scenario, given: ExternalInput = NO_INPUT) -> list[Job]:
    """Draw everything that arrives; the same for the same seed."""
    shapes: dict[Resources, Shape] = {}
    jobs: list[Job] = [*given.jobs]
    span = span_s(scenario)
    for place, stream in enumerate(scenario.arrivals):
        # A stream of its own for each: changing one leaves the others as they are.
        rng = Random(f"{scenario.seed}/{place}/{stream.name}")  # noqa: S311
        needs = amounts(stream.each, pods=1)
        shape = shapes.setdefault(needs, Shape(requests=needs))
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
            least = size if stream.least is None else min(stream.least, size)
            jobs.append(
                Job(
                    namespace=stream.queue,
                    name=f"{stream.name}-{place}-{number}",
                    queue=stream.queue,
                    size=size,
                    min_member=1 if stream.plain else least,
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
        raise InvalidInput(f"more than {MOST_PODS} pods arrive; let fewer or smaller gangs come")
    return sorted(jobs, key=lambda job: (job.arrives_s, job.name))


def _size(stream: Stream, rng: Random) -> int:
    if stream.plain:
        return 1
    size = round(draw(stream.size, rng, "size"))
    if not 1 <= size <= 10_000:
        raise InvalidInput(f"arrivals {stream.name}: a size of {size}; give 1 to 10000")
    return size


def pace_s(scenario: Scenario) -> float:
    """Give the rest between two passes: a few thousand of them are enough for any span."""
    if scenario.pace is not None:
        return max(0.25, seconds(scenario.pace, "pace"))
    return max(0.25, span_s(scenario) / 2880)


def check_ignored(scenario: Scenario, name: str) -> None:
    """Raise `BadInput` for arrivals of which a part would silently do nothing."""
    for stream in scenario.arrivals:
        if wrong := _conflict(stream):
            raise InvalidInput(f"{name}: arrivals {stream.name}: {wrong}")


def _conflict(stream: Stream) -> str:
    if stream.plain and (stream.size != 1 or stream.least is not None):
        return "plain pods have no gang, so no size and no least; give count, or leave out plain"
    if stream.before is None:
        return ""
    if stream.every is not None:
        return "both every and before; leave one of them out"
    if seconds(stream.before, "before") < seconds(stream.after, "after"):
        return f"before {stream.before} is earlier than after {stream.after}; give the later one"
    return ""


def ignored_fields(scenario: Scenario, given: ExternalInput) -> Iterator[str]:
    """Say what comes after the end; of a trace that is said where it is read."""
    span, of_trace = span_s(scenario), {id(job) for job in given.jobs}
    jobs = [job for job in jobs_of(scenario, given) if id(job) not in of_trace]
    if late := sum(job.arrives_s > span for job in jobs):
        yield f"arrivals: {late} of {len(jobs)} gangs would come after the span"
    at = [seconds(mishap.at, "at") for mishap in scenario.mishaps]
    if late := sum(each > span for each in at):
        yield f"mishaps: {late} of {len(at)} would come after the span"
