"""How TLS is spoken: versions, verification, and the word of the guard at the end of a handshake.

Python lets a context name the class of its connections. Ours learns there what no server tells:
why a handshake failed; and refuses a wrong name there, before any byte of HTTP is read.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from extender.errors import BadConfiguration
from extender.tls.files import Checked, Files
from extender.tls.guard import Guard


class GuardedContext(ssl.SSLContext):
    """One set of certificates and whom it lets in."""

    guard: Guard | None = None


class GuardedConnection(ssl.SSLObject):
    """One connection before its first byte of HTTP."""

    def do_handshake(self) -> None:
        """Shake hands, then look at the name."""
        context = self.context
        guard = context.guard if isinstance(context, GuardedContext) else None
        try:
            super().do_handshake()
            if guard is not None and context.verify_mode is ssl.CERT_REQUIRED:
                guard.admit(self.getpeercert())
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if guard is not None:
                guard.refused(error)
            raise


class ChangingContext(ssl.SSLContext):
    """Stands for whatever context is in force when a connection comes.

    A live context can be given more authorities but none can be taken from it; so a new one takes
    its place, and connections that are open keep theirs.
    """

    current: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection with the context in force."""
        return self.current().wrap_bio(*arguments, **options)


def changing(current: Callable[[], ssl.SSLContext]) -> ChangingContext:
    """Make a context for an event loop's server; *current* gives the one in force."""
    context = ChangingContext(ssl.PROTOCOL_TLS_SERVER)
    context.current = current
    return context


def build(files: Files, checked: Checked, guard: Guard | None) -> ssl.SSLContext:
    """Make a context from files that were checked; a complaint of OpenSSL is our error."""
    context = GuardedContext(ssl.PROTOCOL_TLS_SERVER)
    context.guard = guard
    context.sslobject_class = GuardedConnection
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
        raise BadConfiguration(
            f"{files.certificate} and {files.key}: OpenSSL cannot use them: {error.strerror}"
        ) from error
    return context


def _no_passphrase() -> str:
    """Keep OpenSSL from asking the terminal."""
    return ""
