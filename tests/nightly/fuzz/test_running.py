"""The fuzzing harness: seeds, reduced finds, files of the corpus, exit codes."""

from __future__ import annotations

from itertools import count, islice
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from tests.nightly.fuzz import __main__ as command, running
from tests.nightly.fuzz.bounds import ErrorLog
from tests.nightly.fuzz.edge import Edge, Objection
from tests.nightly.fuzz.edges import EDGES, new
from tests.nightly.fuzz.running import Find, inputs, judged, keep, kind_of, run, smaller

ROOT = Path(__file__).parents[3]


class Picky(Edge):
    """Fails for a pair of bytes, and raises for another."""

    name = "picky"
    count = 50
    suffix = ".txt"

    def real(self) -> list[bytes]:
        return [b"what a stranger says"]

    def made(self, rng: Random) -> bytes:
        return rng.randbytes(40) + b"xy" * rng.randrange(2)

    def judge(self, data: bytes) -> None:
        if b"xy" in data:
            raise Objection(f"there is an xy in {len(data)} bytes")
        if data.startswith(b"z"):
            raise KeyError("z")


@pytest.mark.parametrize("name", ["quantities", "hook-port", "watch"])
def test_same_seed_gives_the_same_inputs(name: str) -> None:
    with new(name) as one, new(name) as another:
        first, second = list(islice(inputs(one, 5), 50)), list(islice(inputs(another, 5), 50))
        third = list(islice(inputs(one, 6), 50))

    assert first == second
    assert first != third


def test_run_has_the_given_count() -> None:
    assert run(Picky(), 1, count=20).count == 20


def test_same_find_is_reported_once() -> None:
    reported: list[Find] = []
    run(Picky(), 1, count=200, report=reported.append)

    assert [find.kind for find in reported].count("there is an xy in  bytes") == 1


def test_find_is_reduced() -> None:
    with ErrorLog() as errors:
        assert smaller(Picky(), b"a" * 500 + b"xy" + b"b" * 300, "there is an xy", errors) == (
            b"a" * 500 + b"xy" + b"b" * 300
        )
        objection = judged(Picky(), b"axyb" * 99, errors)
        assert smaller(Picky(), b"a" * 500 + b"xy" + b"b" * 300, objection, errors) == b"xy"


def test_kind_of_an_error_is_its_type_and_place() -> None:
    with ErrorLog() as errors:
        objection = judged(Picky(), b"zz", errors)

    assert objection == "KeyError is raised in the.judge: 'z'"
    assert kind_of(objection) == "KeyError is raised in the.judge"


def test_find_is_written_into_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = keep(Find("picky", b"axyb", "there is"), Picky(), tmp_path)
    assert path is not None
    monkeypatch.setattr("tests.nightly.fuzz.edge.CORPUS", tmp_path)

    assert path.read_bytes() == b"axyb"
    assert path.parent.name == "picky"
    assert Picky().kept == [path]


class Keeping(Picky):
    """Leaks memory."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._kept: list[bytes] = []

    def judge(self, data: bytes) -> None:
        self._kept.append(b"x" * self._each)


@pytest.mark.parametrize(
    ("count", "each"), [(min(new(name).count for name in EDGES), 1 << 20), (1200, 1 << 18)]
)
def test_growth_of_memory_is_reported_in_short_runs(count: int, each: int) -> None:
    # Memory that was freed before must not hide it.
    bytes_of_others = [b"x" * each for _ in range(200)]
    del bytes_of_others
    reported: list[Find] = []
    ran = run(Keeping(each), 3, count=count, report=reported.append)

    assert ran.grown is not None
    assert [find.kind for find in ran.finds] == ["memory grows"]
    assert reported == ran.finds


def test_growth_of_memory_is_reported_without_enough_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Each reading of the clock takes a second.
    monkeypatch.setattr(running, "time", SimpleNamespace(monotonic=count().__next__))
    ran = run(Keeping(2 << 20), 3, seconds=100)

    assert ran.count <= 100
    assert [find.kind for find in ran.finds] == ["memory grows"]


def test_memory_used_at_the_beginning_is_no_growth() -> None:
    class Full(Keeping):
        def judge(self, data: bytes) -> None:
            if len(self._kept) < 60:
                super().judge(data)

    ran = run(Full(1 << 20), 3, count=120)

    assert ran.grown is not None
    assert ran.finds == []


def test_allowed_growth_has_a_maximum() -> None:
    assert running.most_growth(10) < running.most_growth(100) < 32 << 20
    assert running.most_growth(10**4) == running.most_growth(10**6) == 128 << 20


def test_command_exits_with_0_without_finds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.main(["--seed", "4", "--count", "30", "quantities"]) == 0
    assert "quantities   seed 4: 30 inputs" in capsys.readouterr().out


def test_command_exits_with_1_with_a_find(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "new", lambda name: Picky())
    monkeypatch.setattr(command, "keep", lambda find, edge: keep(find, edge, tmp_path))

    assert command.main(["--seed", "1", "--count", "200", "quantities"]) == 1
    output = capsys.readouterr().out
    assert "FOUND  there is an xy" in output
    assert str(tmp_path / "picky" / "found-") in output


def test_unknown_edge_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--count", "1", "nowhere"])

    assert "there are quantities, policy" in capsys.readouterr().err


def test_names_of_edges_match_their_registration() -> None:
    assert [new(name).name for name in EDGES] == [*EDGES]
