"""Refusals of the API server: the error of each, and the permissions that they name as missing.

The API server answers 403 for other reasons too (a quota, a terminating namespace, a webhook). Only
its own authorizer names user, verb and resource, and always in the same words.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from extender.errors import ApiError, Forbidden, NamespaceTerminating, NotFound
from extender.logs import event
from extender.ports import Refused

log = logging.getLogger(__name__)
#: A permission not refused again for this long may have been granted, or is no longer needed.
REMEMBERED_S = 600.0
_REFUSAL = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"/]+)(?P<part>/[^"]+)?"'
    r' in API group "(?P<group>[^"]*)"'
)


class Permission(NamedTuple):
    """A verb on a resource that *user* is not permitted."""

    verb: str
    #: As `pods`, `pods/status`, `podgroups.scheduling.volcano.sh/status`.
    resource: str
    user: str

    def __str__(self) -> str:
        """Return a sentence with the missing permission and the remedy."""
        return (
            f"{self.user} may not {self.verb} {self.resource};"
            " grant it as our manifests do: docs/security.md lists each permission and its use"
        )


def missing_permission(message: str) -> Permission | None:
    """Return the permission that the API server's *message* names; None for other refusals."""
    found = _REFUSAL.search(message)
    if found is None:
        return None
    dot = "." if found["group"] else ""
    resource = f"{found['resource']}{dot}{found['group']}{found['part'] or ''}"
    return Permission(found["verb"], resource, found["user"])


class MissingPermissions:
    """The permissions refused recently; any thread may write and read."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._refused_at: dict[Permission, float] = {}

    def note(self, permission: Permission) -> None:
        """Record a refusal, and log the first of each permission."""
        with self._lock:
            is_new = permission not in self._recent()
            self._refused_at[permission] = self._monotonic()
        if is_new:
            event(
                log,
                logging.ERROR,
                "permission missing",
                verb=permission.verb,
                resource=permission.resource,
                why=str(permission),
            )

    def recent(self) -> list[Refused]:
        """Return one entry for each permission, ordered by resource."""
        with self._lock:
            recent, now = self._recent(), self._monotonic()
        return [
            Refused(account=permission.user, why=f"{permission} (refused {now - at:.0f} s ago)")
            for permission, at in sorted(recent.items(), key=lambda each: each[0][1::-1])
        ]

    def _recent(self) -> dict[Permission, float]:
        oldest = self._monotonic() - REMEMBERED_S
        return {permission: at for permission, at in self._refused_at.items() if at >= oldest}


def refusal(method: str, path: str, status: int, body: bytes) -> ApiError:
    """Return the error for a status other than 2xx; names a missing permission with the remedy."""
    reason = message(body)
    if status == 403 and (permission := missing_permission(reason)):
        return Forbidden(f"{method} {path}: {status}: {permission}", status=status)
    kind = (
        NotFound
        if status == 404
        else NamespaceTerminating
        if is_terminating(status, body)
        else ApiError
    )
    return kind(f"{method} {path}: {status}: {reason}", status=status)


def is_terminating(status: int, body: bytes) -> bool:
    """Return whether a request was refused because its namespace is being deleted."""
    return status == 403 and b'"NamespaceTerminating"' in body


def is_conflict(error: ApiError) -> bool:
    """Return whether *error* means that the name now belongs to another object.

    For a uid that does not match, custom resources answer 409; pods answer 422, immutable field.
    """
    return error.status == 409 or (error.status == 422 and "metadata.uid" in str(error))


def message(body: bytes) -> str:
    """Return the message of the API server in a response other than 2xx."""
    try:
        reason: Any = msgspec.json.decode(body)
        return str(reason["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return body[:200].decode(errors="replace").strip() or "no reason given"
