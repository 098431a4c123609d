"""Runs an edge: inputs by seed and number, each checked within limits; failing ones are reduced."""

from __future__ import annotations

import math
import re
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random

from tests.nightly.fuzz.bounds import ErrorLog, bounded, resident
from tests.nightly.fuzz.edge import CORPUS, Edge, Objection
from tests.nightly.fuzz.mutations import mutated

#: Inputs before memory is measured, or half of them if there are fewer.
_WARM = 500
#: The allowed growth of memory after that: a constant, an amount for each input, and the maximum,
#: which is what all bounded caches hold.
_GROWTH, _OF_EACH, _MOST_GROWTH = 16 << 20, 1 << 16, 128 << 20
#: The number of attempts to reduce a failing input.
_TRIES = 400
_REDUCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Find:
    """A failing input."""

    edge: str
    data: bytes
    objection: str

    @property
    def kind(self) -> str:
        """Return what distinguishes finds."""
        return kind_of(self.objection)


def kind_of(objection: str) -> str:
    """Return the objection up to a colon, without numbers."""
    return re.sub(r"\d+", "", objection.partition(": ")[0])


@dataclass(slots=True)
class Ran:
    """The result of a run."""

    edge: str
    count: int = 0
    size: int = 0
    seconds: float = 0.0
    #: The growth of memory since it was measured; None if it was not.
    grown: int | None = None
    finds: list[Find] = field(default_factory=list)


def inputs(edge: Edge, seed: int) -> Iterator[bytes]:
    """Yield inputs, which depend only on the seed and the corpus."""
    real = [*edge.real(), *(each.read_bytes() for each in edge.kept)]
    number = 0
    while True:
        yield numbered(edge, seed, number, real)
        number += 1


def numbered(edge: Edge, seed: int, number: int, real: list[bytes]) -> bytes:
    """Return the input with this number."""
    rng = Random(f"{edge.name} {seed} {number}")
    if not real or rng.random() < 0.5:
        data = edge.made(rng)
        if rng.random() < 0.8:
            return data[: edge.longest]
    else:
        data = rng.choice(real)
    return mutated(data, rng, edge.words, real)[: edge.longest]


def judged(edge: Edge, data: bytes, errors: ErrorLog) -> str:
    """Return the objection, or an empty string."""
    try:
        with bounded():
            edge.judge(data)
        errors.check()
    except Objection as objection:
        return str(objection)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__} is raised in {_place(error)}: {error}"[:500]
    finally:
        errors.clear()
    return ""


def _place(error: BaseException) -> str:
    """Return the innermost function of the extender in the traceback."""
    frames = [(each.filename, each.name) for each in traceback.extract_tb(error.__traceback__)]
    ours = [(Path(file).stem, name) for file, name in frames if "/extender/" in file]
    return ".".join((ours or [("the", "judge")])[-1])


def run(
    edge: Edge,
    seed: int,
    *,
    count: int | None = None,
    seconds: float | None = None,
    report: Callable[[Find], None] = lambda find: None,
) -> Ran:
    """Run *edge*, which has been entered, for *count* inputs or some *seconds*.

    Each kind of objection is reported once. Growth of memory is a find too.
    """
    ran, began, kinds = Ran(edge.name), time.monotonic(), set[str]()
    warm_at, warm = 0, 0
    with ErrorLog() as errors:
        for data in inputs(edge, seed):
            if ran.count == count or (seconds and time.monotonic() - began > seconds):
                break
            ran.count += 1
            ran.size += len(data)
            objection = judged(edge, data, errors)
            if objection and kind_of(objection) not in kinds:
                kinds.add(kind_of(objection))
                small = Find(edge.name, smaller(edge, data, objection, errors), objection)
                ran.finds.append(small)
                report(small)
            spent = time.monotonic() - began
            if not warm_at and _is_warm(ran.count, count, spent, seconds):
                warm_at, warm = ran.count, resident()
    if 0 < warm_at < ran.count:
        ran.grown = resident() - warm
        if ran.grown > most_growth(ran.count - warm_at):
            grown = Find(edge.name, b"", f"memory grows: {ran.grown >> 20} MB more")
            ran.finds.append(grown)
            report(grown)
    ran.seconds = time.monotonic() - began
    return ran


def _is_warm(tried: int, count: int | None, spent: float, seconds: float | None) -> bool:
    """Return whether memory should be measured now."""
    is_half = 2 * tried >= (count or math.inf) or 2 * spent >= (seconds or math.inf)
    return tried >= _WARM or is_half


def most_growth(tried: int) -> int:
    """Return the allowed growth of memory after *tried* inputs."""
    return min(_GROWTH + tried * _OF_EACH, _MOST_GROWTH)


def smaller(edge: Edge, data: bytes, objection: str, errors: ErrorLog) -> bytes:
    """Remove parts of *data* while the objection stays the same."""
    kind, size = kind_of(objection), max(1, len(data) // 2)
    tries, end = 0, time.monotonic() + _REDUCE_S
    while size:
        at = 0
        while at < len(data) and tries < _TRIES and time.monotonic() < end:
            tries += 1
            less = data[:at] + data[at + size :]
            if kind_of(judged(edge, less, errors)) == kind:
                data = less
            else:
                at += size
        size //= 2
    return data


def keep(find: Find, edge: Edge, corpus: Path = CORPUS) -> Path | None:
    """Write a find into the corpus, and return its path; None for growth of memory."""
    if not find.data and find.objection.startswith("memory grows"):
        return None
    folder = corpus / find.edge
    folder.mkdir(parents=True, exist_ok=True)
    digest = sha256(find.data).hexdigest()[:10]
    path = folder / f"found-{digest}{edge.suffix}"
    path.write_bytes(find.data)
    return path
