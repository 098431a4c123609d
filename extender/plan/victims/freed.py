"""What leaving pods free, row by row: arithmetic on lines of amounts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from extender.model.node import Amounts
from extender.plan.room.trials import Rows


def added(parts: Sequence[tuple[Rows, Amounts]]) -> tuple[Rows, Amounts]:
    """Add up what several units free, row by row."""
    freed: dict[int, Amounts] = {}
    for rows, amounts in parts:
        for row, line in zip(rows.tolist(), amounts, strict=True):
            freed[row] = freed.get(row, 0) + line
    return np.fromiter(freed, dtype=np.intp), np.array(list(freed.values()))


def on(row: int, rows: Rows, amounts: Amounts) -> Amounts:
    """Give the line of *row*."""
    line: Amounts = amounts[int((rows == row).argmax())]
    return line


def lines(rows: Rows, amounts: Amounts) -> dict[int, tuple[int, ...]]:
    """Give all lines by row, as plain numbers."""
    return {row: tuple(line) for row, line in zip(rows.tolist(), amounts.tolist(), strict=True)}


def times(room: Amounts, need: Amounts) -> Amounts:
    """Count how often *need* fits into each line of *room*."""
    asked = need > 0
    times: Amounts = np.maximum((room[..., asked] // need[asked]).min(axis=-1), 0)
    return times
