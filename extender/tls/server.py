"""TLS of both ports: versions, verification, allowed client names, and reloaded files.

An `SSLContext` can name the class of its connections. Ours learns why a handshake failed, which no
server reports, and refuses a wrong client name before any byte of HTTP is read.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from prometheus_client import Counter

from extender.clock import timestamp
from extender.errors import InvalidConfiguration
from extender.logs import RateLimitedLog, event
from extender.metrics import Metrics, init_labels
from extender.settings import Settings
from extender.tls.certificates import Checked, Files, NamedFile, check_files

log = logging.getLogger(__name__)
_BY_VERIFY_CODE = {9: "not_yet_valid", 10: "expired"}
_BY_VERIFY_CODE |= dict.fromkeys((2, 18, 19, 20, 21), "unknown_ca")
_BY_REASON = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no_certificate",
    "HTTP_REQUEST": "not_tls",
    "WRONG_VERSION_NUMBER": "not_tls",
    "UNSUPPORTED_PROTOCOL": "old_tls",
}
#: Every result of `reason_of`.
REASONS = frozenset(
    {
        *_BY_VERIFY_CODE.values(),
        *_BY_REASON.values(),
        *("name", "bad_certificate", "caller_refused_us", "other"),
    }
)


class NameNotAllowed(ssl.SSLError):
    """A client has a valid certificate with a name that is not allowed."""


class ClientNames:
    """Checks the names of client certificates; counts and logs failed handshakes."""

    def __init__(
        self, names: Iterable[str], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._allowed = frozenset(names)
        self._limited_logs = {
            reason: RateLimitedLog(log, monotonic=monotonic) for reason in REASONS
        }
        #: Counts refusals by reason, once there are metrics.
        self.counter: Counter | None = None

    def check(self, certificate: Mapping[str, Any] | None) -> None:
        """Raise `NameNotAllowed` unless the verified *certificate* has an allowed name."""
        names = names_of(certificate or {})
        if not self._allowed & names:
            found = ", ".join(sorted(names)) or "none"
            raise NameNotAllowed(f"no --client-name allows the names of the certificate: {found}")

    def refused(self, error: ssl.SSLError) -> None:
        """Count a failed handshake; log it unless its reason was logged lately."""
        reason = reason_of(error)
        if self.counter is not None:
            self.counter.labels(reason).inc()
        why = error.strerror or str(error)
        self._limited_logs[reason].event(
            logging.WARNING, "a TLS handshake failed", reason=reason, why=why
        )


def names_of(certificate: Mapping[str, Any]) -> set[str]:
    """Return the common and alternative names of a certificate as the ssl module decodes it."""
    common = {
        value
        for group in certificate.get("subject", ())
        for kind, value in group
        if kind == "commonName"
    }
    kinds = ("DNS", "URI", "email")
    return common | {v for kind, v in certificate.get("subjectAltName", ()) if kind in kinds}


def reason_of(error: ssl.SSLError) -> str:
    """Return one word for why a handshake failed; there are few, because they label a series."""
    if isinstance(error, NameNotAllowed):
        return "name"
    if isinstance(error, ssl.SSLCertVerificationError):
        return _BY_VERIFY_CODE.get(error.verify_code, "bad_certificate")
    reason = error.reason or ""
    if "_ALERT_" in reason:
        return "caller_refused_us"
    return _BY_REASON.get(reason, "other")


class CheckedContext(ssl.SSLContext):
    """A context with the client names it allows."""

    client_names: ClientNames | None = None


class CheckedConnection(ssl.SSLObject):
    """One connection during its handshake."""

    def do_handshake(self) -> None:
        """Perform the handshake, then check the client's name."""
        context = self.context
        client_names = context.client_names if isinstance(context, CheckedContext) else None
        try:
            super().do_handshake()
            if client_names is not None and context.verify_mode is ssl.CERT_REQUIRED:
                client_names.check(self.getpeercert())
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if client_names is not None:
                client_names.refused(error)
            raise


class ReloadingContext(ssl.SSLContext):
    """Delegates each new connection to the context in force.

    CAs can be added to a live context but not removed, so a new context replaces it. Open
    connections keep theirs.
    """

    current: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Start a connection with the context in force."""
        return self.current().wrap_bio(*arguments, **options)


def build(files: Files, checked: Checked, client_names: ClientNames | None) -> ssl.SSLContext:
    """Return a context from checked files; an error of OpenSSL is a configuration error."""
    context = CheckedContext(ssl.PROTOCOL_TLS_SERVER)
    context.client_names = client_names
    context.sslobject_class = CheckedConnection
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # for 1.2; all of 1.3 are strong
    context.set_alpn_protocols(["http/1.1"])
    # A resumed session shows no certificate, so a name removed from the list would still pass.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.certificate.path, files.key.path, password=_no_passphrase)
        if checked.client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            # The file may contain only an intermediate CA; Go's servers accept that, too.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(cadata=checked.client_ca.decode("ascii"))
    except (ssl.SSLError, OSError) as error:
        raise InvalidConfiguration(
            f"{files.certificate} and {files.key}: OpenSSL cannot use them: {error.strerror}"
        ) from error
    return context


def _no_passphrase() -> str:
    """Return an empty passphrase, so that OpenSSL does not ask on the terminal."""
    return ""


#: How often the files are checked for changes.
RELOAD_S = 5.0
#: Identifies the content of a file: its real path, inode, time and size.
Stamp: TypeAlias = tuple[str, int, int, int] | None


def hook_certificates(settings: Settings) -> PortCertificates | None:
    """Load the certificates of the hook port; None if it uses plain HTTP."""
    if not settings.tls_cert_file:
        return None
    files = Files(
        NamedFile("--tls-cert-file", settings.tls_cert_file),
        NamedFile("--tls-private-key-file", settings.tls_private_key_file),
        NamedFile("--client-ca-file", settings.client_ca_file),
    )
    return PortCertificates("hooks", files, ClientNames(settings.client_name))


def operations_certificates(settings: Settings) -> PortCertificates | None:
    """Load the certificates of the operations port; None if it uses plain HTTP."""
    if not settings.ops_tls_cert_file:
        return None
    files = Files(
        NamedFile("--ops-tls-cert-file", settings.ops_tls_cert_file),
        NamedFile("--ops-tls-private-key-file", settings.ops_tls_private_key_file),
    )
    return PortCertificates("operations", files)


class PortCertificates:
    """The certificates of one port, from the last files that were valid."""

    def __init__(
        self,
        port: str,
        files: Files,
        client_names: ClientNames | None = None,
        now: Callable[[], float] = time.time,
        reload_s: float = RELOAD_S,
    ) -> None:
        self.port = port
        #: How often to call `reload`.
        self.reload_s = reload_s
        self.client_names = client_names
        #: Why the current files are not in force, in one sentence; empty if they are.
        self.refusal = ""
        self._files = files
        self._now = now
        self._stamps = self._read_stamps()
        self._checked = check_files(files, now())
        self._context = build(files, self._checked, client_names)

    @property
    def problem(self) -> str:
        """Return what must be fixed; empty if nothing."""
        if self.refusal:
            return self.refusal
        for file, at in self.expiries().items():
            if at <= self._now():
                return f"{file}: expired at {timestamp(at)}; renew it"
        return ""

    def expiries(self) -> dict[NamedFile, float]:
        """Return the expiry of each file in force."""
        ends = {self._files.certificate: self._checked.not_after}
        if self._files.client_ca is not None:
            ends[self._files.client_ca] = self._checked.client_ca_not_after
        return ends

    def show_in(self, metrics: Metrics) -> None:
        """Register the state of the certificates and the refusals in *metrics*."""
        metrics.certificate_refused.labels(self.port).set_function(lambda: bool(self.refusal))
        for file in self.expiries():
            expiry = metrics.certificate_expiry.labels(file.flag.removeprefix("--"))
            expiry.set_function(lambda file=file: self.expiries()[file])  # type: ignore[misc]
        if self.client_names is not None:
            init_labels(metrics.tls_refused, *((reason,) for reason in REASONS))
            self.client_names.counter = metrics.tls_refused

    def in_force(self) -> ssl.SSLContext:
        """Return the context for new connections."""
        return self._context

    def context(self) -> ReloadingContext:
        """Return a context for a server that always delegates to the one in force."""
        context = ReloadingContext(ssl.PROTOCOL_TLS_SERVER)
        context.current = self.in_force
        return context

    def reload(self) -> bool:
        """Load changed files if they are valid; return whether to wait until they stop changing."""
        stamps = self._read_stamps()
        if stamps == self._stamps and not self.refusal:
            return False
        try:
            checked = check_files(self._files, self._now())
            context = build(self._files, checked, self.client_names)
        except InvalidConfiguration as error:
            self._reject(str(error))
            return False
        if self._read_stamps() != stamps:
            return True  # they changed while they were read
        self._use(stamps, checked, context)
        return False

    def _use(self, stamps: list[Stamp], checked: Checked, context: ssl.SSLContext) -> None:
        self._stamps, self._checked, self._context = stamps, checked, context
        self.refusal = ""
        event(
            log,
            logging.INFO,
            "certificates reloaded",
            port=self.port,
            expires=timestamp(checked.not_after),
        )

    def _reject(self, problem: str) -> None:
        if problem != self.refusal:
            event(
                log,
                logging.ERROR,
                "certificates kept: the new files cannot be used",
                port=self.port,
                why=problem,
            )
        self.refusal = problem

    def _read_stamps(self) -> list[Stamp]:
        return [_stamp(each) for each in self._files]


def _stamp(file: NamedFile) -> Stamp:
    try:
        path = os.path.realpath(file.path)
        stat = os.stat(path)
    except OSError:
        return None
    return path, stat.st_ino, stat.st_mtime_ns, stat.st_size
