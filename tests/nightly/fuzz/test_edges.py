"""A run of every edge with a fixed seed and count."""

from __future__ import annotations

import pytest

from tests.nightly.fuzz.bounds import ErrorLog
from tests.nightly.fuzz.edge import CORPUS
from tests.nightly.fuzz.edges import EDGES, new
from tests.nightly.fuzz.running import judged, run

SEED = 17


@pytest.mark.parametrize("name", EDGES)
def test_no_random_input_fails(name: str) -> None:
    with new(name) as edge:
        ran = run(edge, SEED, count=edge.count)

    assert ran.count == edge.count
    assert ran.grown is not None
    assert [(find.objection, find.data[:300]) for find in ran.finds] == []


@pytest.mark.parametrize("name", EDGES)
def test_no_input_of_the_corpus_fails(name: str) -> None:
    with new(name) as edge, ErrorLog() as errors:
        objections = {each.name: judged(edge, each.read_bytes(), errors) for each in edge.kept}

    assert {each: why for each, why in objections.items() if why} == {}


def test_every_folder_of_the_corpus_has_an_edge() -> None:
    assert {each.name for each in CORPUS.iterdir()} <= {*EDGES}
