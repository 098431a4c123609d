"""Text without control characters."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, strategies as st

from extender.text import clean, escaped, lines, shown, steers

HOSTILE = [
    "\x1b[2J",
    "\x9b31m",
    "\x1b]0;title\x07",
    "a\rb",
    "a\nb",
    "\t",
    "\x7f",
    "\u202e",
    "\u2066",
    "\u200f",
    "\u061c",
    "\u2028",
    "\ufeff",
    "\ud800",
    "\U000e0041",
]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_control_characters_become_replacement_characters(text: str) -> None:
    told = clean(text)

    assert not any(unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp") for each in told)
    assert "\ufffd" in told


@pytest.mark.parametrize("text", ["train-1", "größer als ½", "研究", "👩\u200d🔬", "[/] & *"])
def test_ordinary_text_is_unchanged(text: str) -> None:
    assert clean(text) == text
    assert not steers(text)


def test_each_sentence_is_one_line() -> None:
    assert lines("a", "b\nc", "\x1b[2J") == "a\nb\ufffdc\n\ufffd[2J\n"


@given(st.text() | st.sampled_from(HOSTILE))
def test_escaped_json_has_the_same_value_and_no_control_characters(text: str) -> None:
    told = escaped(json.dumps({"name": text}, ensure_ascii=False))

    assert json.loads(told) == {"name": text}
    assert not steers(told)
    assert not any(each < " " for each in told)


@pytest.mark.parametrize(
    "value",
    [10**5000, ["x" * 10**6] * 50, {"a": [[[[[[[[[1]]]]]]]]]}, "y" * 999],
    ids=["a number", "a list", "depth", "a word"],
)
def test_long_values_are_quoted_in_part(value: object) -> None:
    assert len(shown(value)) < 1000


def test_short_values_are_quoted_unchanged() -> None:
    assert [shown(each) for each in ("x", 3, [1, 2], float("inf"))] == ["'x'", "3", "[1, 2]", "inf"]
