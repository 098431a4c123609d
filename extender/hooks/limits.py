"""Count and log refused callers: every refusal is counted, and logged once a minute per reason."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from extender.logs import event
from extender.metrics import Metrics, init_labels

log = logging.getLogger(__name__)
#: A refused caller usually retries at once.
_REPEAT_S = 60.0
#: A probe that connects and disconnects is no problem; this many a minute are.
_MANY_DISCONNECTED = 600
#: Every reason of a refusal; they label a series.
REASONS = (
    "not_http",  # the bytes are no HTTP request
    "head",  # path and headers are too long
    "body",  # the message is too long
    "memory",  # all bodies together are too large, and this was begun first
    "slow",  # the request did not arrive whole in time
    "unread",  # the answer was not read in time
    "impatient",  # the next request came before the answer
    "full",  # too many connections, and this one was idle for the longest time
    "left",  # the client disconnected before it was accepted
    "crowd",  # its address exceeded the rate limit for new connections
    "no_hook",  # there is no such hook, or the method is not POST
    "browser",
    "host",
    "media_type",
    "secret",
    "no_token",  # a page was requested without a token
    "bad_token",  # the API server does not know the token
    "not_allowed",  # the user of the token may not read that page
    "paced",  # too many unknown tokens came from its address
    "unanswered",  # the API server did not answer
)


class Refusal(NamedTuple):
    """Why a call is refused: the reason, one word, for metrics, and a sentence for the caller."""

    status: int
    reason: str
    why: str


class RefusalLog:
    """Counts and logs the refusals of one port."""

    def __init__(
        self, port: str, metrics: Metrics, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._port = port
        self._metrics = metrics
        self._monotonic = monotonic
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}
        self._disconnected_since, self._disconnected = -_REPEAT_S, 0
        init_labels(metrics.calls_refused, *((port, reason) for reason in REASONS))

    def record(self, reason: str, caller: str, count: int = 1) -> None:
        """Count refusals, the last by *caller*; log them unless the reason was logged lately."""
        self._count(reason, count)
        unlogged = self._unlogged.get(reason, 0) + count
        now = self._monotonic()
        if now - self._logged_at.get(reason, -_REPEAT_S) < _REPEAT_S:
            self._unlogged[reason] = unlogged
            return
        self._logged_at[reason] = now
        self._unlogged[reason] = 0
        self._log(reason, caller, unlogged - 1)

    def disconnected(self, caller: str, count: int) -> None:
        """Count *count* clients that disconnected before they were accepted; log very many."""
        self._count("left", count)
        now, before = self._monotonic(), self._disconnected
        if now - self._disconnected_since >= _REPEAT_S:
            self._disconnected_since, before = now, 0
        self._disconnected = before + count
        if before < _MANY_DISCONNECTED <= self._disconnected:
            self._log("left", caller, self._disconnected - 1)

    def _count(self, reason: str, count: int = 1) -> None:
        self._metrics.calls_refused.labels(self._port, reason).inc(count)

    def _log(self, reason: str, caller: str, not_logged_before: int) -> None:
        event(
            log,
            logging.WARNING,
            "a caller was refused",
            port=self._port,
            reason=reason,
            caller=caller,
            not_logged_before=not_logged_before,
        )
