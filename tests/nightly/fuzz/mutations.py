"""Random changes of real messages: of their bytes, or of their values if they are JSON."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any

#: Control characters for a terminal, and markup.
EVIL = "[/][link=http://x]y\x1b[2J\x9b31m\x1b]0;t\x07\r\u202e\u2066\u2028\x85\ufeff\nz"
TEXTS = (
    "", " ", "0", "-1", "1.5", "1Ki", "1e400", "1e-400", "9" * 70, "0x" + "f" * 99, "NaN", "null",
    "true", "%s%n%", "../../etc/passwd", "a/b", "x" * 254, "x" * 9000, EVIL, "\x00", "\u0130",
    "\ud800", "é" * 200, "👩\u200d🔬", "{}", "[]", "<b>", "0001-01-01T00:00:00",
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-02-30T00:00:00Z",
    "2026-01-01T00:00:00+23:59", "0000-00-00T00:00:00Z",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 255, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1, 2**63, -(2**63),
    2**64, 10**30, 10**400, 0.0, -0.0, 0.5, 1e-9, 1e15, 1e308, 1e-308,
)  # fmt: skip
_HOW_OFTEN = (2, 3, 10, 70, 300, 1100)
#: Replaced by a nesting that is too deep for Python to write.
_DEEP = "@deep@"
#: A document with more places does not grow.
_MOST_PLACES = 5000


def odd(rng: Random) -> Any:
    """Return an unexpected value."""
    kind = rng.randrange(8)
    if kind < 3:
        return rng.choice(TEXTS)
    if kind < 5:
        return rng.choice(NUMBERS)
    if kind == 5:
        return rng.choice((None, True, False, float("nan"), float("inf")))
    if kind == 6:
        return rng.choice(([], {}, [[]], [None], {"": None}, [{}], {"a": []}))
    thing: Any = rng.choice((None, 1, "x"))
    for _ in range(rng.choice(_HOW_OFTEN[:4])):
        thing = [thing] if rng.random() < 0.5 else {"a": thing}
    return rng.choice((thing, thing, _DEEP))


def changed(thing: Any, rng: Random, times: int = 1) -> Any:
    """Return a JSON document with changes at *times* places."""
    for _ in range(times):
        thing = _change(copy.deepcopy(thing), rng)
    return thing


def _change(thing: Any, rng: Random) -> Any:
    places = list(_places(thing))
    if len(places) > _MOST_PLACES:
        return thing
    if not places or rng.random() < 0.02:
        return odd(rng)
    holder, key = rng.choice(places)
    way = rng.randrange(6)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[rng.choice(TEXTS)] = holder.pop(key)
    elif way == 2 and isinstance(holder, list):
        holder.extend(copy.deepcopy(holder[key]) for _ in range(rng.choice(_HOW_OFTEN[:5])))
    elif way == 3:
        # A value from elsewhere in the document, usually of another type.
        other, there = rng.choice(places)
        holder[key] = copy.deepcopy(other[there])
    elif way == 4 and isinstance(holder, dict):
        names = (f"{key}{number}" for number in range(rng.choice(_HOW_OFTEN[:5])))
        holder.update((name, holder[key]) for name in names)
    else:
        holder[key] = odd(rng)
    return thing


def _places(thing: Any) -> Any:
    """Give every place of a document: what holds it, and by which name; no one calls itself."""
    left = [thing]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            keys: Any = each.keys()
        elif isinstance(each, list):
            keys = range(len(each))
        else:
            continue
        for key in keys:
            yield each, key
            left.append(each[key])


def respelt(text: str, signs: Sequence[str], rng: Random) -> str:
    """Write YAML with some values as no program would write them."""
    lines = text.split("\n")
    for _ in range(rng.randrange(4)):
        number = rng.randrange(len(lines))
        key, colon, _ = lines[number].partition(": ")
        lines[number] = f"{key}{colon or ': '}{rng.choice(signs)}"
    return "\n".join(lines)


def written(thing: Any, rng: Random) -> bytes:
    """Write a document as JSON, or as nearly as it goes."""
    text = json.dumps(thing, ensure_ascii=rng.random() < 0.5)
    levels = rng.choice(_HOW_OFTEN[3:]) * 4
    text = text.replace(f'"{_DEEP}"', "[" * levels + "]" * levels)
    return text.encode(errors="surrogatepass")


def mutated(
    data: bytes, rng: Random, words: Sequence[bytes] = (), others: Sequence[bytes] = ()
) -> bytes:
    """Change some bytes of *data*."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        data = _mutate(data, rng, words, others)
    return data


def _mutate(data: bytes, rng: Random, words: Sequence[bytes], others: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    to = min(len(data), at + rng.choice((1, 1, 2, 4, 16, 64, 512)))
    before, span, behind = data[:at], data[at:to], data[to:]
    way = rng.randrange(10)
    if way == 0:
        return before + behind
    if way == 1:
        return before + bytes(each ^ 1 << rng.randrange(8) for each in span[:1]) + data[at + 1 :]
    if way == 2:
        return before + rng.randbytes(rng.choice((1, 1, 2, 8))) + data[at:]
    if way == 3:
        return before + span * rng.choice(_HOW_OFTEN) + behind
    if way == 4:
        return data[:at]
    if way == 5 and others:
        other = rng.choice(others)
        return before + other[rng.randrange(len(other) + 1) :]
    if way == 6:
        there = rng.randrange(len(data) + 1)
        return data[:there] + span + data[there:]
    if way == 7:
        return before + str(rng.choice(NUMBERS)).encode() + behind
    if words and way > 7:
        word = rng.choice(words)
        return before + word + (behind if way == 8 else data[at:])
    return before + rng.choice(TEXTS).encode(errors="surrogatepass") + behind
