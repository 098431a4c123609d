"""Arguments of plugins and actions, as a policy file gives them: strings, numbers, booleans."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from extender.errors import BadConfiguration
from extender.text.plain import as_text, shown

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_STEP = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_DURATION = re.compile(rf"(?:{_STEP.pattern})+")
#: Sums and products of what is larger, or of no number at all, say nothing about anybody's turn.
_LARGEST = 1e12
_WORDS = {"true": True, "false": False}


class Arguments:
    """Named values that say who they belong to when they cannot be read."""

    __slots__ = ("_owner", "_values")

    def __init__(self, owner: str, values: Mapping[str, Any]) -> None:
        self._owner = owner
        self._values = values

    def text(self, name: str, default: str = "") -> str:
        """Read a text."""
        return as_text(self._values.get(name, default))

    def number(self, name: str, default: float) -> float:
        """Read a number, also one that is written as a text."""
        value = self._values.get(name, default)
        try:
            number = float(value) if not isinstance(value, bool) else self._refuse(name, "a number")
        except (TypeError, ValueError, OverflowError):
            return self._refuse(name, "a number")
        if not -_LARGEST <= number <= _LARGEST:
            return self._refuse(name, "a number of ordinary size")
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        """Read true or false."""
        value = self._values.get(name, default)
        if isinstance(value, bool):
            return value
        known = _WORDS.get(as_text(value).lower())
        return known if known is not None else bool(self._refuse(name, "true or false"))

    def seconds(self, name: str, default: float | None = None) -> float | None:
        """Read a duration such as `90s` or `1h30m`, in seconds; *default* when it is not there."""
        value = self._values.get(name)
        if value is None:
            return default
        length = seconds(as_text(value))
        return length if length is not None else self._refuse(name, "a duration like 90s or 1h30m")

    def _refuse(self, name: str, kind: str) -> float:
        value = self._values[name]
        raise BadConfiguration(f"{self._owner}: {name} is {shown(value)}; write {kind}")


def seconds(text: str) -> float | None:
    """Read a Go duration; None when it is none."""
    if not _DURATION.fullmatch(text):
        return None
    length = sum(float(number) * _SECONDS[unit] for number, unit in _STEP.findall(text))
    return length if length <= _LARGEST else None
