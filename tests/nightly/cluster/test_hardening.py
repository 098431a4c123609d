"""The pod security and the NetworkPolicies of both deployments.

The API server enforces the first. A cluster network enforces NetworkPolicies; there is none here,
so the tests only read the policies.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.model.annotations import LEADER
from tests import objects
from tests.cluster.api import Object
from tests.cluster.control_plane import MANIFESTS, OVERLAYS, SECOND_SCHEDULER, ControlPlane
from tests.cluster.extender_process import REPOSITORY

from .installed_pair import template

INSTALL = REPOSITORY / "docs" / "install.md"
MONITORING = {"namespaceSelector": {"matchLabels": {"gang-extender.io/monitoring": "true"}}}


@pytest.fixture(scope="module", params=OVERLAYS, ids=lambda path: path.name)
def overlay(plane: ControlPlane, request: pytest.FixtureRequest) -> list[Object]:
    return plane.rendered(request.param)


@pytest.fixture
def deployment(overlay: list[Object]) -> Object:
    (only,) = objects.of_kind(overlay, "Deployment")
    return only


@pytest.fixture
def pod(deployment: Object) -> Object:
    """The pod that the ReplicaSet would create."""
    template = deployment["spec"]["template"]
    namespace = deployment["metadata"]["namespace"]
    about = {**template["metadata"], "name": "one", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": template["spec"]}


@pytest.fixture
def extender(pod: Object) -> Object:
    container: Object
    (container,) = (each for each in pod["spec"]["containers"] if each["name"] == "extender")
    return container


def selects(selector: Object, labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, selector
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def create(plane: ControlPlane, thing: Object) -> str:
    stdin = yaml.safe_dump(thing)
    return plane.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=stdin)


def test_namespace_enforces_the_restricted_standard(overlay: list[Object]) -> None:
    (namespace,) = objects.of_kind(overlay, "Namespace")

    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_pod_is_admitted_in_its_namespace(plane: ControlPlane, pod: Object) -> None:
    assert create(plane, pod)


@pytest.mark.parametrize(
    ("what", "less"),
    [
        ("runAsNonRoot", {"runAsNonRoot": False, "runAsUser": 0}),
        ("seccomp", {"seccompProfile": {"type": "Unconfined"}}),
    ],
)
def test_less_restricted_pod_is_refused(
    plane: ControlPlane, pod: Object, what: str, less: dict[str, Any]
) -> None:
    spec = pod["spec"]
    looser = {**spec, "securityContext": {**spec["securityContext"], **less}}

    with pytest.raises(AssertionError, match=f'violates PodSecurity "restricted.*{what}'):
        create(plane, {**pod, "spec": looser})


def test_containers_are_restricted_beyond_the_standard(pod: Object) -> None:
    spec = pod["spec"]
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["enableServiceLinks"] is False
    assert spec["priorityClassName"] == "system-cluster-critical"
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = [m for m in container["volumeMounts"] if not m.get("readOnly")]
        pair = {"/run/gang-pair"} if container["name"] == "pair" else set()
        assert {mount["mountPath"] for mount in writable} <= {"/tmp", *pair}  # noqa: S108
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])


def in_memory(spec: Object) -> dict[str, bool]:
    """Return the containers that mount the folder of the pair, and whether it is in memory."""
    volumes = {each["name"]: each for each in spec["volumes"]}
    return {
        container["name"]: volumes[mount["name"]]["emptyDir"].get("medium") == "Memory"
        for container in (*spec["containers"], *spec.get("initContainers", ()))
        for mount in container["volumeMounts"]
        if mount["mountPath"] == "/run/gang-pair"
    }


PAIR = {"extender": True, "kube-scheduler": True, "pair": True}


def test_secret_of_a_pair_is_in_memory(deployment: Object, request: pytest.FixtureRequest) -> None:
    """The chart renders the same: `test_chart_renders_the_objects_of_the_overlay`."""
    is_pair = request.node.callspec.params["overlay"] == SECOND_SCHEDULER

    assert in_memory(deployment["spec"]["template"]["spec"]) == (PAIR if is_pair else {})


def test_manifest_of_a_pair_has_its_secret_in_memory() -> None:
    assert in_memory(template()["spec"]) == PAIR


def test_secrets_are_readable_by_the_group_only(pod: Object) -> None:
    secrets = [each["secret"] for each in pod["spec"]["volumes"] if "secret" in each]

    for secret in secrets:
        assert secret["defaultMode"] == 0o440
        assert pod["spec"]["securityContext"]["fsGroup"] == 10001


def test_image_has_the_user_of_the_pods() -> None:
    users = re.findall(r"^USER (\d+)", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE)

    assert users[-1] == "10001"


def test_containers_have_startup_and_liveness_probes(pod: Object) -> None:
    for container in pod["spec"]["containers"]:
        named = {port["name"] for port in container["ports"]}
        startup, liveness = container["startupProbe"], container["livenessProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 60
        assert {startup["httpGet"]["port"], liveness["httpGet"]["port"]} <= named


def test_readiness_is_that_of_the_cache_so_that_updates_finish(
    deployment: Object, extender: Object
) -> None:
    assert extender["readinessProbe"]["httpGet"] == {"path": "/warmz", "port": "ops"}
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {
        "maxUnavailable": 0,
        "maxSurge": 1,
    }


def test_disruption_budget_keeps_one_of_two_replicas(
    overlay: list[Object], deployment: Object
) -> None:
    (budget,) = objects.of_kind(overlay, "PodDisruptionBudget")
    spec = deployment["spec"]

    assert spec["replicas"] == 2
    assert budget["spec"]["minAvailable"] == 1
    assert objects.place(budget)[0] == objects.place(deployment)[0]
    assert budget["spec"]["selector"] == spec["selector"]


def test_replicas_spread_over_nodes(deployment: Object) -> None:
    (spread,) = deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]

    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    assert spread["labelSelector"] == deployment["spec"]["selector"]


def test_quota_allows_an_update_of_all_replicas(overlay: list[Object], deployment: Object) -> None:
    (quota,) = objects.of_kind(overlay, "ResourceQuota")
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]

    assert scope["values"] == [deployment["spec"]["template"]["spec"]["priorityClassName"]]
    assert int(quota["spec"]["hard"]["pods"]) > 2 * deployment["spec"]["replicas"]


def allowed_peers(overlay: list[Object], pod: Object) -> dict[int, list[Object]]:
    """Return the peers that the policies of an overlay allow for a pod, by port."""
    allowed: dict[int, list[Object]] = {}
    for policy in objects.of_kind(overlay, "NetworkPolicy"):
        assert objects.place(policy)[0] == pod["metadata"]["namespace"]
        if selects(policy["spec"]["podSelector"], pod["metadata"]["labels"]):
            for rule in policy["spec"].get("ingress", []):
                for port in rule["ports"]:
                    allowed.setdefault(port["port"], []).extend(rule["from"])
    return allowed


def test_policies_deny_ingress_by_default(overlay: list[Object], pod: Object) -> None:
    closed = [
        policy["spec"]
        for policy in objects.of_kind(overlay, "NetworkPolicy")
        if not policy["spec"].get("ingress")
    ]

    (deny,) = closed
    assert deny["policyTypes"] == ["Ingress"]
    assert selects(deny["podSelector"], pod["metadata"]["labels"])


def test_policies_name_the_ports_of_the_containers(overlay: list[Object], pod: Object) -> None:
    declared = {p["containerPort"] for each in pod["spec"]["containers"] for p in each["ports"]}

    assert set(allowed_peers(overlay, pod)) == declared


def test_policies_allow_only_monitoring_to_the_operations_ports(
    overlay: list[Object], pod: Object
) -> None:
    allowed = allowed_peers(overlay, pod)

    assert allowed.pop(8889) == [MONITORING]
    assert allowed.pop(10259, [MONITORING]) == [MONITORING]
    assert set(allowed) <= {8888}


def test_policies_allow_no_peer_to_hooks_on_loopback(plane: ControlPlane) -> None:
    for path in OVERLAYS:
        things = plane.rendered(path)
        (deployment,) = objects.of_kind(things, "Deployment")
        template = deployment["spec"]["template"]
        about = {**template["metadata"], "namespace": deployment["metadata"]["namespace"]}
        words = [word for each in template["spec"]["containers"] for word in each.get("args", [])]
        is_outside = "--listen=0.0.0.0:8888" in words

        assert (8888 in allowed_peers(things, {"metadata": about})) == is_outside
        assert is_outside == (path.name == "default-scheduler")


def test_documented_patch_allows_only_the_control_plane_to_the_hooks(
    plane: ControlPlane, tmp_path: Path
) -> None:
    shown = re.findall(r"^```yaml\n(.*?)^```$", INSTALL.read_text(), re.MULTILINE | re.DOTALL)
    (patch,) = (each for each in shown if "name: gang-extender-hooks" in each)
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    mine = tmp_path / "manifests" / "overlays" / "mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(patch)

    things = plane.rendered(mine)
    (deployment,) = objects.of_kind(things, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    pod = {"metadata": {"labels": labels, "namespace": "gang-system"}}
    assert allowed_peers(things, pod)[8888] == [
        {"ipBlock": {"cidr": "192.0.2.10/32"}},
        {"ipBlock": {"cidr": "192.0.2.11/32"}},
    ]


def test_service_selects_the_leader(overlay: list[Object], pod: Object, extender: Object) -> None:
    service, metrics = sorted(objects.of_kind(overlay, "Service"), key=objects.place)

    assert metrics["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    beyond = dict(service["spec"]["selector"].items() - pod["metadata"]["labels"].items())
    assert beyond == {LEADER: "true"}
    declared = {port["name"]: port["containerPort"] for port in extender["ports"]}
    for port in (*service["spec"]["ports"], *metrics["spec"]["ports"]):
        assert declared[port["targetPort"]] == port["port"]


def test_requests_are_documented(extender: Object) -> None:
    documented = re.findall(
        r"^\| (cpu|memory|memory limit) (\w+) \|", INSTALL.read_text(), re.MULTILINE
    )
    resources = extender["resources"]

    assert dict(documented) == {
        **resources["requests"],
        "memory limit": resources["limits"]["memory"],
    }
