"""Allowed client names, and the metrics and log lines of refused ones."""

from __future__ import annotations

import logging
import ssl

import pytest

from extender.metrics import Metrics
from extender.tls.server import ClientNames, NameNotAllowed, names_of, reason_of
from tests.series import value

SCHEDULER = {"subject": ((("commonName", "system:kube-scheduler"),),)}


def test_the_common_name_and_alternative_names_of_people_and_hosts_count() -> None:
    certificate = {
        "subject": ((("organizationName", "system:masters"),), (("commonName", "a"),)),
        "subjectAltName": (
            ("DNS", "b"),
            ("URI", "spiffe://c"),
            ("email", "d@e"),
            ("IP Address", "10.0.0.1"),
            ("othername", "<unsupported>"),
        ),
    }

    assert names_of(certificate) == {"a", "b", "spiffe://c", "d@e"}


@pytest.mark.parametrize("certificate", [{}, None, {"subject": ((("commonName", "kubelet"),),)}])
def test_a_certificate_without_an_allowed_name_is_refused(certificate: dict | None) -> None:
    with pytest.raises(NameNotAllowed, match="no --client-name allows"):
        ClientNames(["system:kube-scheduler"]).check(certificate)


def test_a_certificate_with_one_allowed_name_is_accepted() -> None:
    ClientNames(["x", "system:kube-scheduler"]).check(SCHEDULER)


def test_a_name_is_compared_exactly() -> None:
    for name in ("system:kube", "SYSTEM:KUBE-SCHEDULER", "*", "system:kube-scheduler "):
        with pytest.raises(NameNotAllowed):
            ClientNames([name]).check(SCHEDULER)


def failed(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "it failed")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "no_certificate"),
        ("HTTP_REQUEST", "not_tls"),
        ("UNSUPPORTED_PROTOCOL", "old_tls"),
        ("TLSV1_ALERT_UNKNOWN_CA", "caller_refused_us"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "caller_refused_us"),
        ("LENGTH_MISMATCH", "other"),
    ],
)
def test_each_tls_error_has_one_of_a_few_reasons(reason: str, word: str) -> None:
    assert reason_of(failed(reason)) == word


def test_every_refusal_is_counted_and_one_a_minute_is_logged_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    now, metrics = [100.0], Metrics()
    guard = ClientNames(["x"], monotonic=lambda: now[0])
    guard.counter = metrics.tls_refused

    for _ in range(3):
        guard.refused(failed("HTTP_REQUEST"))
    guard.refused(NameNotAllowed("the certificate has another name"))
    now[0] += 61
    guard.refused(failed("HTTP_REQUEST"))

    counted = [value(metrics, "tls_refused_total", reason=each) for each in ("not_tls", "name")]
    assert counted == [4, 1]
    told = [(each.facts["reason"], each.facts.get("unsaid", 0)) for each in caplog.records]  # type: ignore[attr-defined]
    assert told == [("not_tls", 0), ("name", 0), ("not_tls", 2)]
