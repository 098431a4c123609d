"""The settings of an extender, read from the container that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from extender.doctor.seen import Document
from extender.errors import BadConfiguration
from extender.settings import Settings, flag, variable

_DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(Settings)}
#: What only the pod itself knows, as the downward API gives it.
_TOLD_THERE = "(told to the pod)"


def words_of(container: Document) -> list[str]:
    """Give what the container is started with."""
    return [*map(str, container.get("command") or ()), *map(str, container.get("args") or ())]


def settings_of(container: Document, home: str = "") -> Settings:
    """Read flags and variables as `serve` in the namespace *home* does, or would refuse to."""
    words = words_of(container)
    given = {**_by_variable(container, home), **_by_flag(words[words.index("serve") + 1 :])}
    return Settings(**given)


def _by_variable(container: Document, home: str) -> dict[str, Any]:
    told = {str(each.get("name")): _told(each, home) for each in container.get("env") or ()}
    return {
        name: _value(name, told[variable(name)].split(), variable(name))
        for name in _DEFAULTS
        if told.get(variable(name))
    }


def _told(each: Document, home: str) -> str:
    """Give the value of a variable; a pod in *home* is told where it is."""
    source = each.get("valueFrom")
    if not source:
        return str(each.get("value") or "")
    if (source.get("fieldRef") or {}).get("fieldPath") == "metadata.namespace":
        return home
    return _TOLD_THERE


def _by_flag(words: Sequence[str]) -> dict[str, Any]:
    names = {flag(name): name for name in _DEFAULTS}
    given: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        if word not in names:
            raise BadConfiguration(f"`serve` has no {word}")
        name = names[word]
        if not equals and not isinstance(_DEFAULTS[name], bool):
            if not rest:
                raise BadConfiguration(f"{word} needs a value")
            value = rest.pop(0)
        given.setdefault(name, []).append(value)
    return {name: _value(name, values, flag(name)) for name, values in given.items()}


def _value(name: str, texts: Sequence[str], said: str) -> Any:
    default = _DEFAULTS[name]
    if isinstance(default, tuple):
        return tuple(texts)
    text = " ".join(texts) if said.isupper() else texts[-1]
    if isinstance(default, bool):
        return text.lower() in ("", "1", "true", "t", "yes", "y", "on")
    try:
        return type(default)(text)
    except ValueError as error:
        raise BadConfiguration(f"{said} {text!r} is not a number") from error
