"""Certificates for tests, valid and invalid, in files."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID

from extender.settings import Settings
from extender.tls.certificates import Files, NamedFile
from extender.tls.issue import Authority, Pair

NAME = "system:kube-scheduler"
HOSTS = ("localhost", "127.0.0.1")


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def below(root: Authority, name: str) -> Authority:
    """Make an authority that another one signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(root.pair.certificate)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begins, ends = days_ago(1), days_ago(-9)
    told = x509.CertificateBuilder(issuer.subject, subject, key.public_key(), 8, begins, ends)
    for each in issuer.extensions:  # those of an authority
        if not isinstance(each.value, x509.SubjectKeyIdentifier):
            told = told.add_extension(each.value, each.critical)
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    signer = serialization.load_pem_private_key(root.pair.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    return Authority(told.add_extension(own, critical=False).sign(signer, hashes.SHA256()), key)


def odd_authority() -> bytes:
    """Make a CA that OpenSSL takes, with an extension that others cannot read."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, days_ago(1), days_ago(-1))
    odd = x509.UnrecognizedExtension(ExtensionOID.NAME_CONSTRAINTS, b"\xff\xff")
    signed = builder.add_extension(odd, critical=False).sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


@dataclass(slots=True)
class Wallet:
    """A directory with the files of the hook port, and pairs for its clients."""

    folder: Path
    authority: Authority = field(default_factory=lambda: Authority.new("our CA", days=30))

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.write("ca.crt", self.authority.pair.certificate)
        self.show(self.authority.for_server(HOSTS, days=20))

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def show(self, pair: Pair) -> None:
        """Replace the pair of the server."""
        self.write("tls.crt", pair.certificate)
        self.write("tls.key", pair.key)

    @property
    def files(self) -> Files:
        return Files(
            NamedFile("--tls-cert-file", str(self.folder / "tls.crt")),
            NamedFile("--tls-private-key-file", str(self.folder / "tls.key")),
            NamedFile("--client-ca-file", str(self.folder / "ca.crt")),
        )

    @property
    def settings(self) -> Settings:
        return Settings(**self.options)

    @property
    def options(self) -> dict[str, str]:
        return {
            "tls_cert_file": str(self.folder / "tls.crt"),
            "tls_private_key_file": str(self.folder / "tls.key"),
            "client_ca_file": str(self.folder / "ca.crt"),
        }

    def client(
        self, pair: Pair | None = None, *, trusts: Authority | None = None
    ) -> ssl.SSLContext:
        """Return the TLS context of a client; without a *pair* it sends no certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusted = (trusts or self.authority).pair.certificate
        context.load_verify_locations(cadata=trusted.decode())
        if pair is not None:
            certificate = self.write("caller.crt", pair.certificate)
            context.load_cert_chain(certificate, self.write("caller.key", pair.key))
        return context

    def kube_scheduler(self) -> ssl.SSLContext:
        """Return the TLS context of kube-scheduler."""
        return self.client(self.authority.for_client(NAME, days=5))
