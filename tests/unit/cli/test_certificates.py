"""The generated certificates work for the hook port and for kube-scheduler."""

from __future__ import annotations

import base64
import ssl
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from cryptography import x509

from extender.cli.main import main
from extender.tls.certificates import Files, NamedFile, check_files
from extender.tls.server import ClientNames, PortCertificates

NAMES = {f"{name}.{end}" for name in ("ca", "server", "client") for end in ("crt", "key")}


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["certificates", f"--directory={folder}", *arguments])


def make(folder: Path, *arguments: str) -> str:
    result = run(folder, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def files(folder: Path) -> Files:
    return Files(
        NamedFile("--tls-cert-file", str(folder / "server.crt")),
        NamedFile("--tls-private-key-file", str(folder / "server.key")),
        NamedFile("--client-ca-file", str(folder / "ca.crt")),
    )


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def shake_hands(folder: Path, host: str) -> ssl.SSLObject:
    """Connect kube-scheduler with the hooks in memory; return its end."""
    certificates = PortCertificates("hooks", files(folder), ClientNames(["system:kube-scheduler"]))
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "client.crt", folder / "client.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=host)
    server = certificates.context().wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(8):
        for each in tuple(waiting):
            try:
                each.do_handshake()
                waiting.remove(each)
            except ssl.SSLWantReadError:
                pass
    assert waiting == []
    return client


@pytest.mark.parametrize(
    "host", ["gang-extender.gang-system.svc", "gang-extender", "127.0.0.1", "10.96.0.77", "other"]
)
def test_the_certificates_work_for_server_and_client(tmp_path: Path, host: str) -> None:
    folder = tmp_path / "deep" / "down"
    assert make(folder, "--host=10.96.0.77", "--host=other") == ""

    assert {path.name for path in folder.iterdir()} == NAMES
    assert check_files(files(folder)).client_ca
    assert shake_hands(folder, host).version() == "TLSv1.3"


def test_only_the_owner_can_read_the_keys(tmp_path: Path) -> None:
    make(tmp_path)

    for key in tmp_path.glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_existing_files_are_not_overwritten(tmp_path: Path) -> None:
    make(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    result = run(tmp_path)

    assert result.exit_code == 2
    assert "already has ca.crt, ca.key, server.crt" in result.output
    assert result.output.count("\n") == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_force_replaces_everything(tmp_path: Path) -> None:
    make(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    make(tmp_path, "--force")

    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())


def test_renew_keeps_the_ca_and_replaces_both_certificates(tmp_path: Path) -> None:
    make(tmp_path, "--days=1")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    make(tmp_path, "--renew", "--days=100")

    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {name for name in NAMES if before[name] == after[name]}
    assert kept == {"ca.crt", "ca.key"}
    shake_hands(tmp_path, "localhost")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "ca.key").unlink(), "--renew needs the CA's pair"),
        (lambda folder: (folder / "ca.key").write_text("x"), "cannot be read as PEM"),
        (
            lambda folder: (folder / "client.key").replace(folder / "ca.key"),
            "the CA's key does not belong to its certificate",
        ),
    ],
)
def test_an_unusable_ca_is_refused_in_one_line(tmp_path: Path, spoil: object, words: str) -> None:
    make(tmp_path)
    spoil(tmp_path)  # type: ignore[operator]

    result = run(tmp_path, "--renew")

    assert (result.exit_code, result.output.count("\n")) == (2, 1)
    assert words in result.output


def test_the_client_certificate_has_the_given_name_and_is_for_clients_only(tmp_path: Path) -> None:
    make(tmp_path, "--client-name=me")

    made = certificate(tmp_path / "client.crt")
    assert made.subject.rfc4514_string() == "CN=me"
    purposes = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert purposes == x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH])


def test_secrets_contain_all_files_but_the_key_of_the_ca(
    tmp_path: Path,
) -> None:
    printed = make(tmp_path, "--kubernetes-secrets", "--namespace=here")

    secrets = list(yaml.safe_load_all(printed))
    names = [(each["metadata"]["name"], each["metadata"]["namespace"]) for each in secrets]
    assert names == [("gang-extender-tls", "here"), ("gang-extender-client", "here")]
    for each, word in zip(secrets, ("server", "client"), strict=True):
        assert each["type"] == "kubernetes.io/tls"
        held = {key: base64.b64decode(value) for key, value in each["data"].items()}
        assert held == {
            "ca.crt": (tmp_path / "ca.crt").read_bytes(),
            "tls.crt": (tmp_path / f"{word}.crt").read_bytes(),
            "tls.key": (tmp_path / f"{word}.key").read_bytes(),
        }
