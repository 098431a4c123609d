"""A trace read line by line: the gangs that came first, at times and to queues of the scenario.

However long the file is, no more is kept of it than the gangs that are asked for.
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
from typing import Annotated, NamedTuple, TextIO, TypeAlias

from msgspec import Meta

from extender.errors import InvalidInput
from extender.model.pod import Shape
from extender.model.queue import DEFAULT_QUEUE, ROOT_QUEUE
from extender.model.resources import CPU, LARGEST, MEMORY, PODS, Resources
from extender.sim.distributions import Clause, seconds
from extender.sim.workloads import Job
from extender.text import shown

#: How the tables write that there is nothing.
_NOTHING = frozenset({"", "none", "nan", "null"})
_GIB, _MIB = 2**30, 2**20


class TraceRow(NamedTuple):
    """One gang of a trace; moments in seconds of the trace's own clock."""

    at: float
    lasts_s: float
    size: int
    #: Of each pod.
    cpu_milli: float
    memory: float
    gpus: float
    is_plain: bool = False


class Cells:
    """The cells of one line by their column."""

    def __init__(self, cells: Mapping[str, str]) -> None:
        self._cells = cells

    def text(self, column: str) -> str:
        """Give what stands there, empty where that is nothing."""
        text = self._cells[column].strip()
        return "" if text.lower() in _NOTHING else text

    def number(self, column: str) -> float | None:
        """Read a number, 0 or more; None where there is nothing."""
        # Nearly all are numbers, of millions of lines: whether it is nothing is asked last.
        number = _float(self._cells[column])
        if number is not None and 0 <= number <= 1e15:
            return number
        if text := self.text(column):
            raise InvalidInput(f"{column}: {shown(text)} is no number of 0 or more")
        return None

    def moment(self, column: str) -> float | None:
        """Read a time: seconds, or a date such as `2020-04-01 00:04:09`."""
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
                f"{column}: {shown(text)} is no time; write seconds or 2020-04-01 00:04:09"
            ) from error

    def count(self, column: str) -> int:
        """Read how many pods there are; nothing, and 0, is one."""
        size = self.number(column) or 1.0
        if size != int(size) or size > 10_000:
            raise InvalidInput(f"{column}: {shown(self.text(column))} is no size of 1 to 10000")
        return int(size)


class Layout(NamedTuple):
    """A table that we know."""

    name: str
    #: Those that are read; a header that has them all is one of this table.
    columns: tuple[str, ...]
    #: None of a line that never began or never ended.
    read: Callable[[Cells], TraceRow | None]
    #: The column that says whose it is; empty where none does.
    queue_by: str = ""
    #: All columns in their order, where the table is published without a header.
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
    """Find the table by its first line; give its columns, and whether that line is a header."""
    header = tuple(cell.strip().lower() for cell in first)
    for layout in LAYOUTS:
        if set(layout.columns) <= set(header):
            return layout, header, True
        if len(header) == len(layout.headless):
            by_column = dict(zip(layout.headless, header, strict=True))
            texts = [by_column[column] for column in layout.columns]
            odd = sum(each not in _NOTHING and _float(each) is None for each in texts)
            # One may be wrong: better said of that column than of the whole file.
            if odd <= 1:
                return layout, layout.headless, False
    raise InvalidInput(
        "its first line has the columns of no trace that is known: "
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
    """A recorded trace, and how it is played."""

    file: str
    name: str = "trace"
    #: All to this queue, or to one called as a column says.
    queue: str | None = None
    queue_by: str | None = None
    #: So many gangs, those that came first.
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = MOST_ROWS
    after: str | float = 0
    #: Both times of arrival and durations pass so many times as fast.
    speed: Annotated[float, Meta(ge=0.001, le=1_000_000)] = 1.0
    #: In place of the recorded times of arrival.
    every: str | float | None = None
    #: What a GPU is called, and how many of that one GPU is.
    gpu: Annotated[str, Meta(min_length=1, max_length=300)] = "nvidia.com/gpu"
    per_gpu: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


@dataclass(slots=True)
class Trace:
    """What was read."""

    table: str
    jobs: list[Job]
    #: Lines with a gang, and those without because it did not end.
    rows: int = 0
    unended: int = 0
    rounded: int = 0
    late: int = 0

    @property
    def queues(self) -> list[str]:
        """Name the queues that it goes to."""
        return sorted({job.queue for job in self.jobs})

    def sentence(self) -> str:
        """Say for people what was read and what was not."""
        parts = [f"{self.table}, {len(self.jobs)} of {self.rows} gangs"]
        if self.unended:
            parts.append(f"{self.unended} more never began or never ended and are left out")
        if self.late:
            parts.append(f"{self.late} would come after the span")
        if self.rounded:
            parts.append(f"{self.rounded} ask for a fraction of a GPU, which is rounded up")
        return "; ".join(parts)


#: (at, line) and what came; the line makes it one order.
_Row: TypeAlias = tuple[float, int, TraceRow, str]


def read(wish: TraceSpec, path: Path, span_s: float) -> Trace:
    """Read the gangs that came first; `BadInput` names the file and the line."""
    if wish.queue is not None and wish.queue_by is not None:
        raise InvalidInput("trace: both queue and queue-by; leave one of them out")
    trace = Trace("", [])
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = _first(wish, file, trace)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not text in UTF-8") from error
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error
    if not rows:
        raise InvalidInput(f"{path}: holds no gang that ended")
    _add_jobs(wish, rows, span_s, trace)
    if not trace.jobs:
        raise InvalidInput(
            f"{path}: none of its gangs comes within the span; let them come earlier"
        )
    return trace


def _first(wish: TraceSpec, file: TextIO, trace: Trace) -> list[_Row]:
    """Keep those that came first, in order."""
    heap: list[_Row] = []
    for number, came, queue in _rows(wish, file, trace):
        trace.rows += 1
        # The last of those that are kept is on top, the first to be given up.
        each = (-came.at, -number, came, queue)
        if len(heap) < wish.limit:
            heapq.heappush(heap, each)
        else:
            heapq.heappushpop(heap, each)
    return sorted((-at, -number, came, queue) for at, number, came, queue in heap)


def _rows(wish: TraceSpec, file: TextIO, trace: Trace) -> Iterator[tuple[int, TraceRow, str]]:
    lines = _lines(file)
    number, first = next(lines, (0, []))
    if not first:
        raise InvalidInput("is empty")
    if first[0].lstrip()[:1] in ("{", "["):
        raise InvalidInput("is JSON; traces are read as CSV")
    layout, columns, has_header = detect_layout(first)
    trace.table = layout.name
    by = wish.queue_by or ("" if wish.queue else layout.queue_by)
    if by and by not in columns:
        raise InvalidInput(
            f"queue-by: there is no column {shown(by)}; there are {', '.join(columns)}"
        )
    if not has_header:
        lines = _chained((number, first), lines)
    for number, cells in lines:
        try:
            if len(cells) != len(columns):
                raise InvalidInput(f"it has {len(cells)} columns, and the table has {len(columns)}")
            row = Cells(dict(zip(columns, cells, strict=True)))
            came = layout.read(row)
        except InvalidInput as error:
            raise InvalidInput(f"line {number}: {error}; mend the line or take it out") from error
        if came is None:
            trace.unended += 1
        else:
            yield number, came, wish.queue or (_queue_name(row.text(by)) if by else DEFAULT_QUEUE)


def _chained(
    first: tuple[int, list[str]], others: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    yield first
    yield from others


def _lines(file: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Give the cells of each line with its number, one line being one record."""
    number = 0
    while line := file.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise InvalidInput(f"line {number} is longer than {_LONGEST_LINE} letters")
        if number > _MOST_LINES:
            raise InvalidInput(f"has more than {_MOST_LINES} lines; cut it")
        if line.strip():
            try:
                yield number, next(csv.reader([line], strict=True))
            except csv.Error as error:
                raise InvalidInput(f"line {number} is no CSV: {error}; mend it") from error


def _queue_name(text: str) -> str:
    """Make what a trace calls somebody the name of a queue; nobody is the default queue."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower())[:40].strip("-")
    return f"q-{name}" if name == ROOT_QUEUE else name or DEFAULT_QUEUE


def _add_jobs(wish: TraceSpec, rows: list[_Row], span_s: float, trace: Trace) -> None:
    beginning, after = rows[0][0], seconds(wish.after, "after")
    every = None if wish.every is None else seconds(wish.every, "every")
    shapes: dict[Resources, Shape] = {}
    for place, (at, number, came, queue) in enumerate(rows):
        passed = (at - beginning) / wish.speed if every is None else every * place
        if after + passed > span_s:
            trace.late += 1
            continue
        gpus = came.gpus * wish.per_gpu
        trace.rounded += gpus != ceil(gpus)
        asked = {CPU: came.cpu_milli, MEMORY: came.memory, wish.gpu: gpus}
        needs = {name: min(LARGEST, ceil(amount)) for name, amount in asked.items() if amount}
        amounts = Resources({**needs, PODS: 1})
        trace.jobs.append(
            Job(
                namespace=queue,
                # By its line, whatever the trace calls it: so it can be looked up.
                name=f"{wish.name}-line-{number}",
                queue=queue,
                size=came.size,
                min_member=came.size,
                shape=shapes.setdefault(amounts, Shape(requests=amounts)),
                lasts_s=max(1.0, came.lasts_s / wish.speed),
                arrives_s=round(after + passed, 3),
                is_plain=came.is_plain,
            )
        )
    if len(trace.queues) > MOST_QUEUES:
        raise InvalidInput(
            f"trace: more than {MOST_QUEUES} queues; give queue, or another queue-by"
        )
