"""The faults that a proxy can inject, the call sites, and scripts of both."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What goes wrong at one call."""

    #: SIGKILL of the extender: before the call is sent, or before its response arrives.
    KILL_BEFORE = "kill-before"
    KILL_AFTER = "kill-after"
    CONFLICT = "409"
    MISSING = "404"
    TOO_MANY = "429"
    INTERNAL = "500"
    UNAVAILABLE = "503"
    #: Permanent, as an admission webhook denies it: only for standing faults.
    REFUSED = "422"
    #: Nothing is forwarded and nothing comes back, until the caller closes the connection.
    TIMEOUT = "timeout"
    RESET = "reset"
    SLOW = "slow"
    #: The call is executed, but the response is lost.
    LOST = "answer-lost"
    # Of watch events:
    DUPLICATED = "duplicated"
    REORDERED = "reordered"
    SILENT = "silent"
    CUT = "cut"


KILLS = frozenset({Fault.KILL_BEFORE, Fault.KILL_AFTER})
STATUSES = {
    Fault.CONFLICT: (409, "Conflict"),
    Fault.MISSING: (404, "NotFound"),
    Fault.TOO_MANY: (429, "TooManyRequests"),
    Fault.INTERNAL: (500, "InternalError"),
    Fault.UNAVAILABLE: (503, "ServiceUnavailable"),
    Fault.REFUSED: (422, "Invalid"),
}
_ANY_CALL = (
    *KILLS,
    Fault.INTERNAL,
    Fault.UNAVAILABLE,
    Fault.TIMEOUT,
    Fault.RESET,
    Fault.SLOW,
    Fault.LOST,
)
_API_CALL = (*_ANY_CALL, Fault.CONFLICT, Fault.MISSING, Fault.TOO_MANY)
_WATCH_EVENT = (Fault.DUPLICATED, Fault.REORDERED, Fault.SILENT, Fault.CUT, *KILLS)

HOOKS = ("filter", "prioritize", "preempt", "bind")


def faults_of(site: str) -> tuple[Fault, ...]:
    """Return the faults that are possible at *site*, in a fixed order."""
    if site.startswith("hook-"):
        possible = frozenset(_ANY_CALL)
    elif site.startswith("event-"):
        possible = frozenset(_WATCH_EVENT)
    else:
        possible = frozenset(_API_CALL)
    return tuple(each for each in Fault if each in possible)


_NAMED = {
    ("POST", "pods/binding"): "bind",
    ("POST", "pods/eviction"): "eviction",
    ("PATCH", "pods/status"): "pod-status",
    ("PATCH", "podgroups/status"): "podgroup-status",
    ("PATCH", "podgroups"): "podgroup-patch",
    ("PATCH", "queues/status"): "queue-status",
    ("POST", "events"): "event",
    ("PATCH", "events"): "event",
    ("GET", "leases"): "lease-read",
    ("POST", "leases"): "lease-write",
    ("PATCH", "leases"): "lease-write",
    ("PUT", "leases"): "lease-write",
}


def site_of(method: str, path: str, query: Mapping[str, str]) -> str:
    """Return the name of the call site of an API request."""
    parts = path.strip("/").split("/")
    if parts[0] not in ("api", "apis"):
        return "health-probe"
    about = parts[3:] if parts[0] == "apis" else parts[2:]
    if about[:1] == ["namespaces"] and len(about) > 2:
        about = about[2:]
    resource = "/".join(about[:1] + about[2:3])
    if name := _NAMED.get((method, resource)):
        return name
    if method == "GET" and len(about) == 1:
        if "watch" in query and "sendInitialEvents" not in query:
            return f"watch-{resource}"
        return f"list-{resource}" if "fieldSelector" not in query else f"get-{resource}"
    return f"get-{resource}" if method == "GET" else f"{method.lower()}-{resource}"


def hook_site(path: str) -> str:
    """Return the name of the call site of a hook call."""
    verb = path.rpartition("/")[2]
    return f"hook-{verb}" if verb in HOOKS else "hook-other"


_POD = re.compile(r"/pods/([^/]+)")


def pod_in(path: str) -> str:
    """Return the name of the pod in *path*, or an empty string."""
    found = _POD.search(path)
    return found.group(1) if found else ""


@dataclass(frozen=True, slots=True, order=True)
class FaultPoint:
    """One fault at the n-th call of a site."""

    site: str
    occurrence: int
    fault: Fault

    def __str__(self) -> str:
        return f"{self.site}#{self.occurrence} {self.fault}"


@dataclass(frozen=True, slots=True)
class Call:
    """One finished call; *status* is 0 if no response was delivered."""

    site: str
    occurrence: int
    about: str
    at: float
    took_s: float
    status: int
    fault: Fault | None = None


class Script:
    """Counts the calls of every site, and decides which fault each gets.

    A *standing* fault applies to every call of a site about one pod, and is not a point.
    """

    def __init__(
        self,
        points: Iterable[FaultPoint] = (),
        *,
        standing: Mapping[tuple[str, str], Fault] | None = None,
    ) -> None:
        self._faults = {(each.site, each.occurrence): each.fault for each in points}
        self._standing = dict(standing or {})
        self._lock = threading.Lock()
        self._seen: Counter[str] = Counter()
        #: The points that were reached, in order.
        self.reached: list[FaultPoint] = []
        self.calls: list[Call] = []

    def take(self, site: str, about: str = "") -> tuple[int, Fault | None]:
        """Count one call; return its number and its fault."""
        with self._lock:
            self._seen[site] += 1
            occurrence = self._seen[site]
            fault = self._faults.get((site, occurrence))
            if fault is not None:
                self.reached.append(FaultPoint(site, occurrence, fault))
                return occurrence, fault
            return occurrence, self._standing.get((site, about))

    def set_standing(self, site: str, about: str, fault: Fault | None) -> None:
        """Set a standing fault, or remove it with None."""
        with self._lock:
            if fault is None:
                self._standing.pop((site, about), None)
            else:
                self._standing[site, about] = fault

    def record(self, call: Call) -> None:
        """Record a call."""
        with self._lock:
            self.calls.append(call)

    def counts(self) -> dict[str, int]:
        """Return the number of calls of each site so far."""
        with self._lock:
            return dict(self._seen)


def error_response(fault: Fault) -> bytes:
    """Return the HTTP response for *fault*."""
    status, reason = STATUSES[fault]
    body = json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"injected: {reason}",
            "reason": reason,
            "code": status,
        }
    ).encode()
    again = b"retry-after: 1\r\n" if fault is Fault.TOO_MANY else b""
    return b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
        status,
        reason.encode(),
        again,
        len(body),
        body,
    )
