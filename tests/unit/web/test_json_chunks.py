"""JSON in chunks is the same as JSON in one piece."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, strategies as st
from msgspec import structs

from extender.web import documents
from extender.web.api import CHUNK, json_chunks

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_chunks_joined_are_the_whole_document(document: object) -> None:
    assert json.loads(b"".join(json_chunks(document))) == document


@pytest.mark.parametrize("document", [{}, [], {"a": []}, {"a": {}}, {"a": iter(())}, (), 3, None])
def test_empty_documents_are_serialized(document: object) -> None:
    plain = {"a": []} if isinstance(document, dict) and "a" in document else document
    if document == {"a": {}}:
        plain = document

    assert json.loads(b"".join(json_chunks(document))) == json.loads(msgspec.json.encode(plain))


def test_a_struct_is_serialized_in_chunks_as_in_one_piece() -> None:
    eviction = documents.Eviction(pod="x" * 1000, node="n", action="reclaim", beneficiary="a/x")
    document = structs.replace(documents.NO_PLAN, evictions=[eviction] * 200)
    written = [*json_chunks(document)]

    assert len(written) > 2
    assert b"".join(written) == msgspec.json.encode(document)


def test_items_are_serialized_lazily_and_no_chunk_is_large() -> None:
    made: list[int] = []

    def items() -> object:
        for index in range(1000):
            made.append(index)
            yield {"name": "x" * 1000, "index": index}

    written = json_chunks({"kind": "List", "items": items()})
    first = next(written)

    assert len(made) < 100
    rest = list(written)
    assert all(len(piece) < 2 * CHUNK for piece in (first, *rest))
    assert len(json.loads(b"".join((first, *rest)))["items"]) == 1000
