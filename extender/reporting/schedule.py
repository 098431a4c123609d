"""When the status of one object is written: soon for news, unhurried for details, never twice.

The main part waits a moment, so that a burst of changes is one write. Details wait longer each time
they change without any news, so that a gang that waits for a day costs a few writes an hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from extender.reporting.contents import Content
from extender.timing.pause import Pause

#: A main part that keeps changing is written this long after it should have settled.
PATIENCE_S = 0.35
#: The longest pause before a write of details only; the content says which is the first.
LAST_PAUSE_S = 60.0
#: After a write that failed.
RETRY = Pause(2.0, LAST_PAUSE_S)


class Schedule:
    """The status of one object: what it should be, and what is known to be there."""

    __slots__ = (
        "_changed_at",
        "_details_at",
        "_failures",
        "_quiet_writes",
        "_since",
        "_wanted",
        "known",
        "written",
    )

    def __init__(self) -> None:
        #: What the API server has, with its times; None when it was not read yet.
        self.known: Mapping[str, Any] | None = None
        self.written: Content | None = None
        self._wanted: Content | None = None
        #: When what is wanted began to differ from what is written.
        self._since = inf
        self._changed_at = 0.0
        self._details_at = 0.0
        #: Writes of details only, since the last news.
        self._quiet_writes = 0
        self._failures = 0

    def want(self, content: Content, now: float) -> None:
        """Say what the status should be from now on."""
        if content == self._wanted:
            return
        if self._wanted is None or content.main != self._wanted.main:
            self._changed_at = now
        self._wanted = content
        self._since = inf if self._is_settled() else min(self._since, now)

    def due(self) -> float:
        """Tell when to write; infinity when there is nothing to write."""
        if self._since == inf or self._wanted is None:
            return inf
        if self.written is None or self._wanted.main != self.written.main:
            settle_s = self._wanted.settle_s
            return min(self._changed_at, self._since + PATIENCE_S) + settle_s
        return max(self._details_at, self._since)

    def wanted(self) -> Content | None:
        """Give what should be written; None when it is there already."""
        return None if self._is_settled() else self._wanted

    def found(self, status: Mapping[str, Any], content: Content, now: float) -> None:
        """Hear what the API server has, before we wrote anything."""
        self.known = status
        self.written = content
        self._since = inf if self._is_settled() else min(self._since, now)

    def wrote(self, status: Mapping[str, Any], content: Content, now: float) -> None:
        """Hear that *content* was written; *status* is the whole as it is there now."""
        news = self.written is None or self.written.main != content.main
        self._quiet_writes = 0 if news else self._quiet_writes + 1
        pause = Pause(content.pause_s, LAST_PAUSE_S)
        self._details_at = now + pause.after(self._quiet_writes + 1)
        self.known, self.written = status, content
        self._failures = 0
        self._since = inf if self._is_settled() else now

    def failed(self, now: float) -> None:
        """Hear that the write did not happen; it is tried again later."""
        self._failures += 1
        self._since = self._changed_at = self._details_at = now + RETRY.after(self._failures)

    def _is_settled(self) -> bool:
        if self._wanted is None or self.written is None:
            return self._wanted is None
        if self._wanted.main != self.written.main:
            return False
        there = self.written.body
        return all(there.get(key) == value for key, value in self._wanted.body.items())
