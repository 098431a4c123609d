"""`gang-extender certificates` and `pair`: certificates and secrets of hooks and their callers."""

from __future__ import annotations

import base64
import ssl
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner, Result
from cryptography import x509

from extender.cli.main import main
from extender.tls import hook_secret
from extender.tls.certificates import Files, NamedFile, check_files
from extender.tls.server import ClientNames, PortCertificates
from tests.unit.cli.test_bad_input import SHIPPED

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


def run_pair(folder: Path, written: Path | str = SHIPPED, code: int = 0) -> str:
    words = ["pair", f"--scheduler-config={written}", f"--directory={folder}"]
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == code, ran.output
    return str(ran.output)


def configuration(folder: Path) -> Any:
    return yaml.safe_load((folder / "scheduler-config.yaml").read_text())


def test_both_containers_get_the_same_secret(tmp_path: Path) -> None:
    said = run_pair(tmp_path)
    told = hook_secret.read(str(tmp_path / "hook-secret"))

    urls = [each["urlPrefix"] for each in configuration(tmp_path)["extenders"]]
    assert urls == [f"http://hooks:{told.decode()}@127.0.0.1:8888"] * 2
    assert said == ""
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_only_the_urls_of_the_configuration_change(tmp_path: Path) -> None:
    run_pair(tmp_path)
    made, shipped = configuration(tmp_path), yaml.safe_load(Path(SHIPPED).read_text())
    for each in made["extenders"]:
        each["urlPrefix"] = hook_secret.masked(each["urlPrefix"])

    assert made == shipped


def test_a_second_run_keeps_the_secret_and_the_configuration(tmp_path: Path) -> None:
    run_pair(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    run_pair(tmp_path)

    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_secret_that_is_too_short_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "hook-secret").write_text("short")
    run_pair(tmp_path)

    assert len(hook_secret.read(str(tmp_path / "hook-secret"))) > 40


@pytest.mark.parametrize("elsewhere", ["http://10.0.0.9:8888", "https://127.0.0.1:8888"])
def test_urls_to_other_hosts_and_https_urls_do_not_get_the_secret(
    tmp_path: Path, elsewhere: str
) -> None:
    written = yaml.safe_load(Path(SHIPPED).read_text())
    written["extenders"][0]["urlPrefix"] = elsewhere
    file = tmp_path / "written.yaml"
    file.write_text(yaml.safe_dump(written))
    run_pair(tmp_path / "pair", file)

    first, second = configuration(tmp_path / "pair")["extenders"]
    assert first["urlPrefix"] == elsewhere
    assert urlsplit(second["urlPrefix"]).password


def test_a_configuration_without_an_extender_on_loopback_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "written.yaml"
    file.write_text("kind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: 'http://['}, 7]\n")

    assert "has no extender at http://127.0.0.1" in run_pair(tmp_path / "pair", file, code=2)


def test_a_configuration_that_expands_without_limit_is_refused_before_it_is_written(
    tmp_path: Path,
) -> None:
    lines = ["a0: &a0 [" + ", ".join(["x"] * 10) + "]"]
    lines += [f"a{n}: &a{n} [" + ", ".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 9)]
    bomb = tmp_path / "bomb.yaml"
    bomb.write_text("kind: KubeSchedulerConfiguration\n" + "\n".join(lines))

    said = run_pair(tmp_path / "shared", bomb, code=2)

    assert "its aliases (*name) repeat so much" in said
    assert not (tmp_path / "shared").exists()
