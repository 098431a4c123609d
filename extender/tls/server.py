"""How TLS is spoken: versions, verification, and the word of the guard at the end of a handshake.

Python lets a context name the class of its connections. Ours learns there what no server tells:
why a handshake failed; and refuses a wrong name there, before any byte of HTTP is read.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from extender.clock import timestamp
from extender.errors import InvalidConfiguration
from extender.logs import event
from extender.metrics import Metrics, init_labels
from extender.settings import Settings
from extender.tls.certificates import (
    Checked,
    Files,
    NamedFile,
    check_files,
    hook_files,
    operations_files,
)

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


class ClientNames:
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

    def check(self, certificate: Mapping[str, Any] | None) -> None:
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


class CheckedContext(ssl.SSLContext):
    """One set of certificates and whom it lets in."""

    guard: ClientNames | None = None


class CheckedConnection(ssl.SSLObject):
    """One connection before its first byte of HTTP."""

    def do_handshake(self) -> None:
        """Shake hands, then look at the name."""
        context = self.context
        guard = context.guard if isinstance(context, CheckedContext) else None
        try:
            super().do_handshake()
            if guard is not None and context.verify_mode is ssl.CERT_REQUIRED:
                guard.check(self.getpeercert())
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if guard is not None:
                guard.refused(error)
            raise


class ReloadingContext(ssl.SSLContext):
    """Stands for whatever context is in force when a connection comes.

    A live context can be given more authorities but none can be taken from it; so a new one takes
    its place, and connections that are open keep theirs.
    """

    current: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection with the context in force."""
        return self.current().wrap_bio(*arguments, **options)


def reloading_context(current: Callable[[], ssl.SSLContext]) -> ReloadingContext:
    """Make a context for an event loop's server; *current* gives the one in force."""
    context = ReloadingContext(ssl.PROTOCOL_TLS_SERVER)
    context.current = current
    return context


def build(files: Files, checked: Checked, guard: ClientNames | None) -> ssl.SSLContext:
    """Make a context from files that were checked; a complaint of OpenSSL is our error."""
    context = CheckedContext(ssl.PROTOCOL_TLS_SERVER)
    context.guard = guard
    context.sslobject_class = CheckedConnection
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # of 1.2; those of 1.3 are all good
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session shows no certificate again; whoever is taken off the list would stay.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.certificate.path, files.key.path, password=_no_passphrase)
        if checked.client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            # The file may name an intermediate CA alone, as Go's servers allow it too.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(cadata=checked.client_ca.decode("ascii"))
    except (ssl.SSLError, OSError) as error:
        raise InvalidConfiguration(
            f"{files.certificate} and {files.key}: OpenSSL cannot use them: {error.strerror}"
        ) from error
    return context


def _no_passphrase() -> str:
    """Keep OpenSSL from asking the terminal."""
    return ""


#: How often the files are looked at.
RELOAD_S = 5.0
#: Enough to see that a file is another: where it really is, and which content that was.
Stamp: TypeAlias = tuple[str, int, int, int] | None


def hook_certificates(settings: Settings) -> PortCertificates | None:
    """Load what the hook port shows and demands; none while it speaks plain HTTP."""
    found = hook_files(settings)
    return PortCertificates("hooks", found, ClientNames(settings.client_name)) if found else None


def operations_certificates(settings: Settings) -> PortCertificates | None:
    """Load what the operations port shows; none while it speaks plain HTTP."""
    found = operations_files(settings)
    return PortCertificates("operations", found) if found else None


class PortCertificates:
    """What one port shows and demands, as the files had it when they were last good."""

    def __init__(
        self,
        port: str,
        shown: Files,
        guard: ClientNames | None = None,
        now: Callable[[], float] = time.time,
        look_s: float = RELOAD_S,
    ) -> None:
        self.port = port
        #: How often they want to be looked at.
        self.look_s = look_s
        self.guard = guard
        #: Why the files as they are now are not in force, in one sentence; empty when they are.
        self.refusal = ""
        self._files = shown
        self._now = now
        self._stamps = self._look_at_files()
        self._checked = check_files(shown, now())
        self._context = build(shown, self._checked, guard)

    @property
    def problem(self) -> str:
        """Say what somebody should mend; empty when nothing."""
        if self.refusal:
            return self.refusal
        for file, at in self.expiries().items():
            if at <= self._now():
                return f"{file}: expired at {timestamp(at)}; renew it"
        return ""

    def expiries(self) -> dict[NamedFile, float]:
        """Give for each file in force the time at which it expires."""
        ends = {self._files.certificate: self._checked.not_after}
        if self._files.client_ca is not None:
            ends[self._files.client_ca] = self._checked.client_ca_not_after
        return ends

    def show_in(self, metrics: Metrics) -> None:
        """Let *metrics* tell what becomes of them, and of those they refuse."""
        metrics.certificate_refused.labels(self.port).set_function(lambda: bool(self.refusal))
        for file in self.expiries():
            expiry = metrics.certificate_expiry.labels(file.flag.removeprefix("--"))
            expiry.set_function(lambda file=file: self.expiries()[file])  # type: ignore[misc]
        if self.guard is not None:
            init_labels(metrics.tls_refused, *((reason,) for reason in REASONS))
            self.guard.on_refused(lambda reason: metrics.tls_refused.labels(reason).inc())

    def in_force(self) -> ssl.SSLContext:
        """Give the context of connections that begin now."""
        return self._context

    def context(self) -> ReloadingContext:
        """Give a context for a server, that is always the one in force."""
        return reloading_context(self.in_force)

    def reload(self) -> bool:
        """Take the files if they have changed and can be used; true if they should settle first."""
        stamps = self._look_at_files()
        if stamps == self._stamps and not self.refusal:
            return False
        try:
            checked = check_files(self._files, self._now())
            context = build(self._files, checked, self.guard)
        except InvalidConfiguration as error:
            self._keep(str(error))
            return False
        if self._look_at_files() != stamps:
            return True  # they changed under our hands
        self._take(stamps, checked, context)
        return False

    def _take(self, stamps: list[Stamp], checked: Checked, context: ssl.SSLContext) -> None:
        self._stamps, self._checked, self._context = stamps, checked, context
        self.refusal = ""
        event(
            log,
            logging.INFO,
            "certificates reloaded",
            port=self.port,
            expires=timestamp(checked.not_after),
        )

    def _keep(self, problem: str) -> None:
        if problem != self.refusal:
            event(
                log,
                logging.ERROR,
                "certificates kept: the new files cannot be used",
                port=self.port,
                why=problem,
            )
        self.refusal = problem

    def _look_at_files(self) -> list[Stamp]:
        return [_stamp(each) for each in self._files]


def _stamp(file: NamedFile) -> Stamp:
    try:
        place = os.path.realpath(file.path)
        about = os.stat(place)
    except OSError:
        return None
    return place, about.st_ino, about.st_mtime_ns, about.st_size
