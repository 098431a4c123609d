"""Judges by the API server's audit log whether anybody acted who did not lead.

Each replica has a user of its own, and whoever takes, renews or gives back the lease names its
holder in that request. An act is lawful while the last word on the lease names the side of
whoever acts, and no longer after that word than the lease lasts.
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


class Referee:
    """Reads the audit log as it grows; *sides* has the beginning of each user's holder."""

    def __init__(self, audit_log: Path, lease: str, sides: Mapping[str, str]) -> None:
        self._log = audit_log
        self._lease = lease
        self._sides = sides
        self._read_to = 0
        self._words: list[Word] = []
        self._acts: list[Object] = []

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
        elif event["user"].get("username") in self._sides and not _broke_off(event):
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
        return not last.holder.startswith(side) or moment > last.done_at + last.lasts


def _when(event: Object) -> datetime:
    return datetime.fromisoformat(event["requestReceivedTimestamp"])


def _broke_off(event: Object) -> bool:
    """Whether its body was held back, because its term ended while it was written."""
    message: str = event.get("responseStatus", {}).get("message", "")
    return message == "unexpected EOF"


def _told(act: Object) -> str:
    return " ".join(
        (act["requestReceivedTimestamp"], act["user"]["username"], act["verb"], act["requestURI"])
    )
