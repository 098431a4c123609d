"""The manifests, as the real API server takes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests import objects

from .api import ApiError, Object
from .control_plane import OVERLAYS, SECOND_SCHEDULER, ControlPlane

MANIFESTS = Path(__file__).parents[2] / "manifests"
RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module", params=OVERLAYS, ids=lambda path: path.name)
def overlay(plane: ControlPlane, request: pytest.FixtureRequest) -> list[Object]:
    return plane.rendered(request.param)


@pytest.fixture(scope="module")
def second_scheduler(plane: ControlPlane) -> list[Object]:
    return plane.rendered(SECOND_SCHEDULER)


@pytest.mark.parametrize(
    "file", sorted(MANIFESTS.glob("crds/*.sh.yaml")), ids=lambda file: file.stem
)
def test_each_crd_is_good_for_kubectl_apply(plane: ControlPlane, file: Path) -> None:
    assert plane.kubectl("apply", "--dry-run=server", "-f", file)


def test_there_are_two_overlays() -> None:
    assert [path.name for path in OVERLAYS] == ["default-scheduler", "second-scheduler"]


@pytest.mark.parametrize(
    "path",
    [*OVERLAYS, *(MANIFESTS / name for name in ("volcano-crds", "ops-auth", "flow-control"))],
    ids=lambda path: path.name,
)
def test_an_overlay_is_accepted_whole_by_strict_validation(plane: ControlPlane, path: Path) -> None:
    said = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", path)

    assert len(said.splitlines()) == len(plane.rendered(path))


@pytest.mark.parametrize("path", OVERLAYS, ids=lambda path: path.name)
def test_beside_volcano_an_overlay_is_applied_without_our_crds(
    plane: ControlPlane, path: Path
) -> None:
    selector = "--selector=app.kubernetes.io/component!=crds"
    said = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", path, selector)

    crds = objects.of_kind(plane.rendered(path), "CustomResourceDefinition")
    assert len(crds) == 2
    assert len(said.splitlines()) == len(plane.rendered(path)) - len(crds)
    assert "customresourcedefinition" not in said


def test_every_binding_of_the_overlay_gives_a_role_that_exists_to_somebody_who_exists(
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
        # What we do not bring must be there from the start, in that very namespace.
        stock = f"{kind.lower()}s.{RBAC}"
        assert (namespace, name) in brought or plane.api.find(stock, name, namespace), binding


def test_the_second_scheduler_reads_how_to_authenticate_where_that_is_kept(
    second_scheduler: list[Object],
) -> None:
    (binding,) = [
        thing
        for thing in objects.of_kind(second_scheduler, "RoleBinding")
        if thing["roleRef"]["name"] == "extension-apiserver-authentication-reader"
    ]

    assert binding["metadata"]["namespace"] == "kube-system"


def test_the_second_schedulers_role_names_the_lease_that_its_configuration_names(
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

    # Whoever leads by it, and whoever follows.
    assert named == [[election["resourceName"]]] * 2
    assert {r["metadata"]["namespace"] for r in roles} == {election["resourceNamespace"]}


def test_the_second_schedulers_pod_mounts_the_config_map_that_it_brings(
    second_scheduler: list[Object],
) -> None:
    (config,) = objects.of_kind(second_scheduler, "ConfigMap")
    (deployment,) = objects.of_kind(second_scheduler, "Deployment")
    volumes = deployment["spec"]["template"]["spec"]["volumes"]

    assert config["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    assert [v["configMap"]["name"] for v in volumes if "configMap" in v] == [
        objects.place(config)[1]
    ]


def test_the_example_gang_is_accepted(plane: ControlPlane, namespace: str) -> None:
    example = MANIFESTS / "examples" / "gang.yaml"

    assert plane.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", example
    )


def test_the_overlays_scheduler_configuration_is_what_our_command_prints(
    plane: ControlPlane,
) -> None:
    from click.testing import CliRunner

    from extender.cli.main import main

    shipped = SECOND_SCHEDULER / "scheduler-config.yaml"
    printed = CliRunner().invoke(main, ["scheduler-config", "--leader-elect"]).output

    assert shipped.read_text() == printed


def test_our_crd_keeps_what_we_refuse_so_that_it_can_be_refused(
    plane: ControlPlane, namespace: str
) -> None:
    asked = {"networkTopology": {"mode": "hard"}, "subGroupPolicy": [{"subGroupSize": 2}]}
    plane.api.create(objects.pod_group("picky", namespace, 2, **asked))

    kept = plane.api.get(objects.POD_GROUPS, "picky", namespace)["spec"]
    assert {name: kept.get(name) for name in asked} == asked


def test_the_extender_may_not_do_what_its_role_does_not_grant(
    plane: ControlPlane, namespace: str
) -> None:
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


def test_the_role_of_the_extender_alone_can_evict_and_bind_pods_and_change_nothing_else(
    plane: ControlPlane, namespace: str
) -> None:
    allowed = {each for each in MAY | MAY_NOT if may(plane, "extender", *each.split(), namespace)}

    assert allowed == MAY


def may(plane: ControlPlane, role: str, verb: str, resource: str, namespace: str) -> bool:
    """Ask the API server whether one of our users may do something."""
    name, _, group = resource.partition(".")
    name, _, part = name.partition("/")
    wish = {"verb": verb, "resource": name, "subresource": part, "group": group}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**wish, "namespace": namespace}},
    }
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    answer = plane.api_as(role).request("POST", path, review)
    return bool(answer["status"]["allowed"])


def test_every_manifest_is_yaml_with_a_kind() -> None:
    # Of the chart only Helm makes manifests.
    for file in {*MANIFESTS.rglob("*.yaml")} - {*(MANIFESTS / "chart").rglob("*.yaml")}:
        for thing in yaml.safe_load_all(file.read_text()):
            assert thing["kind"], file


def test_the_readmes_manifests_and_kubectl_commands_work(
    plane: ControlPlane, namespace: str
) -> None:
    from tests.readme import ROOT, blocks, commands

    for manifest in blocks("yaml"):
        assert plane.kubectl(
            "create", "--dry-run=server", "-n", namespace, "-f", "-", stdin=manifest
        )
    applied = [command.split() for command in commands() if command.startswith("kubectl apply")]
    assert len(applied) == 2
    for _, _, flag, path in applied:
        assert plane.kubectl("apply", "--dry-run=server", flag, ROOT / path)
