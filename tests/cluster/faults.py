"""What can go wrong with a call, which calls there are, and a script of both."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """One thing that goes wrong, at one call."""

    #: SIGKILL of our process: the call was never sent, or its answer never came.
    KILL_BEFORE = "kill-before"
    KILL_AFTER = "kill-after"
    CONFLICT = "409"
    MISSING = "404"
    LOADED = "429"
    BROKEN = "500"
    AWAY = "503"
    #: For good, as an admission webhook refuses: only for faults that stand.
    REFUSED = "422"
    #: Nothing is sent on and nothing comes back, until whoever asked hangs up.
    TIMEOUT = "timeout"
    RESET = "reset"
    SLOW = "slow"
    #: It has happened, and nobody is told.
    LOST = "answer-lost"
    # Of what a watch tells:
    TWICE = "duplicated"
    SWAPPED = "reordered"
    SILENT = "silent"
    CUT = "cut"


KILLS = frozenset({Fault.KILL_BEFORE, Fault.KILL_AFTER})
STATUSES = {
    Fault.CONFLICT: (409, "Conflict"),
    Fault.MISSING: (404, "NotFound"),
    Fault.LOADED: (429, "TooManyRequests"),
    Fault.BROKEN: (500, "InternalError"),
    Fault.AWAY: (503, "ServiceUnavailable"),
    Fault.REFUSED: (422, "Invalid"),
}
_ANY_CALL = (*KILLS, Fault.BROKEN, Fault.AWAY, Fault.TIMEOUT, Fault.RESET, Fault.SLOW, Fault.LOST)
_ANY_ASKED = (*_ANY_CALL, Fault.CONFLICT, Fault.MISSING, Fault.LOADED)
_HEARD = (Fault.TWICE, Fault.SWAPPED, Fault.SILENT, Fault.CUT, *KILLS)

HOOKS = ("filter", "prioritize", "preempt", "bind")


def faults_of(site: str) -> tuple[Fault, ...]:
    """Give what can go wrong at *site*, always in the same order."""
    if site.startswith("hook-"):
        possible = frozenset(_ANY_CALL)
    elif site.startswith("heard-"):
        possible = frozenset(_HEARD)
    else:
        possible = frozenset(_ANY_ASKED)
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
    """Name a call to the API server by what it is for."""
    parts = path.strip("/").split("/")
    if parts[0] not in ("api", "apis"):
        return "pulse"
    about = parts[3:] if parts[0] == "apis" else parts[2:]
    if about[:1] == ["namespaces"] and len(about) > 2:
        about = about[2:]
    resource = "/".join(about[:1] + about[2:3])
    if name := _NAMED.get((method, resource)):
        return name
    if method == "GET" and len(about) == 1:
        if "watch" in query and "sendInitialEvents" not in query:
            return f"watch-{resource}"
        return f"list-{resource}" if "fieldSelector" not in query else f"look-{resource}"
    return f"look-{resource}" if method == "GET" else f"{method.lower()}-{resource}"


def hook_site(path: str) -> str:
    """Name a call of kube-scheduler's."""
    verb = path.rpartition("/")[2]
    return f"hook-{verb}" if verb in HOOKS else "hook-other"


_POD = re.compile(r"/pods/([^/]+)")


def pod_in(path: str) -> str:
    """Name the pod that a call is about; empty when it is about none."""
    found = _POD.search(path)
    return found.group(1) if found else ""


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One fault at the so-and-so-manieth call of a site."""

    site: str
    occurrence: int
    fault: Fault

    def __str__(self) -> str:
        return f"{self.site}#{self.occurrence} {self.fault}"


@dataclass(frozen=True, slots=True)
class Call:
    """One call as it passed; *status* 0 when no answer was given back."""

    site: str
    occurrence: int
    about: str
    at: float
    took_s: float
    status: int
    fault: Fault | None = None


class Script:
    """Counts the calls of every site, and says what is to happen to each.

    *standing* faults hold for every call of a site about one pod, and count as no point.
    """

    def __init__(
        self,
        points: Iterable[Point] = (),
        *,
        standing: Mapping[tuple[str, str], Fault] | None = None,
    ) -> None:
        self._faults = {(each.site, each.occurrence): each.fault for each in points}
        self._standing = dict(standing or {})
        self._lock = threading.Lock()
        self._seen: Counter[str] = Counter()
        #: The points that were come to, in order.
        self.met: list[Point] = []
        self.calls: list[Call] = []

    def take(self, site: str, about: str = "") -> tuple[int, Fault | None]:
        """Count one call and say what is to happen to it."""
        with self._lock:
            self._seen[site] += 1
            occurrence = self._seen[site]
            fault = self._faults.get((site, occurrence))
            if fault is not None:
                self.met.append(Point(site, occurrence, fault))
                return occurrence, fault
            return occurrence, self._standing.get((site, about))

    def stand(self, site: str, about: str, fault: Fault | None) -> None:
        """Begin a standing fault, or with None end it."""
        with self._lock:
            if fault is None:
                self._standing.pop((site, about), None)
            else:
                self._standing[site, about] = fault

    def note(self, call: Call) -> None:
        """Keep a call in the record."""
        with self._lock:
            self.calls.append(call)

    def counts(self) -> dict[str, int]:
        """Count the calls of each site so far."""
        with self._lock:
            return dict(self._seen)


def written(fault: Fault) -> bytes:
    """Write the answer of an API server, or of one of our hooks, that fails in this way."""
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
    again = b"retry-after: 1\r\n" if fault is Fault.LOADED else b""
    return b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n%b" % (
        status,
        reason.encode(),
        again,
        len(body),
        body,
    )
