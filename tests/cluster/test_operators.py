"""What the controllers of other projects write starts as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from . import objects, operators
from .api import Api, Object, resource_of
from .conftest import planes
from .control_plane import ControlPlane
from .operators import Written
from .waiting import wait_for

WRITERS = (
    operators.volcano_job,
    operators.volcano_statefulset,
    operators.training_operator_with_volcano,
    operators.training_operator_with_coscheduling,
    operators.trainer_with_coscheduling,
    operators.spark_with_its_volcano_step,
    operators.spark_operator_with_volcano,
)


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with our pair, where the CRDs of other projects are installed."""

    plane: ControlPlane

    @property
    def api(self) -> Api:
        return self.plane.api

    def phase(self, group: Object) -> str:
        about = group["metadata"]
        seen = self.api.get(resource_of(group), about["name"], about["namespace"])
        return str(seen.get("status", {}).get("phase", ""))

    def nodes(self, pods: list[Object]) -> list[str | None]:
        named = [(pod["metadata"]["name"], pod["metadata"]["namespace"]) for pod in pods]
        return [objects.node_of(self.api.get("pods", *name)) for name in named]


@pytest.fixture(scope="module")
def site(
    control_plane_binaries: None,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Site]:
    with ExitStack() as running:
        plane = running.enter_context(ControlPlane(tmp_path_factory.mktemp("site")))
        request.config.stash[planes].append(plane)
        plane.install()
        plane.api.create(foreign_kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"))
        wait_for(lambda: plane.api.listing(operators.COSCHEDULING_GROUPS), 20, "it is served")
        names = [f"node-{index}" for index in range(8)]
        plane.api.create(*map(objects.node, names))
        plane.wait_until_nodes_are_ready(names)
        extender = running.enter_context(plane.extender())
        running.enter_context(plane.scheduler(plane.scheduler_config(extender)))
        yield Site(plane)


def foreign_kind(group: str, version: str, kind: str, plural: str) -> Object:
    """A kind of another project, without any rules about its fields."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [served],
        },
    }


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_job_starts_as_its_controller_writes_it(
    site: Site, write: Callable[[str], Written]
) -> None:
    namespace = write.__name__.replace("_", "-")
    site.api.create(objects.namespace(namespace))
    written = write(namespace)
    site.api.create(written.group)
    if written.awaits:
        wait_for(
            lambda: site.phase(written.group) == written.awaits,
            20,
            f"the group is {written.awaits}",
            seeing=lambda: site.phase(written.group),
        )
    for wave in written.waves:
        site.api.create(*wave)
        wait_for(
            lambda w=wave: all(site.nodes(w)),
            20,
            "all are bound",
            seeing=lambda w=wave: site.nodes(w),
        )

    wait_for(
        lambda: site.phase(written.group) == "Running",
        20,
        "the group is said to run",
        seeing=lambda: site.phase(written.group),
    )
