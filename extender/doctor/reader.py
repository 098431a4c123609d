"""Reads the API server and the operations port, and remembers what could not be read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import msgspec
import urllib3

from extender.doctor.facts import Document, NotChecked, Readiness
from extender.errors import InvalidInput, NoResponse
from extender.kube.client import ApiClient
from extender.kube.errors import message, missing_permission
from extender.web.documents import Finding

_WAIT_S = 10.0
#: The answer for an object that does not exist.
ABSENT: Document = {}


class ApiReader:
    """Reads documents of the API server; None is one that could not be read, with its reason."""

    def __init__(self, access: ApiClient, now: Callable[[], float] = time.time) -> None:
        self._access = access
        self._now = now
        self.not_checked: list[NotChecked] = []
        #: By how much the API server's clock is ahead of ours, at least.
        self.ahead_s: float | None = None

    def get(self, path: str, what: str, query: Mapping[str, str] | None = None) -> Document | None:
        """Read *path*; `ABSENT` when it does not exist, None when it could not be read."""
        return self._ask("GET", path, what, query)

    def items(
        self, path: str, what: str, query: Mapping[str, str] | None = None
    ) -> list[Document] | None:
        """Read the list at *path*, empty where the kind does not exist."""
        found = self.get(path, what, query)
        return None if found is None else list(found.get("items") or [])

    def review(self, path: str, what: str, body: Document) -> Document | None:
        """Post a review to the API server, which changes nothing."""
        return self._ask("POST", path, what, None, body)

    def text(self, path: str, what: str) -> str | None:
        """Read a text that is not a document."""
        body = self._read("GET", path, what, None, None)
        return None if body is None else body.decode(errors="replace")

    def not_readable(self, what: str, why: str) -> None:
        """Remember once that *what* could not be checked."""
        if (entry := NotChecked(what, why)) not in self.not_checked:
            self.not_checked.append(entry)

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
            document: Document = msgspec.json.decode(answer, type=dict)
        except (msgspec.DecodeError, RecursionError):
            self.not_readable(
                what, f"the server that answers {path} is not a Kubernetes API server"
            )
            return None
        return document

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
            self.not_readable(what, str(error))
            return None
        self._compare(answer.headers.get("date"), before, after)
        if answer.status == 404:
            return b""
        if answer.status < 300:
            return data
        right = missing_permission(message(data)) if answer.status == 403 else None
        why = f"{right.user} may not {right.verb} {right.resource}" if right else ""
        self.not_readable(what, why or f"{path}: {answer.status}: {message(data)}")
        return None

    def _compare(self, date: str | None, before: float, after: float) -> None:
        if self.ahead_s is None:
            self.ahead_s = clock_ahead_s(date, before, after)


def clock_ahead_s(date: str | None, before: float, after: float) -> float | None:
    """Return by how much the sender of *date* is ahead of us, at least; it has whole seconds."""
    if not date:
        return None
    try:
        sent = parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):  # an invalid date, or a year out of range
        return None
    if sent > after:
        return sent - after
    return min(0.0, sent + 1 - before)


_STANDBY = "standby: "


class Page(NamedTuple):
    """An answer of the operations port."""

    status: int
    body: bytes
    #: By how much its clock is ahead of ours, at least.
    ahead_s: float | None = None


#: Reads a path of the operations port; raises `InvalidInput` without an answer.
Read = Callable[[str], Page]


class OpsAnswer(NamedTuple):
    """The readiness and the findings of an extender."""

    readiness: Readiness
    findings: tuple[Finding, ...]
    ahead_s: float | None
    #: Why its findings could not be read: unlike probes they may need authentication.
    closed: str = ""


def read_extender(read: Read, where: str) -> OpsAnswer:
    """Read readiness and findings; raise unless an extender that leads answers."""
    probe = read("/readyz")
    lines = probe.body.decode(errors="replace").splitlines()
    if probe.status not in (200, 503) or not lines:
        raise InvalidInput(f"the server at {where} is not an extender")
    if probe.status == 503 and any(line.startswith(_STANDBY) for line in lines):
        standby = next(line for line in lines if line.startswith(_STANDBY))
        raise InvalidInput(f"{standby}; use that replica")
    readiness = Readiness(where, probe.status == 200, tuple(line for line in lines if line != "ok"))
    try:
        page = read("/api/v1/findings")
    except InvalidInput as error:
        return OpsAnswer(readiness, (), probe.ahead_s, str(error))
    return OpsAnswer(readiness, _findings(page, where, readiness), probe.ahead_s)


def _findings(page: Page, where: str, readiness: Readiness) -> tuple[Finding, ...]:
    try:
        document = msgspec.json.decode(page.body)
        if page.status == 503 and isinstance(document, dict):
            if not readiness.is_ready:
                # The lines of its readiness state the reason.
                return ()
            raise InvalidInput(f"the extender at {where} cannot answer: {document.get('error')}")
        return tuple(msgspec.convert(document, list[Finding]))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f"the server at {where} has no findings; is it an extender of this version?"
        ) from error
