"""Metrics of the requests to the API server: count, status and duration.

Label values come from closed lists, so that paths cannot add series: all else is `other`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache

from extender.logs import RateLimitedLog
from extender.metrics import Metrics, init_labels

log = logging.getLogger(__name__)
#: The probe of the API server; every account may call it.
PROBE = ("get", "readyz")
_WATCHED = (
    *("nodes", "pods", "namespaces"),
    *("priorityclasses", "poddisruptionbudgets", "resourcequotas"),
)
#: All calls that we make; the series of each exist from the start, with 0.
CALLS = (
    *((verb, each) for each in _WATCHED for verb in ("list", "watch")),
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
    PROBE,
)
CODES = ("2xx", "4xx", "5xx", "none")
END_CAUSES = ("ended", "expired", "broken", "failed")
_KNOWN = frozenset(resource for _, resource in CALLS)
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
OTHER = "other"
#: A response that takes this long is logged, at a limited rate: it delays the start of gangs.
SLOW_S = 1.0
#: Verbs whose response may be slow to begin, because it is large.
_SLOW_VERBS = ("list", "watch")


class ApiMetrics:
    """Counts nothing: for calls outside a running extender."""

    def request_done(self, verb: str, resource: str, status: int, took_s: float) -> None:
        """Count a request; status 0 means that no response came."""

    def list_started(self, resource: str) -> None:
        """Count the begin of a list."""

    def watch_ended(self, resource: str, cause: str) -> None:
        """Count the end of a watch."""


class PrometheusApiMetrics(ApiMetrics):
    """Updates the series of *metrics* about the API server."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._limited_log = RateLimitedLog(log)
        # The lookup of a series costs more than its increment, and there are few.
        self._requests = cache(metrics.api_requests.labels)
        self._seconds = cache(metrics.api_seconds.labels)
        init_labels(metrics.api_requests, *((*call, code) for call in CALLS for code in CODES))

    def request_done(self, verb: str, resource: str, status: int, took_s: float) -> None:
        """Count a request."""
        code = f"{status // 100}xx" if status else "none"
        self._requests(verb, resource, code).inc()
        if status:
            self._seconds(verb, resource).observe(took_s)
        if took_s >= SLOW_S and verb not in _SLOW_VERBS:
            self._limited_log.event(
                logging.WARNING,
                "the API server is slow",
                verb=verb,
                resource=resource,
                took_s=round(took_s, 1),
            )

    def list_started(self, resource: str) -> None:
        """Count a list, and create the series for the ends of the watch that follows."""
        self._metrics.relists.labels(resource).inc()
        init_labels(self._metrics.watch_ends, *((resource, cause) for cause in END_CAUSES))

    def watch_ended(self, resource: str, cause: str) -> None:
        """Count the end of a watch."""
        self._metrics.watch_ends.labels(resource, cause).inc()


def call_of(method: str, path: str, query: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return verb and resource of a request, such as (`create`, `pods/binding`)."""
    parts = path.partition("?")[0].strip("/").split("/")
    if parts == ["readyz"]:
        return PROBE
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
