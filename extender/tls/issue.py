"""Issue certificates for clusters without a CA: a CA, a server and a client certificate.

Keys are P-256: the handshake is the most expensive part of a call on a new connection, and an RSA
signature would cost many times as much.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from extender.errors import InvalidInput

#: Clocks differ a little between the machine that signs and those that verify.
_BACKDATED = timedelta(minutes=5)
#: The maximum length of a common name in X.509.
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its key, both in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Signs certificates; its key is used for nothing else."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def new(cls, name: str, days: float, now: datetime | None = None) -> Authority:
        """Return a new self-signed authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _certificate(name, name, key, days, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, pair: Pair) -> Authority:
        """Return an authority that was written to files."""
        try:
            certificate = x509.load_pem_x509_certificate(pair.certificate)
            key = serialization.load_pem_private_key(pair.key, password=None)
        except (ValueError, TypeError) as error:
            raise InvalidInput("the CA's certificate and key cannot be read as PEM") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InvalidInput("the CA's key was not issued here: it is not on an elliptic curve")
        if key.public_key() != certificate.public_key():
            raise InvalidInput("the CA's key does not belong to its certificate")
        return cls(certificate, key)

    @property
    def pair(self) -> Pair:
        """Return the certificate and its key."""
        return _pair(self._certificate, self._key)

    def for_server(self, hosts: Sequence[str], days: float, now: datetime | None = None) -> Pair:
        """Issue a server certificate; *hosts* are names and addresses, the first also its CN."""
        names = x509.SubjectAlternativeName([_host(each) for each in hosts])
        return self._sign(hosts[0], ExtendedKeyUsageOID.SERVER_AUTH, days, now, names)

    def for_client(self, name: str, days: float, now: datetime | None = None) -> Pair:
        """Issue a client certificate; *name* is its CN."""
        return self._sign(name, ExtendedKeyUsageOID.CLIENT_AUTH, days, now)

    def _sign(
        self,
        name: str,
        purpose: x509.ObjectIdentifier,
        days: float,
        now: datetime | None,
        names: x509.SubjectAlternativeName | None = None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0]
        authority = self._key.public_key()
        builder = (
            _certificate(name, str(issuer.value), key, days, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False
            )
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return _pair(builder.sign(self._key, hashes.SHA256()), key)


def _certificate(
    name: str, issuer: str, key: ec.EllipticCurvePrivateKey, days: float, now: datetime | None
) -> x509.CertificateBuilder:
    now = now or datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(_common_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _common_name(name: str) -> x509.Name:
    if not 0 < len(name) <= _LONGEST_NAME:
        raise InvalidInput(
            f"{name!r} cannot be the name of a certificate; use 1 to {_LONGEST_NAME} characters"
        )
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not text.isascii() or not text.strip() or set(text) & set(" /:@"):
        raise InvalidInput(
            f"--host {text!r} is neither a DNS name nor an IP address; leave the port out"
        )
    return x509.DNSName(text)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
