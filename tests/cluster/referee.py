"""Judges by the API server's audit log whether anybody acted who did not lead.

Each replica has a user of its own, and whoever takes, renews or gives back the lease names its
holder in that request. An act is lawful while the last word on the lease names the side of
whoever acts, and no longer after that word than the lease lasts.

A server that stands still stamps what had been sent to it when it goes on. Nobody can call that
back, and nobody else got the lease meanwhile, which is written by the same server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from .api import Object


@dataclass(frozen=True, slots=True)
class Word:
    """What was written on the lease, and when that was asked for and done."""

    holder: str
    asked_at: datetime
    done_at: datetime
    lasts: timedelta


#: So soon after it goes on a server has read what had been sent to it.
_READ = timedelta(seconds=1)


class Referee:
    """Reads the audit log as it grows; *sides* has the beginning of each user's holder."""

    def __init__(self, audit_log: Path, lease: str, sides: Mapping[str, str]) -> None:
        self._log = audit_log
        self._lease = lease
        self._sides = sides
        self._read_to = 0
        self._words: list[Word] = []
        self._acts: list[Object] = []
        self._still: list[tuple[datetime, datetime]] = []

    def stood_still(self, since: datetime, until: datetime) -> None:
        """Take in that the API server read nothing in that time."""
        self._still.append((since, until))

    def strays(self, since: datetime) -> list[str]:
        """All acts since then of whoever did not lead."""
        self._read_on()
        return [_told(act) for act in self._acts if _when(act) >= since and self._is_stray(act)]

    def acts(self, since: datetime) -> int:
        """Count the acts since then, to see that there is something to judge."""
        self._read_on()
        return sum(_when(act) >= since for act in self._acts)

    def hear(self, event: Object) -> None:
        """Take an audit event in."""
        about = event.get("objectRef", {})
        if about.get("resource") == "leases":
            self._hear_word(event)
        elif event["user"].get("username") in self._sides and not _came_to_nothing(event):
            self._acts.append(event)

    def _read_on(self) -> None:
        with self._log.open("rb") as log:
            log.seek(self._read_to)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read_to += len(line)
                self.hear(json.loads(line))

    def _hear_word(self, event: Object) -> None:
        about = event["objectRef"]
        written = event.get("requestObject") or {}
        name = about.get("name") or written.get("metadata", {}).get("name")
        spec = written.get("spec")
        if f"{about['namespace']}/{name}" != self._lease or spec is None:
            return
        if event["responseStatus"]["code"] < 300:
            self._words.append(
                Word(
                    spec.get("holderIdentity") or "",
                    _when(event),
                    datetime.fromisoformat(event["stageTimestamp"]),
                    timedelta(seconds=spec.get("leaseDurationSeconds", 0)),
                )
            )

    def _is_stray(self, act: Object) -> bool:
        moment, side = _when(act), self._sides[act["user"]["username"]]
        # In doubt for whoever acts: a word counts for them when it was asked for, and against
        # them when it was done.
        known = [
            word
            for word in self._words
            if (word.asked_at if word.holder.startswith(side) else word.done_at) <= moment
        ]
        if not known:
            return True
        last = max(known, key=lambda word: word.done_at)
        if not last.holder.startswith(side):
            return True
        ended = last.done_at + last.lasts
        return moment > ended and not self._was_sent_before(ended, moment)

    def _was_sent_before(self, ended: datetime, read_at: datetime) -> bool:
        """Ask whether the server stood still from before *ended* until it was read."""
        return any(since < ended and read_at < until + _READ for since, until in self._still)


def _when(event: Object) -> datetime:
    return datetime.fromisoformat(event["requestReceivedTimestamp"])


def _came_to_nothing(event: Object) -> bool:
    """Whether its body was held back, because its term ended while it was written; or not read.

    A server that has just begun refuses everybody by the head alone.
    """
    status = event.get("responseStatus", {})
    return status.get("message") == "unexpected EOF" or status.get("code") in (401, 403)


def _told(act: Object) -> str:
    return " ".join(
        (act["requestReceivedTimestamp"], act["user"]["username"], act["verb"], act["requestURI"])
    )
