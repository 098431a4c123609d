"""Caches results that depend on their owner alone, such as the nodes that a shape may use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

#: More entries than a cluster's pods need at one time. When they are reached, the older half is
#: dropped: mostly entries of pods long gone; the few that are still needed are computed again.
MOST = 4096


class Memo(dict[object, tuple[object, Any]]):
    """A bounded cache with the lifetime of its owner."""

    most = MOST

    def recall(self, key: object, compute: Callable[[], T], about: object = None) -> T:
        """Return the result for *key*, computed again only when *about* is another object."""
        cached = self.get(key)
        if cached is not None and cached[0] is about:
            result: T = cached[1]
            return result
        return self.keep(key, compute(), about)

    def keep(self, key: object, result: T, about: object = None) -> T:
        """Store *result* and return it."""
        if len(self) >= self.most:
            # Copy the keys in one step and remove them one by one: another thread may do the same.
            for old in list(self)[: self.most // 2]:
                self.pop(old, None)
        self[key] = (about, result)
        return result
