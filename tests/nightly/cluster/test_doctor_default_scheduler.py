"""`gang-extender doctor` on the overlay `default-scheduler`: every problem is reported."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from extender.tls.issue import Authority
from tests.cluster.api import Object
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for

from .default_deployment import DefaultDeployment
from .doctor_cluster import (
    CONFIG_FILE,
    DoctorCluster,
    Setting,
    arguments,
    assert_named,
    changed,
    with_options,
)


@pytest.fixture(scope="module")
def alone(behind: DefaultDeployment) -> DoctorCluster:
    behind.made.shell.type("kubectl apply -k manifests/admission")
    file = behind.made.shell.home / CONFIG_FILE
    file.write_text(behind.config)
    return DoctorCluster(behind.made, "gang-extender", [f"--scheduler-config={file}"])


def filed(change: Callable[[Object, Path], object]) -> Setting:
    """Edit the configuration file of the cluster's own kube-scheduler."""

    @contextmanager
    def setting(cluster: DoctorCluster) -> Iterator[None]:
        file = cluster.made.shell.home / CONFIG_FILE
        before = file.read_text()
        document = yaml.safe_load(before)
        change(document, cluster.made.shell.home)
        file.write_text(yaml.safe_dump(document))
        try:
            yield
        finally:
            file.write_text(before)

    return setting


def in_tls(change: Callable[[Object, Path], object]) -> Setting:
    def change_all(document: Object, home: Path) -> None:
        for each in document["extenders"]:
            change(each["tlsConfig"], home)

    return filed(change_all)


def _secret(content: Callable[[Path], bytes]) -> Setting:
    """Replace the certificate in the Secret of the hooks."""

    @contextmanager
    def setting(cluster: DoctorCluster) -> Iterator[None]:
        encoded = base64.b64encode(content(cluster.made.shell.home)).decode()

        def change(secret: Object) -> None:
            secret["data"]["tls.crt"] = encoded

        with changed(cluster, "secrets", "gang-extender-tls", change, EXTENDER_NAMESPACE):
            yield

    return setting


def _nearly_expired(_: Path) -> bytes:
    then = datetime.now(UTC) - timedelta(days=360)
    return Authority.new("old", 3650).for_server(["x"], 365, then).certificate


def _other_authority(tls: Object, home: Path) -> None:
    (home / "other.crt").write_bytes(Authority.new("other", 10).pair.certificate)
    tls["caFile"] = str(home / "other.crt")


def _other_client(tls: Object, home: Path) -> None:
    pair = Authority.new("other", 10).for_client("system:kube-scheduler", 10)
    (home / "other.crt").write_bytes(pair.certificate)
    tls["certFile"] = str(home / "other.crt")


#: Readers are authenticated. (Beside a kube-scheduler this problem cannot occur: its permissions
#: include token reviews.)
_AUTHENTICATED_READERS = (
    "--ops-auth=tokenreview",
    "--ops-tls-cert-file=/tls/tls.crt",
    "--ops-tls-private-key-file=/tls/tls.key",
)

#: Problems of this deployment.
PROBLEMS: dict[str, Setting] = {
    "CAMissing": in_tls(lambda tls, _: tls.pop("caFile")),
    "NoClientCertificate": in_tls(lambda tls, _: (tls.pop("certFile"), tls.pop("keyFile"))),
    "CertificateExpires": _secret(_nearly_expired),
    "CertificateUntrusted": in_tls(_other_authority),
    "CertificateWrongName": in_tls(lambda tls, _: tls.update(serverName="another.example")),
    "CallerRefused": in_tls(_other_client),
    "CertificateUnreadable": _secret(lambda _: b"no certificate"),
    "TokenReviewForbidden": arguments(*_AUTHENTICATED_READERS),
}


def test_doctor_finds_nothing_in_the_overlay(alone: DoctorCluster) -> None:
    wait_for(alone.is_healthy, 60, "doctor finds nothing", seeing=alone.run, every_s=1)


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_is_reported(alone: DoctorCluster, name: str) -> None:
    assert_named(alone, name, PROBLEMS[name])


def test_missing_scheduler_configuration_is_reported_as_not_checked(alone: DoctorCluster) -> None:
    with with_options(alone, flags=[]):
        code, document = alone.run()

    assert code == 2
    assert document["found"] == []
    (missed,) = document["not_checked"]
    assert "give it with --scheduler-config" in missed["why"]
