"""The bounds of a port, and its log of refused callers.

Each bound stops an attack of `tests/nightly/attacks`, or a client by mistake:

    a head or path without end       `head`, and 128 headers (`http_connection`)
    a body without end               `body`, `message`, and 1,024 chunks (`http_connection`)
    large bodies never finished      `bodies`, `read_interval_s`
    a byte now and then              `call_s` from the first byte on, `idle_s`, `handshake_s`
    a crowd                          `connections`: untrusted ones are closed first, a waiting bind
                                     never; `handshakes`, `defer_accept_s`
    a crowd that asks and leaves     `address_burst`, `address_rate_per_s`
    a call behind a waiting bind     one call at a time, 8 in one read (`http_connection`)
    retries of a refused call        `refusal_delay_s`
    probes without pause             `response_pause_s`
    answers that are not read        `answer_s`, and 64 MiB of pages (`web/server`)
    snapshots without pause          half of a thread renders pages (`web/page_worker`)
    calls from a browser             Host, Origin and media type are checked (`hooks/server`)
    invented tokens                  reviews have a rate (`web/token_review`)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from extender.logs import event
from extender.metrics import Metrics, init_labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds of one port."""

    #: Open connections, without those whose bind waits for its gang.
    connections: int
    #: An idle connection is closed after this; kube-scheduler keeps idle connections for 90 s and
    #: does not resend a POST on one we closed.
    idle_s: float = 120.0
    #: A call must arrive whole in this time from its first byte, however many bytes came last.
    call_s: float = 30.0
    #: An answer must be read in this time.
    answer_s: float = 10.0
    #: The kernel holds back a connection that sends nothing for this many seconds. kube-scheduler
    #: sends at once, so clients that send nothing do not slow it down.
    defer_accept_s: int = 8
    #: The delay of a refusal on an untrusted connection: a client that retries at once then does
    #: so twenty times a second, not thousands of times.
    refusal_delay_s: float = 0.05
    #: The pause of reading after an answer and of accepting after a batch: a client that sends
    #: requests or connects without pause gets fewer answers, and no other client notices. With a
    #: pause, new connections are limited per address, too.
    response_pause_s: float = 0.0
    #: New connections per client address, a burst and then a rate: a kubelet, a Prometheus and a
    #: browser open a handful. A dozen addresses at this rate use all that the acceptor takes with a
    #: pause of 10 ms.
    address_burst: int = 400
    address_rate_per_s: float = 200.0
    #: Concurrent TLS handshakes: more than kube-scheduler has binds in flight when a large gang
    #: starts. How long each may take: longer than the timeout of kube-scheduler for filter.
    handshakes: int = 512
    handshake_s: float = 10.0
    #: The interval between reads of long calls on untrusted connections. A read is at most 256 KiB,
    #: so all of them together send 128 MiB/s at most, and the loop is free in between.
    read_interval_s: float = 0.002
    #: How often deadlines are checked.
    sweep_s: float = 1.0
    #: Path and headers of a call.
    head: int = 16 * 1024
    #: The body of one call; 0 if no handler reads one.
    body: int = 0
    #: A call with its framing.
    message: int = 64 * 1024
    #: The bodies of all calls that are being read.
    bodies: int = 64 * 1024 * 1024


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
