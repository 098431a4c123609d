"""Every way in which certificate files are unusable has its own error."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from extender.errors import InvalidConfiguration
from extender.tls.certificates import check_files
from extender.tls.issue import Authority, Pair
from extender.tls.server import build, hook_certificates, operations_certificates
from tests.certificates import HOSTS, NAME, Wallet, days_ago, odd_authority


@pytest.fixture
def wallet(tmp_path: Path) -> Wallet:
    return Wallet(tmp_path)


def encrypted(key: bytes) -> bytes:
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


def nameless() -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "old-fashioned")])
    signed = x509.CertificateBuilder(
        name, name, key.public_key(), 7, days_ago(1), days_ago(-1)
    ).sign(key, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Pair(signed.public_bytes(serialization.Encoding.PEM), private)


def on_a_strange_curve(pem: bytes) -> bytes:
    """Return the same in PEM, on an unknown curve."""
    first, *lines, last = pem.strip().split(b"\n")
    content = b64decode(b"".join(lines))
    usual, strange = bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d030106")
    assert usual in content
    return b"\n".join((first, b64encode(content.replace(usual, strange)), last, b""))


def test_valid_files_have_an_expiry_time(wallet: Wallet) -> None:
    checked = check_files(wallet.files)

    assert checked.not_after == pytest.approx(time.time() + 20 * 86400, abs=60)
    assert checked.client_ca_not_after == pytest.approx(time.time() + 30 * 86400, abs=60)


Spoiling = Callable[[Wallet], object]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            lambda w: (w.folder / "tls.crt").unlink(),
            r"--tls-cert-file \S+/tls.crt: cannot be read: No such file or directory",
        ),
        (
            lambda w: (w.folder / "ca.crt").unlink() or (w.folder / "ca.crt").mkdir(),
            r"--client-ca-file \S+/ca.crt: cannot be read: Is a directory",
        ),
        (
            lambda w: w.write("tls.crt", b""),
            r"--tls-cert-file \S+: is not PEM; a line -----BEGIN CERTIFICATE----- is expected",
        ),
        (
            lambda w: w.write("tls.crt", b"-----BEGIN X509 CRL-----\n"),
            r"--tls-cert-file \S+: contains no certificate; ",
        ),
        (
            lambda w: w.write("tls.crt", (w.folder / "tls.key").read_bytes()),
            r"--tls-cert-file \S+: is a private key; a certificate is expected here",
        ),
        (
            lambda w: w.write("tls.crt", (w.folder / "tls.crt").read_bytes()[:300]),
            r"--tls-cert-file \S+: contains a certificate that is damaged or truncated",
        ),
        (
            lambda w: w.write("tls.key", b"\x30\x82"),
            r"--tls-private-key-file \S+: is not PEM; a line -----BEGIN PRIVATE KEY----- ",
        ),
        (
            lambda w: w.write("tls.key", b"-----BEGIN PUBLIC KEY-----\n"),
            r"--tls-private-key-file \S+: contains no private key; ",
        ),
        (
            lambda w: w.write("tls.key", (w.folder / "tls.crt").read_bytes()),
            r"--tls-private-key-file \S+: is a certificate; its private key is expected here",
        ),
        (
            lambda w: w.write("tls.key", (w.folder / "tls.key").read_bytes()[:90]),
            r"--tls-private-key-file \S+: contains a private key that is damaged or truncated",
        ),
        (
            lambda w: w.write("tls.key", encrypted((w.folder / "tls.key").read_bytes())),
            r"--tls-private-key-file \S+: is encrypted, and a server cannot ask",
        ),
        (
            lambda w: w.write("tls.key", w.authority.for_server(HOSTS, 1).key),
            r"--tls-private-key-file \S+: does not belong to the certificate in \S+/tls.crt; use",
        ),
        (
            lambda w: w.show(w.authority.for_server(HOSTS, 1, days_ago(3))),
            r"--tls-cert-file \S+: expired at 20\S+Z; renew it",
        ),
        (
            lambda w: w.show(w.authority.for_server(HOSTS, 9, days_ago(-3))),
            r"--tls-cert-file \S+: is valid only from 20\S+Z on; check the clock",
        ),
        (
            lambda w: w.show(w.authority.for_client(NAME, 1)),
            r"--tls-cert-file \S+: is not for servers; its extended key usage must have serverAuth",
        ),
        (
            lambda w: w.show(nameless()),
            r"--tls-cert-file \S+: has no subjectAltName, and kube-scheduler accepts no other",
        ),
        (
            lambda w: w.write("ca.crt", w.authority.for_client(NAME, 1).certificate),
            r"--client-ca-file \S+: contains a certificate that may not sign others \(CN=system:ku",
        ),
        (
            lambda w: w.write("ca.crt", nameless().certificate),
            r"--client-ca-file \S+: contains a certificate that may not sign others \(CN=old-fash",
        ),
        (
            lambda w: w.write("ca.crt", Authority.new("was", 1, days_ago(3)).pair.certificate),
            r"--client-ca-file \S+: expired at 20\S+Z; renew it",
        ),
        (
            lambda w: w.write("ca.crt", odd_authority()),
            r"--client-ca-file \S+: cannot be parsed \(.+\); issue it again without",
        ),
        (
            lambda w: w.write("tls.crt", on_a_strange_curve((w.folder / "tls.crt").read_bytes())),
            r"--tls-cert-file \S+: cannot be parsed \(.*not supported\); issue it again",
        ),
        (
            lambda w: w.write("tls.key", on_a_strange_curve((w.folder / "tls.key").read_bytes())),
            r"--tls-private-key-file \S+: cannot be parsed \(.*not supported\); issue it again",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence_with_its_flag(
    wallet: Wallet, spoil: Spoiling, sentence: str
) -> None:
    check_files(wallet.files)

    spoil(wallet)

    with pytest.raises(InvalidConfiguration, match=f"^{sentence}") as refusal:
        check_files(wallet.files)
    assert "\n" not in str(refusal.value)


def test_a_bundle_may_contain_an_expired_authority_beside_a_valid_one(
    wallet: Wallet,
) -> None:
    old = Authority.new("was", 1, days_ago(3)).pair.certificate
    wallet.write("ca.crt", old + wallet.authority.pair.certificate)

    assert check_files(wallet.files).client_ca.count(b"BEGIN CERTIFICATE") == 2


def test_an_error_that_only_openssl_finds_names_the_files(wallet: Wallet) -> None:
    checked = check_files(wallet.files)
    wallet.write("tls.key", wallet.authority.for_server(HOSTS, 1).key)  # a moment after the check

    with pytest.raises(
        InvalidConfiguration, match=r"^--tls-cert-file .* OpenSSL cannot use them: "
    ):
        build(wallet.files, checked, None)


def test_settings_name_the_files_of_each_port(wallet: Wallet) -> None:
    made = hook_certificates(wallet.settings)

    assert made is not None
    assert [*made.expiries()] == [wallet.files.certificate, wallet.files.client_ca]
    assert operations_certificates(wallet.settings) is None
