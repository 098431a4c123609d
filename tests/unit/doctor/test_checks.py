"""Every check finds its problem, and none finds one in a good cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from extender.doctor.checks import KNOWN, run_checks
from extender.doctor.facts import (
    Check,
    Clocks,
    ClusterFacts,
    Problem,
    Readiness,
    RunningScheduler,
    Severity,
)
from extender.findings import namespaces, queues
from extender.settings import Settings
from extender.tls.issue import Authority
from extender.web.documents import Finding

from .cases import (
    ANOTHER,
    ASKING,
    AUTHORITY,
    CASES,
    CONFIG,
    GOOD,
    HERE,
    HOOKS,
    LEASE,
    NOW,
    SERVER,
    called,
    configured,
    deployed,
    entry,
    kind,
    secured,
    with_settings,
)

CHECKS = [check for checks in KNOWN.values() for check in checks]
HINTS = {
    "IgnorableFilter", "PrioritizeNotCalled", "CRDOutdated", "NoAdmissionPolicies",
    "ClockSkewHere",
}  # fmt: skip
AHEAD_S = timedelta(days=400).total_seconds()
DEFAULT = Settings(scheduler_name=("default-scheduler",), lease="own")
OLD_CA = Authority.new("old", 30, NOW - timedelta(days=90)).pair.certificate


def names(seen: ClusterFacts) -> list[str]:
    return [each.check.name for each in run_checks(seen)]


def only(seen: ClusterFacts) -> Problem:
    (found,) = run_checks(seen)
    return found


def hooked(**facts: Any) -> ClusterFacts:
    return replace(GOOD, hooks=(replace(HOOKS, **facts),))


def calling(**facts: Any) -> ClusterFacts:
    return replace(GOOD, callers=(replace(ASKING, **facts),))


def shown(days: int, **ago: int) -> ClusterFacts:
    """The good cluster with a certificate of the hooks that was made some time ago."""
    return hooked(
        certificate=AUTHORITY.for_server([SERVER], days, NOW - timedelta(**ago)).certificate
    )


def serving_default(priority_class: str, *exempt: str) -> ClusterFacts:
    """An extender of the cluster's own scheduler, which schedules the extender too."""
    found = with_settings(
        {**CONFIG, "profiles": [{"schedulerName": "default-scheduler"}]},
        replace(DEFAULT, exempt_namespace=exempt),
    )
    (each,) = found.installed or ()
    return replace(found, installed=(replace(each, priority_class=priority_class),))


def with_another(**entry: Any) -> ClusterFacts:
    """The good cluster, and an entry of another extender."""
    return configured(lambda told: told["extenders"].append({"filterVerb": "f", **entry}))


def at_default_port() -> ClusterFacts:
    found = called("http://127.0.0.1")
    found.configurations[0].document["extenders"].append(
        {"urlPrefix": "http://gpu.example", "filterVerb": "f"}
    )
    return found


def test_every_check_has_exactly_one_case() -> None:
    assert sorted(CASES) == sorted(check.name for check in CHECKS)


@pytest.mark.parametrize("name", CASES)
def test_each_case_fails_exactly_its_check_and_names_place_and_remedy(name: str) -> None:
    assert set(names(CASES[name])) == {name}
    for each in run_checks(CASES[name]):
        assert each.where
        assert each.seen
        assert each.mend
        assert each.check.severity is (Severity.HINT if name in HINTS else Severity.PROBLEM)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_name_of_a_check_is_one_word_and_its_texts_fit_a_table_cell(check: Check) -> None:
    assert re.fullmatch(r"(CA|CRD)?([A-Z][a-z]+)+", check.name)
    for text in (check.meaning, check.mend):
        assert text
        assert "\n" not in text
        assert not text.endswith(".")


#: Further causes, and what is no problem: facts, and the checks that fail.
MORE: dict[str, tuple[ClusterFacts, list[str]]] = {
    "a cluster without problems": (GOOD, []),
    "nothing was collected": (ClusterFacts(clocks=Clocks(here=HERE)), []),
    **{
        f"a timeout of {text}": (entry(1, httpTimeout=text), ["BindTimeoutShort"])
        for text in ("5s", "44.9s", "0.5m", "30000ms")
    },
    **{
        f"a timeout of {text}": (entry(1, httpTimeout=text), [])
        for text in ("45s", "45.5s", "1m", "1m0.5s", "1h")
    },
    "enableHTTPS of a plain URL": (
        called("http://10.0.0.7:8888", enableHTTPS=True), ["PlainHttp"] * 2,
    ),
    "loopback with a secret": (called("http://hooks:hush-hush@127.0.0.1:8888"), []),
    "https": (secured(), []),
    "insecure https": (secured(insecure=True), ["CAMissing"] * 2),
    "another extender": (with_another(urlPrefix="http://gpu.example:80", ignorable=True), []),
    "another extender at the default port": (at_default_port(), []),
    "loopback by name": (entry(0, urlPrefix="http://localhost:8888"), []),
    "loopback by name, misconfigured": (
        entry(0, urlPrefix="http://[::1]:8888/v1", nodeCacheCapable=False), ["NodeCacheOff"],
    ),
    "a critical extender of the default scheduler": (
        serving_default("system-cluster-critical"), [],
    ),
    "an exempt extender of the default scheduler": (serving_default("mine", "gang-system"), []),
    "an extender that waits for itself": (serving_default("mine"), ["ExtenderSchedulesItself"]),
    "no replicas": (deployed(replicas=0, pods=()), ["NoStandby"]),
    "no lease": (replace(GOOD, leases=(LEASE._replace(exists=False),)), ["NoLeader"]),
    "a released lease": (replace(GOOD, leases=(LEASE._replace(holder=""),)), ["NoLeader"]),
    "a lease of the future": (
        replace(GOOD, leases=(LEASE._replace(renewed=HERE + 60),)), ["ClockSkew"],
    ),
    "a wrong clock here": (
        replace(GOOD, clocks=Clocks(here=HERE + AHEAD_S, api_server_s=-AHEAD_S)),
        ["ClockSkewHere"],
    ),
    "a sixth of a day left": (shown(1, hours=22), ["CertificateExpires"]),
    "half of a day left": (shown(1, hours=12), []),
    "an expired CA beside the valid one": (
        replace(
            hooked(client_ca=OLD_CA + AUTHORITY.pair.certificate),
            callers=(replace(ASKING, ca=OLD_CA + AUTHORITY.pair.certificate),),
        ),
        [],
    ),
    "a caller of another CA": (
        calling(certificate=ANOTHER.for_client("system:kube-scheduler", 365, NOW).certificate),
        ["CallerRefused"],
    ),
    "files of a caller that cannot be read": (calling(ca=None, certificate=None), []),
    "a CRD that preserves unknown fields": (
        replace(GOOD, kinds=(kind("podgroups", fields=None), kind("queues"))), [],
    ),
    "a problem that is finding and note": (
        replace(
            GOOD,
            findings=(Finding("Policy", "file", "Refused", "file: no such plugin"),),
            readiness=Readiness("ops", True, ("policy: file: no such plugin",)),
        ),
        ["Refused"],
    ),
    "a hint and a problem": (
        replace(CASES["NoAdmissionPolicies"], server_gates=frozenset({"GenericWorkload"})),
        ["NativeGangs", "NoAdmissionPolicies"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("about", MORE)
def test_other_causes_and_what_is_no_problem(about: str) -> None:
    facts, expected = MORE[about]

    assert names(facts) == expected


def test_a_configuration_without_profiles_is_for_the_default_scheduler() -> None:
    found = serving_default("system-cluster-critical")
    found.configurations[0].document.pop("profiles")

    assert names(found) == []


def test_the_timeout_is_compared_with_the_settings_of_the_called_extender() -> None:
    caught = only(configured(lambda config: None, hold_s=60.0, bind_timeout_s=75.0))

    assert caught.check.name == "BindTimeoutShort"
    assert "httpTimeout: 75s" in caught.mend
    assert "--hold-s is 60" in caught.seen


def test_the_secret_in_a_url_is_never_printed() -> None:
    caught = str(run_checks(called("http://hooks:hush-hush@10.0.0.7:8888")))

    assert "http://10.0.0.7:8888" in caught
    assert "hush" not in caught


def test_a_ca_that_expires_before_its_certificates_is_found_on_both_sides() -> None:
    brief = Authority.new("ca", 30, NOW - timedelta(days=29))
    ca, server = brief.pair.certificate, brief.for_server([SERVER], 365, NOW).certificate
    client = brief.for_client("system:kube-scheduler", 365, NOW).certificate
    caller = replace(ASKING, ca=ca, certificate=client)
    seen = replace(hooked(certificate=server, client_ca=ca), callers=(caller,))

    assert [(each.check.name, each.where) for each in run_checks(seen)] == [
        ("CertificateExpires", "extenders[0], tlsConfig.caFile"),
        ("CertificateExpires", "the CA of callers beside tls.crt"),
    ]


def test_a_certificate_that_expired_says_when() -> None:
    assert only(shown(1, hours=72)).seen == "it expired at 2026-11-14T12:00:00Z"


def test_only_an_enabled_feature_gate_of_a_scheduler_is_a_problem() -> None:
    gates = {"GangScheduling": True, "GenericWorkload": False}
    caught = only(replace(GOOD, schedulers=(RunningScheduler("pod/x", gates),)))

    assert caught.where == "pod/x"
    assert caught.mend == "write `--feature-gates=GangScheduling=false` into its command"


@pytest.mark.parametrize(
    "reason", [*queues.REASONS, *namespaces.REASONS["Queue"], *namespaces.REASONS["Namespace"]]
)
def test_a_finding_of_the_extender_is_a_problem_with_its_reason(reason: str) -> None:
    finding = Finding("Queue", "team", reason, "queue team is odd; write it so")
    caught = only(replace(GOOD, findings=(finding,)))

    assert (caught.check.name, caught.check.severity) == (reason, Severity.PROBLEM)
    assert (caught.where, caught.seen) == ("Queue/team", "queue team is odd")
    assert caught.mend == "write it so"


def test_a_note_about_unprotected_credentials_is_the_same_check() -> None:
    note = "credentials: kubeconfig k checks no certificate; name its CA"
    caught = only(replace(GOOD, readiness=Readiness("ops", True, (note,))))

    assert (caught.check.name, caught.where) == ("CredentialsUnprotected", "ops")
    assert (caught.seen, caught.mend) == ("kubeconfig k checks no certificate", "name its CA")
