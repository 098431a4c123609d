"""The commands of docs/install.md in an empty cluster, with running pods."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from extender.cli.scheduler_config import FOLDER
from tests import objects
from tests.cluster.binaries import ensure, require
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for
from tests.nightly.cluster.cluster_ip import ClusterIp

from .installation import Installation, empty_cluster
from .shell import commands

PAGE = REPOSITORY / "docs" / "install.md"
CRDS = "customresourcedefinitions.apiextensions.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io/v1"
DEPLOYMENTS = "deployments.apps/v1"


@pytest.fixture
def cluster(
    control_plane_binaries: None,
    controllers_binary: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Installation]:
    require("helm")
    helm = ensure("helm")["helm"].parent
    monkeypatch.setenv("PATH", str(helm), prepend=os.pathsep)
    with empty_cluster(tmp_path / "cluster") as made:
        yield made


@pytest.fixture
def scheduled(cluster: Installation) -> Iterator[Installation]:
    """The cluster with its own kube-scheduler."""
    with cluster.plane.scheduler():
        yield cluster


def test_documented_commands_install_upgrade_and_uninstall(
    scheduled: Installation,
) -> None:
    cluster = scheduled
    install, wait, gang, label, _ = commands(PAGE, "## Helm")
    assert "kubectl rollout status --namespace gang-system" in cluster.shell.type(install)
    assert "successfully rolled out" in cluster.shell.type(wait)
    cluster.shell.type(gang)
    wait_for_example_gang(cluster)
    before = {pod.name for pod in cluster.pods()}

    # The policies allow that.
    assert "labeled" in cluster.shell.type(label)
    upgrade, crds = commands(PAGE, "## Upgrade")
    cluster.shell.type(f"{upgrade} --set settings.prefer=pack")
    cluster.shell.type(wait)
    after = {pod.name for pod in cluster.pods()}
    assert before.isdisjoint(after)
    for name in after:
        pod = cluster.plane.api.get("pods", name, EXTENDER_NAMESPACE)
        assert "--prefer=pack" in pod["spec"]["containers"][0]["args"]
    cluster.shell.type(crds)
    assert cluster.start_gang("after-the-upgrade", "volcano")
    assert cluster.refused() == []

    (uninstall,) = commands(PAGE, "### Uninstall with Helm")
    cluster.shell.type(uninstall)
    api = cluster.plane.api
    wait_for(lambda: not api.list("pods", EXTENDER_NAMESPACE), 120, "the extender's pods are gone")
    assert api.list(DEPLOYMENTS, EXTENDER_NAMESPACE) == []
    for kind in ("clusterroles", "clusterrolebindings"):
        names = [each["metadata"]["name"] for each in api.list(f"{kind}.{RBAC}")]
        assert [name for name in names if name.startswith("gang-")] == []
    assert {crd["spec"]["names"]["kind"] for crd in api.list(CRDS)} == {"PodGroup", "Queue"}
    assert api.get(objects.POD_GROUPS, "train", "default")


def test_output_of_helm_template_can_be_applied(scheduled: Installation) -> None:
    cluster = scheduled
    (apply,) = commands(PAGE, "### Manifests without a release")
    cluster.shell.type(apply)
    cluster.shell.type("kubectl apply -f manifests/examples/gang.yaml")

    wait_for_example_gang(cluster)
    assert len(cluster.pods()) == 2
    assert cluster.refused() == []


def test_configuration_of_the_notes_works_for_the_default_scheduler(
    cluster: Installation,
) -> None:
    install, certificates, wait = commands(PAGE, "### Default scheduler with Helm")
    notes = cluster.shell.type(install)
    cluster.shell.type(certificates)
    # A kube-scheduler without the extender schedules its pods.
    with cluster.plane.scheduler():
        assert "successfully rolled out" in cluster.shell.type(wait)

    service = cluster.plane.api.get("services", "gang-extender", EXTENDER_NAMESPACE)
    with ClusterIp(cluster.plane.api, service, "hooks", cluster.kubelet) as address:
        config = configuration_of(notes, cluster, address)
        with cluster.plane.scheduler(config):
            for scheduler in ("default-scheduler", "volcano"):
                assert cluster.start_gang(f"for-{scheduler}", scheduler)
    assert cluster.refused() == []


def configuration_of(notes: str, cluster: Installation, address: ClusterIp) -> str:
    """Return what the command of the notes prints, with local files and addresses."""
    (command,) = re.findall(r"^  (gang-extender scheduler-config .*)$", notes, re.MULTILINE)
    login = cluster.plane.kubeconfig("scheduler")
    printed = cluster.shell.type(f"{command} --kubeconfig {login}")
    assert printed.count(address.applied) == 2
    here = printed.replace(f"{FOLDER}/", f"{cluster.shell.home}/tls/")
    return here.replace(address.applied, address.here)


def wait_for_example_gang(cluster: Installation) -> None:
    job = "batch.kubernetes.io/job-name=train"

    def nodes() -> list[str | None]:
        members = cluster.plane.api.list("pods", "default", labels=job)
        return [objects.node_of(member) for member in members]

    wait_for(
        lambda: len(nodes()) == 3 and all(nodes()),
        120,
        "3 members are bound",
        seeing=lambda: [nodes(), sorted(set(cluster.refused())), cluster.kubelet.problems],
    )
