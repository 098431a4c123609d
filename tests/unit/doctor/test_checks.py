"""Every check finds its problem, and none finds one in a good cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from extender.doctor.checks import KNOWN, run_checks
from extender.doctor.facts import (
    Check,
    Clocks,
    ClusterFacts,
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
    INSTALLED,
    LEASE,
    NOW,
    SERVER,
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


def names(seen: ClusterFacts) -> list[str]:
    return [each.check.name for each in run_checks(seen)]


def test_a_cluster_without_problems_has_none() -> None:
    assert run_checks(GOOD) == []


def test_facts_that_were_not_collected_are_no_problem() -> None:
    assert run_checks(ClusterFacts(clocks=Clocks(here=HERE))) == []


def test_every_check_has_exactly_one_case() -> None:
    assert sorted(CASES) == sorted(check.name for check in CHECKS)


@pytest.mark.parametrize("name", CASES)
def test_each_case_fails_exactly_its_check(name: str) -> None:
    assert set(names(CASES[name])) == {name}


@pytest.mark.parametrize("name", CASES)
def test_every_problem_says_where_what_and_the_remedy(name: str) -> None:
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


# Checks with more than one cause


@pytest.mark.parametrize("timeout", ["5s", "44.9s", "0.5m", "30000ms"])
def test_a_timeout_shorter_than_the_extenders_is_too_short(timeout: str) -> None:
    assert names(entry(1, httpTimeout=timeout)) == ["BindTimeoutShort"]


@pytest.mark.parametrize("timeout", ["45s", "45.5s", "1m", "1m0.5s", "1h"])
def test_a_timeout_as_long_as_the_extenders_is_long_enough(timeout: str) -> None:
    assert names(entry(1, httpTimeout=timeout)) == []


def test_the_timeout_is_compared_with_the_settings_of_the_called_extender() -> None:
    longer = configured(lambda config: None, hold_s=60.0, bind_timeout_s=75.0)

    (caught,) = run_checks(longer)
    assert caught.check.name == "BindTimeoutShort"
    assert "httpTimeout: 75s" in caught.mend
    assert "--hold-s is 60" in caught.seen


def test_enable_https_with_an_http_url_is_still_plain_http() -> None:
    def change(config: dict[str, list[dict[str, object]]]) -> None:
        for each in config["extenders"]:
            each.update(urlPrefix="http://10.0.0.7:8888", enableHTTPS=True)

    assert names(configured(change)) == ["PlainHttp", "PlainHttp"]


def test_the_secret_in_a_url_is_never_printed() -> None:
    def change(config: dict[str, list[dict[str, object]]]) -> None:
        for each in config["extenders"]:
            each.update(urlPrefix="http://hooks:hush-hush@10.0.0.7:8888")

    caught = [*run_checks(configured(change))]
    assert "http://10.0.0.7:8888" in str(caught)
    assert "hush" not in str(caught)


def test_a_loopback_url_with_a_secret_is_recognised_as_loopback() -> None:
    def change(config: dict[str, list[dict[str, object]]]) -> None:
        for each in config["extenders"]:
            each.update(urlPrefix="http://hooks:hush-hush@127.0.0.1:8888")

    assert names(configured(change)) == []


def test_an_insecure_tls_config_counts_as_a_missing_ca() -> None:
    assert set(names(secured(insecure=True))) == {"CAMissing"}
    assert names(secured()) == []


def test_another_extender_is_not_checked() -> None:
    def change(config: dict[str, list[dict[str, object]]]) -> None:
        config["extenders"].append(
            {"urlPrefix": "http://gpu.example:80", "filterVerb": "f", "ignorable": True}
        )

    assert names(configured(change)) == []


@pytest.mark.parametrize("filters_at", ["http://localhost:8888", "http://[::1]:8888/v1"])
def test_an_entry_with_another_spelling_of_the_same_address_is_checked(filters_at: str) -> None:
    assert names(entry(0, urlPrefix=filters_at)) == []
    assert names(entry(0, urlPrefix=filters_at, nodeCacheCapable=False)) == ["NodeCacheOff"]


def test_default_http_ports_do_not_identify_an_entry() -> None:
    def change(config: dict[str, list[dict[str, object]]]) -> None:
        for each in config["extenders"]:
            each["urlPrefix"] = "http://127.0.0.1"
        config["extenders"].append({"urlPrefix": "http://gpu.example", "filterVerb": "f"})

    assert names(configured(change)) == []


def test_a_configuration_without_profiles_is_for_the_default_scheduler() -> None:
    def change(config: dict[str, object]) -> None:
        del config["profiles"]

    found = configured(change, scheduler_name=("default-scheduler",))
    assert names(replace(found, installed=tuple(
        replace(each, priority_class="system-cluster-critical") for each in found.installed or ()
    ))) == []  # fmt: skip


def test_with_the_default_scheduler_a_critical_priority_class_is_enough() -> None:
    served = replace(
        INSTALLED.settings or Settings(), scheduler_name=("default-scheduler",), lease="own"
    )
    config = {**CONFIG, "profiles": [{"schedulerName": "default-scheduler"}]}
    found = with_settings(config, served)
    (each,) = found.installed or ()

    assert names(found) == []
    ordinary = replace(each, priority_class="")
    (caught,) = run_checks(replace(found, installed=(ordinary,)))
    assert caught.check.name == "ExtenderSchedulesItself"
    assert "priorityClassName: system-cluster-critical" in caught.mend


def test_zero_replicas_are_no_standby() -> None:
    assert names(deployed(replicas=0, pods=())) == ["NoStandby"]


def test_a_missing_or_released_lease_means_no_leader() -> None:
    for lease in (LEASE._replace(exists=False), LEASE._replace(holder="")):
        assert names(replace(GOOD, leases=(lease,))) == ["NoLeader"]


def test_an_extender_in_an_exempt_namespace_does_not_schedule_itself() -> None:
    for exempt, expected in (((), ["ExtenderSchedulesItself"]), (("gang-system",), [])):
        served = replace(Settings(scheduler_name=("default-scheduler",)), exempt_namespace=exempt)
        alone = deployed(settings=served, priority_class="mine", replicas=1)
        assert [each for each in names(alone) if each == "ExtenderSchedulesItself"] == expected


def test_a_lease_renewed_in_the_future_is_clock_skew() -> None:
    ahead = replace(GOOD, leases=(LEASE._replace(renewed=HERE + 60),))

    assert names(ahead) == ["ClockSkew"]


def test_a_wrong_local_clock_expires_no_lease_and_no_certificate() -> None:
    ahead_s = timedelta(days=400).total_seconds()
    found = replace(GOOD, clocks=Clocks(here=HERE + ahead_s, api_server_s=-ahead_s))

    assert names(found) == ["ClockSkewHere"]


def test_a_short_certificate_expires_soon_when_a_sixth_is_left() -> None:
    for hours, expected in ((22, ["CertificateExpires"]), (12, [])):
        made = AUTHORITY.for_server([SERVER], 1, NOW - timedelta(hours=hours)).certificate
        assert names(replace(GOOD, hooks=(replace(HOOKS, certificate=made),))) == expected


def test_a_ca_that_expires_before_its_certificates_is_found_on_both_sides() -> None:
    brief = Authority.new("ca", 30, NOW - timedelta(days=29))
    shown = brief.for_server([SERVER], 365, NOW).certificate
    held = brief.for_client("system:kube-scheduler", 365, NOW).certificate
    ca = brief.pair.certificate
    seen = replace(
        GOOD,
        hooks=(replace(HOOKS, certificate=shown, client_ca=ca),),
        callers=(replace(ASKING, ca=ca, certificate=held),),
    )

    assert [(each.check.name, each.where) for each in run_checks(seen)] == [
        ("CertificateExpires", "extenders[0], tlsConfig.caFile"),
        ("CertificateExpires", "the CA of callers beside tls.crt"),
    ]


def test_an_expired_ca_next_to_the_valid_one_is_no_problem() -> None:
    old = Authority.new("old", 30, NOW - timedelta(days=90)).pair.certificate
    both = old + AUTHORITY.pair.certificate
    seen = replace(
        GOOD, hooks=(replace(HOOKS, client_ca=both),), callers=(replace(ASKING, ca=both),)
    )

    assert names(seen) == []


def test_a_certificate_that_expired_says_when() -> None:
    made = AUTHORITY.for_server([SERVER], 1, NOW - timedelta(days=3)).certificate
    (caught,) = run_checks(replace(GOOD, hooks=(replace(HOOKS, certificate=made),)))

    assert caught.seen == "it expired at 2026-11-14T12:00:00Z"


def test_a_caller_signed_by_another_ca_is_a_problem() -> None:
    made = ANOTHER.for_client("system:kube-scheduler", 365, NOW).certificate

    assert names(replace(GOOD, callers=(replace(ASKING, certificate=made),))) == ["CallerRefused"]


def test_unreadable_files_of_a_caller_are_no_problem() -> None:
    assert names(replace(GOOD, callers=(replace(ASKING, ca=None, certificate=None),))) == []


def test_only_an_enabled_feature_gate_of_a_scheduler_is_a_problem() -> None:
    on = RunningScheduler("pod/x", {"GangScheduling": True, "GenericWorkload": False})
    (caught,) = run_checks(replace(GOOD, schedulers=(on,)))

    assert caught.where == "pod/x"
    assert caught.mend == "write `--feature-gates=GangScheduling=false` into its command"


def test_a_crd_that_preserves_unknown_fields_misses_none() -> None:
    assert names(replace(GOOD, kinds=(kind("podgroups", fields=None), kind("queues")))) == []


@pytest.mark.parametrize(
    "reason", [*queues.REASONS, *namespaces.REASONS["Queue"], *namespaces.REASONS["Namespace"]]
)
def test_a_finding_of_the_extender_is_a_problem_with_its_reason(reason: str) -> None:
    finding = Finding("Queue", "team", reason, "queue team is odd; write it so")
    (caught,) = run_checks(replace(GOOD, findings=(finding,)))

    assert caught.check.name == reason
    assert caught.check.severity is Severity.PROBLEM
    assert (caught.where, caught.seen, caught.mend) == (
        "Queue/team", "queue team is odd", "write it so",
    )  # fmt: skip


def test_a_problem_that_is_finding_and_note_is_named_once() -> None:
    finding = Finding("Policy", "file", "Refused", "file: no such plugin")
    found = replace(
        GOOD,
        findings=(finding,),
        readiness=Readiness("ops", True, ("policy: file: no such plugin",)),
    )

    assert names(found) == ["Refused"]


def test_a_note_about_unprotected_credentials_is_the_same_check() -> None:
    note = "credentials: kubeconfig k checks no certificate; name its CA"
    (caught,) = run_checks(replace(GOOD, readiness=Readiness("ops", True, (note,))))

    assert caught.check.name == "CredentialsUnprotected"
    assert (caught.where, caught.seen, caught.mend) == (
        "ops", "kubeconfig k checks no certificate", "name its CA",
    )  # fmt: skip


def test_problems_come_before_hints() -> None:
    found = replace(CASES["NoAdmissionPolicies"], server_gates=frozenset({"GenericWorkload"}))

    assert names(found) == ["NativeGangs", "NoAdmissionPolicies"]
