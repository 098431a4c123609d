"""Eyes on the API server: they read, and remember what they were not shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

import msgspec
import urllib3

from extender.doctor.seen import Document, Unseen
from extender.errors import Unreachable
from extender.kube.api.client import Access, message
from extender.kube.api.rights import missing_right

_WAIT_S = 10.0
#: What is not there.
ABSENT: Document = {}


class Eyes:
    """Reads one document at a time; None is what could not be seen, and why is remembered."""

    def __init__(self, access: Access, now: Callable[[], float] = time.time) -> None:
        self._access = access
        self._now = now
        self.unseen: list[Unseen] = []
        #: How far the API server's clock is ahead of ours, as far as that is certain.
        self.ahead_s: float | None = None

    def get(self, path: str, what: str, query: Mapping[str, str] | None = None) -> Document | None:
        """Read *path*; `ABSENT` when there is no such thing, None when we were not shown it."""
        return self._ask("GET", path, what, query)

    def items(
        self, path: str, what: str, query: Mapping[str, str] | None = None
    ) -> list[Document] | None:
        """Read the list at *path*, empty where there is no such kind."""
        found = self.get(path, what, query)
        return None if found is None else list(found.get("items") or [])

    def review(self, path: str, what: str, body: Document) -> Document | None:
        """Have the API server judge something; that changes nothing."""
        return self._ask("POST", path, what, None, body)

    def text(self, path: str, what: str) -> str | None:
        """Read a page that is no document."""
        body = self._read("GET", path, what, None, None)
        return None if body is None else body.decode(errors="replace")

    def miss(self, what: str, why: str) -> None:
        """Remember what cannot be seen, once."""
        if (missed := Unseen(what, why)) not in self.unseen:
            self.unseen.append(missed)

    def _ask(
        self,
        method: str,
        path: str,
        what: str,
        query: Mapping[str, str] | None,
        body: Document | None = None,
    ) -> Document | None:
        answer = self._read(method, path, what, query, body)
        if not answer:
            return None if answer is None else ABSENT
        try:
            found: Document = msgspec.json.decode(answer, type=dict)
        except (msgspec.DecodeError, RecursionError):
            self.miss(what, f"what answers {path} is not a Kubernetes API server")
            return None
        return found

    def _read(
        self,
        method: str,
        path: str,
        what: str,
        query: Mapping[str, str] | None,
        body: Document | None,
    ) -> bytes | None:
        before = self._now()
        try:
            answer = self._access.open(method, path, body, query=query, read_s=_WAIT_S)
            after, data = self._now(), answer.data
        except (Unreachable, urllib3.exceptions.HTTPError) as error:
            self.miss(what, str(error))
            return None
        self._compare(answer.headers.get("date"), before, after)
        if answer.status == 404:
            return b""
        if answer.status < 300:
            return data
        right = missing_right(message(data)) if answer.status == 403 else None
        why = f"{right.user} may not {right.verb} {right.resource}" if right else ""
        self.miss(what, why or f"{path}: {answer.status}: {message(data)}")
        return None

    def _compare(self, date: str | None, before: float, after: float) -> None:
        if self.ahead_s is None:
            self.ahead_s = ahead(date, before, after)


def ahead(date: str | None, before: float, after: float) -> float | None:
    """Say how far whoever wrote *date* is ahead of us, at least; they tell whole seconds."""
    if not date:
        return None
    try:
        told = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):  # no date, or one that is in no year
        return None
    if told > after:
        return told - after
    return min(0.0, told + 1 - before)
