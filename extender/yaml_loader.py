"""Reads YAML of people within limits on its depth and on its size with all aliases expanded.

An alias repeats its anchor, and what it repeats may hold further aliases. Ten short lines can so
make a document that exhausts memory once it is traversed, printed or merged. A document may even
contain itself. The YAML reader also recurses for each level, in C, until the stack of the process
overflows. So depth and size are measured first, event by event, without recursion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import yaml

from extender.errors import InvalidInput

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Brackets that are not closed at once.
_OPENED = re.compile(r"\[(?!\s*\])|\{(?!\s*\})")
#: A text without such a star, or without such an ampersand, repeats nothing.
_ALIAS = re.compile(r"(?:^|[\s\ufeff,\[{:?-])\*[^\s,\[\]{}]", re.MULTILINE)
_ANCHOR = re.compile(r"(?:^|[\s\ufeff,\[{:?-])&[^\s,\[\]{}]", re.MULTILINE)
TOO_DEEP = "it is nested too deeply"
TOO_LARGE = "its aliases (*name) repeat so much that it would be many times as large as its text"
ENDLESS = "an alias (*name) in it refers to a value that contains the alias"


class YamlLimits(NamedTuple):
    """The largest document that is read."""

    max_depth: int
    #: With all aliases expanded it has at most *times* the characters of its text, and *plus*
    #: more.
    times: int
    plus: int


#: For files that a person writes.
SMALL = YamlLimits(max_depth=100, times=10, plus=10_000)
#: For saved objects: a thousand of them may be written as aliases.
SAVED = YamlLimits(max_depth=1000, times=100, plus=1_000_000)


def load(text: str, limits: YamlLimits = SMALL) -> Any:
    """Read the only document of *text*; the message of `InvalidInput` is part of a sentence."""
    documents = list(load_all(text, limits))
    if len(documents) > 1:
        raise InvalidInput("it has several documents")
    return documents[0] if documents else None


def load_all(text: str, limits: YamlLimits = SMALL) -> Iterator[Any]:
    """Yield the documents of *text*."""
    try:
        if _may_exceed(text, limits):
            _check(text, limits)
        yield from yaml.load_all(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date or number
        raise InvalidInput(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise InvalidInput(TOO_DEEP) from error


def _may_exceed(text: str, limits: YamlLimits) -> bool:
    """Return whether *text* could exceed the limits; large saved objects never do."""
    # Closing brackets do not count: inside a string they close nothing.
    opened = islice(_OPENED.finditer(text), limits.max_depth)
    if sum(1 for _ in opened) == limits.max_depth:
        return True
    # Only a line that begins far to the right, or with many dashes, can be that deep.
    if re.search(rf"^[ \-?]{{{limits.max_depth},}}", text, re.MULTILINE):
        return True
    return bool(_ALIAS.search(text) and _ANCHOR.search(text))


def _check(text: str, limits: YamlLimits) -> None:
    """Raise if *text* exceeds *limits* with all aliases expanded; `yaml.YAMLError` if invalid."""
    meter = _Meter(limits.max_depth, limits.times * len(text) + limits.plus)
    for event in yaml.parse(text, Loader=_Loader):
        meter.take(event)


class _OpenLevel:
    """A list or a mapping whose end event has not come yet."""

    __slots__ = ("anchor", "height", "size")

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        #: Including all that aliases repeat in it.
        self.size = 1
        #: The number of levels below it.
        self.height = 0


class _Meter:
    """Measures a document event by event, and raises as soon as it exceeds its limits."""

    def __init__(self, max_depth: int, max_size: int) -> None:
        self._max_depth = max_depth
        self._left = max_size
        self._open_levels: list[_OpenLevel] = []
        #: By anchor: size and height; None while the anchored value is open.
        self._anchors: dict[str, tuple[int, int] | None] = {}

    def take(self, event: Any) -> None:
        """Add one event."""
        if isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            self._begin(event.anchor)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            closed = self._open_levels.pop()
            self._end(closed.size, closed.height, closed.anchor)
        elif isinstance(event, yaml.ScalarEvent):
            self._add(1 + len(event.value))
            self._end(1 + len(event.value), 0, event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._repeat(event.anchor or "")
        elif isinstance(event, yaml.DocumentStartEvent):
            self._anchors.clear()

    def _begin(self, anchor: str | None) -> None:
        self._open_levels.append(_OpenLevel(anchor))
        self._add(1)
        if anchor:
            self._anchors[anchor] = None
        if len(self._open_levels) > self._max_depth:
            raise InvalidInput(TOO_DEEP)

    def _repeat(self, anchor: str) -> None:
        # An alias without anchor is left to the YAML reader, which reports it better.
        repeated = self._anchors.get(anchor, (1, 0))
        if repeated is None:
            raise InvalidInput(ENDLESS)
        size, height = repeated
        self._add(size)
        if len(self._open_levels) + height > self._max_depth:
            raise InvalidInput(TOO_DEEP)
        self._end(size, height, None)

    def _end(self, size: int, height: int, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = size, height
        if self._open_levels:
            above = self._open_levels[-1]
            above.size += size
            above.height = max(above.height, height + 1)

    def _add(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise InvalidInput(TOO_LARGE)
