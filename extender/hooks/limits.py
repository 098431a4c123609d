"""Who was turned away, and why: always counted, said once a minute for each reason."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from extender.logs import event
from extender.metrics import Metrics, init_labels

log = logging.getLogger(__name__)
#: Whoever is turned away comes again at once.
_SILENT_S = 60.0
#: A probe that connects and leaves is nobody's fault; so many in a minute are somebody's.
_MANY_LEFT = 600
#: Every reason there is; they label a series.
REASONS = (
    "not_http",  # what came is no HTTP request
    "head",  # path and headers are too long
    "body",  # the whole message is
    "memory",  # bodies of all callers together are, and this was begun first
    "slow",  # a call did not come in whole in its time
    "unread",  # an answer was not read in its time
    "impatient",  # asked again before the answer
    "full",  # too many connections, and this one had done nothing for the longest time
    "left",  # hung up without a word before it was let in
    "crowd",  # more came from its address than its share
    "no_hook",  # there is no such hook, or it is no POST
    "browser",
    "host",
    "media_type",
    "secret",
    "no_token",  # a page was asked for without one
    "bad_token",  # it is nobody's
    "not_allowed",  # whose it is may not read that page
    "paced",  # too many unknown ones came from there
    "unanswered",  # the API server did not say
)


class Refusal(NamedTuple):
    """Why a call is not answered as it would like, in a word for us and a sentence for it."""

    status: int
    reason: str
    why: str


class RefusalLog:
    """Those of one port."""

    def __init__(
        self, port: str, metrics: Metrics, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._port = port
        self._metrics = metrics
        self._monotonic = monotonic
        self._told_at: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}
        self._left_since, self._left = -_SILENT_S, 0
        init_labels(metrics.calls_refused, *((port, reason) for reason in REASONS))

    def record(self, reason: str, caller: str, count: int = 1) -> None:
        """Count that so many were turned away, *caller* the last, and say so if none was lately."""
        self._count(reason, count)
        unsaid = self._unsaid.get(reason, 0) + count
        now = self._monotonic()
        if now - self._told_at.get(reason, -_SILENT_S) < _SILENT_S:
            self._unsaid[reason] = unsaid
            return
        self._told_at[reason] = now
        self._unsaid[reason] = 0
        self._say(reason, caller, unsaid - 1)

    def left(self, caller: str, count: int) -> None:
        """Count that so many hung up before they were let in, and say so if it is very many."""
        self._count("left", count)
        now, before = self._monotonic(), self._left
        if now - self._left_since >= _SILENT_S:
            self._left_since, before = now, 0
        self._left = before + count
        if before < _MANY_LEFT <= self._left:
            self._say("left", caller, self._left - 1)

    def _count(self, reason: str, count: int = 1) -> None:
        self._metrics.calls_refused.labels(self._port, reason).inc(count)

    def _say(self, reason: str, caller: str, unsaid_before: int) -> None:
        event(
            log,
            logging.WARNING,
            "a caller was turned away",
            port=self._port,
            reason=reason,
            caller=caller,
            unsaid_before=unsaid_before,
        )
