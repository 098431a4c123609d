"""The settings of an extender, read from the container that runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeAlias

from extender.doctor.seen import Document
from extender.errors import BadConfiguration
from extender.settings import Settings, flag, variable

_DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(Settings)}
#: Stands for the name of a pod, which each has for itself.
_SOME_NAME = "some-pod"
#: A variable in an argument.
_REFERENCE = re.compile(r"\$\(([^)]+)\)")

#: By name; None is what only the pod is told.
Variables: TypeAlias = Mapping[str, str | None]


def words_of(container: Document) -> list[str]:
    """Give what the container is started with."""
    return [*map(str, container.get("command") or ()), *map(str, container.get("args") or ())]


def settings_of(container: Document, home: str = "") -> Settings:
    """Read flags and variables as `serve` in the namespace *home* does, or would refuse to."""
    words = words_of(container)
    told = {str(each.get("name")): _told(each, home) for each in container.get("env") or ()}
    flags = _by_flag(words[words.index("serve") + 1 :], told)
    return Settings(**{**_by_variable(told), **flags})


def _told(each: Document, home: str) -> str | None:
    """Give the value of a variable; None when only the pod itself is told it."""
    source = each.get("valueFrom")
    if not source:
        return str(each.get("value") or "")
    path = str((source.get("fieldRef") or {}).get("fieldPath"))
    return {"metadata.namespace": home, "metadata.name": _SOME_NAME}.get(path)


def _by_variable(told: Variables) -> dict[str, Any]:
    given = ((name, told.get(variable(name))) for name in _DEFAULTS)
    return {name: _value(name, text.split(), variable(name)) for name, text in given if text}


def _by_flag(words: Sequence[str], told: Variables) -> dict[str, Any]:
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
        if (filled := _filled_in(value, told)) is not None:
            given.setdefault(name, []).append(filled)
    return {name: _value(name, values, flag(name)) for name, values in given.items()}


def _filled_in(text: str, told: Variables) -> str | None:
    """Put variables in as Kubernetes does; None when one is not known here."""
    used = _REFERENCE.findall(text)
    if any(name in told and told[name] is None for name in used):
        return None
    return _REFERENCE.sub(lambda found: told.get(found[1]) or found[0], text)


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
