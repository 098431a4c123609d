"""The table of settings, from the fields behind flags and variables."""

from __future__ import annotations

from dataclasses import fields

from extender.settings import Settings, flag
from tests.unit.docs.tables.parts import table


def settings() -> str:
    """Write every setting with its default and its reason."""
    return table(
        ("setting", "default", "meaning"),
        (
            (f"`{flag(each.name)}`", _default(each.default), str(each.metadata["why"]))
            for each in fields(Settings)
        ),
    )


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    if isinstance(value, float):
        return f"{value:g}"
    return f"`{value}`" if isinstance(value, str) and value else str(value)
