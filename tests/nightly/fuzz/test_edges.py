"""A bounded run at every edge: by count, from one seed, so that it is the same each time."""

from __future__ import annotations

import pytest

from tests.nightly.fuzz.bounds import Ears
from tests.nightly.fuzz.edge import CORPUS
from tests.nightly.fuzz.edges import EDGES, new
from tests.nightly.fuzz.running import judged, run

SEED = 17


@pytest.mark.parametrize("name", EDGES)
def test_whatever_comes_nothing_that_must_hold_is_broken(name: str) -> None:
    with new(name) as edge:
        ran = run(edge, SEED, count=edge.count)

    assert ran.count == edge.count
    assert ran.grown is not None
    assert [(find.objection, find.data[:300]) for find in ran.finds] == []


@pytest.mark.parametrize("name", EDGES)
def test_whatever_was_found_once_stays_mended(name: str) -> None:
    with new(name) as edge, Ears() as ears:
        objections = {each.name: judged(edge, each.read_bytes(), ears) for each in edge.kept}

    assert {each: why for each, why in objections.items() if why} == {}


def test_every_folder_of_the_corpus_is_of_an_edge() -> None:
    assert {each.name for each in CORPUS.iterdir()} <= {*EDGES}
