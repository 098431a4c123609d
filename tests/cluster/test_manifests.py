"""The manifests on the real API server, and the flow schemas in use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
import yaml

from tests import objects

from .api import ApiError, Object
from .control_plane import MANIFESTS, OVERLAYS, SECOND_SCHEDULER, ControlPlane
from .users import EXTENDER_NAMESPACE
from .waiting import wait_for

RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module", params=OVERLAYS, ids=lambda path: path.name)
def overlay(plane: ControlPlane, request: pytest.FixtureRequest) -> list[Object]:
    return plane.rendered(request.param)


@pytest.fixture(scope="module")
def second_scheduler(plane: ControlPlane) -> list[Object]:
    return plane.rendered(SECOND_SCHEDULER)


@pytest.mark.parametrize(
    "path",
    [*OVERLAYS, *(MANIFESTS / name for name in ("volcano-crds", "ops-auth", "flow-control"))],
    ids=lambda path: path.name,
)
def test_overlay_passes_strict_validation(plane: ControlPlane, path: Path) -> None:
    output = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", path)

    assert len(output.splitlines()) == len(plane.rendered(path))


@pytest.mark.parametrize("path", OVERLAYS, ids=lambda path: path.name)
def test_overlay_can_be_applied_without_the_crds(plane: ControlPlane, path: Path) -> None:
    selector = "--selector=app.kubernetes.io/component!=crds"
    output = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", path, selector)

    crds = objects.of_kind(plane.rendered(path), "CustomResourceDefinition")
    assert len(crds) == 2
    assert len(output.splitlines()) == len(plane.rendered(path)) - len(crds)
    assert "customresourcedefinition" not in output


def test_role_bindings_of_the_overlay_name_existing_roles_and_accounts(
    plane: ControlPlane, overlay: list[Object]
) -> None:
    accounts = [objects.place(thing) for thing in objects.of_kind(overlay, "ServiceAccount")]
    bindings = objects.of_kind(overlay, "RoleBinding", "ClusterRoleBinding")

    assert bindings
    for binding in bindings:
        for subject in binding["subjects"]:
            assert (subject["namespace"], subject["name"]) in accounts, binding
        kind, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
        namespace = objects.place(binding)[0] if kind == "Role" else None
        brought = [objects.place(thing) for thing in objects.of_kind(overlay, kind)]
        # Other roles must exist in every cluster, in that namespace.
        stock = f"{kind.lower()}s.{RBAC}"
        assert (namespace, name) in brought or plane.api.find(stock, name, namespace), binding


def test_second_scheduler_may_read_the_authentication_config(
    second_scheduler: list[Object],
) -> None:
    (binding,) = [
        thing
        for thing in objects.of_kind(second_scheduler, "RoleBinding")
        if thing["roleRef"]["name"] == "extension-apiserver-authentication-reader"
    ]

    assert binding["metadata"]["namespace"] == "kube-system"


def test_role_of_the_second_scheduler_names_the_lease_of_its_configuration(
    second_scheduler: list[Object],
) -> None:
    (config,) = objects.of_kind(second_scheduler, "ConfigMap")
    election = yaml.safe_load(config["data"]["scheduler-config.yaml"])["leaderElection"]
    roles = [
        r
        for r in objects.of_kind(second_scheduler, "Role")
        if r["rules"][0]["resources"] == ["leases"]
    ]
    named = [rule["resourceNames"] for r in roles for rule in r["rules"] if "resourceNames" in rule]

    # For kube-scheduler, and for the extender.
    assert named == [[election["resourceName"]]] * 2
    assert {r["metadata"]["namespace"] for r in roles} == {election["resourceNamespace"]}


def test_pod_of_the_second_scheduler_mounts_the_config_map_of_the_overlay(
    second_scheduler: list[Object],
) -> None:
    (config,) = objects.of_kind(second_scheduler, "ConfigMap")
    (deployment,) = objects.of_kind(second_scheduler, "Deployment")
    volumes = deployment["spec"]["template"]["spec"]["volumes"]

    assert config["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    assert [v["configMap"]["name"] for v in volumes if "configMap" in v] == [
        objects.place(config)[1]
    ]


def test_example_gang_is_accepted(plane: ControlPlane, namespace: str) -> None:
    example = MANIFESTS / "examples" / "gang.yaml"

    assert plane.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", example
    )


def test_scheduler_configuration_of_the_overlay_is_what_the_command_prints(
    plane: ControlPlane,
) -> None:
    from click.testing import CliRunner

    from extender.cli.main import main

    shipped = SECOND_SCHEDULER / "scheduler-config.yaml"
    printed = CliRunner().invoke(main, ["scheduler-config", "--leader-elect"]).output

    assert shipped.read_text() == printed


def test_crd_stores_unsupported_fields_so_that_the_extender_can_refuse_them(
    plane: ControlPlane, namespace: str
) -> None:
    spec = {"networkTopology": {"mode": "hard"}, "subGroupPolicy": [{"subGroupSize": 2}]}
    plane.api.create(objects.pod_group("picky", namespace, 2, **spec))

    stored = plane.api.get(objects.POD_GROUPS, "picky", namespace)["spec"]
    assert {name: stored.get(name) for name in spec} == spec


def test_extender_has_no_other_permissions(plane: ControlPlane, namespace: str) -> None:
    extender = plane.api_as("extender")

    for resource in ("secrets", "configmaps"):
        with pytest.raises(ApiError) as refusal:
            extender.list(resource, namespace)
        assert refusal.value.status == 403
    with pytest.raises(ApiError) as refusal:
        extender.create(objects.pod("mine", namespace))
    assert refusal.value.status == 403


MAY = {"create pods/eviction", "create pods/binding", "patch pods/status"}
MAY_NOT = {
    "delete pods",
    "patch pods",
    "patch podgroups.scheduling.volcano.sh",
    "create podgroups.scheduling.volcano.sh",
    "delete podgroups.scheduling.volcano.sh",
    "create queues.scheduling.volcano.sh",
    "delete queues.scheduling.volcano.sh",
    "update nodes",
}


def test_role_of_the_extender_allows_only_evictions_bindings_and_pod_status(
    plane: ControlPlane, namespace: str
) -> None:
    allowed = {each for each in MAY | MAY_NOT if may(plane, "extender", *each.split(), namespace)}

    assert allowed == MAY


def may(plane: ControlPlane, role: str, verb: str, resource: str, namespace: str) -> bool:
    """Ask the API server whether a user has a permission."""
    name, _, group = resource.partition(".")
    name, _, part = name.partition("/")
    attributes = {"verb": verb, "resource": name, "subresource": part, "group": group}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**attributes, "namespace": namespace}},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = plane.api_as(role).request("POST", path, review)
    return bool(answer["status"]["allowed"])


def test_manifests_and_kubectl_commands_of_the_readme_work(
    plane: ControlPlane, namespace: str
) -> None:
    from tests.readme import ROOT, blocks, commands

    for manifest in (each for each in blocks("yaml") if "apiVersion:" in each):
        assert plane.kubectl(
            "create", "--dry-run=server", "-n", namespace, "-f", "-", stdin=manifest
        )
    applied = [command.split() for command in commands() if command.startswith("kubectl apply")]
    assert len(applied) == 2
    for _, _, flag, path in applied:
        assert plane.kubectl("apply", "--dry-run=server", flag, ROOT / path)


FOLDER = MANIFESTS / "flow-control"
SCHEMAS = "flowschemas.flowcontrol.apiserver.k8s.io/v1"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{EXTENDER_NAMESPACE}/leases/gang-scheduler"


@pytest.fixture(scope="module")
def flow_schemas(plane: ControlPlane) -> Iterator[None]:
    plane.kubectl("apply", "-k", FOLDER)
    yield
    plane.kubectl("delete", "-k", FOLDER)


def schema_of(plane: ControlPlane, role: str, path: str) -> str:
    """Return the name of the FlowSchema of a request."""
    token = yaml.safe_load(plane.kubeconfig(role).read_text())["users"][0]["user"]["token"]
    ca = str(plane.apiserver.certificate)
    with urllib3.PoolManager(retries=False, timeout=10, ca_certs=ca) as http:
        headers = {"Authorization": f"Bearer {token}"}
        answer = http.request("GET", f"{plane.apiserver.url}{path}", headers=headers)
    uid = answer.headers["X-Kubernetes-PF-FlowSchema-UID"]
    (name,) = (
        each["metadata"]["name"]
        for each in plane.api.list(SCHEMAS)
        if each["metadata"]["uid"] == uid
    )
    return str(name)


SCHEMA_BY_PATH = {
    LEASES: "gang-extender-leases",
    "/apis/coordination.k8s.io/v1/namespaces/default/leases/x": "gang-extender",
    "/api/v1/namespaces/default/pods/x": "gang-extender",
    "/api/v1/pods?limit=1": "gang-extender",
    "/api/v1/nodes?limit=1": "gang-extender",
    "/apis/scheduling.volcano.sh/v1beta1/podgroups?limit=1": "gang-extender",
}


@pytest.mark.usefixtures("flow_schemas")
def test_requests_of_the_extender_use_its_flow_schemas(plane: ControlPlane) -> None:
    def schemas() -> dict[str, str]:
        return {path: schema_of(plane, "extender", path) for path in SCHEMA_BY_PATH}

    # The API server applies new schemas after a moment.
    wait_for(
        lambda: schemas() == SCHEMA_BY_PATH, 30, "each has its schema", every_s=0.5, seeing=schemas
    )


@pytest.mark.usefixtures("flow_schemas")
def test_requests_of_other_accounts_do_not(plane: ControlPlane) -> None:
    assert schema_of(plane, "bind-only-extender", LEASES) not in (
        "gang-extender",
        "gang-extender-leases",
    )
