"""`gang-extender doctor` on the overlay `second-scheduler`: every problem is reported.

The overlay runs as applied. Each problem is made where a user would make it: in the applied
objects, in the files of kube-scheduler, in the cluster. Afterwards it is undone, and doctor finds
nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from extender.doctor.checks import KNOWN
from tests import objects
from tests.cluster.api import Object
from tests.cluster.components import ApiServer, answers
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import Extender
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for

from .doctor_cluster import (
    CONFIG_FILE,
    DEPLOYMENTS,
    NO_SERVER,
    DoctorCluster,
    Setting,
    arguments,
    assert_named,
    changed,
    deployed,
    pod_of,
    resource,
    run_command,
    with_options,
)
from .installation import empty_cluster
from .test_doctor_default_scheduler import PROBLEMS as BEHIND_PROBLEMS

CRDS = "customresourcedefinitions.apiextensions.k8s.io/v1"
ROLES = "clusterroles.rbac.authorization.k8s.io/v1"
POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io/v1"
LEASES = "leases.coordination.k8s.io/v1"
AN_HOUR_AGO = "import time; real = time.time; time.time = lambda: real() - 3600; "


@pytest.fixture(scope="module")
def pair(
    control_plane_binaries: None,
    controllers_binary: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[DoctorCluster]:
    with empty_cluster(tmp_path_factory.mktemp("pair")) as made, made.plane.scheduler():
        made.shell.type("kubectl apply -k manifests/overlays/second-scheduler")
        made.shell.type("kubectl apply -k manifests/admission")
        made.leader_and_standby()
        yield DoctorCluster(made, "gang-scheduler")


def configured(change: Callable[[Object], object]) -> Setting:
    """Edit the ConfigMap of the second scheduler."""

    def edit(found: Object) -> None:
        document = yaml.safe_load(found["data"][CONFIG_FILE])
        change(document)
        found["data"][CONFIG_FILE] = yaml.safe_dump(document)

    @contextmanager
    def setting(cluster: DoctorCluster) -> Iterator[None]:
        (name,) = (
            each["metadata"]["name"]
            for each in cluster.plane.api.list("configmaps", EXTENDER_NAMESPACE)
            if CONFIG_FILE in each.get("data", {})
        )
        with changed(cluster, "configmaps", name, edit, EXTENDER_NAMESPACE):
            yield

    return setting


def entry(index: int, **changes: Any) -> Setting:
    """Edit one of its extenders: 0 filters, 1 binds; None removes a field."""

    def change(document: Object) -> None:
        found = {**document["extenders"][index], **changes}
        document["extenders"][index] = {k: v for k, v in found.items() if v is not None}

    return configured(change)


def _split(document: Object) -> None:
    document["extenders"][1]["filterVerb"] = "filter"


def _another_binder(document: Object) -> None:
    document["extenders"].append(document["extenders"][1])


def _over_the_network(document: Object) -> None:
    for each in document["extenders"]:
        each["urlPrefix"] = "http://10.0.0.9:8888"


def _another_lease(document: Object) -> None:
    document["leaderElection"]["resourceName"] = "kube-scheduler"


def _without_extenders(document: Object) -> None:
    document["extenders"] = []


def _without_bind(document: Object) -> None:
    document["extenders"].pop()


def _one_profile_more(document: Object) -> None:
    document["profiles"].append({"schedulerName": "unserved"})


def _one_profile_less(document: Object) -> None:
    document["profiles"].pop()


def _native(found: Object) -> None:
    (container,) = (c for c in pod_of(found)["containers"] if c["name"] == "kube-scheduler")
    container["command"].append("--feature-gates=GenericWorkload=true,GangScheduling=true")


def _without_eviction(role: Object) -> None:
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["pods/eviction"]]


def _version_not_served(crd: Object) -> None:
    (read,) = crd["spec"]["versions"]
    other = {**copy.deepcopy(read), "name": "v2", "storage": False}
    read["served"] = False
    crd["spec"]["versions"].append(other)


def _without_field(name: str) -> Callable[[Object], None]:
    def change(crd: Object) -> None:
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        del schema["properties"]["spec"]["properties"][name]

    return change


def _select_no_pod(service: Object) -> None:
    service["spec"]["selector"]["missing"] = "true"


def _unlabelled(deployment: Object) -> None:
    deployment["metadata"]["labels"] = {}


def _by_itself(deployment: Object) -> None:
    pod_of(deployment)["schedulerName"] = "gang-scheduler"


@contextmanager
def _unready(cluster: DoctorCluster, count: int) -> Iterator[None]:
    """Set so many pods to not ready in their status; the leader last."""
    leader, standby = cluster.made.leader_and_standby()
    url = leader.container("extender").url({"port": "ops", "path": ""})
    api = cluster.plane.api

    def set_ready(name: str, status: str) -> None:
        pod = api.get("pods", name, EXTENDER_NAMESPACE)
        conditions = [
            {**each, "status": status} if each["type"] == "Ready" else each
            for each in pod["status"]["conditions"]
        ]
        change = {"status": {"conditions": conditions}}
        api.patch("pods", name, change, EXTENDER_NAMESPACE, subresource="status")

    chosen = [standby.name, leader.name][:count]
    for name in chosen:
        set_ready(name, "False")
    try:
        with with_options(cluster, ops_url=url):
            yield
    finally:
        for name in chosen:
            set_ready(name, "True")


@contextmanager
def _scaled_down(cluster: DoctorCluster) -> Iterator[None]:
    leader, _ = cluster.made.leader_and_standby()
    url = leader.container("extender").url({"port": "ops", "path": ""})
    about = (DEPLOYMENTS, cluster.deployment)
    cluster.plane.api.patch(*about, {"spec": {"replicas": 1}}, EXTENDER_NAMESPACE)
    try:
        with with_options(cluster, ops_url=url):
            yield
    finally:
        cluster.plane.api.patch(*about, {"spec": {"replicas": 2}}, EXTENDER_NAMESPACE)
        cluster.made.leader_and_standby()


@contextmanager
def _another_deployment(cluster: DoctorCluster) -> Iterator[None]:
    """Create a second Deployment, paused, so that it has no pods."""
    api = cluster.plane.api
    found = api.get(DEPLOYMENTS, cluster.deployment, EXTENDER_NAMESPACE)
    metadata = {"name": "another", "namespace": EXTENDER_NAMESPACE}
    spec = {**found["spec"], "paused": True}
    labels = found["metadata"]["labels"]
    api.create({**found, "metadata": {**metadata, "labels": labels}, "spec": spec, "status": {}})
    try:
        yield
    finally:
        api.delete(DEPLOYMENTS, "another", EXTENDER_NAMESPACE)


@contextmanager
def _deleted_kind(cluster: DoctorCluster) -> Iterator[None]:
    name = "podgroups.scheduling.volcano.sh"
    cluster.plane.kubectl("delete", "crd", name, "--timeout=60s")
    try:
        yield
    finally:
        cluster.made.shell.type("kubectl apply -k manifests/crds")
        cluster.plane.wait_until_established(f"crd/{name}")


@contextmanager
def _without_policy(cluster: DoctorCluster) -> Iterator[None]:
    cluster.plane.api.delete(POLICIES, "gang-extender-queues")
    try:
        yield
    finally:
        cluster.made.shell.type("kubectl apply -k manifests/admission")


@contextmanager
def _lease_of_tomorrow(cluster: DoctorCluster) -> Iterator[None]:
    then = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "tomorrow", "namespace": EXTENDER_NAMESPACE},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": then},
    }
    cluster.plane.api.create(lease)
    try:
        with arguments("--lease-name=tomorrow")(cluster):
            yield
    finally:
        cluster.plane.api.delete(LEASES, "tomorrow", EXTENDER_NAMESPACE)


@contextmanager
def _not_installed(cluster: DoctorCluster) -> Iterator[None]:
    with deployed(_unlabelled)(cluster), with_options(cluster, ops_url=NO_SERVER):
        yield


@contextmanager
def _another_clock_here(cluster: DoctorCluster) -> Iterator[None]:
    with with_options(cluster, before=AN_HOUR_AGO):
        yield


class Unready(Extender):
    """An extender that has started when /healthz answers."""

    def is_ready(self) -> bool:
        return answers(f"{self.ops_url}/healthz")


@contextmanager
def _without_rights(cluster: DoctorCluster) -> Iterator[None]:
    """Run an extender without permissions, which is never ready."""
    kubeconfig = cluster.plane.kubeconfig("bind-only-extender")
    extender = Unready("without-rights", cluster.plane.logs, kubeconfig=kubeconfig)
    cluster.plane.programs.append(extender)
    with extender, with_options(cluster, ops_url=extender.ops_url):
        yield


@contextmanager
def _expired_files(cluster: DoctorCluster) -> Iterator[None]:
    """Run an extender whose certificate was replaced by an invalid one."""
    folder = cluster.plane.folder / "invalid"
    cluster.made.shell.type(f"gang-extender certificates --directory {folder} --force")
    files = (
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--client-ca-file={folder / 'ca.crt'}",
    )
    with cluster.plane.extender(*files, "--scheduler-name=unserved") as extender:
        (folder / "server.crt").write_text("none")
        with with_options(cluster, ops_url=extender.ops_url):
            yield


@contextmanager
def _unchecked_api_server(cluster: DoctorCluster) -> Iterator[None]:
    """Run an extender that does not verify the API server."""
    document = yaml.safe_load(cluster.plane.kubeconfig("extender").read_text())
    for each in document["clusters"]:
        each["cluster"] = {"server": each["cluster"]["server"], "insecure-skip-tls-verify": True}
    kubeconfig = cluster.plane.folder / "unchecked.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    extender = Extender(
        "unchecked",
        cluster.plane.logs,
        kubeconfig=kubeconfig,
        arguments=("--scheduler-name=unserved",),
    )
    cluster.plane.programs.append(extender)
    with extender, with_options(cluster, ops_url=extender.ops_url):
        yield


#: Problems of this deployment.
PROBLEMS: dict[str, Setting] = {
    "ExtenderNotConfigured": configured(_without_extenders),
    "IgnorableBind": entry(1, ignorable=True),
    "IgnorableFilter": entry(0, ignorable=True),
    "BindTimeoutMissing": entry(1, httpTimeout=None),
    "BindTimeoutShort": entry(1, httpTimeout="20s"),
    "NodeCacheOff": entry(0, nodeCacheCapable=False),
    "PlainHttp": configured(_over_the_network),
    "SingleEntry": configured(_split),
    "TwoBinders": configured(_another_binder),
    "NoBind": configured(_without_bind),
    "NoFilter": entry(0, filterVerb=None),
    "NoPreempt": entry(0, preemptVerb=None),
    "ManagedResourcesSet": entry(0, managedResources=[{"name": "example.com/gpu"}]),
    "PrioritizeNotCalled": arguments("--prefer=pack"),
    "LeaseMismatch": configured(_another_lease),
    "ProfileNotServed": configured(_one_profile_more),
    "ProfileMissing": configured(_one_profile_less),
    "NotInstalled": _not_installed,
    "InvalidSettings": arguments("--hold-s=long"),
    "ExtenderSchedulesItself": deployed(_by_itself),
    "NoStandby": _scaled_down,
    "StandbyNotSynced": lambda cluster: _unready(cluster, 1),
    "ExtenderNotReady": lambda cluster: _unready(cluster, 2),
    "TwoLeaders": arguments("--lease=none", without=("--lease",)),
    "TwoExtenders": _another_deployment,
    "ServiceWithoutEndpoints": resource("services", "gang-extender", _select_no_pod, "gang-system"),
    "NoLeader": arguments("--lease-name=unserved"),
    "CredentialsUnprotected": _unchecked_api_server,
    "PermissionMissing": resource(ROLES, "gang-extender", _without_eviction),
    "CRDMissing": _deleted_kind,
    "CRDVersionUnknown": resource(CRDS, "podgroups.scheduling.volcano.sh", _version_not_served),
    "CRDFieldsMissing": resource(CRDS, "queues.scheduling.volcano.sh", _without_field("weight")),
    "CRDOutdated": resource(CRDS, "queues.scheduling.volcano.sh", _without_field("deserved")),
    "NoAdmissionPolicies": _without_policy,
    "ClockSkew": _lease_of_tomorrow,
    "ClockSkewHere": _another_clock_here,
    "NativeGangs": deployed(_native),
    "NotReady": _without_rights,
    "ConditionReported": _expired_files,
}


def test_every_problem_has_a_case() -> None:
    known = [check.name for checks in KNOWN.values() for check in checks]

    assert sorted([*PROBLEMS, *BEHIND_PROBLEMS]) == sorted(known)


def test_doctor_finds_nothing_in_the_overlay(pair: DoctorCluster) -> None:
    wait_for(pair.is_healthy, 60, "doctor finds nothing", seeing=pair.run, every_s=1)


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_is_reported(pair: DoctorCluster, name: str) -> None:
    assert_named(pair, name, PROBLEMS[name])


def test_excessive_guarantees_and_unknown_queues_are_reported(pair: DoctorCluster) -> None:
    api = pair.plane.api
    greedy = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "greedy"},
        "spec": {"weight": 1, "guarantee": {"resource": {"cpu": "100000"}}},
    }
    tenant = objects.namespace("astray", {"gang-extender.io/queues": "no-such-queue"})
    api.create(greedy, tenant)
    try:
        wait_for(
            lambda: (
                {"Queue/greedy", "Namespace/astray"}
                <= {each["where"] for each in pair.run()[1]["found"]}
            ),
            60,
            "both are reported",
            seeing=pair.run,
            every_s=1,
        )
        assert pair.run()[0] == 1
    finally:
        api.delete(objects.QUEUES, "greedy")
        api.delete("namespaces", "astray")


def test_missing_permissions_of_the_user_are_reported(pair: DoctorCluster) -> None:
    kubeconfig = pair.plane.kubeconfig("bind-only-extender")
    code, document = run_command(
        "doctor", "-o", "json", f"--ops-url={NO_SERVER}", f"--kubeconfig={kubeconfig}"
    )

    assert code == 2, document
    why = {each["what"]: each["why"] for each in document["not_checked"]}
    assert why["Deployments of the extender"].endswith("may not list deployments.apps")
    assert "may not list customresourcedefinitions" in why["CustomResourceDefinitions"]


def test_api_server_with_native_gangs_is_reported(
    new_plane: Callable[..., ControlPlane], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = ApiServer.command
    # The API server watches that group itself and is not ready before it serves it.
    native = (
        "--feature-gates=GenericWorkload=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    )
    monkeypatch.setattr(ApiServer, "command", lambda self: [*original(self), *native])
    plane = new_plane()
    code, document = run_command(
        "doctor", "-o", "json", f"--ops-url={NO_SERVER}", f"--kubeconfig={plane.kubeconfig()}"
    )
    found = {each["name"]: each["where"] for each in document["found"]}

    assert code == 1
    assert found["NativeGangs"] == "the API server"
    assert "NotInstalled" in found
