"""Counts what we ask of the API server, how it answers and how long that takes.

Labels come from closed lists, whatever the paths are: what is on none of them is `other`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Protocol

from extender.logs import RateLimitedLog
from extender.metrics import Metrics, init_labels

log = logging.getLogger(__name__)
#: What every account may ask: the API server, whether it is there.
PULSE = ("get", "readyz")
#: Who asks for what; each pair is there as 0 from the start.
CALLS = (
    *((verb, each) for each in ("nodes", "pods", "namespaces") for verb in ("list", "watch")),
    *((verb, "priorityclasses") for verb in ("list", "watch")),
    *((verb, "poddisruptionbudgets") for verb in ("list", "watch")),
    *((verb, "resourcequotas") for verb in ("list", "watch")),
    *((verb, each) for each in ("podgroups", "queues") for verb in ("list", "watch", "get")),
    ("get", "pods"),
    ("create", "pods/binding"),
    ("create", "pods/eviction"),
    ("patch", "pods/status"),
    *((verb, "events") for verb in ("create", "patch")),
    ("patch", "podgroups"),
    ("patch", "podgroups/status"),
    ("patch", "queues/status"),
    *((verb, "leases") for verb in ("get", "create", "patch")),
    *(("create", each) for each in ("tokenreviews", "subjectaccessreviews")),
    PULSE,
)
CODES = ("2xx", "4xx", "5xx", "none")
ENDS = ("ended", "expired", "broken", "failed")
_KNOWN = frozenset(resource for _, resource in CALLS)
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
OTHER = "other"
#: An answer that takes so long is told, once in a while: gangs start no quicker than that.
SLOW_S = 1.0
#: These may take long to begin where there is much to tell.
_LONG = ("list", "watch")


class ApiMetrics(Protocol):
    """Hears of every request and of every watch."""

    def asked(self, verb: str, resource: str, status: int, took_s: float) -> None:
        """Hear of an answer, or with status 0 that none came."""

    def listed(self, resource: str) -> None:
        """Hear that a list was begun from the beginning."""

    def watch_ended(self, resource: str, cause: str) -> None:
        """Hear that a watch is over."""


class NoMetrics:
    """Counts nothing: for calls outside a running extender."""

    def asked(self, verb: str, resource: str, status: int, took_s: float) -> None:
        """Leave it."""

    def listed(self, resource: str) -> None:
        """Leave it."""

    def watch_ended(self, resource: str, cause: str) -> None:
        """Leave it."""


class PrometheusApiMetrics:
    """Keeps the series of *metrics* about the API server."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._seldom = RateLimitedLog(log)
        # Looking a series up costs more than counting, and there are few.
        self._requests = cache(metrics.api_requests.labels)
        self._seconds = cache(metrics.api_seconds.labels)
        init_labels(metrics.api_requests, *((*call, code) for call in CALLS for code in CODES))

    def asked(self, verb: str, resource: str, status: int, took_s: float) -> None:
        """Count a request."""
        code = f"{status // 100}xx" if status else "none"
        self._requests(verb, resource, code).inc()
        if status:
            self._seconds(verb, resource).observe(took_s)
        if took_s >= SLOW_S and verb not in _LONG:
            self._seldom.event(
                logging.WARNING,
                "the API server takes its time",
                verb=verb,
                resource=resource,
                took_s=round(took_s, 1),
            )

    def listed(self, resource: str) -> None:
        """Count a list, and let the ends of the watch that follows be there from the start."""
        self._metrics.relists.labels(resource).inc()
        init_labels(self._metrics.watch_ends, *((resource, cause) for cause in ENDS))

    def watch_ended(self, resource: str, cause: str) -> None:
        """Count the end of a watch."""
        self._metrics.watch_ends.labels(resource, cause).inc()


def call_of(method: str, path: str, query: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Say what a request asks for, as Kubernetes names it: (`create`, `pods/binding`)."""
    parts = path.partition("?")[0].strip("/").split("/")
    if parts == ["readyz"]:
        return PULSE
    # /api/v1/… and /apis/group/version/…
    about = parts[3:] if parts[0] == "apis" else parts[2:]
    if about[:1] == ["namespaces"] and len(about) > 2:
        about = about[2:]
    resource = "/".join(about[:1] + about[2:3])
    if resource not in _KNOWN:
        resource = OTHER
    if method != "GET":
        return _VERBS.get(method, OTHER), resource
    if query and "watch" in query:
        return "watch", resource
    return ("get" if len(about) > 1 else "list"), resource
