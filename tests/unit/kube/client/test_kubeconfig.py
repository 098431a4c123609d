from __future__ import annotations

import json
import ssl
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.errors import InvalidInput
from extender.kube import config
from extender.tls.issue import Authority

# The client reads these once, when it is imported.
SERVICE_ACCOUNT = "kubernetes.config.incluster_config"


@pytest.fixture(autouse=True)
def _nothing_around_us(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def write(path: Path, user: dict[str, Any] | None = None, **cluster: Any) -> str:
    """A kubeconfig of one cluster and one user."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://api:8080/sub/", **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.mark.parametrize(
    ("server", "host", "port", "prefix"),
    [
        ("http://api:8080/sub/", "api", 8080, "/sub"),
        ("https://api", "api", 443, ""),
        ("http://api", "api", 80, ""),
        ("https://[::1]:6443", "::1", 6443, ""),
    ],
)
def test_the_server_url_is_parsed(
    tmp_path: Path, server: str, host: str, port: int, prefix: str
) -> None:
    endpoint = config.read(write(tmp_path / "k", {"token": "secret"}, server=server))

    assert (endpoint.host, endpoint.port, endpoint.prefix) == (host, port, prefix)
    assert (endpoint.tls is not None, endpoint.token()) == ("https" in server, "Bearer secret")


def test_another_context_is_another_cluster_with_its_own_user(tmp_path: Path) -> None:
    path = write(tmp_path / "k", {"token": "secret"})
    document = yaml.safe_load(Path(path).read_text())
    document["contexts"].append({"name": "there", "context": {"cluster": "d", "user": "v"}})
    document["clusters"].append({"name": "d", "cluster": {"server": "http://there:8080"}})
    (tmp_path / "token").write_text("of-a-file")
    document["users"].append({"name": "v", "user": {"tokenFile": str(tmp_path / "token")}})
    Path(path).write_text(yaml.safe_dump(document))

    endpoint = config.read(path, "there")
    (tmp_path / "token").write_text("renewed")

    assert (endpoint.host, endpoint.token()) == ("there", "Bearer renewed")
    assert config.read(path).host == "api"


def test_a_missing_context_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere"):
        config.read(write(tmp_path / "k"), "nowhere")


@pytest.mark.parametrize(
    ("said", "mode", "name"),
    [
        ({}, ssl.CERT_REQUIRED, "10.0.0.1"),
        ({"insecure-skip-tls-verify": True}, ssl.CERT_NONE, "10.0.0.1"),
        ({"tls-server-name": "kubernetes"}, ssl.CERT_REQUIRED, "kubernetes"),
    ],
)
def test_the_certificate_and_its_name_are_checked_as_the_file_says(
    tmp_path: Path, said: dict[str, Any], mode: ssl.VerifyMode, name: str
) -> None:
    endpoint = config.read(write(tmp_path / "k", server="https://10.0.0.1", **said))

    assert endpoint.tls is not None
    assert (endpoint.tls.verify_mode, endpoint.server_name) == (mode, name)


def test_the_argument_wins_over_the_environment_and_the_environment_over_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argument = write(tmp_path / "argument", server="http://argument")
    environment = write(tmp_path / "environment", server="http://environment")
    write(tmp_path / "home" / ".kube" / "config", server="http://home")

    assert config.read().host == "home"

    monkeypatch.setenv("KUBECONFIG", environment)

    assert config.read().host == "environment"
    assert config.read(argument).host == "argument"


def test_several_files_in_the_environment_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write(tmp_path / "first", server="http://first")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path / 'missing'}")

    assert config.read().host == "first"


def test_in_a_pod_its_service_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend_to_be_a_pod(tmp_path, monkeypatch)
    with pytest.raises(InvalidInput, match="certificates of the service account"):
        config.read()  # the certificate authority in the file is invalid; the rest was found


def _pretend_to_be_a_pod(
    folder: Path, monkeypatch: pytest.MonkeyPatch, authority: bytes = b"no certificate"
) -> None:
    (folder / "token").write_text("pod-token")
    (folder / "ca.crt").write_bytes(authority)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(f"{SERVICE_ACCOUNT}.SERVICE_TOKEN_FILENAME", str(folder / "token"))
    monkeypatch.setattr(f"{SERVICE_ACCOUNT}.SERVICE_CERT_FILENAME", str(folder / "ca.crt"))


def test_a_pod_without_a_service_account_gets_a_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(f"{SERVICE_ACCOUNT}.SERVICE_TOKEN_FILENAME", "/does/not/exist")

    with pytest.raises(InvalidInput, match="the service account of this pod cannot be used"):
        config.read()


def test_a_token_in_a_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    endpoint = config.read(write(tmp_path / "k", {"tokenFile": str(token)}))
    before = endpoint.token()
    token.write_text("second")

    assert (before, endpoint.token()) == ("Bearer first", "Bearer second")


def test_a_program_may_supply_the_token(tmp_path: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-a-program"},
    }
    program = {
        "apiVersion": credential["apiVersion"],
        "command": sys.executable,
        "args": ["-c", f"print('''{json.dumps(credential)}''')"],
    }
    endpoint = config.read(write(tmp_path / "k", {"exec": program}))

    assert endpoint.token() == "Bearer from-a-program"


def test_a_program_that_supplies_nothing_is_named(tmp_path: Path) -> None:
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false"}

    with pytest.raises(InvalidInput, match="its exec plugin gave no credentials"):
        config.read(write(tmp_path / "k", {"exec": program}))


def test_a_user_may_have_a_name_and_a_password(tmp_path: Path) -> None:
    endpoint = config.read(write(tmp_path / "k", {"username": "me", "password": "secret"}))

    assert endpoint.token() == "Basic bWU6c2VjcmV0"


@pytest.mark.parametrize(
    "token",
    ["se\ncret", "se\r\nX-Evil: cret", "se cret", "se\x00cret", "se\x7fcret", "se\u20accret"],
)
def test_a_token_that_cannot_be_sent_is_refused_and_never_quoted(
    tmp_path: Path, token: str
) -> None:
    endpoint = config.read(write(tmp_path / "k", {"token": token}))

    with pytest.raises(InvalidInput, match="cannot be sent; write it again") as caught:
        endpoint.token()

    assert "cret" not in "".join(traceback.format_exception(caught.value))


def test_a_line_break_at_the_end_of_a_token_is_not_part_of_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")

    assert config.read(write(tmp_path / "k", {"tokenFile": str(token)})).token() == (
        "Bearer secret"
    )


def test_a_service_account_token_with_a_line_break_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend_to_be_a_pod(tmp_path, monkeypatch, Authority.new("our CA", 9).pair.certificate)
    (tmp_path / "token").write_text("pod-\ntoken\n")

    with pytest.raises(InvalidInput, match="a line break"):
        config.read().token()


def test_a_service_account_token_that_is_not_text_is_refused_at_start_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend_to_be_a_pod(tmp_path, monkeypatch, Authority.new("our CA", 9).pair.certificate)
    endpoint = config.read()
    (tmp_path / "token").write_bytes(b"\xff\xfe")

    with pytest.raises(InvalidInput, match="the service account of this pod cannot be used"):
        config.read()
    assert endpoint.token() == "bearer pod-token"


def test_a_user_without_credentials_sends_none(tmp_path: Path) -> None:
    assert config.read(write(tmp_path / "k")).token() is None


def test_a_missing_kubeconfig_is_named_with_the_correction(tmp_path: Path) -> None:
    missing = tmp_path / "missing"

    with pytest.raises(InvalidInput, match=f"kubeconfig {missing} does not exist; name one"):
        config.read(str(missing))


@pytest.mark.parametrize(
    "text",
    ["", "- 1\n", "just words", "{", "kind: Config\n", "current-context: nowhere\ncontexts: []\n"],
)
def test_a_file_that_is_no_kubeconfig_gets_a_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k"
    path.write_text(text)

    with pytest.raises(InvalidInput, match=f"kubeconfig {path} ") as caught:
        config.read(str(path))

    assert "\n" not in str(caught.value)


def test_a_proxy_in_the_kubeconfig_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "k", **{"proxy-url": "http://proxy:3128"})

    with pytest.raises(InvalidInput, match="sets a proxy, which is not supported"):
        config.read(path)


def test_proxies_of_the_environment_are_not_used_for_the_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")

    assert config.read(write(tmp_path / "k")).host == "api"


def test_a_broken_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    path = write(
        tmp_path / "k", server="https://api", **{"certificate-authority": str(tmp_path / "ca.crt")}
    )

    with pytest.raises(InvalidInput, match=r"the certificates of kubeconfig .* cannot be loaded"):
        config.read(path)


def test_a_server_that_is_not_a_url_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no usable server URL"):
        config.read(write(tmp_path / "k", server="ftp://api"))
