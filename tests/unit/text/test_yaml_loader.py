"""Untrusted YAML: loading and walking a document costs no more than its text."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st

from extender import yaml_loader
from extender.errors import InvalidInput
from tests.unit.text.yaml_bombs import BOMBS, ITSELF, laughs, long_word, merges, stairs


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_document_that_expands_without_limit_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        yaml_loader.load(text)

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (laughs(), yaml_loader.TOO_LARGE),
        (merges(), yaml_loader.TOO_LARGE),
        (long_word(), yaml_loader.TOO_LARGE),
        (stairs(), yaml_loader.TOO_DEEP),
        (BOMBS["brackets"], yaml_loader.TOO_DEEP),
        (ITSELF, yaml_loader.ENDLESS),
        ("a: *missing", "undefined alias"),
        ("a: 2026-13-45", "month must be in 1..12"),
        (f"a: {'9' * 5000}", "integer string conversion"),
        ("a: [", "while parsing"),
        ("{[1]: 2}", "unhashable key"),
        ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("a: 1\n---\na: 2", "several documents"),
    ],
)
def test_the_error_says_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        yaml_loader.load(text)

    assert told in str(caught.value)


@pytest.mark.parametrize("name", [name for name in BOMBS if name != "stairs"])
def test_saved_objects_have_a_larger_limit(name: str) -> None:
    with pytest.raises(InvalidInput):
        list(yaml_loader.load_all(BOMBS[name], yaml_loader.SAVED))


def test_a_small_alias_is_expanded() -> None:
    text = "usual: &usual {cpu: 1, memory: 1Gi}\na: *usual\nb: {<<: *usual, cpu: 2}"

    assert yaml_loader.load(text)["b"] == {"cpu": 2, "memory": "1Gi"}
    assert yaml_loader.load(text)["a"] == {"cpu": 1, "memory": "1Gi"}


def test_a_thousand_objects_may_share_one_template() -> None:
    template = "template: &t {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}"
    text = "\n".join([template, *(f"pod-{n}: {{<<: *t, name: p{n}}}" for n in range(1000))])

    (read,) = yaml_loader.load_all(text, yaml_loader.SAVED)

    assert len(read) == 1001


def test_an_anchor_is_independent_of_those_in_earlier_documents() -> None:
    text = "a: &a [1]\nb: *a\n---\na: &a [2]\nb: *a"

    assert [each["b"] for each in yaml_loader.load_all(text)] == [[1], [2]]


def test_stars_and_ampersands_in_strings_are_not_aliases() -> None:
    assert yaml_loader.load("a: '*b & c'\nd: 5 * 3 & more\ne: '*/5 * * * *'") == {
        "a": "*b & c",
        "d": "5 * 3 & more",
        "e": "*/5 * * * *",
    }


def test_an_empty_document_is_none() -> None:
    assert yaml_loader.load("") is None


_PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@given(_PLAIN)
def test_written_yaml_is_read_back_unchanged(thing: Any) -> None:
    assert yaml_loader.load(yaml.safe_dump(thing)) == thing


@given(st.lists(st.sampled_from(["[", "]", "&a ", "*a ", "&b ", "*b ", "x", ", ", "{", "}", ": "])))
def test_a_loaded_document_is_never_larger_than_its_limits(parts: list[str]) -> None:
    text = "".join(parts)
    try:
        read = yaml_loader.load(text)
    except InvalidInput:
        return

    try:
        whole = json.dumps(read)
    except TypeError:  # a key that is none of JSON's
        return
    assert sum(Counter(whole).values()) <= 8 * (10 * len(text) + 10_000)
