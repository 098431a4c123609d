"""Objects exactly as the controllers of other projects write them start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests import objects
from tests.cluster.api import Api, Object, resource_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.nightly.cluster import operators

from .operators import Written

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
class OperatorCluster:
    """A cluster with a pair and the CRDs of other projects."""

    plane: ControlPlane

    @property
    def api(self) -> Api:
        return self.plane.api

    def phase(self, group: Object) -> str:
        about = group["metadata"]
        seen = self.api.get(resource_of(group), about["name"], about["namespace"])
        return str(seen.get("status", {}).get("phase", ""))

    def install(self, group: str, version: str, kind: str, plural: str) -> None:
        """Install a CRD of another project."""
        self.api.create(foreign_crd(group, version, kind, plural))
        resource = f"{plural}.{group}/{version}"
        wait_for(lambda: self.api.listing(resource), 20, f"{resource} is served")

    def wait_for_phase(self, group: Object, phase: str) -> None:
        def seen() -> str:
            return self.phase(group)

        wait_for(lambda: seen() == phase, 20, f"the group is {phase}", seeing=seen)

    def wait_until_bound(self, pods: list[Object]) -> None:
        def nodes() -> list[str | None]:
            return self.nodes(pods)

        wait_for(lambda: all(nodes()), 20, "all are bound", seeing=nodes)

    def nodes(self, pods: list[Object]) -> list[str | None]:
        named = [(pod["metadata"]["name"], pod["metadata"]["namespace"]) for pod in pods]
        return [objects.node_of(self.api.get("pods", *name)) for name in named]


@pytest.fixture(scope="module")
def site(
    control_plane_binaries: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorCluster]:
    with ExitStack() as running:
        plane = running.enter_context(ControlPlane(tmp_path_factory.mktemp("site")))
        plane.install()
        OperatorCluster(plane).install("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
        names = [f"node-{index}" for index in range(8)]
        plane.api.create(*map(objects.node, names))
        plane.wait_until_nodes_are_ready(names)
        extender = running.enter_context(plane.extender())
        running.enter_context(plane.scheduler(plane.scheduler_config(extender)))
        yield OperatorCluster(plane)


def foreign_crd(group: str, version: str, kind: str, plural: str) -> Object:
    """Return a CRD of another project, without validation."""
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
def test_job_starts_as_its_controller_writes_it(
    site: OperatorCluster, write: Callable[[str], Written]
) -> None:
    namespace = write.__name__.replace("_", "-")
    site.api.create(objects.namespace(namespace))
    written = write(namespace)
    site.api.create(written.group)
    if written.awaits:
        site.wait_for_phase(written.group, written.awaits)
    for wave in written.waves:
        site.api.create(*wave)
        site.wait_until_bound(wave)
    site.wait_for_phase(written.group, "Running")


@pytest.fixture(scope="module")
def volcano(site: OperatorCluster, volcano_binary: None) -> Iterator[None]:
    """Volcano's own controllers, and the further CRDs they need."""
    for group, kind, plural in (("batch", "Job", "jobs"), ("bus", "Command", "commands")):
        site.install(f"{group}.volcano.sh", "v1alpha1", kind, plural)
    site.api.create(objects.queue("default"))
    with site.plane.volcano_controllers():
        yield


def test_volcano_job_starts_whole_with_its_own_controllers(
    site: OperatorCluster, volcano: None
) -> None:
    site.api.create(objects.namespace("jobs"), volcano_job("train", "jobs", workers=3))

    def members() -> list[Object]:
        return site.api.list("pods", "jobs", labels="volcano.sh/job-name=train")

    wait_for(
        lambda: len(members()) == 4 and all(map(objects.node_of, members())),
        30,
        "a master and 3 workers are bound",
        seeing=lambda: [
            (group["spec"], group.get("status"))
            for group in site.api.list(objects.POD_GROUPS, "jobs")
        ],
    )
    (group,) = site.api.list(objects.POD_GROUPS, "jobs")
    # Names that only a quota uses once made them wait for ever.
    assert {"count/pods", "limits.cpu", "requests.cpu"} <= group["spec"]["minResources"].keys()
    wait_for(lambda: state_of(site, "train", "jobs") == "Running", 30, "the Job runs")


def test_event_on_a_volcano_job_has_the_extenders_reason(
    site: OperatorCluster, volcano: None
) -> None:
    site.api.create(
        objects.queue("small", capability={"cpu": "2"}),
        objects.namespace("must-wait"),
        volcano_job("big", "must-wait", workers=3, queue="small"),
    )

    def messages() -> list[str]:
        events = site.api.list("events", "must-wait")
        return [each["message"] for each in events if each["involvedObject"]["kind"] == "Job"]

    wait_for(
        lambda: any("queue small uses 0 of at most 2 cpu" in each for each in messages()),
        30,
        "an event on the Job says why",
        seeing=lambda: (messages(), site.api.list(objects.POD_GROUPS, "must-wait")),
    )


def test_plain_pods_start_in_the_groups_of_volcanos_controllers(
    site: OperatorCluster, volcano: None
) -> None:
    pods = objects.pods(3, "web", "plain", scheduler="volcano")
    site.api.create(objects.namespace("plain"), *pods)
    site.wait_until_bound(pods)
    wait_for(
        lambda: len(site.api.list(objects.POD_GROUPS, "plain")) == 3,
        30,
        "every pod has a group of its own",
    )


def state_of(site: OperatorCluster, job: str, namespace: str) -> str:
    found = site.api.get("jobs.batch.volcano.sh/v1alpha1", job, namespace)
    return str(found.get("status", {}).get("state", {}).get("phase", ""))


def volcano_job(name: str, namespace: str, *, workers: int, queue: str = "default") -> Object:
    """Return a Volcano Job, with the defaults of its webhook."""

    def task(role: str, replicas: int) -> Object:
        container = {
            "name": "main",
            "image": "registry.k8s.io/pause",
            "resources": operators.RESOURCES,
        }
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        return {
            "name": role,
            "replicas": replicas,
            "minAvailable": replicas,
            "template": {"metadata": {"name": role}, **template},
        }

    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "schedulerName": "volcano",
            "queue": queue,
            "minAvailable": workers + 1,
            "maxRetry": 3,
            "tasks": [task("master", 1), task("worker", workers)],
        },
    }
