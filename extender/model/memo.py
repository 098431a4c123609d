"""Answers that depend on nothing but whose they are, such as which nodes a kind of pod may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

#: More answers than a cluster's pods ask for at one time; when they are reached, the older half
#: goes: those about pods long gone, and a few that are still asked for and worked out again.
MOST = 4096


class Memo(dict[object, tuple[object, Any]]):
    """Lives and dies with its owner, and stays small."""

    def recall(self, key: object, work_out: Callable[[], T], about: object = None) -> T:
        """Give the answer to *key*, worked out anew only when *about* is another object."""
        known = self.get(key)
        if known is not None and known[0] is about:
            answer: T = known[1]
            return answer
        return self.keep(key, work_out(), about)

    def keep(self, key: object, answer: T, about: object = None) -> T:
        """Remember *answer* and give it back."""
        if len(self) >= MOST:
            # Listed in one step, and taken out one by one: another thread may do the same.
            for old in list(self)[: MOST // 2]:
                self.pop(old, None)
        self[key] = (about, answer)
        return answer
