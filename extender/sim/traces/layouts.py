"""The columns of the public traces, and what one line of each comes to.

A trace is somebody else's: what a line leaves empty has a meaning here, what it says and nobody can
read is an error that names the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import NamedTuple

from extender.errors import BadInput
from extender.text.plain import shown

#: How the tables write that there is nothing.
_NOTHING = frozenset({"", "none", "nan", "null"})
_GIB, _MIB = 2**30, 2**20


class Came(NamedTuple):
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
            raise BadInput(f"{column}: {shown(text)} is no number of 0 or more")
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
            raise BadInput(
                f"{column}: {shown(text)} is no time; write seconds or 2020-04-01 00:04:09"
            ) from error

    def count(self, column: str) -> int:
        """Read how many pods there are; nothing, and 0, is one."""
        size = self.number(column) or 1.0
        if size != int(size) or size > 10_000:
            raise BadInput(f"{column}: {shown(self.text(column))} is no size of 1 to 10000")
        return int(size)


class Layout(NamedTuple):
    """A table that we know."""

    name: str
    #: Those that are read; a header that has them all is one of this table.
    columns: tuple[str, ...]
    #: None of a line that never began or never ended.
    read: Callable[[Cells], Came | None]
    #: The column that says whose it is; empty where none does.
    queue_by: str = ""
    #: All columns in their order, where the table is published without a header.
    headless: tuple[str, ...] = ()


def _pai(cells: Cells) -> Came | None:
    since, until = cells.moment("start_time"), cells.moment("end_time")
    size = cells.count("inst_num")
    cpu, memory, gpu = (cells.number(f"plan_{each}") or 0.0 for each in ("cpu", "mem", "gpu"))
    if since is None or until is None or until < since:
        return None
    return Came(since, until - since, size, cpu * 10, memory * _GIB, gpu / 100)


def _openb(cells: Cells) -> Came | None:
    created, until = cells.moment("creation_time"), cells.moment("deletion_time")
    since = cells.moment("scheduled_time")
    cpu, memory = cells.number("cpu_milli") or 0.0, cells.number("memory_mib") or 0.0
    gpus = (cells.number("num_gpu") or 0.0) * (cells.number("gpu_milli") or 0.0) / 1000
    since = created if since is None else since
    if created is None or since is None or until is None or until < since:
        return None
    return Came(created, until - since, 1, cpu, memory * _MIB, gpus, is_plain=True)


def _helios(cells: Cells) -> Came | None:
    submitted, lasts_s = cells.moment("submit_time"), cells.number("duration")
    pods = cells.count("node_num")
    cpu, gpus = cells.number("cpu_num") or 0.0, cells.number("gpu_num") or 0.0
    if submitted is None or lasts_s is None:
        return None
    return Came(submitted, lasts_s, pods, cpu * 1000 / pods, 0.0, gpus / pods)


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


def recognised(first: Sequence[str]) -> tuple[Layout, tuple[str, ...], bool]:
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
    raise BadInput(
        "its first line has the columns of no trace that is known: "
        + "; ".join(f"{each.name} has {', '.join(each.columns)}" for each in LAYOUTS)
    )


def _float(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
