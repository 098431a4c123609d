"""Finds writes of replicas that did not hold the lease, from the API server's audit log.

Each replica has its own user, and every write of the lease names its holder. A write is allowed
while the last write of the lease names the replica, and for no longer than the lease lasts.

A paused API server stamps requests with the time when it resumes. Such a request is allowed: no
other replica could take the lease meanwhile, since the same server writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from .api import Object


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """One write of the lease, with the times of request and response."""

    holder: str
    requested_at: datetime
    done_at: datetime
    duration: timedelta


#: A resumed server reads the requests that were sent to it within this time.
_READ = timedelta(seconds=1)


class LeaseAudit:
    """Reads the audit log as it grows; *holders* has the prefix of each user's holderIdentity."""

    def __init__(self, audit_log: Path, lease: str, holders: Mapping[str, str]) -> None:
        self._log = audit_log
        self._lease = lease
        self._holders = holders
        self._read_to = 0
        self._lease_writes: list[LeaseWrite] = []
        self._writes: list[Object] = []
        self._pauses: list[tuple[datetime, datetime]] = []

    def server_paused(self, since: datetime, until: datetime) -> None:
        """Note that the API server was paused in that time."""
        self._pauses.append((since, until))

    def writes_without_lease(self, since: datetime) -> list[str]:
        """Return all writes since then of replicas that did not lead."""
        self._read_on()
        return [
            _text(act)
            for act in self._writes
            if _when(act) >= since and self._is_without_lease(act)
        ]

    def count_writes(self, since: datetime) -> int:
        """Count the writes since then, so that a test sees that there were any."""
        self._read_on()
        return sum(_when(act) >= since for act in self._writes)

    def read(self, event: Object) -> None:
        """Read an audit event."""
        about = event.get("objectRef", {})
        if about.get("resource") == "leases":
            self._read_lease_write(event)
        elif event["user"].get("username") in self._holders and not _had_no_effect(event):
            self._writes.append(event)

    def _read_on(self) -> None:
        with self._log.open("rb") as log:
            log.seek(self._read_to)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                self.read(json.loads(line))

    def _read_lease_write(self, event: Object) -> None:
        about = event["objectRef"]
        written = event.get("requestObject") or {}
        name = about.get("name") or written.get("metadata", {}).get("name")
        spec = written.get("spec")
        if f"{about['namespace']}/{name}" != self._lease or spec is None:
            return
        if event["responseStatus"]["code"] < 300:
            self._lease_writes.append(
                LeaseWrite(
                    spec.get("holderIdentity") or "",
                    _when(event),
                    datetime.fromisoformat(event["stageTimestamp"]),
                    timedelta(seconds=spec.get("leaseDurationSeconds", 0)),
                )
            )

    def _is_without_lease(self, act: Object) -> bool:
        moment, holder = _when(act), self._holders[act["user"]["username"]]
        # In favour of the replica: its own write counts from its request on, another's from its
        # response on.
        known = [
            each
            for each in self._lease_writes
            if (each.requested_at if each.holder.startswith(holder) else each.done_at) <= moment
        ]
        if not known:
            return True
        last = max(known, key=lambda each: each.done_at)
        if not last.holder.startswith(holder):
            return True
        ended = last.done_at + last.duration
        return moment > ended and not self._was_sent_before(ended, moment)

    def _was_sent_before(self, ended: datetime, read_at: datetime) -> bool:
        """Return whether the server was paused from before *ended* until it read the request."""
        return any(since < ended and read_at < until + _READ for since, until in self._pauses)


def _when(event: Object) -> datetime:
    return datetime.fromisoformat(event["requestReceivedTimestamp"])


def _had_no_effect(event: Object) -> bool:
    """Return whether the request had no effect: its body was withheld, or it was refused.

    The extender withholds the body if its lease ends while it writes; an API server that has just
    started refuses requests without reading the body.
    """
    status = event.get("responseStatus", {})
    return status.get("message") == "unexpected EOF" or status.get("code") in (401, 403)


def _text(act: Object) -> str:
    return " ".join(
        (act["requestReceivedTimestamp"], act["user"]["username"], act["verb"], act["requestURI"])
    )
