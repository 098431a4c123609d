"""YAML that people wrote, read within bounds: neither its depth nor its aliases outgrow its text.

An alias repeats what has an anchor, and what is repeated may repeat in turn: ten short lines make
a document that no memory holds as soon as somebody walks through it, prints it or merges it. A
document may even hold itself. And whoever reads calls himself for every level, in C until the
process has no stack any more. So depth and size are found out first, event by event, where nobody
calls himself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import yaml

from extender.errors import InvalidInput

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Those that are not closed at once.
_OPENED = re.compile(r"\[(?!\s*\])|\{(?!\s*\})")
#: In what has no such star, or no such ampersand, nothing is repeated.
_ALIAS = re.compile(r"(?:^|[\s\ufeff,\[{:?-])\*[^\s,\[\]{}]", re.MULTILINE)
_ANCHOR = re.compile(r"(?:^|[\s\ufeff,\[{:?-])&[^\s,\[\]{}]", re.MULTILINE)
TOO_DEEP = "it is nested too deeply"
TOO_LARGE = "its aliases (*name) repeat so much that it would be many times as large as its text"
ENDLESS = "an alias (*name) in it stands for what it is itself part of"


class YamlLimits(NamedTuple):
    """How far a document may go."""

    deepest: int
    #: With every alias written out it has at most so many times the letters of its text, and
    #: so many more.
    times: int
    besides: int


#: For what a person writes.
SMALL = YamlLimits(deepest=100, times=10, besides=10_000)
#: For saved objects, of which a person may have written a thousand by an alias each.
SAVED = YamlLimits(deepest=1000, times=100, besides=1_000_000)


def load(text: str, bounds: YamlLimits = SMALL) -> Any:
    """Read the one document of *text*; `BadInput` is what is wrong, as a part of a sentence."""
    documents = list(load_all(text, bounds))
    if len(documents) > 1:
        raise InvalidInput("it holds several documents")
    return documents[0] if documents else None


def load_all(text: str, bounds: YamlLimits = SMALL) -> Iterator[Any]:
    """Read one document of *text* after the other."""
    try:
        if _needs_a_look(text, bounds):
            _check(text, bounds)
        yield from yaml.load_all(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:  # the latter of a date or a number that is none
        raise InvalidInput(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise InvalidInput(TOO_DEEP) from error


def _needs_a_look(text: str, bounds: YamlLimits) -> bool:
    """Ask whether *text* could pass the bounds at all; saved objects are long, and never do."""
    # Closing ones do not count: they may stand in texts, and close nothing.
    opened = islice(_OPENED.finditer(text), bounds.deepest)
    if sum(1 for _ in opened) == bounds.deepest:
        return True
    # A line can only be deep that begins far to the right, or with very many dashes.
    if re.search(rf"^[ \-?]{{{bounds.deepest},}}", text, re.MULTILINE):
        return True
    return bool(_ALIAS.search(text) and _ANCHOR.search(text))


def _check(text: str, bounds: YamlLimits) -> None:
    """Refuse what passes *bounds* with every alias written out; `yaml.YAMLError` if it is none."""
    measure = _Measure(bounds.deepest, bounds.times * len(text) + bounds.besides)
    for event in yaml.parse(text, Loader=_Loader):
        measure.take(event)


class _Unclosed:
    """A list or a mapping whose end has not come yet."""

    __slots__ = ("anchor", "height", "size")

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        #: With everything that is repeated in it.
        self.size = 1
        #: How many levels are below it.
        self.height = 0


class _Measure:
    """Takes a document event by event, and refuses as soon as it is too much."""

    def __init__(self, deepest: int, most: int) -> None:
        self._deepest = deepest
        self._left = most
        self._line: list[_Unclosed] = []
        #: By anchor: how large and how high; None while it is open.
        self._known: dict[str, tuple[int, int] | None] = {}

    def take(self, event: Any) -> None:
        """Add one event."""
        if isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            self._open(event.anchor)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            closed = self._line.pop()
            self._close(closed.size, closed.height, closed.anchor)
        elif isinstance(event, yaml.ScalarEvent):
            self._spend(1 + len(event.value))
            self._close(1 + len(event.value), 0, event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._repeat(event.anchor or "")
        elif isinstance(event, yaml.DocumentStartEvent):
            self._known.clear()

    def _open(self, anchor: str | None) -> None:
        self._line.append(_Unclosed(anchor))
        self._spend(1)
        if anchor:
            self._known[anchor] = None
        if len(self._line) > self._deepest:
            raise InvalidInput(TOO_DEEP)

    def _repeat(self, anchor: str) -> None:
        # One that nothing is known of is an error of the reader's, in better words.
        repeated = self._known.get(anchor, (1, 0))
        if repeated is None:
            raise InvalidInput(ENDLESS)
        size, height = repeated
        self._spend(size)
        if len(self._line) + height > self._deepest:
            raise InvalidInput(TOO_DEEP)
        self._close(size, height, None)

    def _close(self, size: int, height: int, anchor: str | None) -> None:
        if anchor:
            self._known[anchor] = size, height
        if self._line:
            above = self._line[-1]
            above.size += size
            above.height = max(above.height, height + 1)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise InvalidInput(TOO_LARGE)
