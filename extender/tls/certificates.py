"""Read and check certificate files; each problem is one sentence that names the file and the fix.

OpenSSL would find most problems at the first handshake, but its messages name neither.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID

from extender.clock import timestamp
from extender.errors import InvalidConfiguration

_BEGIN = b"-----BEGIN "


class NamedFile(NamedTuple):
    """A file and the flag that names it."""

    flag: str
    path: str

    def __str__(self) -> str:
        return f"{self.flag} {self.path}"


@dataclass(frozen=True, slots=True)
class Files:
    """The certificate files of one port; without *client_ca* clients need no certificate."""

    certificate: NamedFile
    key: NamedFile
    client_ca: NamedFile | None = None

    def __iter__(self) -> Iterator[NamedFile]:
        yield self.certificate
        yield self.key
        if self.client_ca is not None:
            yield self.client_ca


@dataclass(frozen=True, slots=True)
class Checked:
    """What was read from usable files: when they expire, and the CA that verifies clients."""

    not_after: float
    client_ca: bytes = b""
    client_ca_not_after: float = 0.0


def check_files(files: Files, now: float | None = None) -> Checked:
    """Read and check all files; `InvalidConfiguration` names the file and the fix."""
    now = time.time() if now is None else now
    with _translated(files.certificate):
        ours = _certificates(files.certificate)[0]
        _check_times(files.certificate, [ours], now)
        _check_purpose(files.certificate, ours)
        public = ours.public_key()
    with _translated(files.key):
        is_pair = _key(files.key).public_key() == public
    if not is_pair:
        raise InvalidConfiguration(
            f"{files.key}: does not belong to the certificate in {files.certificate.path};"
            " use a certificate and its own key"
        )
    not_after = ours.not_valid_after_utc.timestamp()
    if files.client_ca is None:
        return Checked(not_after)
    with _translated(files.client_ca):
        authorities = _certificates(files.client_ca)
        _check_authorities(files.client_ca, authorities)
        _check_times(files.client_ca, authorities, now)
    return Checked(
        not_after,
        b"".join(each.public_bytes(serialization.Encoding.PEM) for each in authorities),
        max(each.not_valid_after_utc.timestamp() for each in authorities),
    )


@contextmanager
def _translated(file: NamedFile) -> Iterator[None]:
    """Translate errors of the library, such as an unsupported kind of key or field."""
    try:
        yield
    except InvalidConfiguration:
        raise
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise InvalidConfiguration(
            f"{file}: cannot be parsed ({why}); issue it again without unusual features"
        ) from error


def _read(file: NamedFile) -> bytes:
    try:
        return Path(file.path).read_bytes()
    except OSError as error:
        raise InvalidConfiguration(f"{file}: cannot be read: {error.strerror}") from error


def _certificates(file: NamedFile) -> list[x509.Certificate]:
    content = _read(file)
    if b"CERTIFICATE-----" not in content:
        if b"PRIVATE KEY-----" in content:
            raise InvalidConfiguration(f"{file}: is a private key; a certificate is expected here")
        kind = "is not PEM" if _BEGIN not in content else "contains no certificate"
        raise InvalidConfiguration(
            f"{file}: {kind}; a line -----BEGIN CERTIFICATE----- is expected"
        )
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise InvalidConfiguration(
            f"{file}: contains a certificate that is damaged or truncated"
        ) from error


def _key(file: NamedFile) -> PrivateKeyTypes:
    content = _read(file)
    if b"PRIVATE KEY-----" not in content:
        if b"CERTIFICATE-----" in content:
            raise InvalidConfiguration(
                f"{file}: is a certificate; its private key is expected here"
            )
        kind = "is not PEM" if _BEGIN not in content else "contains no private key"
        raise InvalidConfiguration(
            f"{file}: {kind}; a line -----BEGIN PRIVATE KEY----- is expected"
        )
    try:
        return serialization.load_pem_private_key(content, password=None)
    except TypeError as error:
        raise InvalidConfiguration(
            f"{file}: is encrypted, and a server cannot ask for a passphrase; store it"
            " unencrypted where only the extender can read it"
        ) from error
    except ValueError as error:
        raise InvalidConfiguration(
            f"{file}: contains a private key that is damaged or truncated"
        ) from error


def _check_times(file: NamedFile, certificates: Sequence[x509.Certificate], now: float) -> None:
    """Refuse a file without a valid certificate; a CA bundle may still contain an expired one."""
    begins = min(each.not_valid_before_utc for each in certificates)
    ends = max(each.not_valid_after_utc for each in certificates)
    if ends.timestamp() <= now:
        raise InvalidConfiguration(f"{file}: expired at {_at(ends)}; renew it")
    if begins.timestamp() > now:
        raise InvalidConfiguration(
            f"{file}: is valid only from {_at(begins)} on; check the clock of this machine"
        )


def _check_purpose(file: NamedFile, ours: x509.Certificate) -> None:
    extensions = ours.extensions
    try:
        purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    allowed = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)
    if not any(each in purposes for each in allowed):
        raise InvalidConfiguration(
            f"{file}: is not for servers; its extended key usage must have serverAuth"
        )
    try:
        extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound as error:
        raise InvalidConfiguration(
            f"{file}: has no subjectAltName, and kube-scheduler accepts no other name"
        ) from error


def _check_authorities(file: NamedFile, certificates: Sequence[x509.Certificate]) -> None:
    for each in certificates:
        try:
            signs = each.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except x509.ExtensionNotFound:
            signs = False
        if not signs:
            raise InvalidConfiguration(
                f"{file}: contains a certificate that may not sign others"
                f" ({each.subject.rfc4514_string()}); use the CA that signs for kube-scheduler"
            )


def _at(moment: datetime) -> str:
    return timestamp(moment.timestamp())
