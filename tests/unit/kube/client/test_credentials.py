"""Unprotected credentials get a warning, and keys are in no file of others."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extender.cache.cluster import Cluster
from extender.errors import InvalidInput
from extender.kube import config
from extender.kube.client import ApiClient
from extender.kube.live import live_cluster
from extender.metrics import Metrics
from extender.ports import AlwaysLeader
from extender.settings import Settings
from extender.sim.clock import VirtualClock
from extender.tls.issue import Authority, Pair
from tests.unit.kube.client.test_kubeconfig import write

AUTHORITY = Authority.new("the cluster's CA", 9)
ME = AUTHORITY.for_client("me", 9)
UNCHECKED = {"insecure-skip-tls-verify": True}


def coded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def keys(pair: Pair) -> dict[str, Any]:
    return {
        "client-certificate-data": coded(pair.certificate),
        "client-key-data": coded(pair.key),
    }


CHECKED = {"certificate-authority-data": coded(AUTHORITY.pair.certificate)}


@pytest.mark.parametrize(
    ("user", "cluster", "expected"),
    [
        ({"token": "secret"}, {"server": "http://api"}, "sends its token over http"),
        ({"username": "me", "password": "secret"}, {"server": "http://api"}, "over http"),
        ({"token": "secret"}, {"server": "https://api", **UNCHECKED}, "insecure-skip-tls-verify"),
        (keys(ME), {"server": "https://api", **UNCHECKED}, "checks no certificate"),
    ],
)
def test_unprotected_credentials_are_named_with_the_correction(
    tmp_path: Path, user: dict[str, str], cluster: dict[str, Any], expected: str
) -> None:
    path = write(tmp_path / "k", user, **cluster)
    (warning,) = ApiClient.load(path).warnings

    assert warning.startswith(f"kubeconfig {path} ")
    assert expected in warning
    assert "; " in warning
    assert "secret" not in warning


@pytest.mark.parametrize(
    ("user", "cluster"),
    [({}, {"server": "http://api"}), ({"token": "secret"}, {"server": "https://api", **CHECKED})],
)
def test_protected_or_absent_credentials_get_no_warning(
    tmp_path: Path, user: dict[str, str], cluster: dict[str, Any]
) -> None:
    assert ApiClient.load(write(tmp_path / "k", user, **cluster)).warnings == ()


def test_unprotected_credentials_are_in_the_log_and_in_the_notes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "k", {"token": "secret"}, server="http://127.0.0.1:1")
    clock = VirtualClock()

    async def notes() -> list[str]:
        loop = asyncio.get_running_loop()
        settings = Settings(kubeconfig=path)
        ports = live_cluster(settings, loop, clock, Cluster(clock), Metrics(), AlwaysLeader())
        await ports.aclose()
        return ports.notes()

    (note,) = asyncio.run(notes())
    (warned,) = [each for each in caplog.records if each.levelno == logging.WARNING]

    assert warned.getMessage() == "credentials unprotected"
    assert note.startswith(f"credentials: kubeconfig {path} sends its token over http")


def exec_plugin(pair: Pair) -> dict[str, Any]:
    """A program that gives a certificate and its key."""
    version = "client.authentication.k8s.io/v1"
    status = {
        "clientCertificateData": pair.certificate.decode(),
        "clientKeyData": pair.key.decode(),
    }
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    script = f"import json; print({json.dumps(json.dumps(credential))})"
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": ["-c", script]}}


@pytest.mark.parametrize("user_with", [keys, exec_plugin])
def test_keys_of_a_kubeconfig_are_in_files_of_our_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user_with: Callable[[Pair], dict[str, Any]]
) -> None:
    user = user_with(AUTHORITY.for_client("another", 9))
    made: list[Path] = []
    make = tempfile.mkstemp

    def mkstemp(**options: Any) -> tuple[int, str]:
        number, name = make(**options)
        made.append(Path(name))
        return number, name

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    endpoint = config.read(write(tmp_path / "k", user, server="https://api", **CHECKED))

    assert endpoint.tls is not None
    assert endpoint.tls.verify_mode is ssl.CERT_REQUIRED
    assert [each["subject"] for each in endpoint.tls.get_ca_certs()] == [
        ((("commonName", "the cluster's CA"),),)
    ]
    assert {stat.S_IMODE(each.parent.stat().st_mode) for each in made} == {0o700}


def test_invalid_keys_are_named(tmp_path: Path) -> None:
    user = {**keys(ME), "client-key-data": coded(b"no key")}

    with pytest.raises(InvalidInput, match="the certificates of kubeconfig"):
        config.read(write(tmp_path / "k", user, server="https://api", **CHECKED))
