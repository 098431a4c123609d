"""How deep a YAML text is nested, found out before it is read: the fast reader, in C, calls itself
for every level and takes the whole process with it when the stack ends."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any

import yaml

#: No Kubernetes object comes near.
DEEPEST = 1000
_BRACKETS = re.compile(r"[\[\]{}]")
#: A line can only be deep that begins far to the right, or with very many dashes.
_FAR = re.compile(rf"^[ \-?]{{{DEEPEST},}}", re.MULTILINE)
_OPENS = {"[": 1, "{": 1, "]": -1, "}": -1}
_BEGINS = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_ENDS = (yaml.SequenceEndEvent, yaml.MappingEndEvent)


def is_too_deep(text: str, loader: Any) -> bool:
    """Ask whether *text* is nested beyond reason; `yaml.YAMLError` when it is no YAML."""
    # Brackets inside of texts count as well, and need not be balanced, so that is only a hint.
    levels = accumulate(_OPENS[each[0]] for each in _BRACKETS.finditer(text))
    if max(levels, default=0) < DEEPEST and not _FAR.search(text):
        return False
    depth = 0
    # Event by event nobody calls himself.
    for event in yaml.parse(text, Loader=loader):
        depth += isinstance(event, _BEGINS) - isinstance(event, _ENDS)
        if depth > DEEPEST:
            return True
    return False
