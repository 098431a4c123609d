"""Short texts that expand to large or endless documents."""

from __future__ import annotations


def laughs(levels: int = 40, twice: str = "[*{0}, *{0}]") -> str:
    """Return a mapping in which every entry contains the previous one twice."""
    lines = ["x0: &x0 [lol]"]
    lines += [f"x{n}: &x{n} {twice.format(f'x{n - 1}')}" for n in range(1, levels)]
    return "\n".join(lines)


def merges(levels: int = 40) -> str:
    """Return a document that grows while it is read: mappings merged into mappings."""
    lines = ["x0: &x0 {k: lol}"]
    lines += [f"x{n}: &x{n} {{<<: [*x{n - 1}, *x{n - 1}]}}" for n in range(1, levels)]
    return "\n".join(lines)


def long_word(times: int = 2_000) -> str:
    """Return one word of a megabyte, and aliases of it."""
    return f"a: &a {'w' * 1_000_000}\nb: [{', '.join(['*a'] * times)}]"


def stairs(levels: int = 120) -> str:
    """Return a document that is deep only after its aliases are expanded."""
    return "\n".join(["x0: &x0 [1]", *(f"x{n}: &x{n} [*x{n - 1}]" for n in range(1, levels))])


ITSELF = "a: &a [*a]"

BOMBS = {
    "aliases of aliases": laughs(),
    "mappings in mappings": laughs(twice="{{a: *{0}, b: *{0}}}"),
    "merged mappings": merges(),
    "a long word": long_word(),
    "stairs": stairs(),
    "itself": ITSELF,
    "itself further down": "a: &a {b: [{c: *a}]}",
    "brackets": "a: " + "[" * 5000 + "]" * 5000,
    "open brackets": "a: " + "[" * 100_000,
    "brackets closed in texts": "a: " + '[ "]", ' * 5000 + "]" * 5000,
    "brackets closed before": f"a: '{']' * 9000}'\nb: " + "[" * 5000 + "]" * 5000,
    "a mark before it": "\ufeff&a [*a]",
    "dashes": "- " * 5000 + "a",
    "columns": "\n".join(" " * n + "a:" for n in range(2000)),
    "questions": "? " * 5000 + "a",
}
