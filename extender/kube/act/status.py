"""Status of PodGroups and Queues, read and merged into what the API server has.

Some CRDs have a status subresource and some, Volcano's own PodGroup among them, do not. A kind
tells by its answers which it is, and that is remembered until it answers otherwise: CRDs are
replaced while we run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import msgspec

from extender.errors import ApiError, Gone
from extender.kube.api.client import MERGE, Asks, PacedCalls, is_another
from extender.kube.api.pipeline import object_path
from extender.ports import Mandate, Subject

#: Queues whose version is remembered, those last written the longest: more than there are.
_REMEMBERED = 10_000
_PLURALS = {"PodGroup": "podgroups", "Queue": "queues"}

Status = Mapping[str, Any]


class ApiStatusWriter(PacedCalls):
    """The `StatusWriter` of the real cluster."""

    def __init__(
        self,
        access: Asks,
        *,
        wait: Callable[[float], object] | None = None,
        mandate: Mandate | None = None,
    ) -> None:
        super().__init__(access, wait=wait, mandate=mandate)
        #: (dialect, kind) -> whether it has a status subresource, once known.
        self._has_status: dict[tuple[str, str], bool] = {}
        #: uid of a queue -> the version of it that was read or written last.
        self._versions: dict[str, str] = {}

    def read(self, subject: Subject) -> Future[Status | None]:
        """Give the status as the API server has it."""
        return self._workers.submit(self._read, subject)

    def write(self, subject: Subject, status: Status) -> Future[Status | None]:
        """Merge *status* into what is there and give the whole."""
        return self._workers.submit(self._write, subject, status, self._mandate.current())

    def _read(self, subject: Subject) -> Status | None:
        self._wait(self._pace.turn())
        try:
            body = self._access.request("GET", _path(subject))
        except Gone:
            return None
        return self._status(body, subject)

    def _write(self, subject: Subject, status: Status, term: int) -> Status | None:
        self._wait(self._pace.turn())
        # It may have waited behind thousands, and another may have led and written meanwhile.
        self._must_hold(term)
        kind = (subject.dialect, subject.kind)
        # The uid makes the API server refuse if the object is another one by now.
        metadata = {"uid": subject.uid}
        version = self._versions.get(subject.uid)
        if "state" in status and version is not None:
            # Administrators write it too, and theirs counts.
            metadata["resourceVersion"] = version
        patch = {"metadata": metadata, "status": status}
        for _ in range(2):
            if self._has_status.get(kind, True):
                try:
                    written = self._merge(f"{_path(subject)}/status", patch, subject)
                    self._has_status[kind] = True
                    return written
                except Gone:
                    # The object, or the subresource? A right to patch whole objects is not asked
                    # for where it may be the former: a refusal would be named as a missing right.
                    if self._read(subject) is None:
                        return None
            try:
                written = self._merge(_path(subject), patch, subject)
            except Gone:
                return None
            self._has_status[kind] = False
            if written is None or _has_arrived(status, written):
                break
            # A kind that has the subresource drops a status that comes with the object, and
            # says nothing.
            del self._has_status[kind]
        return written

    def _merge(self, path: str, patch: object, subject: Subject) -> Status | None:
        try:
            body = self._access.request("PATCH", path, patch, content_type=MERGE)
        except ApiError as error:
            if is_another(error):
                return None
            raise
        return self._status(body, subject)

    def _status(self, body: bytes, subject: Subject) -> Status | None:
        thing: Any = msgspec.json.decode(body)
        about = thing["metadata"]
        if about.get("uid") != subject.uid:
            return None
        if subject.kind == "Queue" and "resourceVersion" in about:
            self._versions.pop(subject.uid, None)  # so that it is the last to be forgotten
            self._versions[subject.uid] = about["resourceVersion"]
            if len(self._versions) > _REMEMBERED:  # of queues that are long gone
                for uid in list(self._versions)[: _REMEMBERED // 2]:
                    self._versions.pop(uid, None)
        return _sensible(thing.get("status"))


def _path(subject: Subject) -> str:
    plural = _PLURALS[subject.kind]
    return object_path(subject.dialect, plural, subject.namespace, subject.name)


def _sensible(status: object) -> Status:
    """Leave out what no status has: where a CRD has no schema, tenants may write anything."""
    if not isinstance(status, dict):
        return {}
    if "conditions" not in status:
        return status
    said = status["conditions"]
    kept = [
        each
        for each in (said if isinstance(said, list) else ())
        if isinstance(each, dict) and isinstance(each.get("type"), str)
    ]
    return {**status, "conditions": kept}


def _has_arrived(wanted: Status, there: Status) -> bool:
    """Ask whether *there* says what we wrote, as far as its CRD has a place for it."""
    said, reasons = there.get("conditions"), _reasons(wanted)
    return there.get("phase") == wanted.get("phase") and (not said or reasons <= _reasons(there))


def _reasons(status: Status) -> set[tuple[str, str]]:
    said = status.get("conditions") or ()
    return {(each["type"], str(each.get("reason", ""))) for each in said}
