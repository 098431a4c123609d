from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from extender.kube.decode.limits import cut_nesting

TEXTS = st.text(alphabet='[]{}"\\\n\u0000ab,:', max_size=8)
THINGS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=30,
)


def cut(thing: Any, deepest: int) -> Any:
    """Return *thing* cut at *deepest*, by the simple rule."""
    if not isinstance(thing, list | dict):
        return thing
    if deepest == 0:
        return None
    if isinstance(thing, list):
        return [cut(each, deepest - 1) for each in thing]
    return {key: cut(each, deepest - 1) for key, each in thing.items()}


def deepest_of(thing: Any) -> int:
    if not isinstance(thing, list | dict):
        return 0
    inner = thing.values() if isinstance(thing, dict) else thing
    return 1 + max(map(deepest_of, inner), default=0)


@given(THINGS, st.integers(0, 5), st.sampled_from([None, 1]))
def test_values_that_are_too_deep_become_null_and_the_rest_is_unchanged(
    thing: Any, deepest: int, indent: int | None
) -> None:
    left = cut_nesting(json.dumps(thing, indent=indent).encode(), deepest)

    assert (left is None) == (deepest_of(thing) <= deepest)
    assert left is None or json.loads(left) == cut(thing, deepest)


@given(st.binary(max_size=60) | st.text(alphabet='[]{}"\\ab').map(str.encode), st.integers(0, 3))
def test_any_input_comes_back_within_the_depth_limit(data: bytes, deepest: int) -> None:
    left = cut_nesting(data, deepest)
    if left is not None:
        assert cut_nesting(left, deepest) in (None, left)


def test_ten_thousand_levels_are_cut() -> None:
    data = b'{"a":' * 10_000 + b"1" + b"}" * 10_000

    assert cut_nesting(data, 2) == b'{"a":{"a":null}}'


@given(THINGS, st.integers(0, 5), st.integers(1, 9))
def test_the_block_size_does_not_change_the_result(thing: Any, deepest: int, size: int) -> None:
    data = json.dumps(thing).encode()

    assert cut_nesting(data, deepest, size) == cut_nesting(data, deepest)


def test_invalid_json_stays_invalid() -> None:
    for data in (b'{"a' + b"[" * 100, b"[" * 100, b"]" * 100 + b"[" * 300, b""):
        left = cut_nesting(data, 3)
        with pytest.raises(ValueError, match=r"\w"):
            json.loads(left if left is not None else data)
