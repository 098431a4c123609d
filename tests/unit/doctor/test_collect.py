"""Facts are collected from our overlays, and what cannot be read is reported as not checked."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from extender.doctor import scheduler_config
from extender.doctor.checks import run_checks
from extender.doctor.facts import ClusterFacts, Document, NotChecked
from extender.doctor.installation import settings_of
from extender.doctor.reader import OpsAnswer, Page, clock_ahead_s, read_extender
from extender.errors import InvalidConfiguration, InvalidInput
from extender.settings import Settings
from extender.web.documents import Finding

from .cases import AUTHORITY, CALLER, HERE, SERVER, SHOWN
from .fake_cluster import (
    CRDS,
    DATE,
    DEPLOYMENTS,
    GONE,
    HOME,
    LEASE,
    POLICIES,
    REVIEWS,
    SCHEDULERS,
    FakeCluster,
    fake_cluster,
    listed,
    pod,
)


def names(seen: ClusterFacts) -> list[str]:
    return [each.check.name for each in run_checks(seen)]


def deployment(cluster: FakeCluster) -> Document:
    (found,) = cluster.held[DEPLOYMENTS]["items"]
    found: Document = found
    return found


def containers(cluster: FakeCluster) -> dict[str, Document]:
    spec = deployment(cluster)["spec"]["template"]["spec"]
    return {each["name"]: each for each in spec["containers"]}


def test_everything_in_the_overlay_is_collected_and_has_no_problem() -> None:
    seen = fake_cluster().collect()

    assert seen.not_checked == ()
    assert names(seen) == []
    (installed,) = seen.installed or ()
    assert installed.settings is not None
    assert installed.settings.lease == "scheduler"
    assert installed.is_pair
    assert [found.document["kind"] for found in seen.configurations] == [
        "KubeSchedulerConfiguration"
    ]
    assert [(lease.holder, HERE - lease.renewed) for lease in seen.leases] == [("a_1", 1.0)]
    assert [each.name for each in seen.kinds or ()] == [
        "podgroups.scheduling.volcano.sh",
        "queues.scheduling.volcano.sh",
    ]


def test_a_configuration_that_kube_scheduler_reads_itself_is_collected() -> None:
    cluster = fake_cluster()
    pod = deployment(cluster)["spec"]["template"]["spec"]
    (pairing,) = pod.pop("initContainers")
    scheduler = containers(cluster)["kube-scheduler"]
    path = "/etc/gang-scheduler/scheduler-config.yaml"
    scheduler["command"] = ["kube-scheduler", f"--config={path}"]
    scheduler["volumeMounts"] = pairing["volumeMounts"]
    seen = cluster.collect()

    assert seen.not_checked == ()
    assert [found.where.partition(" ")[0] for found in seen.configurations] == [path]


def test_doctor_writes_nothing_to_the_cluster() -> None:
    cluster = fake_cluster()
    cluster.collect()

    writes = {asked for asked in cluster.asked if not asked.startswith("GET ")}
    assert writes == {f"POST {REVIEWS}"}


# Behind the cluster's own scheduler


@pytest.fixture
def default_scheduler(tmp_path: Path) -> tuple[FakeCluster, Document]:
    cluster = fake_cluster("default-scheduler")
    held = {"tls.crt": SHOWN, "ca.crt": AUTHORITY.pair.certificate}
    data = {name: base64.b64encode(content).decode() for name, content in held.items()}
    cluster.held[f"{HOME}/secrets/gang-extender-tls"] = {"kind": "Secret", "data": data}
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.pair.certificate)
    (tmp_path / "client.crt").write_bytes(CALLER)
    tls = {
        "caFile": str(tmp_path / "ca.crt"),
        "certFile": str(tmp_path / "client.crt"),
        "keyFile": str(tmp_path / "client.key"),
        "serverName": SERVER,
    }
    common = {"urlPrefix": "https://10.0.0.7:8888", "tlsConfig": tls, "nodeCacheCapable": True}
    served = ("default-scheduler", "gang-scheduler", "volcano", "kube-batch")
    document = {
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": name} for name in served],
        "extenders": [
            {**common, "filterVerb": "filter", "preemptVerb": "preempt", "httpTimeout": "2s"},
            {**common, "bindVerb": "bind", "httpTimeout": "45s"},
        ],
    }
    return cluster, document


def test_the_certificates_of_hooks_and_callers_are_compared(
    default_scheduler: tuple[FakeCluster, Document], tmp_path: Path
) -> None:
    cluster, document = default_scheduler
    seen = cluster.collect(configurations=[(Path("file"), document)])

    assert (seen.not_checked, names(seen)) == ((), [])
    assert [hooks.certificate for hooks in seen.hooks] == [SHOWN]
    assert {caller.server_name for caller in seen.callers} == {SERVER}
    (tmp_path / "ca.crt").write_bytes(CALLER)
    seen = cluster.collect(configurations=[(Path("file"), document)])
    assert names(seen) == ["CertificateUntrusted"] * 2


def test_a_ca_file_on_another_machine_is_not_checked_until_a_copy_is_given(
    default_scheduler: tuple[FakeCluster, Document], tmp_path: Path
) -> None:
    cluster, document = default_scheduler
    for entry in document["extenders"]:
        entry["tlsConfig"]["caFile"] = "/etc/kubernetes/gang-extender/ca.crt"
    configurations = [(Path("file"), document)]

    (missed,) = cluster.collect(configurations=configurations).not_checked
    assert missed.what == "caFile /etc/kubernetes/gang-extender/ca.crt of kube-scheduler"
    assert "--ca-file" in missed.why
    copied = cluster.collect(configurations=configurations, ca_file=tmp_path / "ca.crt")
    assert (copied.not_checked, names(copied)) == ((), [])
    with pytest.raises(InvalidInput, match=r"--ca-file /nowhere cannot be read: No such file"):
        cluster.collect(configurations=configurations, ca_file=Path("/nowhere"))


def test_inline_data_is_read_instead_of_files(
    default_scheduler: tuple[FakeCluster, Document],
) -> None:
    cluster, document = default_scheduler
    for entry in document["extenders"]:
        tls = entry["tlsConfig"]
        tls["caData"] = base64.b64encode(AUTHORITY.pair.certificate).decode()
        tls["caFile"] = "/nowhere"

    seen = cluster.collect(configurations=[(Path("file"), document)])
    assert (seen.not_checked, names(seen)) == ((), [])


def test_a_missing_scheduler_configuration_is_reported_as_not_checked(
    default_scheduler: tuple[FakeCluster, Document],
) -> None:
    (missed,) = default_scheduler[0].collect().not_checked

    assert missed.what.startswith("the configuration of the kube-scheduler that calls")
    assert "--scheduler-config" in missed.why


@pytest.mark.parametrize(
    ("secret", "why"),
    [
        (404, "secret gang-extender-tls in gang-system does not exist"),
        (
            {"kind": "Secret", "data": {"tls.crt": "ü", "ca.crt": "no base64"}},
            "secret gang-extender-tls in gang-system: tls.crt is not base64",
        ),
    ],
)
def test_an_unusable_secret_is_reported_as_not_checked(
    default_scheduler: tuple[FakeCluster, Document], secret: Any, why: str
) -> None:
    cluster, document = default_scheduler
    cluster.held[f"{HOME}/secrets/gang-extender-tls"] = secret
    found = dict(cluster.collect(configurations=[(Path("file"), document)]).not_checked)

    assert found["/tls/tls.crt of extender in gang-system"] == why


# Objects that are forbidden, invalid or missing


@pytest.mark.parametrize(
    ("path", "what"),
    [
        (DEPLOYMENTS, "Deployments of the extender"),
        (f"{HOME}/pods", "pods in gang-system"),
        (f"{HOME}/services", "Services in gang-system"),
        (f"{LEASE}/gang-scheduler", "lease gang-scheduler in gang-system"),
        (CRDS, "CustomResourceDefinitions"),
        (POLICIES, "ValidatingAdmissionPolicies"),
        (SCHEDULERS, "pods of kube-system"),
        ("/metrics", "feature gates of the API server"),
        (REVIEWS, "the rights of system:serviceaccount:gang-system:gang-extender"),
        (
            f"{HOME}/configmaps/gang-scheduler-config",
            "/etc/gang-scheduler/scheduler-config.yaml of pair in gang-system",
        ),
    ],
)
def test_a_forbidden_resource_is_reported_as_not_checked_and_is_no_problem(
    path: str, what: str
) -> None:
    cluster = fake_cluster()
    cluster.held[path] = 403
    seen = cluster.collect()

    assert dict(seen.not_checked)[what].startswith("eve may not list ")
    assert names(seen) == []


def test_an_unreachable_api_server_is_reported_once() -> None:
    cluster = fake_cluster()
    cluster.held["/version"] = GONE

    assert cluster.collect().not_checked == (NotChecked("the cluster", str(GONE)),)


@pytest.mark.parametrize("answer", ["<html>", "[]", ""])
def test_a_server_that_is_not_an_api_server_is_not_checked(answer: str) -> None:
    cluster = FakeCluster({"/version": answer})
    (missed,) = cluster.collect().not_checked

    assert "is not a Kubernetes API server" in missed.why


def test_a_missing_or_invalid_configmap_is_reported_as_not_checked() -> None:
    path = f"{HOME}/configmaps/gang-scheduler-config"
    for held, expected in (
        (404, "configmap gang-scheduler-config in gang-system does not exist"),
        ({"kind": "ConfigMap", "data": {"a": ""}}, "has no scheduler-config.yaml"),
        (_config("kind: Pod"), "is not a KubeSchedulerConfiguration"),
        (_config("a: [b"), "while parsing"),
        (_config("kind: KubeSchedulerConfiguration\nextenders: 7"), "extenders is not a list"),
    ):
        cluster = fake_cluster()
        cluster.held[path] = held
        seen = cluster.collect()
        assert any(expected in each.why for each in seen.not_checked), held
        assert seen.configurations == ()


def _config(text: str) -> Document:
    return {"kind": "ConfigMap", "data": {"scheduler-config.yaml": text}}


def test_invalid_settings_are_a_problem_with_the_error_of_serve() -> None:
    cluster = fake_cluster()
    containers(cluster)["extender"]["args"].append("--hold-s=long")
    caught = run_checks(cluster.collect())

    assert [(each.check.name, each.seen) for each in caught] == [
        ("InvalidSettings", "--hold-s 'long' is not a number")
    ]


def test_a_missing_permission_is_named_with_a_command_that_shows_it() -> None:
    cluster = fake_cluster()
    cluster.denied.add("create pods/eviction")
    (caught,) = run_checks(cluster.collect())

    assert caught.check.name == "PermissionMissing"
    assert caught.seen == "it may not create pods/eviction"
    assert (
        "kubectl auth can-i create pods --subresource=eviction"
        " --as=system:serviceaccount:gang-system:gang-extender" in caught.mend
    )


def test_the_feature_gates_of_a_kubeadm_scheduler_are_read_from_its_command() -> None:
    cluster = fake_cluster()
    command = ["kube-scheduler", "--feature-gates=A=true,GenericWorkload=true", "-v=2"]
    static = pod("kube-scheduler-n1", {"component": "kube-scheduler"})
    cluster.held[SCHEDULERS] = listed({**static, "spec": {"containers": [{"command": command}]}})
    (caught,) = run_checks(cluster.collect())

    assert caught.check.name == "NativeGangs"
    assert caught.where == "pod/kube-scheduler-n1 in kube-system"
    other = fake_cluster()
    other.held["/metrics"] = 'kubernetes_feature_enabled{name="GenericWorkload",stage=""} 1\n'
    assert names(other.collect()) == ["NativeGangs"]


def test_objects_that_do_not_count_are_left_out() -> None:
    cluster = fake_cluster()
    leaving = cluster.held[f"{HOME}/pods"]["items"][1]
    leaving["metadata"]["deletionTimestamp"] = "2026-11-16T11:00:00Z"
    assert names(cluster.collect()) == ["StandbyNotSynced"], "a terminating pod"

    cluster = fake_cluster()
    containers(cluster)["extender"]["args"] = ["top"]
    assert cluster.collect().installed == (), "a Deployment that does not serve"

    cluster = fake_cluster()
    cluster.denied |= {"get podgroups", "patch queues/status"}
    cluster.held[CRDS] = listed()
    assert names(cluster.collect()) == ["CRDMissing", "CRDMissing"], "rights to a missing kind"

    path = "/apis/apps/v1/namespaces/elsewhere/deployments"
    cluster.held = {**fake_cluster().held, path: listed()}
    assert names(cluster.collect(namespace="elsewhere")) == ["NotInstalled"]
    assert f"GET {path}" in cluster.asked


# Arguments


def settings(*words: str, env: list[Document] | None = None) -> Any:
    return settings_of({"command": ["gang-extender"], "args": ["serve", *words], "env": env or []})


def test_arguments_and_variables_are_parsed_as_serve_parses_them() -> None:
    found = settings(
        "--hold-s", "40", "--bind-timeout-s=60", "--dry-run",
        "--scheduler-name=a", "--scheduler-name", "b",
        env=[
            {"name": "GANG_EXTENDER_HOLD_S", "value": "50"},
            {"name": "GANG_EXTENDER_PREFER", "value": "pack"},
            {"name": "GANG_EXTENDER_EXEMPT_NAMESPACE", "value": "one two"},
            {
                "name": "GANG_EXTENDER_POD_NAME",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
            },
            {"name": "UNRELATED", "value": "x"},
        ],
    )  # fmt: skip

    assert (found.hold_s, found.bind_timeout_s, found.dry_run) == (40.0, 60.0, True)
    assert (found.scheduler_name, found.exempt_namespace) == (("a", "b"), ("one", "two"))
    assert found.prefer == "pack"
    assert found.pod_name


def test_values_known_only_in_the_pod_stay_default_and_other_variables_count() -> None:
    found = settings_of(
        {
            "args": ["serve", "--listen=$(POD_IP):8888", "--lease-namespace=$(HOME)",
                     "--lease=own", "--hold-s=$(HOLD)"],
            "env": [
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "HOME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                {"name": "HOLD", "value": "12"},
                {"name": "GANG_EXTENDER_LOG_LEVEL", "valueFrom": {"configMapKeyRef": {}}},
            ],
        },
        "gang-system",
    )  # fmt: skip

    assert (found.listen, found.log_level) == (Settings().listen, "info")
    assert (found.lease_namespace, found.hold_s) == ("gang-system", 12.0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--hold"], "`serve` has no --hold"),
        (["--hold-s"], "--hold-s needs a value"),
        (["--max-holds=1.5"], "--max-holds '1.5' is not a number"),
        (["--prefer=most"], "--prefer 'most' is not one of nothing, pack, spread"),
    ],
)
def test_arguments_that_serve_refuses_are_refused(words: list[str], sentence: str) -> None:
    with pytest.raises(InvalidConfiguration, match=sentence):
        settings(*words)


# Files


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"urlPrefix: http://hooks:hush-hush@127.0.0.1:8888: 1", "is not YAML"),
        (b"\xff\xfe", "is not text"),
        (b"a: [", "is not YAML: while parsing"),
        (b"[" * 5000 + b"]" * 5000, "is not YAML: it is nested too deeply"),
        (b"\x00\x01", "is not YAML: unacceptable character"),
        (b"", "is not a KubeSchedulerConfiguration"),
        (b"kind: Deployment", "is not a KubeSchedulerConfiguration"),
        (
            b"kind: KubeSchedulerConfiguration\nextenders: [1]",
            "not a list of objects",
        ),
        (
            b"kind: KubeSchedulerConfiguration\nextenders: [{httpTimeout: soon}]",
            r"extenders\[0\]: 'soon' is not a duration; write it like 45s",
        ),
        (
            b"kind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: 'http://[::1'}]",
            r"extenders\[0\]: ",
        ),
    ],
)
def test_an_invalid_configuration_file_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes | None, sentence: str
) -> None:
    file = tmp_path / "config.yaml"
    if content is not None:
        file.write_bytes(content)

    with pytest.raises(InvalidInput, match=sentence) as refused:
        scheduler_config.configuration(file)
    assert "hush" not in str(refused.value)


# The operations port


def extender_answer(readyz: Page, findings: Page) -> OpsAnswer:
    return read_extender({"/readyz": readyz, "/api/v1/findings": findings}.__getitem__, "there")


def test_readiness_and_findings_of_the_extender_are_read() -> None:
    finding = b'[{"kind":"Queue","name":"q","reason":"R","message":"m"}]'
    found = extender_answer(Page(200, b"ok\nbinds: late\n", 3.0), Page(200, finding))

    assert found.readiness == ("there", True, ("binds: late",))
    assert found.findings == (Finding("Queue", "q", "R", "m"),)
    assert found.ahead_s == 3.0


def test_an_extender_that_is_not_ready_is_read_without_findings() -> None:
    found = extender_answer(
        Page(503, b"pods: first list not complete\n"),
        Page(503, b'{"error": "the first plan is being made"}'),
    )

    assert found.readiness == ("there", False, ("pods: first list not complete",))


@pytest.mark.parametrize(
    ("readyz", "findings", "sentence"),
    [
        ((503, b"standby: b leads\n"), (503, b"{}"), "standby: b leads; use that replica"),
        ((404, b"nothing here"), (404, b""), "the server at there is not an extender"),
        ((200, b""), (200, b"[]"), "the server at there is not an extender"),
        ((200, b"ok\n"), (404, b"<html>"), "has no findings"),
        ((200, b"ok\n"), (200, b'{"a": 1}'), "has no findings"),
        ((200, b"ok\n"), (200, b"[" * 9000), "has no findings"),
        ((200, b"ok\n"), (503, b'{"error": "not yet"}'), "cannot answer: not yet"),
    ],
)
def test_a_standby_and_a_server_that_is_not_an_extender_are_refused(
    readyz: tuple[int, bytes], findings: tuple[int, bytes], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        extender_answer(Page(*readyz), Page(*findings))


# Clocks


@pytest.mark.parametrize(("here_s", "certain_s"), [(0, 0.0), (0.9, 0.0), (-60, 58.0), (60, -59.0)])
def test_clock_skew_counts_only_beyond_rounding_and_round_trip(
    here_s: float, certain_s: float
) -> None:
    before = HERE + here_s

    assert clock_ahead_s(DATE, before, before + 2) == certain_s


@pytest.mark.parametrize("date", [None, "", "yesterday", f"Mon, {'9' * 20} Jan 2024 00:00:00 GMT"])
def test_an_answer_without_a_valid_date_gives_no_clock_skew(date: str | None) -> None:
    assert clock_ahead_s(date, 0.0, 1.0) is None
