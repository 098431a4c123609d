"""`gang-extender doctor` where our overlay runs beside the scheduler: each trap is named.

What runs is what our overlays apply. A trap is set by whoever would set it by mistake: in the
objects that were applied, in the files of kube-scheduler, in the cluster around them. Afterwards
all is as it was, and doctor says so.
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

from .installation import empty_cluster
from .patients import (
    CONFIG_FILE,
    DEPLOYMENTS,
    NOBODY,
    Patient,
    Set,
    arguments,
    as_asked,
    changed,
    deployed,
    is_named,
    pod_of,
    resource,
    typed,
)
from .test_doctor_behind import BEHIND

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
) -> Iterator[Patient]:
    with empty_cluster(tmp_path_factory.mktemp("pair")) as made, made.plane.scheduler():
        made.shell.type("kubectl apply -k manifests/overlays/second-scheduler")
        made.shell.type("kubectl apply -k manifests/admission")
        made.leader_and_standby()
        yield Patient(made, "gang-scheduler")


def configured(change: Callable[[Object], object]) -> Set:
    """Edit the ConfigMap of the second scheduler."""

    def edit(found: Object) -> None:
        document = yaml.safe_load(found["data"][CONFIG_FILE])
        change(document)
        found["data"][CONFIG_FILE] = yaml.safe_dump(document)

    @contextmanager
    def setting(patient: Patient) -> Iterator[None]:
        (name,) = (
            each["metadata"]["name"]
            for each in patient.plane.api.list("configmaps", EXTENDER_NAMESPACE)
            if CONFIG_FILE in each.get("data", {})
        )
        with changed(patient, "configmaps", name, edit, EXTENDER_NAMESPACE):
            yield

    return setting


def entry(index: int, **changes: Any) -> Set:
    """Edit one of its extenders: 0 filters, 1 binds; None takes a field away."""

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
    document["profiles"].append({"schedulerName": "nobodys"})


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


def _select_nobody(service: Object) -> None:
    service["spec"]["selector"]["nobody"] = "has-this"


def _unlabelled(deployment: Object) -> None:
    deployment["metadata"]["labels"] = {}


def _by_itself(deployment: Object) -> None:
    pod_of(deployment)["schedulerName"] = "gang-scheduler"


@contextmanager
def _unready(patient: Patient, count: int) -> Iterator[None]:
    """Have so many pods not ready, by what their kubelet says; the leader is the last."""
    leader, standby = patient.made.leader_and_standby()
    url = leader.container("extender").url({"port": "ops", "path": ""})
    api = patient.plane.api

    def tell(name: str, status: str) -> None:
        pod = api.get("pods", name, EXTENDER_NAMESPACE)
        told = [
            {**each, "status": status} if each["type"] == "Ready" else each
            for each in pod["status"]["conditions"]
        ]
        change = {"status": {"conditions": told}}
        api.patch("pods", name, change, EXTENDER_NAMESPACE, subresource="status")

    chosen = [standby.name, leader.name][:count]
    for name in chosen:
        tell(name, "False")
    try:
        with as_asked(patient, ops_url=url):
            yield
    finally:
        for name in chosen:
            tell(name, "True")


@contextmanager
def _scaled_down(patient: Patient) -> Iterator[None]:
    leader, _ = patient.made.leader_and_standby()
    url = leader.container("extender").url({"port": "ops", "path": ""})
    about = (DEPLOYMENTS, patient.deployment)
    patient.plane.api.patch(*about, {"spec": {"replicas": 1}}, EXTENDER_NAMESPACE)
    try:
        with as_asked(patient, ops_url=url):
            yield
    finally:
        patient.plane.api.patch(*about, {"spec": {"replicas": 2}}, EXTENDER_NAMESPACE)
        patient.made.leader_and_standby()


@contextmanager
def _another_deployment(patient: Patient) -> Iterator[None]:
    """A second one beside the first; paused, so that it never runs here."""
    api = patient.plane.api
    found = api.get(DEPLOYMENTS, patient.deployment, EXTENDER_NAMESPACE)
    metadata = {"name": "another", "namespace": EXTENDER_NAMESPACE}
    spec = {**found["spec"], "paused": True}
    labels = found["metadata"]["labels"]
    api.create({**found, "metadata": {**metadata, "labels": labels}, "spec": spec, "status": {}})
    try:
        yield
    finally:
        api.delete(DEPLOYMENTS, "another", EXTENDER_NAMESPACE)


@contextmanager
def _deleted_kind(patient: Patient) -> Iterator[None]:
    name = "podgroups.scheduling.volcano.sh"
    patient.plane.kubectl("delete", "crd", name, "--timeout=60s")
    try:
        yield
    finally:
        patient.made.shell.type("kubectl apply -k manifests/crds")
        patient.plane.wait_until_established(f"crd/{name}")


@contextmanager
def _without_policy(patient: Patient) -> Iterator[None]:
    patient.plane.api.delete(POLICIES, "gang-extender-queues")
    try:
        yield
    finally:
        patient.made.shell.type("kubectl apply -k manifests/admission")


@contextmanager
def _lease_of_tomorrow(patient: Patient) -> Iterator[None]:
    then = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "tomorrow", "namespace": EXTENDER_NAMESPACE},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": then},
    }
    patient.plane.api.create(lease)
    try:
        with arguments("--lease-name=tomorrow")(patient):
            yield
    finally:
        patient.plane.api.delete(LEASES, "tomorrow", EXTENDER_NAMESPACE)


@contextmanager
def _not_installed(patient: Patient) -> Iterator[None]:
    with deployed(_unlabelled)(patient), as_asked(patient, ops_url=NOBODY):
        yield


@contextmanager
def _another_clock_here(patient: Patient) -> Iterator[None]:
    with as_asked(patient, before=AN_HOUR_AGO):
        yield


class Unready(Extender):
    """One of which no more is asked than that it answers."""

    def is_ready(self) -> bool:
        return answers(f"{self.ops_url}/healthz")


@contextmanager
def _without_rights(patient: Patient) -> Iterator[None]:
    """An extender that may read nothing, and is never ready."""
    kubeconfig = patient.plane.kubeconfig("bind-only-extender")
    extender = Unready("without-rights", patient.plane.logs, kubeconfig=kubeconfig)
    patient.plane.programs.append(extender)
    with extender, as_asked(patient, ops_url=extender.ops_url):
        yield


@contextmanager
def _expired_files(patient: Patient) -> Iterator[None]:
    """An extender whose certificate was replaced by one that cannot be used: it says so."""
    folder = patient.plane.folder / "spoilt"
    patient.made.shell.type(f"gang-extender certificates --directory {folder} --force")
    files = (
        f"--tls-cert-file={folder / 'server.crt'}",
        f"--tls-private-key-file={folder / 'server.key'}",
        f"--client-ca-file={folder / 'ca.crt'}",
    )
    with patient.plane.extender(*files, "--scheduler-name=nobodys") as extender:
        (folder / "server.crt").write_text("none")
        with as_asked(patient, ops_url=extender.ops_url):
            yield


@contextmanager
def _unchecked_api_server(patient: Patient) -> Iterator[None]:
    """An extender that takes anybody for the API server: it says so."""
    document = yaml.safe_load(patient.plane.kubeconfig("extender").read_text())
    for each in document["clusters"]:
        each["cluster"] = {"server": each["cluster"]["server"], "insecure-skip-tls-verify": True}
    kubeconfig = patient.plane.folder / "unchecked.kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    extender = Extender(
        "unchecked",
        patient.plane.logs,
        kubeconfig=kubeconfig,
        arguments=("--scheduler-name=nobodys",),
    )
    patient.plane.programs.append(extender)
    with extender, as_asked(patient, ops_url=extender.ops_url):
        yield


#: On a second scheduler beside the extender.
IN_A_PAIR: dict[str, Set] = {
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
    "StandbyNotSynced": lambda patient: _unready(patient, 1),
    "ExtenderNotReady": lambda patient: _unready(patient, 2),
    "TwoLeaders": arguments("--lease=none", without=("--lease",)),
    "TwoExtenders": _another_deployment,
    "ServiceWithoutEndpoints": resource("services", "gang-extender", _select_nobody, "gang-system"),
    "NoLeader": arguments("--lease-name=nobodys"),
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


def test_every_trap_that_we_know_is_set_somewhere_here() -> None:
    known = [trap.name for traps in KNOWN.values() for trap in traps]

    assert sorted([*IN_A_PAIR, *BEHIND]) == sorted(known)


def test_nothing_is_named_where_our_overlay_runs_beside_the_scheduler(pair: Patient) -> None:
    wait_for(pair.is_well, 60, "doctor finds nothing", seeing=pair.ask, every_s=1)


@pytest.mark.parametrize("name", IN_A_PAIR)
def test_a_trap_that_is_set_beside_the_scheduler_is_named(pair: Patient, name: str) -> None:
    is_named(pair, name, IN_A_PAIR[name])


def test_queues_that_promise_too_much_and_unknown_queues_are_named(pair: Patient) -> None:
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
                <= {each["where"] for each in pair.ask()[1]["found"]}
            ),
            60,
            "both are named",
            seeing=pair.ask,
            every_s=1,
        )
        assert pair.ask()[0] == 1
    finally:
        api.delete(objects.QUEUES, "greedy")
        api.delete("namespaces", "astray")


def test_who_may_not_look_is_told_which_rights_that_takes(pair: Patient) -> None:
    kubeconfig = pair.plane.kubeconfig("bind-only-extender")
    code, told = typed("doctor", "-o", "json", f"--ops-url={NOBODY}", f"--kubeconfig={kubeconfig}")

    assert code == 2, told
    why = {each["what"]: each["why"] for each in told["not_checked"]}
    assert why["Deployments of the extender"].endswith("may not list deployments.apps")
    assert "may not list customresourcedefinitions" in why["CustomResourceDefinitions"]


def test_an_api_server_with_native_gangs_is_named(
    new_plane: Callable[..., ControlPlane], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = ApiServer.command
    # It watches that group itself and is not ready before it serves it.
    native = (
        "--feature-gates=GenericWorkload=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    )
    monkeypatch.setattr(ApiServer, "command", lambda self: [*usual(self), *native])
    plane = new_plane()
    code, told = typed(
        "doctor", "-o", "json", f"--ops-url={NOBODY}", f"--kubeconfig={plane.kubeconfig()}"
    )
    found = {each["name"]: each["where"] for each in told["found"]}

    assert code == 1
    assert found["NativeGangs"] == "the API server"
    assert "NotInstalled" in found
