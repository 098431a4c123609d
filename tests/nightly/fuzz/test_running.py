"""The harness: the same by seed, small finds, kept as files, told by the exit code."""

from __future__ import annotations

from itertools import count, islice
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from tests.nightly.fuzz import __main__ as command, running
from tests.nightly.fuzz.bounds import Ears
from tests.nightly.fuzz.edge import Edge, Objection
from tests.nightly.fuzz.edges import EDGES, new
from tests.nightly.fuzz.running import Find, inputs, judged, keep, kind_of, run, smaller

ROOT = Path(__file__).parents[3]


class Picky(Edge):
    """Objects to two bytes in a row, and breaks at a third."""

    name = "picky"
    count = 50
    suffix = ".txt"

    def real(self) -> list[bytes]:
        return [b"what a stranger says"]

    def made(self, chance: Random) -> bytes:
        return chance.randbytes(40) + b"xy" * chance.randrange(2)

    def judge(self, data: bytes) -> None:
        if b"xy" in data:
            raise Objection(f"there is an xy in {len(data)} bytes")
        if data.startswith(b"z"):
            raise KeyError("z")


@pytest.mark.parametrize("name", ["quantities", "hook-port", "watch"])
def test_the_same_seed_is_the_same_run(name: str) -> None:
    with new(name) as one, new(name) as another:
        first, second = list(islice(inputs(one, 5), 50)), list(islice(inputs(another, 5), 50))
        third = list(islice(inputs(one, 6), 50))

    assert first == second
    assert first != third


def test_so_many_are_tried_as_was_said() -> None:
    assert run(Picky(), 1, count=20).count == 20


def test_the_same_find_is_told_once() -> None:
    told: list[Find] = []
    run(Picky(), 1, count=200, told=told.append)

    assert [find.kind for find in told].count("there is an xy in  bytes") == 1


def test_a_find_is_made_small() -> None:
    with Ears() as ears:
        assert smaller(Picky(), b"a" * 500 + b"xy" + b"b" * 300, "there is an xy", ears) == (
            b"a" * 500 + b"xy" + b"b" * 300
        )
        objection = judged(Picky(), b"axyb" * 99, ears)
        assert smaller(Picky(), b"a" * 500 + b"xy" + b"b" * 300, objection, ears) == b"xy"


def test_what_is_raised_is_told_apart_by_who_raised_it() -> None:
    with Ears() as ears:
        objection = judged(Picky(), b"zz", ears)

    assert objection == "KeyError is raised in the.judge: 'z'"
    assert kind_of(objection) == "KeyError is raised in the.judge"


def test_a_find_becomes_an_entry_of_the_corpus_and_is_tried_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = keep(Find("picky", b"axyb", "there is"), Picky(), tmp_path)
    assert path is not None
    monkeypatch.setattr("tests.nightly.fuzz.edge.CORPUS", tmp_path)

    assert path.read_bytes() == b"axyb"
    assert path.parent.name == "picky"
    assert Picky().kept == [path]


class Keeping(Picky):
    """Never gives back what it was told, nor what that cost."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._kept: list[bytes] = []

    def judge(self, data: bytes) -> None:
        self._kept.append(b"x" * self._each)


@pytest.mark.parametrize(
    ("count", "each"), [(min(new(name).count for name in EDGES), 1 << 20), (1200, 1 << 18)]
)
def test_memory_that_grows_is_told_however_short_the_run_is(count: int, each: int) -> None:
    # What was given back before must not hide it.
    bytes_of_others = [b"x" * each for _ in range(200)]
    del bytes_of_others
    told: list[Find] = []
    ran = run(Keeping(each), 3, count=count, told=told.append)

    assert ran.grown is not None
    assert [find.kind for find in ran.finds] == ["memory grows"]
    assert told == ran.finds


def test_memory_that_grows_is_told_when_the_time_was_too_short_to_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A second for each look at the clock, however busy the machine is.
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=count().__next__))
    ran = run(Keeping(2 << 20), 3, seconds=100)

    assert ran.count <= 100
    assert [find.kind for find in ran.finds] == ["memory grows"]


def test_what_was_remembered_while_it_warmed_up_is_no_growth() -> None:
    class Full(Keeping):
        def judge(self, data: bytes) -> None:
            if len(self._kept) < 60:
                super().judge(data)

    ran = run(Full(1 << 20), 3, count=120)

    assert ran.grown is not None
    assert ran.finds == []


def test_no_more_is_remembered_of_many_inputs_than_is_bounded() -> None:
    assert running.most_growth(10) < running.most_growth(100) < 32 << 20
    assert running.most_growth(10**4) == running.most_growth(10**6) == 128 << 20


def test_the_command_tells_what_it_did_and_ends_well_when_nothing_was_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["--seed", "4", "--count", "30", "quantities"]) == 0
    assert "quantities   seed 4: 30 inputs" in capsys.readouterr().out


def test_the_command_ends_badly_when_something_was_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "new", lambda name: Picky())
    monkeypatch.setattr(command, "keep", lambda find, edge: keep(find, edge, tmp_path))

    assert command.main(["--seed", "1", "--count", "200", "quantities"]) == 1
    told = capsys.readouterr().out
    assert "FOUND  there is an xy" in told
    assert str(tmp_path / "picky" / "found-") in told


def test_an_edge_that_is_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--count", "1", "nowhere"])

    assert "there are quantities, policy" in capsys.readouterr().err


def test_each_edge_answers_to_the_name_it_is_registered_by() -> None:
    assert [new(name).name for name in EDGES] == [*EDGES]
