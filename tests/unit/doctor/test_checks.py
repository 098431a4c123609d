"""Every trap is named where it is set, and none where nothing is."""

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
    FindingFacts,
    Readiness,
    RunningScheduler,
    Severity,
)
from extender.findings import namespaces, queues
from extender.settings import Settings
from extender.tls.issue import Authority

from .cases import (
    ANOTHER,
    ASKING,
    AUTHORITY,
    CONFIG,
    GOOD,
    HERE,
    HOOKS,
    INSTALLED,
    LEASE,
    NOW,
    SERVER,
    SET,
    configured,
    deployed,
    entry,
    kind,
    secured,
    with_settings,
)

TRAPS = [trap for traps in KNOWN.values() for trap in traps]
HINTS = {
    "IgnorableFilter", "PrioritizeNotCalled", "CRDOutdated", "NoAdmissionPolicies",
    "ClockSkewHere",
}  # fmt: skip


def names(seen: ClusterFacts) -> list[str]:
    return [each.check.name for each in run_checks(seen)]


def test_nothing_is_named_where_nothing_is_set() -> None:
    assert run_checks(GOOD) == []


def test_nothing_is_named_where_nobody_looked() -> None:
    assert run_checks(ClusterFacts(clocks=Clocks(here=HERE))) == []


def test_every_trap_has_a_case_and_no_case_is_of_another() -> None:
    assert sorted(SET) == sorted(trap.name for trap in TRAPS)


@pytest.mark.parametrize("name", SET)
def test_a_trap_that_is_set_is_the_only_one_that_is_named(name: str) -> None:
    assert set(names(SET[name])) == {name}


@pytest.mark.parametrize("name", SET)
def test_who_is_caught_is_told_where_what_and_the_mend(name: str) -> None:
    for each in run_checks(SET[name]):
        assert each.where
        assert each.seen
        assert each.mend
        assert each.check.severity is (Severity.HINT if name in HINTS else Severity.PROBLEM)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_the_name_of_a_trap_is_one_word_and_its_texts_fit_into_a_table(trap: Check) -> None:
    assert re.fullmatch(r"(CA|CRD)?([A-Z][a-z]+)+", trap.name)
    for text in (trap.meaning, trap.mend):
        assert text
        assert "\n" not in text
        assert not text.endswith(".")


# One by one, where a case has more than one way in


@pytest.mark.parametrize("timeout", ["5s", "44.9s", "0.5m", "30000ms"])
def test_a_timeout_shorter_than_the_extenders_is_too_short(timeout: str) -> None:
    assert names(entry(1, httpTimeout=timeout)) == ["BindTimeoutShort"]


@pytest.mark.parametrize("timeout", ["45s", "45.5s", "1m", "1m0.5s", "1h"])
def test_a_timeout_as_long_as_the_extenders_is_long_enough(timeout: str) -> None:
    assert names(entry(1, httpTimeout=timeout)) == []


def test_the_timeout_is_compared_with_the_settings_of_the_extender_that_is_asked() -> None:
    longer = configured(lambda told: None, hold_s=60.0, bind_timeout_s=75.0)

    (caught,) = run_checks(longer)
    assert caught.check.name == "BindTimeoutShort"
    assert "httpTimeout: 75s" in caught.mend
    assert "--hold-s is 60" in caught.seen


def test_https_by_enable_https_alone_is_still_plain_http() -> None:
    def change(told: dict[str, list[dict[str, object]]]) -> None:
        for each in told["extenders"]:
            each.update(urlPrefix="http://10.0.0.7:8888", enableHTTPS=True)

    assert names(configured(change)) == ["PlainHttp", "PlainHttp"]


def test_the_secret_in_an_address_is_told_to_nobody() -> None:
    def change(told: dict[str, list[dict[str, object]]]) -> None:
        for each in told["extenders"]:
            each.update(urlPrefix="http://hooks:hush-hush@10.0.0.7:8888")

    caught = [*run_checks(configured(change))]
    assert "http://10.0.0.7:8888" in str(caught)
    assert "hush" not in str(caught)


def test_an_address_with_a_secret_is_on_loopback_where_its_host_is() -> None:
    def change(told: dict[str, list[dict[str, object]]]) -> None:
        for each in told["extenders"]:
            each.update(urlPrefix="http://hooks:hush-hush@127.0.0.1:8888")

    assert names(configured(change)) == []


def test_a_ca_that_need_not_be_right_is_none() -> None:
    assert set(names(secured(insecure=True))) == {"CAMissing"}
    assert names(secured()) == []


def test_an_extender_of_somebody_else_is_left_alone() -> None:
    def change(told: dict[str, list[dict[str, object]]]) -> None:
        told["extenders"].append(
            {"urlPrefix": "http://gpu.example:80", "filterVerb": "f", "ignorable": True}
        )

    assert names(configured(change)) == []


@pytest.mark.parametrize("filters_at", ["http://localhost:8888", "http://[::1]:8888/v1"])
def test_an_entry_that_has_another_word_for_the_same_port_is_ours(filters_at: str) -> None:
    assert names(entry(0, urlPrefix=filters_at)) == []
    assert names(entry(0, urlPrefix=filters_at, nodeCacheCapable=False)) == ["NodeCacheOff"]


def test_the_usual_ports_of_the_web_do_not_make_an_entry_ours() -> None:
    def change(told: dict[str, list[dict[str, object]]]) -> None:
        for each in told["extenders"]:
            each["urlPrefix"] = "http://127.0.0.1"
        told["extenders"].append({"urlPrefix": "http://gpu.example", "filterVerb": "f"})

    assert names(configured(change)) == []


def test_a_file_without_profiles_is_for_the_default_scheduler() -> None:
    def change(told: dict[str, object]) -> None:
        del told["profiles"]

    found = configured(change, scheduler_name=("default-scheduler",))
    assert names(replace(found, installed=tuple(
        replace(each, priority_class="system-cluster-critical") for each in found.installed or ()
    ))) == []  # fmt: skip


def test_behind_the_clusters_own_scheduler_a_critical_class_is_what_it_takes() -> None:
    served = replace(
        INSTALLED.settings or Settings(), scheduler_name=("default-scheduler",), lease="own"
    )
    told = {**CONFIG, "profiles": [{"schedulerName": "default-scheduler"}]}
    found = with_settings(told, served)
    (each,) = found.installed or ()

    assert names(found) == []
    ordinary = replace(each, priority_class="")
    (caught,) = run_checks(replace(found, installed=(ordinary,)))
    assert caught.check.name == "ExtenderSchedulesItself"
    assert "priorityClassName: system-cluster-critical" in caught.mend


def test_no_replicas_at_all_are_no_standby_either() -> None:
    assert names(deployed(replicas=0, pods=())) == ["NoStandby"]


def test_a_lease_that_is_not_there_or_was_given_back_leads_nobody() -> None:
    for lease in (LEASE._replace(exists=False), LEASE._replace(holder="")):
        assert names(replace(GOOD, leases=(lease,))) == ["NoLeader"]


def test_an_extender_in_a_namespace_that_it_exempts_does_not_wait_for_itself() -> None:
    for exempt, expected in (((), ["ExtenderSchedulesItself"]), (("gang-system",), [])):
        served = replace(Settings(scheduler_name=("default-scheduler",)), exempt_namespace=exempt)
        alone = deployed(settings=served, priority_class="mine", replicas=1)
        assert [each for each in names(alone) if each == "ExtenderSchedulesItself"] == expected


def test_a_lease_renewed_in_the_future_tells_of_a_clock() -> None:
    ahead = replace(GOOD, leases=(LEASE._replace(renewed=HERE + 60),))

    assert names(ahead) == ["ClockSkew"]


def test_a_wrong_clock_here_makes_no_lease_and_no_certificate_old() -> None:
    ahead_s = timedelta(days=400).total_seconds()
    found = replace(GOOD, clocks=Clocks(here=HERE + ahead_s, api_server_s=-ahead_s))

    assert names(found) == ["ClockSkewHere"]


def test_a_certificate_made_for_hours_is_late_when_a_sixth_is_left() -> None:
    for hours, expected in ((22, ["CertificateExpires"]), (12, [])):
        made = AUTHORITY.for_server([SERVER], 1, NOW - timedelta(hours=hours)).certificate
        assert names(replace(GOOD, hooks=(replace(HOOKS, certificate=made),))) == expected


def test_an_authority_that_ends_before_what_it_signed_is_found_on_both_sides() -> None:
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


def test_an_old_authority_beside_the_one_that_counts_is_no_trap() -> None:
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


def test_a_caller_signed_by_another_is_refused() -> None:
    made = ANOTHER.for_client("system:kube-scheduler", 365, NOW).certificate

    assert names(replace(GOOD, callers=(replace(ASKING, certificate=made),))) == ["CallerRefused"]


def test_what_could_not_be_read_of_a_caller_is_not_judged() -> None:
    assert names(replace(GOOD, callers=(replace(ASKING, ca=None, certificate=None),))) == []


def test_a_gate_of_a_scheduler_is_named_where_it_is_on_and_not_where_it_is_off() -> None:
    on = RunningScheduler("pod/x", {"GangScheduling": True, "GenericWorkload": False})
    (caught,) = run_checks(replace(GOOD, schedulers=(on,)))

    assert caught.where == "pod/x"
    assert caught.mend == "write `--feature-gates=GangScheduling=false` into its command"


def test_a_kind_of_which_unknown_fields_are_kept_lacks_none() -> None:
    assert names(replace(GOOD, kinds=(kind("podgroups", fields=None), kind("queues")))) == []


@pytest.mark.parametrize(
    "reason", [*queues.REASONS, *namespaces.REASONS["Queue"], *namespaces.REASONS["Namespace"]]
)
def test_a_finding_of_the_extender_is_a_trap_by_its_own_reason(reason: str) -> None:
    finding = FindingFacts("Queue", "team", reason, "queue team is odd; write it so")
    (caught,) = run_checks(replace(GOOD, findings=(finding,)))

    assert caught.check.name == reason
    assert caught.check.severity is Severity.PROBLEM
    assert (caught.where, caught.seen, caught.mend) == (
        "Queue/team", "queue team is odd", "write it so",
    )  # fmt: skip


def test_what_is_a_finding_and_a_note_is_named_once() -> None:
    finding = FindingFacts("Policy", "file", "Refused", "file: no such plugin")
    found = replace(
        GOOD,
        findings=(finding,),
        readiness=Readiness("ops", True, ("policy: file: no such plugin",)),
    )

    assert names(found) == ["Refused"]


def test_what_the_extender_notes_of_its_credentials_is_the_same_trap() -> None:
    note = "credentials: kubeconfig k checks no certificate; name its CA"
    (caught,) = run_checks(replace(GOOD, readiness=Readiness("ops", True, (note,))))

    assert caught.check.name == "CredentialsUnprotected"
    assert (caught.where, caught.seen, caught.mend) == (
        "ops", "kubeconfig k checks no certificate", "name its CA",
    )  # fmt: skip


def test_traps_come_before_hints() -> None:
    found = replace(SET["NoAdmissionPolicies"], server_gates=frozenset({"GenericWorkload"}))

    assert names(found) == ["NativeGangs", "NoAdmissionPolicies"]
