"""Eyes on the API server: they read, and remember what they were not shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import msgspec
import urllib3

from extender.doctor.facts import Document, FindingFacts, NotChecked, Readiness
from extender.errors import InvalidInput, NoResponse
from extender.kube.client import ApiClient, message
from extender.kube.errors import missing_permission

_WAIT_S = 10.0
#: What is not there.
ABSENT: Document = {}


class ApiReader:
    """Reads one document at a time; None is what could not be seen, and why is remembered."""

    def __init__(self, access: ApiClient, now: Callable[[], float] = time.time) -> None:
        self._access = access
        self._now = now
        self.unseen: list[NotChecked] = []
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
        if (missed := NotChecked(what, why)) not in self.unseen:
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
        except (NoResponse, urllib3.exceptions.HTTPError) as error:
            self.miss(what, str(error))
            return None
        self._compare(answer.headers.get("date"), before, after)
        if answer.status == 404:
            return b""
        if answer.status < 300:
            return data
        right = missing_permission(message(data)) if answer.status == 403 else None
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


_STANDBY = "standby: "


class Page(NamedTuple):
    """An answer of the operations port."""

    status: int
    body: bytes
    #: How far its clock is ahead of ours, as far as that is certain.
    ahead_s: float | None = None


#: Reads a path of the operations port; `BadInput` when nobody answers.
Read = Callable[[str], Page]


class OpsAnswer(NamedTuple):
    """All that it said."""

    said: Readiness
    findings: tuple[FindingFacts, ...]
    ahead_s: float | None
    #: Why its findings could not be read; probes are answered to all, and pages perhaps not.
    closed: str = ""


def ask(read: Read, where: str) -> OpsAnswer:
    """Ask for readiness and findings; `BadInput` when who answers does not lead or is not us."""
    readiness = read("/readyz")
    lines = readiness.body.decode(errors="replace").splitlines()
    if readiness.status not in (200, 503) or not lines:
        raise InvalidInput(f"what answers at {where} is not an extender")
    if readiness.status == 503 and any(line.startswith(_STANDBY) for line in lines):
        told = next(line for line in lines if line.startswith(_STANDBY))
        raise InvalidInput(f"{told}; ask there")
    said = Readiness(where, readiness.status == 200, tuple(line for line in lines if line != "ok"))
    try:
        page = read("/api/v1/findings")
    except InvalidInput as error:
        return OpsAnswer(said, (), readiness.ahead_s, str(error))
    return OpsAnswer(said, _findings(page, where, said), readiness.ahead_s)


def _findings(page: Page, where: str, said: Readiness) -> tuple[FindingFacts, ...]:
    try:
        document = msgspec.json.decode(page.body)
        if page.status == 503 and isinstance(document, dict):
            if not said.is_ready:
                # Why it cannot tell is what it says of its readiness.
                return ()
            raise InvalidInput(f"the extender at {where} cannot tell: {document.get('error')}")
        return tuple(msgspec.convert(document, list[FindingFacts]))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(
            f"what answers at {where} knows no findings; is it of this version?"
        ) from error
