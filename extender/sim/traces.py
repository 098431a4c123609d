"""Reading a public trace line by line: its first gangs, mapped to the scenario's times and queues.

Only the requested gangs are kept in memory, however long the file is.
"""

from __future__ import annotations

import csv
import heapq
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from math import ceil, isfinite
from pathlib import Path
from typing import Annotated, NamedTuple, TextIO, TypeAlias

from msgspec import Meta

from extender.errors import InvalidInput
from extender.model.pod import Shape
from extender.model.queue import DEFAULT_QUEUE, ROOT_QUEUE
from extender.model.resources import CPU, LARGEST, MEMORY, PODS, Resources
from extender.sim.distributions import Clause, seconds
from extender.sim.workloads import Job
from extender.text import shown

#: Empty values of the tables.
_NOTHING = frozenset({"", "none", "nan", "null"})
_GIB, _MIB = 2**30, 2**20


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


class Layout(NamedTuple):
    """A supported table."""

    name: str
    #: The columns that are read; a header with all of them belongs to this table.
    columns: tuple[str, ...]
    #: Returns None for a job that did not start or did not end.
    read: Callable[[Cells], TraceRow | None]
    #: The column that names the owner; "" when there is none.
    queue_by: str = ""
    #: All columns in order, when the table is published without a header.
    headless: tuple[str, ...] = ()


def _pai(cells: Cells) -> TraceRow | None:
    since, until = cells.moment("start_time"), cells.moment("end_time")
    size = cells.count("inst_num")
    cpu, memory, gpu = (cells.number(f"plan_{each}") or 0.0 for each in ("cpu", "mem", "gpu"))
    if since is None or until is None or until < since:
        return None
    return TraceRow(since, until - since, size, cpu * 10, memory * _GIB, gpu / 100)


def _openb(cells: Cells) -> TraceRow | None:
    created, until = cells.moment("creation_time"), cells.moment("deletion_time")
    since = cells.moment("scheduled_time")
    cpu, memory = cells.number("cpu_milli") or 0.0, cells.number("memory_mib") or 0.0
    gpus = (cells.number("num_gpu") or 0.0) * (cells.number("gpu_milli") or 0.0) / 1000
    since = created if since is None else since
    if created is None or since is None or until is None or until < since:
        return None
    return TraceRow(created, until - since, 1, cpu, memory * _MIB, gpus, is_plain=True)


def _helios(cells: Cells) -> TraceRow | None:
    submitted, lasts_s = cells.moment("submit_time"), cells.number("duration")
    pods = cells.count("node_num")
    cpu, gpus = cells.number("cpu_num") or 0.0, cells.number("gpu_num") or 0.0
    if submitted is None or lasts_s is None:
        return None
    return TraceRow(submitted, lasts_s, pods, cpu * 1000 / pods, 0.0, gpus / pods)


_PAI = "job_name task_name inst_num status start_time end_time plan_cpu plan_mem plan_gpu gpu_type"
LAYOUTS = (
    Layout(
        "pai_task_table",
        ("inst_num", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu"),
        _pai,
        headless=tuple(_PAI.split()),
    ),
    Layout(
        "openb_pod_list",
        (
            "cpu_milli",
            "memory_mib",
            "num_gpu",
            "gpu_milli",
            "creation_time",
            "deletion_time",
            "scheduled_time",
        ),
        _openb,
    ),
    Layout(
        "cluster_log",
        ("vc", "gpu_num", "cpu_num", "node_num", "submit_time", "duration"),
        _helios,
        queue_by="vc",
    ),
)


def detect_layout(first: Sequence[str]) -> tuple[Layout, tuple[str, ...], bool]:
    """Return the table of a first line, its columns, and whether that line is a header."""
    header = tuple(cell.strip().lower() for cell in first)
    for layout in LAYOUTS:
        if set(layout.columns) <= set(header):
            return layout, header, True
        if len(header) == len(layout.headless):
            by_column = dict(zip(layout.headless, header, strict=True))
            texts = [by_column[column] for column in layout.columns]
            odd = sum(each not in _NOTHING and _float(each) is None for each in texts)
            # One wrong value is reported for its column, not for the whole file.
            if odd <= 1:
                return layout, layout.headless, False
    raise InvalidInput(
        "its first line does not have the columns of a supported trace: "
        + "; ".join(f"{each.name} has {', '.join(each.columns)}" for each in LAYOUTS)
    )


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


class TraceSpec(Clause, kw_only=True):
    """A recorded trace, and how to replay it."""

    file: str
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

    table: str
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
        parts = [f"{self.table}, {len(self.jobs)} of {self.rows} gangs"]
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
    trace = Trace("", [])
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = _first(spec, file, trace)
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


def _first(spec: TraceSpec, file: TextIO, trace: Trace) -> list[_Row]:
    """Return the rows that arrive first, in order."""
    heap: list[_Row] = []
    for number, row, queue in _rows(spec, file, trace):
        trace.rows += 1
        # The latest of the kept rows is on top, and is dropped first.
        each = (-row.at, -number, row, queue)
        if len(heap) < spec.limit:
            heapq.heappush(heap, each)
        else:
            heapq.heappushpop(heap, each)
    return sorted((-at, -number, row, queue) for at, number, row, queue in heap)


def _rows(spec: TraceSpec, file: TextIO, trace: Trace) -> Iterator[tuple[int, TraceRow, str]]:
    lines = _lines(file)
    number, first = next(lines, (0, []))
    if not first:
        raise InvalidInput("is empty")
    if first[0].lstrip()[:1] in ("{", "["):
        raise InvalidInput("is JSON; traces are read as CSV")
    layout, columns, has_header = detect_layout(first)
    trace.table = layout.name
    by = spec.queue_by or ("" if spec.queue else layout.queue_by)
    if by and by not in columns:
        raise InvalidInput(
            f"queue-by: there is no column {shown(by)}; the columns are {', '.join(columns)}"
        )
    if not has_header:
        lines = chain([(number, first)], lines)
    for number, cells in lines:
        try:
            if len(cells) != len(columns):
                raise InvalidInput(f"it has {len(cells)} columns, and the table has {len(columns)}")
            values = Cells(dict(zip(columns, cells, strict=True)))
            row = layout.read(values)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}; fix or remove the line") from error
        if row is None:
            trace.unended += 1
        else:
            yield number, row, spec.queue or (_queue_name(values.text(by)) if by else DEFAULT_QUEUE)


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
