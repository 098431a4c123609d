"""YAML of strangers: reading it and walking through it costs no more than it looks like."""

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
def test_what_would_not_end_or_not_fit_is_refused_with_a_sentence(text: str) -> None:
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
        ("a: *nobody", "undefined alias"),
        ("a: 2026-13-45", "month must be in 1..12"),
        (f"a: {'9' * 5000}", "integer string conversion"),
        ("a: [", "while parsing"),
        ("{[1]: 2}", "unhashable key"),
        ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("a: 1\n---\na: 2", "several documents"),
    ],
)
def test_it_is_said_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        yaml_loader.load(text)

    assert told in str(caught.value)


@pytest.mark.parametrize("name", [name for name in BOMBS if name != "stairs"])
def test_saved_objects_may_be_larger_but_not_without_end(name: str) -> None:
    with pytest.raises(InvalidInput):
        list(yaml_loader.load_all(BOMBS[name], yaml_loader.SAVED))


def test_an_alias_that_saves_a_few_lines_is_read() -> None:
    text = "usual: &usual {cpu: 1, memory: 1Gi}\na: *usual\nb: {<<: *usual, cpu: 2}"

    assert yaml_loader.load(text)["b"] == {"cpu": 2, "memory": "1Gi"}
    assert yaml_loader.load(text)["a"] == {"cpu": 1, "memory": "1Gi"}


def test_a_thousand_objects_may_share_one_template() -> None:
    template = "template: &t {spec: {containers: [{resources: {requests: {cpu: 1}}}]}}"
    text = "\n".join([template, *(f"pod-{n}: {{<<: *t, name: p{n}}}" for n in range(1000))])

    (read,) = yaml_loader.load_all(text, yaml_loader.SAVED)

    assert len(read) == 1001


def test_a_name_that_is_used_again_in_the_next_document_is_another() -> None:
    text = "a: &a [1]\nb: *a\n---\na: &a [2]\nb: *a"

    assert [each["b"] for each in yaml_loader.load_all(text)] == [[1], [2]]


def test_stars_and_ampersands_in_texts_are_no_aliases() -> None:
    assert yaml_loader.load("a: '*b & c'\nd: 5 * 3 & more\ne: '*/5 * * * *'") == {
        "a": "*b & c",
        "d": "5 * 3 & more",
        "e": "*/5 * * * *",
    }


def test_nothing_is_nothing() -> None:
    assert yaml_loader.load("") is None


_PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=20,
)


@given(_PLAIN)
def test_whatever_can_be_written_is_read_as_it_was(thing: Any) -> None:
    assert yaml_loader.load(yaml.safe_dump(thing)) == thing


@given(st.lists(st.sampled_from(["[", "]", "&a ", "*a ", "&b ", "*b ", "x", ", ", "{", "}", ": "])))
def test_whatever_is_read_is_no_larger_than_its_bounds_say(parts: list[str]) -> None:
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
