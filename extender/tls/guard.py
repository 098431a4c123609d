"""Whom we let in: a caller whose certificate a CA of ours signed and whose name is allowed.

A CA signs for many; that of a cluster signs for every node. So the signature alone opens nothing.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from extender.logs import event

log = logging.getLogger(__name__)

#: A caller that is refused comes again at once, and every one of its pods does.
_SILENT_S = 60.0

_BY_VERIFY_CODE = {9: "not_yet_valid", 10: "expired"}
_BY_VERIFY_CODE |= dict.fromkeys((2, 18, 19, 20, 21), "unknown_ca")
_BY_REASON = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no_certificate",
    "HTTP_REQUEST": "not_tls",
    "WRONG_VERSION_NUMBER": "not_tls",
    "UNSUPPORTED_PROTOCOL": "old_tls",
}
#: Every word of `reason_of`.
REASONS = frozenset(
    {
        *_BY_VERIFY_CODE.values(),
        *_BY_REASON.values(),
        *("name", "bad_certificate", "caller_refused_us", "other"),
    }
)


class NameNotAllowed(ssl.SSLError):
    """A caller has a good certificate and a name that nobody allowed."""


class Guard:
    """Knows the names, and tells of those who were refused."""

    def __init__(
        self, names: Iterable[str], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._allowed = frozenset(names)
        self._monotonic = monotonic
        self._told_at: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}
        self._listeners: list[Callable[[str], None]] = []

    def on_refused(self, listener: Callable[[str], None]) -> None:
        """Tell *listener* the reason of every refusal."""
        self._listeners.append(listener)

    def admit(self, certificate: Mapping[str, Any] | None) -> None:
        """Raise `NameNotAllowed` unless *certificate*, which was verified, has an allowed name."""
        names = names_of(certificate or {})
        if not self._allowed & names:
            told = ", ".join(sorted(names)) or "nobody"
            raise NameNotAllowed(f"the certificate is of {told}, which no --client-name allows")

    def refused(self, error: ssl.SSLError) -> None:
        """Count a handshake that failed, and say so if nothing was said about its like lately."""
        reason = reason_of(error)
        for listener in self._listeners:
            listener(reason)
        now = self._monotonic()
        if now - self._told_at.get(reason, -_SILENT_S) < _SILENT_S:
            self._unsaid[reason] = self._unsaid.get(reason, 0) + 1
            return
        self._told_at[reason] = now
        unsaid = self._unsaid.pop(reason, 0)
        event(
            log,
            logging.WARNING,
            "a caller was refused before it could ask",
            reason=reason,
            why=error.strerror or str(error),
            unsaid_before=unsaid,
        )


def names_of(certificate: Mapping[str, Any]) -> set[str]:
    """Give common names and alternative names, as the ssl module tells them."""
    common = {
        value
        for group in certificate.get("subject", ())
        for kind, value in group
        if kind == "commonName"
    }
    kinds = ("DNS", "URI", "email")
    return common | {v for kind, v in certificate.get("subjectAltName", ()) if kind in kinds}


def reason_of(error: ssl.SSLError) -> str:
    """Say in one word why a handshake failed; there are few, because they label a series."""
    if isinstance(error, NameNotAllowed):
        return "name"
    if isinstance(error, ssl.SSLCertVerificationError):
        return _BY_VERIFY_CODE.get(error.verify_code, "bad_certificate")
    reason = error.reason or ""
    if "_ALERT_" in reason:
        return "caller_refused_us"
    return _BY_REASON.get(reason, "other")
