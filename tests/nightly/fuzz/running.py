"""Trying an edge: inputs by seed and number, each judged within bounds; finds made small."""

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

from tests.nightly.fuzz.bounds import Ears, bounded, resident
from tests.nightly.fuzz.edge import CORPUS, Edge, Objection
from tests.nightly.fuzz.mutations import mutated

#: After so many inputs, or half of them if there are fewer, nothing is new any more.
_WARM = 500
#: What may be remembered beyond that, of strangers' inputs: some in any case, as much of each as
#: most are long, and never more than whatever is bounded holds when it is full.
_GROWTH, _OF_EACH, _MOST_GROWTH = 16 << 20, 1 << 16, 128 << 20
#: Cuts that are tried to make a find small.
_TRIES = 400
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Find:
    """An input that something objected to."""

    edge: str
    data: bytes
    objection: str

    @property
    def kind(self) -> str:
        """Tell finds apart that are not the same."""
        return kind_of(self.objection)


def kind_of(objection: str) -> str:
    """Give what an objection is about: its words up to a colon, without numbers."""
    return re.sub(r"\d+", "", objection.partition(": ")[0])


@dataclass(slots=True)
class Ran:
    """What was done."""

    edge: str
    count: int = 0
    size: int = 0
    seconds: float = 0.0
    #: How much memory more is in use than when it was warm; None where it never was.
    grown: int | None = None
    finds: list[Find] = field(default_factory=list)


def inputs(edge: Edge, seed: int) -> Iterator[bytes]:
    """Give one input after the other; the same for the same seed and corpus, whatever is tried."""
    real = [*edge.real(), *(each.read_bytes() for each in edge.kept)]
    number = 0
    while True:
        yield numbered(edge, seed, number, real)
        number += 1


def numbered(edge: Edge, seed: int, number: int, real: list[bytes]) -> bytes:
    """Give one of them."""
    chance = Random(f"{edge.name} {seed} {number}")
    if not real or chance.random() < 0.5:
        data = edge.made(chance)
        if chance.random() < 0.8:
            return data[: edge.longest]
    else:
        data = chance.choice(real)
    return mutated(data, chance, edge.words, real)[: edge.longest]


def judged(edge: Edge, data: bytes, ears: Ears) -> str:
    """Give what is objected to, mostly nothing."""
    try:
        with bounded():
            edge.judge(data)
        ears.check()
    except Objection as objection:
        return str(objection)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__} is raised in {_place(error)}: {error}"[:500]
    finally:
        ears.forget()
    return ""


def _place(error: BaseException) -> str:
    """Say who of ours raised it, or called whoever did."""
    frames = [(each.filename, each.name) for each in traceback.extract_tb(error.__traceback__)]
    ours = [(Path(file).stem, name) for file, name in frames if "/extender/" in file]
    return ".".join((ours or [("the", "judge")])[-1])


def run(
    edge: Edge,
    seed: int,
    *,
    count: int | None = None,
    seconds: float | None = None,
    told: Callable[[Find], None] = lambda find: None,
) -> Ran:
    """Try *edge*, which has been entered, by *count* of inputs or for some *seconds*.

    The same objection is told once. An edge that gets slower or larger by trying is a find too.
    """
    ran, began, kinds = Ran(edge.name), time.monotonic(), set[str]()
    warm_at, warm = 0, 0
    with Ears() as ears:
        for data in inputs(edge, seed):
            if ran.count == count or (seconds and time.monotonic() - began > seconds):
                break
            ran.count += 1
            ran.size += len(data)
            objection = judged(edge, data, ears)
            if objection and kind_of(objection) not in kinds:
                kinds.add(kind_of(objection))
                small = Find(edge.name, smaller(edge, data, objection, ears), objection)
                ran.finds.append(small)
                told(small)
            spent = time.monotonic() - began
            if not warm_at and _is_warm(ran.count, count, spent, seconds):
                warm_at, warm = ran.count, resident()
    if 0 < warm_at < ran.count:
        ran.grown = resident() - warm
        if ran.grown > most_growth(ran.count - warm_at):
            grown = Find(edge.name, b"", f"memory grows: {ran.grown >> 20} MB more")
            ran.finds.append(grown)
            told(grown)
    ran.seconds = time.monotonic() - began
    return ran


def _is_warm(tried: int, count: int | None, spent: float, seconds: float | None) -> bool:
    """Ask whether enough was tried for growth to be judged by the rest, which may be short."""
    is_half = 2 * tried >= (count or math.inf) or 2 * spent >= (seconds or math.inf)
    return tried >= _WARM or is_half


def most_growth(tried: int) -> int:
    """Give how much more memory may be in use when so many were tried since it was warm."""
    return min(_GROWTH + tried * _OF_EACH, _MOST_GROWTH)


def smaller(edge: Edge, data: bytes, objection: str, ears: Ears) -> bytes:
    """Cut from *data* what the same objection does not need."""
    kind, size = kind_of(objection), max(1, len(data) // 2)
    tries, end = 0, time.monotonic() + _PATIENCE_S
    while size:
        at = 0
        while at < len(data) and tries < _TRIES and time.monotonic() < end:
            tries += 1
            less = data[:at] + data[at + size :]
            if kind_of(judged(edge, less, ears)) == kind:
                data = less
            else:
                at += size
        size //= 2
    return data


def keep(find: Find, edge: Edge, corpus: Path = CORPUS) -> Path | None:
    """Write a find where every run tries it from now on; None for one that is no input."""
    if not find.data and find.objection.startswith("memory grows"):
        return None
    folder = corpus / find.edge
    folder.mkdir(parents=True, exist_ok=True)
    digest = sha256(find.data).hexdigest()[:10]
    path = folder / f"found-{digest}{edge.suffix}"
    path.write_bytes(find.data)
    return path
