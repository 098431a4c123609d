"""Unprotected credentials get a warning, and no key is left in a file."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import ssl
import sys
import tempfile
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
from extender.tls.issue import Authority
from tests.unit.kube.client.test_kubeconfig import write

AUTHORITY = Authority.new("the cluster's CA", 9)
ME = AUTHORITY.for_client("me", 9)
UNCHECKED = {"insecure-skip-tls-verify": True}


def coded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


KEYS = {"client-certificate-data": coded(ME.certificate), "client-key-data": coded(ME.key)}
CHECKED = {"certificate-authority-data": coded(AUTHORITY.pair.certificate)}


@pytest.mark.parametrize(
    ("user", "cluster", "expected"),
    [
        ({"token": "secret"}, {"server": "http://api"}, "sends its token over http"),
        ({"username": "me", "password": "secret"}, {"server": "http://api"}, "over http"),
        ({"token": "secret"}, {"server": "https://api", **UNCHECKED}, "insecure-skip-tls-verify"),
        (KEYS, {"server": "https://api", **UNCHECKED}, "checks no certificate"),
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


@pytest.fixture
def no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Set the folder for temporary files, and make each attempt to create one fail."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a key would lie in a file")

    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    return folder


def exec_plugin() -> dict[str, Any]:
    """A program that gives a certificate and its key."""
    version = "client.authentication.k8s.io/v1"
    status = {"clientCertificateData": ME.certificate.decode(), "clientKeyData": ME.key.decode()}
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    script = f"import json; print({json.dumps(json.dumps(credential))})"
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": ["-c", script]}}


@pytest.mark.parametrize("user", [KEYS, exec_plugin()], ids=["data", "a program"])
def test_keys_of_a_kubeconfig_are_never_written_to_a_file(
    tmp_path: Path, no_files: Path, user: dict[str, Any]
) -> None:
    path = write(tmp_path / "k", user, server="https://api", **CHECKED)
    before = os.listdir("/proc/self/fd")

    endpoint = config.read(path)

    assert endpoint.tls is not None
    assert endpoint.tls.verify_mode is ssl.CERT_REQUIRED
    assert [each["subject"] for each in endpoint.tls.get_ca_certs()] == [
        ((("commonName", "the cluster's CA"),),)
    ]
    assert os.listdir(no_files) == []
    assert os.listdir("/proc/self/fd") == before, "nothing stays open"


def test_invalid_keys_leave_no_file_behind(tmp_path: Path, no_files: Path) -> None:
    user = {**KEYS, "client-key-data": coded(b"no key")}
    before = os.listdir("/proc/self/fd")

    with pytest.raises(InvalidInput, match="the certificates of kubeconfig"):
        config.read(write(tmp_path / "k", user, server="https://api", **CHECKED))

    assert os.listdir("/proc/self/fd") == before


def test_without_memory_files_a_key_is_in_a_file_only_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    made: list[Any] = []
    make = tempfile.NamedTemporaryFile
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", lambda: made.append(make()) or made[-1])

    endpoint = config.read(write(tmp_path / "k", KEYS, server="https://api", **CHECKED))

    assert endpoint.tls is not None
    assert len(made) == 3
    assert os.listdir(tmp_path / "tmp") == []
