"""Rows chosen ahead for the next pods of a shape, good as long as nobody else touches them.

Choosing for a hundred pods costs little more than for one, so in a large cluster the next gangs
of a shape find their rows chosen already. Rows that somebody else changed since are left out; that
other rows may have become better in the meantime is accepted.
"""

from __future__ import annotations

import numpy as np

from extender.model.node import Amounts
from extender.plan.ledger import Ledger, Rows

_NO_ROWS: Rows = np.zeros(0, dtype=np.intp)


class Outlook:
    """A queue of chosen rows, one entry per pod."""

    __slots__ = ("_good_until", "_ledger", "_ours", "_rows")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._rows: Rows = _NO_ROWS
        #: For each entry the last change of its row that was expected.
        self._good_until: Amounts = np.zeros(0, dtype=np.int64)
        #: The change that placing the rows given out last makes.
        self._ours = 0

    def renew(self, rows: list[int]) -> None:
        """Begin anew with *rows*."""
        self._rows = np.array(rows, dtype=np.intp)
        self._good_until = np.full(len(rows), len(self._ledger.touched), dtype=np.int64)

    def holds(self, wanted: int) -> bool:
        """Ask whether *wanted* entries are left that nobody else touched."""
        if len(self._rows) < wanted:
            return False
        changed = self._ledger.changed_at[self._rows]
        self._good_until[changed == self._ours] = self._ours
        good = changed <= self._good_until
        if not good.all():
            self._rows, self._good_until = self._rows[good], self._good_until[good]
        return len(self._rows) >= wanted

    def take(self, wanted: int) -> list[int]:
        """Give out the next *wanted* rows, or what there is; they are to be placed at once."""
        given = self._rows[:wanted].tolist()
        self._rows, self._good_until = self._rows[wanted:], self._good_until[wanted:]
        self._ours = len(self._ledger.touched) + 1
        return [int(row) for row in given]
