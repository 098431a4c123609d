"""The manifests, as the real API server takes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from . import objects
from .api import ApiError
from .control_plane import ControlPlane

MANIFESTS = Path(__file__).parents[2] / "manifests"


@pytest.mark.parametrize("file", sorted(MANIFESTS.glob("crds/*.yaml")), ids=lambda file: file.stem)
def test_each_crd_is_good_for_kubectl_apply(plane: ControlPlane, file: Path) -> None:
    assert plane.kubectl("apply", "--dry-run=server", "-f", file)


def test_the_second_scheduler_overlay_is_accepted(plane: ControlPlane) -> None:
    rendered = plane.kubectl("kustomize", MANIFESTS / "overlays" / "second-scheduler")

    assert plane.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=rendered
    )


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

    shipped = MANIFESTS / "overlays" / "second-scheduler" / "scheduler-config.yaml"
    printed = CliRunner().invoke(main, ["scheduler-config", "--leader-elect"]).output

    assert shipped.read_text() == printed


def test_a_pod_group_with_a_negative_minimum_is_refused_by_its_schema(
    plane: ControlPlane, namespace: str
) -> None:
    with pytest.raises(ApiError, match="minMember"):
        plane.api.create(objects.pod_group("odd", namespace, -1))


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


def test_every_manifest_is_yaml_with_a_kind() -> None:
    for file in MANIFESTS.rglob("*.yaml"):
        for thing in yaml.safe_load_all(file.read_text()):
            assert thing["kind"], file


def test_the_readmes_manifests_and_kubectl_commands_work(
    plane: ControlPlane, namespace: str
) -> None:
    from tests.test_readme import ROOT, blocks, commands

    for manifest in blocks("yaml"):
        assert plane.kubectl(
            "create", "--dry-run=server", "-n", namespace, "-f", "-", stdin=manifest
        )
    applied = [command.split() for command in commands() if command.startswith("kubectl apply")]
    assert len(applied) == 3
    for _, _, flag, path in applied:
        assert plane.kubectl("apply", "--dry-run=server", flag, ROOT / path)
