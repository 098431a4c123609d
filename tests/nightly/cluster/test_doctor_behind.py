"""`gang-extender doctor` where our overlay runs behind the cluster's own scheduler."""

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

from .behind import Behind
from .patients import CONFIG_FILE, Patient, Set, arguments, as_asked, changed, is_named


@pytest.fixture(scope="module")
def alone(behind: Behind) -> Patient:
    behind.made.shell.type("kubectl apply -k manifests/admission")
    file = behind.made.shell.home / CONFIG_FILE
    file.write_text(behind.config)
    return Patient(behind.made, "gang-extender", [f"--scheduler-config={file}"])


def filed(change: Callable[[Object, Path], object]) -> Set:
    """Edit the file of the cluster's own kube-scheduler."""

    @contextmanager
    def setting(patient: Patient) -> Iterator[None]:
        file = patient.made.shell.home / CONFIG_FILE
        before = file.read_text()
        document = yaml.safe_load(before)
        change(document, patient.made.shell.home)
        file.write_text(yaml.safe_dump(document))
        try:
            yield
        finally:
            file.write_text(before)

    return setting


def in_tls(change: Callable[[Object, Path], object]) -> Set:
    def change_all(document: Object, home: Path) -> None:
        for each in document["extenders"]:
            change(each["tlsConfig"], home)

    return filed(change_all)


def _secret(content: Callable[[Path], bytes]) -> Set:
    """Put another certificate into the Secret of the hooks."""

    @contextmanager
    def setting(patient: Patient) -> Iterator[None]:
        told = base64.b64encode(content(patient.made.shell.home)).decode()

        def change(secret: Object) -> None:
            secret["data"]["tls.crt"] = told

        with changed(patient, "secrets", "gang-extender-tls", change, EXTENDER_NAMESPACE):
            yield

    return setting


def _nearly_expired(_: Path) -> bytes:
    then = datetime.now(UTC) - timedelta(days=360)
    return Authority.new("old", 3650).for_server(["x"], 365, then).certificate


def _strange_authority(tls: Object, home: Path) -> None:
    (home / "strange.crt").write_bytes(Authority.new("strange", 10).pair.certificate)
    tls["caFile"] = str(home / "strange.crt")


def _strange_caller(tls: Object, home: Path) -> None:
    pair = Authority.new("strange", 10).for_client("system:kube-scheduler", 10)
    (home / "strange.crt").write_bytes(pair.certificate)
    tls["certFile"] = str(home / "strange.crt")


#: Readers are asked who they are; by what certificate they are met is nothing to this trap. (Beside
#: a kube-scheduler that trap cannot be set: whoever has its rights may ask.)
_ASKED_READERS = (
    "--ops-auth=tokenreview",
    "--ops-tls-cert-file=/tls/tls.crt",
    "--ops-tls-private-key-file=/tls/tls.key",
)

#: Behind the cluster's own scheduler.
BEHIND: dict[str, Set] = {
    "CAMissing": in_tls(lambda tls, _: tls.pop("caFile")),
    "NoClientCertificate": in_tls(lambda tls, _: (tls.pop("certFile"), tls.pop("keyFile"))),
    "CertificateExpires": _secret(_nearly_expired),
    "CertificateUntrusted": in_tls(_strange_authority),
    "CertificateWrongName": in_tls(lambda tls, _: tls.update(serverName="another.example")),
    "CallerRefused": in_tls(_strange_caller),
    "CertificateUnreadable": _secret(lambda _: b"no certificate"),
    "TokenReviewForbidden": arguments(*_ASKED_READERS),
}


def test_nothing_is_named_where_our_overlay_runs_behind_the_scheduler(alone: Patient) -> None:
    wait_for(alone.is_well, 60, "doctor finds nothing", seeing=alone.ask, every_s=1)


@pytest.mark.parametrize("name", BEHIND)
def test_a_trap_that_is_set_behind_the_scheduler_is_named(alone: Patient, name: str) -> None:
    is_named(alone, name, BEHIND[name])


def test_without_the_file_of_its_scheduler_the_look_is_called_incomplete(alone: Patient) -> None:
    with as_asked(alone, flags=[]):
        code, told = alone.ask()

    assert code == 2
    assert told["found"] == []
    (missed,) = told["not_checked"]
    assert "give it with --scheduler-config" in missed["why"]
