"""Rights that we lack: what the API server refused for want of one, told with the mend.

It refuses with 403 for other reasons too (a quota, a namespace that goes away, a webhook); only its
own authorizer names user, verb and resource, and always in the same words.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from extender.logs import event
from extender.ports import Refused

log = logging.getLogger(__name__)
#: A right of which we heard nothing for so long may have been granted, or is not needed any more.
REMEMBERED_S = 600.0
_REFUSAL = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"/]+)(?P<part>/[^"]+)?"'
    r' in API group "(?P<group>[^"]*)"'
)


class Permission(NamedTuple):
    """To do something with a resource, which *user* may not."""

    verb: str
    #: As `pods`, `pods/status`, `podgroups.scheduling.volcano.sh/status`.
    resource: str
    user: str

    def __str__(self) -> str:
        """Say in a sentence what is missing, and the mend."""
        return (
            f"{self.user} may not {self.verb} {self.resource};"
            " grant it as our manifests do: docs/rights.md says where, and what for"
        )


def missing_permission(message: str) -> Permission | None:
    """Read from what the API server said which right we lack; None when that is not the reason."""
    found = _REFUSAL.search(message)
    if found is None:
        return None
    dot = "." if found["group"] else ""
    resource = f"{found['resource']}{dot}{found['group']}{found['part'] or ''}"
    return Permission(found["verb"], resource, found["user"])


class MissingPermissions:
    """What we were refused lately; any thread may write and read."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._refused_at: dict[Permission, float] = {}

    def note(self, right: Permission) -> None:
        """Remember a refusal; the first one of its kind is logged."""
        with self._lock:
            is_new = right not in self._lately()
            self._refused_at[right] = self._monotonic()
        if is_new:
            event(
                log,
                logging.ERROR,
                "right missing",
                verb=right.verb,
                resource=right.resource,
                why=str(right),
            )

    def recent(self) -> list[Refused]:
        """Give one for each right, in the order of their resources."""
        with self._lock:
            lately, now = self._lately(), self._monotonic()
        return [
            Refused(account=right.user, why=f"{right} (refused {now - at:.0f} s ago)")
            for right, at in sorted(lately.items(), key=lambda each: each[0][1::-1])
        ]

    def _lately(self) -> dict[Permission, float]:
        oldest = self._monotonic() - REMEMBERED_S
        return {right: at for right, at in self._refused_at.items() if at >= oldest}
