"""Elements of a page; whatever is not an element already is text, whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from extender.text.plain import clean

#: They have no end.
_EMPTY = ("meta", "rect", "line", "polyline", "polygon")
#: The longest text of a stranger that is shown.
_LONGEST = 400


class Markup(str):
    """Text that is markup: only this module makes it."""

    __slots__ = ()


def element(name: str, /, *inside: object, **given: object) -> Markup:
    """Make an element; attributes are written like `class_`, `aria_label`, and None is none."""
    attributes = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in given.items()
        if value is not None
    )
    if name in _EMPTY:
        return Markup(f"<{name}{attributes}>" if name == "meta" else f"<{name}{attributes}/>")
    return Markup(f"<{name}{attributes}>{together(*inside)}</{name}>")


def together(*parts: object) -> Markup:
    """Put parts behind each other."""
    return Markup("".join(text(part) for part in parts))


def places(line: Iterable[tuple[float, float]]) -> Markup:
    """Write the places through which a line goes."""
    return Markup(" ".join(f"{x:.5g},{y:.4g}" for x, y in line))


def text(part: object) -> Markup:
    """Give *part* as text that steers nothing, unless it is markup."""
    if isinstance(part, Markup):
        return part
    told = str(part)
    told = told if len(told) <= _LONGEST else f"{told[:_LONGEST]}…"
    return Markup(escape(clean(told)))
