"""The metrics that an extender exports, with their labels."""

from __future__ import annotations

from tests.unit.docs.tables.series import exported

_PARTS = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("",), "gauge": ("",)}


def samples() -> dict[str, set[str]]:
    """Return the labels of every exported sample name."""
    return {
        f"{each.name}{part}": set(each.labels)
        for each in exported()[1]
        for part in _PARTS[each.kind]
    }
