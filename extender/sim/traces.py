"""Reading a recorded trace: a CSV whose columns the scenario maps to arrivals, sizes and requests.

The file is read line by line. Only the requested gangs are kept in memory, however long it is.
"""

from __future__ import annotations

import csv
import heapq
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, isfinite
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TextIO, TypeAlias

from msgspec import Meta, field
from msgspec.structs import asdict

from extender.errors import InvalidInput
from extender.model.pod import Shape
from extender.model.queue import DEFAULT_QUEUE, ROOT_QUEUE
from extender.model.resources import CPU, LARGEST, MEMORY, PODS, Resources, parse_quantity
from extender.sim.distributions import Clause, seconds
from extender.sim.workloads import Job
from extender.text import shown

#: Empty values of the tables.
_NOTHING = frozenset({"", "none", "nan", "null"})


class TraceRow(NamedTuple):
    """One gang of a trace; times in seconds of the trace's own clock."""

    at: float
    lasts_s: float
    size: int
    #: Of each pod.
    cpu_milli: float
    memory: float
    gpus: float
    is_plain: bool = False


class Cells:
    """The cells of one line by column."""

    def __init__(self, cells: Mapping[str, str]) -> None:
        self._cells = cells

    def text(self, column: str) -> str:
        """Return the text of a column, "" for an empty value."""
        text = self._cells[column].strip()
        return "" if text.lower() in _NOTHING else text

    def number(self, column: str) -> float | None:
        """Parse a number of at least 0; None for an empty value."""
        # Of millions of lines nearly all are numbers, so the empty values are checked last.
        number = _float(self._cells[column])
        if number is not None and 0 <= number <= 1e15:
            return number
        if text := self.text(column):
            raise InvalidInput(f"{column}: {shown(text)} is not a number of at least 0")
        return None

    def moment(self, column: str) -> float | None:
        """Parse a time: seconds, or a date such as `2020-04-01 00:04:09`."""
        if _float(self._cells[column]) is not None:
            return self.number(column)
        text = self.text(column)
        if not text:
            return None
        try:
            found = datetime.fromisoformat(text)
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError) as error:
            raise InvalidInput(
                f"{column}: {shown(text)} is not a time; write seconds or 2020-04-01 00:04:09"
            ) from error

    def count(self, column: str) -> int:
        """Parse a number of pods; an empty value and 0 mean one."""
        size = self.number(column) or 1.0
        if size != int(size) or size > 10_000:
            raise InvalidInput(
                f"{column}: {shown(self.text(column))} is not a size from 1 to 10000"
            )
        return int(size)


def _float(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


MOST_ROWS = 100_000
MOST_QUEUES = 1000
_LONGEST_LINE = 10_000
_MOST_LINES = 20_000_000


class TraceColumns(Clause, kw_only=True):
    """The columns of the file that are read; a line is a gang of equal pods."""

    #: When the gang arrived: seconds, or a date.
    arrives: str
    #: How many seconds it ran; or when it ended.
    duration: str | None = None
    ends: str | None = None
    #: When it began to run, if not when it arrived; only with `ends`.
    starts: str | None = None
    #: The number of its pods; without this column a line is a single pod without a PodGroup.
    pods: str | None = None
    cpu: str | None = None
    memory: str | None = None
    gpu: str | None = None


class TraceUnits(Clause, kw_only=True):
    """What 1 in a column means, as a quantity of Kubernetes."""

    cpu: str | float = 1
    memory: str | float = 1
    gpu: str | float = 1
    #: Whether amounts are those of each pod, or of all pods of the gang together.
    per: Literal["pod", "gang"] = "pod"


class TraceSpec(Clause, kw_only=True):
    """A recorded trace, and how to replay it."""

    file: str
    columns: TraceColumns
    units: TraceUnits = field(default_factory=TraceUnits)
    name: str = "trace"
    #: The queue of all gangs, or the column that names the queue.
    queue: str | None = None
    queue_by: str | None = None
    #: The number of gangs, those that arrive first.
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = MOST_ROWS
    after: str | float = 0
    #: Divides arrival times and durations.
    speed: Annotated[float, Meta(ge=0.001, le=1_000_000)] = 1.0
    #: A fixed interval in place of the recorded arrival times.
    every: str | float | None = None
    #: The resource name of a GPU, and its amount for one GPU.
    gpu: Annotated[str, Meta(min_length=1, max_length=300)] = "nvidia.com/gpu"
    per_gpu: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


@dataclass(slots=True)
class Trace:
    """The jobs of a trace, and counts for the summary."""

    jobs: list[Job]
    #: Lines with a gang, and lines of gangs that did not end.
    rows: int = 0
    unended: int = 0
    rounded: int = 0
    late: int = 0

    @property
    def queues(self) -> list[str]:
        """Return the queues of its jobs."""
        return sorted({job.queue for job in self.jobs})

    def sentence(self) -> str:
        """Return a summary of what was read and what was not."""
        parts = [f"{len(self.jobs)} of {self.rows} gangs"]
        if self.unended:
            parts.append(f"{self.unended} more did not start or did not end and are left out")
        if self.late:
            parts.append(f"{self.late} would arrive after the span")
        if self.rounded:
            parts.append(f"{self.rounded} request a fraction of a GPU, which is rounded up")
        return "; ".join(parts)


#: (at, line), the row and its queue; the line makes the order unique.
_Row: TypeAlias = tuple[float, int, TraceRow, str]


def read(spec: TraceSpec, path: Path, span_s: float) -> Trace:
    """Read the gangs that arrive first; `InvalidInput` names the file and the line."""
    if spec.queue is not None and spec.queue_by is not None:
        raise InvalidInput("trace: queue and queue-by exclude each other; remove one of them")
    if (spec.columns.duration is None) == (spec.columns.ends is None):
        raise InvalidInput("trace: columns needs either duration or ends")
    if spec.columns.starts is not None and spec.columns.ends is None:
        raise InvalidInput("trace: columns.starts is used only with columns.ends")
    to_row = _converter(spec)
    trace = Trace([])
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = _first(spec, to_row, file, trace)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not text in UTF-8") from error
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error
    if not rows:
        raise InvalidInput(f"{path}: has no gang that ended")
    _add_jobs(spec, rows, span_s, trace)
    if not trace.jobs:
        raise InvalidInput(
            f"{path}: none of its gangs arrives within the span; let them arrive earlier"
        )
    return trace


def _converter(spec: TraceSpec) -> Callable[[Cells], TraceRow | None]:
    """Return a function from a line to its gang; None for one that did not start or end."""
    columns, units = spec.columns, spec.units
    cpu, memory, gpu = (
        _unit(name, unit)
        for name, unit in (("cpu", units.cpu), ("memory", units.memory), ("gpu", units.gpu))
    )

    def amount(cells: Cells, column: str | None, unit: float, pods: int) -> float:
        number = (cells.number(column) if column else None) or 0.0
        return number * unit / (pods if units.per == "gang" else 1)

    def to_row(cells: Cells) -> TraceRow | None:
        arrives = cells.moment(columns.arrives)
        starts = cells.moment(columns.starts) if columns.starts else None
        starts = arrives if starts is None else starts
        ends = cells.moment(columns.ends) if columns.ends else None
        lasts_s = cells.number(columns.duration) if columns.duration else None
        pods = cells.count(columns.pods) if columns.pods else 1
        each = (
            amount(cells, columns.cpu, cpu * 1000, pods),
            amount(cells, columns.memory, memory, pods),
            amount(cells, columns.gpu, gpu, pods),
        )
        if starts is not None and ends is not None and ends >= starts:
            lasts_s = ends - starts
        if arrives is None or lasts_s is None:
            return None
        return TraceRow(arrives, lasts_s, pods, *each, is_plain=columns.pods is None)

    return to_row


def _unit(name: str, unit: str | float) -> float:
    try:
        found = float(parse_quantity(unit))
    except (InvalidInput, OverflowError) as error:
        raise InvalidInput(f"trace: units.{name}: {error}") from error
    if not 0 < found <= 1e15:
        raise InvalidInput(f"trace: units.{name}: {shown(str(unit))} is not above 0")
    return found


def _first(
    spec: TraceSpec,
    to_row: Callable[[Cells], TraceRow | None],
    file: TextIO,
    trace: Trace,
) -> list[_Row]:
    """Return the rows that arrive first, in order."""
    heap: list[_Row] = []
    for number, row, queue in _rows(spec, to_row, file, trace):
        trace.rows += 1
        # The latest of the kept rows is on top, and is dropped first.
        each = (-row.at, -number, row, queue)
        if len(heap) < spec.limit:
            heapq.heappush(heap, each)
        else:
            heapq.heappushpop(heap, each)
    return sorted((-at, -number, row, queue) for at, number, row, queue in heap)


def _rows(
    spec: TraceSpec,
    to_row: Callable[[Cells], TraceRow | None],
    file: TextIO,
    trace: Trace,
) -> Iterator[tuple[int, TraceRow, str]]:
    lines = _lines(file)
    _, first = next(lines, (0, []))
    if not first:
        raise InvalidInput("is empty")
    if first[0].lstrip()[:1] in ("{", "["):
        raise InvalidInput("is JSON; traces are read as CSV")
    header = [cell.strip() for cell in first]
    _check_columns(spec, header)
    for number, cells in lines:
        try:
            if len(cells) != len(header):
                raise InvalidInput(f"it has {len(cells)} columns, and the header has {len(header)}")
            values = Cells(dict(zip(header, cells, strict=True)))
            row = to_row(values)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}; fix or remove the line") from error
        if row is None:
            trace.unended += 1
            continue
        owner = _queue_name(values.text(spec.queue_by)) if spec.queue_by else DEFAULT_QUEUE
        yield number, row, spec.queue or owner


def _check_columns(spec: TraceSpec, header: Sequence[str]) -> None:
    columns = [(f"columns.{key}", name) for key, name in asdict(spec.columns).items()]
    for key, name in (*columns, ("queue-by", spec.queue_by)):
        if name is not None and name not in header:
            known = ", ".join(shown(each) for each in header[:40])
            raise InvalidInput(f"{key}: its first line has no column {shown(name)}; it has {known}")


def _lines(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each line; one line is one record."""
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise InvalidInput(f"line {number} is longer than {_LONGEST_LINE} characters")
        if number > _MOST_LINES:
            raise InvalidInput(f"has more than {_MOST_LINES} lines; shorten it")
        if line.strip():
            try:
                yield number, next(csv.reader([line], strict=True))
            except csv.Error as error:
                raise InvalidInput(f"line {number} is not CSV: {error}; fix it") from error


def _queue_name(text: str) -> str:
    """Return the queue name for an owner in a trace; no owner is the default queue."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")
    return f"q-{name}" if name == ROOT_QUEUE else name or DEFAULT_QUEUE


def _add_jobs(spec: TraceSpec, rows: list[_Row], span_s: float, trace: Trace) -> None:
    beginning, after = rows[0][0], seconds(spec.after, "after")
    every = None if spec.every is None else seconds(spec.every, "every")
    shapes: dict[Resources, Shape] = {}
    for place, (at, number, row, queue) in enumerate(rows):
        arrival = after + ((at - beginning) / spec.speed if every is None else every * place)
        if arrival > span_s:
            trace.late += 1
            continue
        gpus = row.gpus * spec.per_gpu
        trace.rounded += gpus != ceil(gpus)
        amounts = {CPU: row.cpu_milli, MEMORY: row.memory, spec.gpu: gpus}
        rounded = {name: min(LARGEST, ceil(amount)) for name, amount in amounts.items() if amount}
        requests = Resources({**rounded, PODS: 1})
        trace.jobs.append(
            Job(
                namespace=queue,
                # Named by its line, so that it can be found in the trace.
                name=f"{spec.name}-line-{number}",
                queue=queue,
                size=row.size,
                min_member=row.size,
                shape=shapes.setdefault(requests, Shape(requests=requests)),
                lasts_s=max(1.0, row.lasts_s / spec.speed),
                arrives_s=round(arrival, 3),
                is_plain=row.is_plain,
            )
        )
    if len(trace.queues) > MOST_QUEUES:
        raise InvalidInput(f"trace: more than {MOST_QUEUES} queues; set queue, or another queue-by")
