"""The order of equal members, and which of them can be placed in one go."""

from __future__ import annotations

from collections.abc import Sequence

from extender.model.pod import Pod

#: After every number: names without one keep their order of creation.
_NONE = (1, 0)


def index_of(name: str) -> tuple[int, int]:
    """Give the index in names such as `train-worker-11`: the last part of at least three."""
    head, _, last = name.rpartition("-")
    return (0, int(last)) if "-" in head and last.isascii() and last.isdigit() else _NONE


def runs_of(tasks: Sequence[Pod]) -> list[list[Pod]]:
    """Cut *tasks* where shape or role changes; a member with a node in mind goes alone."""
    runs: list[list[Pod]] = []
    last: Pod | None = None
    for pod in tasks:
        alike = last is not None and pod.shape is last.shape and pod.role == last.role
        if alike and last is not None and not pod.nominated and not last.nominated:
            runs[-1].append(pod)
        else:
            runs.append([pod])
        last = pod
    return runs
