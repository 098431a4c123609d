"""A scenario: nodes, queues and what arrives, as people write it, and the jobs it comes to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import exp, isfinite
from random import Random
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from extender.errors import BadInput
from extender.model.pod import Shape
from extender.model.queue import DEFAULT_QUEUE, Queue
from extender.model.resources import Resources
from extender.sim.world.workloads import Job
from extender.text import written

#: What one scenario may come to.
MOST_NODES = 5_000
MOST_GANGS = 100_000
MOST_PODS = 500_000
LONGEST_S = 31 * 86400.0

_SPANS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd]?)")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")

Count = Annotated[int, Meta(ge=0, le=MOST_PODS)]


class _Closed(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="kebab"):
    pass


class Chance(_Closed, kw_only=True):
    """A number that is drawn: evenly between two, one of several, or around a median."""

    between: tuple[str | float, str | float] | None = None
    one_of: Annotated[list[str | float], Meta(min_length=1, max_length=1000)] | None = None
    median: str | float | None = None
    spread: Annotated[float, Meta(ge=0, le=5)] = 1.0


class NodePool(_Closed, kw_only=True):
    """Nodes that are alike: `name-0` and on."""

    name: str = "node"
    count: Annotated[int, Meta(ge=1, le=MOST_NODES)] = 1
    has: dict[str, str | int | float]


class QueueWish(_Closed, kw_only=True):
    """A queue."""

    name: str
    weight: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    capability: dict[str, str | int | float] = {}
    guarantee: dict[str, str | int | float] = {}
    deserved: dict[str, str | int | float] = {}
    reclaimable: bool = True


class Stream(_Closed, kw_only=True):
    """Gangs of one kind: how many, when, how large and how long."""

    queue: str
    name: str = "gang"
    count: Annotated[int, Meta(ge=1, le=MOST_GANGS)] = 1
    #: They come at times drawn evenly between these.
    after: str | float = 0
    before: str | float | None = None
    #: Or one after the other.
    every: str | float | None = None
    size: int | Chance = 1
    #: The minimum; without it all of them.
    least: Annotated[int, Meta(ge=1)] | None = None
    each: dict[str, str | int | float]
    lasts: str | float | Chance
    priority: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    plain: bool = False


class Mishap(_Closed, kw_only=True):
    """A node that goes away at a time, or comes back."""

    at: str | float
    lose: str | None = None
    restore: str | None = None


class Scenario(_Closed, kw_only=True):
    """All of it."""

    about: str = ""
    span: str | float
    seed: int = 0
    #: Seconds between two passes of the planner.
    pace: str | float | None = None
    nodes: Annotated[list[NodePool], Meta(min_length=1)]
    queues: list[QueueWish] = []
    arrivals: Annotated[list[Stream], Meta(min_length=1)]
    mishaps: list[Mishap] = []


def read(text: str, name: str) -> Scenario:
    """Read a scenario; `BadInput` names what is wrong in it."""
    try:
        scenario = msgspec.convert(written.load(text), Scenario)
        _check(scenario)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from error
    except msgspec.ValidationError as error:
        said = str(error).replace(" - at `$", " at `").replace("`$", "`")
        raise BadInput(f"{name}: {said}; docs/simulate.md says what may stand there") from error
    return scenario


def _check(scenario: Scenario) -> None:
    if not 0 < span_s(scenario) <= LONGEST_S:
        raise BadInput(f"span is {scenario.span}; give more than 0s and at most 31d")
    if sum(pool.count for pool in scenario.nodes) > MOST_NODES:
        raise BadInput(f"there are more than {MOST_NODES} nodes; give fewer")
    if sum(stream.count for stream in scenario.arrivals) > MOST_GANGS:
        raise BadInput(f"more than {MOST_GANGS} gangs arrive; let fewer come")
    _check_names(scenario)
    _check_queues(scenario)
    _check_mishaps(scenario)
    # Whatever cannot be read in amounts and times is found by reading it.
    for pool in scenario.nodes:
        amounts(pool.has)
    for wish in scenario.queues:
        queue_of(wish)
    pace_s(scenario)
    jobs_of(scenario)


def _check_names(scenario: Scenario) -> None:
    parts: dict[str, list[str]] = {
        "nodes": [each.name for each in scenario.nodes],
        "queues": [each.name for each in scenario.queues],
        "arrivals": [each.name for each in scenario.arrivals],
    }
    for kind, names in parts.items():
        for each in names:
            if not _NAME.fullmatch(each):
                raise BadInput(
                    f"the name {each[:60]!r} in {kind} is not a Kubernetes name; use small letters,"
                    " digits and dashes, at most 42"
                )
            if kind != "arrivals" and names.count(each) > 1:
                raise BadInput(f"{kind} has {each!r} twice; name one of them otherwise")


def _check_queues(scenario: Scenario) -> None:
    queues = {queue.name for queue in scenario.queues} | {DEFAULT_QUEUE}
    for stream in scenario.arrivals:
        if stream.queue not in queues:
            raise BadInput(
                f"arrivals {stream.name} name the queue {stream.queue[:60]!r}, which is not in"
                " queues; add it there"
            )


def _check_mishaps(scenario: Scenario) -> None:
    nodes = {node for pool in scenario.nodes for node in node_names(pool)}
    for mishap in scenario.mishaps:
        seconds(mishap.at, "at")
        about = mishap.lose or mishap.restore
        if about is None or (mishap.lose and mishap.restore):
            raise BadInput("a mishap needs either lose or restore, with the name of a node")
        if about not in nodes:
            raise BadInput(
                f"a mishap names the node {about[:60]!r}, which is not in nodes; they are called"
                f" like {min(nodes)}"
            )


def span_s(scenario: Scenario) -> float:
    """Give how long it goes, in seconds."""
    return seconds(scenario.span, "span")


def node_names(pool: NodePool) -> list[str]:
    """Name the nodes of a pool."""
    return [f"{pool.name}-{number}" for number in range(pool.count)]


def amounts(given: Mapping[str, str | int | float], **more: int) -> Resources:
    """Read a resource list."""
    found = Resources({**Resources.parse(given), **more})
    for name, amount in found.items():
        if amount < 0:
            raise BadInput(f"{name[:60]}: {given[name]} is less than nothing; give 0 or more")
    return found


def queue_of(wish: QueueWish) -> Queue:
    """Make the queue that was wished for."""
    return Queue(
        name=wish.name,
        weight=wish.weight,
        capability=amounts(wish.capability),
        guarantee=amounts(wish.guarantee),
        deserved=amounts(wish.deserved),
        reclaimable=wish.reclaimable,
    )


def jobs_of(scenario: Scenario) -> list[Job]:
    """Draw everything that arrives; the same for the same seed."""
    shapes: dict[Resources, Shape] = {}
    jobs: list[Job] = []
    span = span_s(scenario)
    for place, stream in enumerate(scenario.arrivals):
        # A stream of its own for each: changing one leaves the others as they are.
        rng = Random(f"{scenario.seed}/{place}/{stream.name}")  # noqa: S311
        needs = amounts(stream.each, pods=1)
        shape = shapes.setdefault(needs, Shape(requests=needs))
        first = seconds(stream.after, "after")
        last = seconds(stream.before, "before") if stream.before is not None else span
        for number in range(stream.count):
            size = _size(stream, rng)
            lasts_s = max(1.0, drawn(stream.lasts, rng, "lasts"))
            at = first + seconds(stream.every, "every") * number if stream.every else None
            at = rng.uniform(first, max(first, last)) if at is None else at
            least = size if stream.least is None else min(stream.least, size)
            jobs.append(
                Job(
                    namespace=stream.queue,
                    name=f"{stream.name}-{place}-{number}",
                    queue=stream.queue,
                    size=size,
                    least=1 if stream.plain else least,
                    shape=shape,
                    lasts_s=lasts_s,
                    arrives_s=round(at, 3),
                    priority=stream.priority,
                    priority_class=f"rank-{stream.priority}" if stream.priority else "",
                    is_plain=stream.plain,
                )
            )
    if sum(job.size for job in jobs) > MOST_PODS:
        raise BadInput(f"more than {MOST_PODS} pods arrive; let fewer or smaller gangs come")
    return sorted(jobs, key=lambda job: (job.arrives_s, job.name))


def _size(stream: Stream, rng: Random) -> int:
    if stream.plain:
        return 1
    size = round(drawn(stream.size, rng, "size"))
    if not 1 <= size <= 10_000:
        raise BadInput(f"arrivals {stream.name}: a size of {size}; give 1 to 10000")
    return size


def drawn(what: str | float | Chance, rng: Random, name: str) -> float:
    """Give the number, or draw one."""
    read_ = _number if name == "size" else seconds
    if not isinstance(what, Chance):
        return read_(what, name)
    if sum(each is not None for each in (what.between, what.one_of, what.median)) != 1:
        raise BadInput(
            f"{name}: nothing, or too much, to draw from; give between, one-of or median"
        )
    if what.between is not None:
        low, high = (read_(each, name) for each in what.between)
        if low > high:
            raise BadInput(
                f"{name}: between {low:g} and {high:g} is nothing; give the smaller first"
            )
        return rng.uniform(low, high) if name != "size" else rng.randint(round(low), round(high))
    if what.one_of is not None:
        return read_(rng.choice(what.one_of), name)
    return read_(what.median, name) * exp(rng.gauss(0.0, what.spread))


def _number(given: Any, name: str) -> float:
    if isinstance(given, int | float) and isfinite(given) and given >= 0:
        return float(given)
    raise BadInput(f"{name}: {str(given)[:60]!r} is no number of pods; write it like 8")


def seconds(written_: Any, name: str) -> float:
    """Read a span of time: a number of seconds, or `90s`, `5m`, `2h`, `1d`."""
    if isinstance(written_, int | float):
        number = float(written_)
        if isfinite(number) and number >= 0:
            return number
    elif found := _SPAN.fullmatch(written_.strip()):
        return float(found[1]) * _SPANS[found[2] or "s"]
    shown = str(written_)[:60]
    raise BadInput(f"{name}: {shown!r} is no time; write 90s, 5m, 2h or 1d")


def pace_s(scenario: Scenario) -> float:
    """Give the rest between two passes: a few thousand of them are enough for any span."""
    if scenario.pace is not None:
        return max(0.25, seconds(scenario.pace, "pace"))
    return max(0.25, span_s(scenario) / 2880)
