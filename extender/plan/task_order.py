"""The number at the end of a pod's name, by which equal members are ordered."""

from __future__ import annotations

#: After every number: names without one keep their order of creation.
_NONE = (1, 0)


def index_of(name: str) -> tuple[int, int]:
    """Give the index in names such as `train-worker-11`: the last part of at least three."""
    head, _, last = name.rpartition("-")
    return (0, int(last)) if "-" in head and last.isascii() and last.isdigit() else _NONE
