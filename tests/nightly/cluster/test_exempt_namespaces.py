"""Exempt namespaces as in docs/install.md, with the cluster's own kube-scheduler.

The kustomization of that page is applied instead of the overlay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from tests import objects
from tests.cluster.api import Object
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for

from .default_deployment import DEPLOYMENT, INSTALL, DefaultDeployment, install_commands, installed
from .installation import empty_cluster
from .shell import commands

SECTION = "### Exempt a namespace"
EXEMPT = ("monitoring", "ingress")
LEASES = "leases.coordination.k8s.io/v1"
OURS = {"scheduler": "default-scheduler", "cpu": "10m"}
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def behind(
    control_plane_binaries: None,
    controllers_binary: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[DefaultDeployment]:
    with empty_cluster(tmp_path_factory.mktemp("exempting")) as made:
        folder = made.shell.home / "exempt"
        folder.mkdir()
        (folder / "kustomization.yaml").write_text(shown())
        applies, waits = commands(INSTALL, SECTION)
        _, *rest = install_commands()
        assert waits in rest
        with installed(made, (applies, *rest)) as running:
            for name in EXEMPT:
                make_namespace(running, name)
            yield running


def shown() -> str:
    """Return the kustomization of the page."""
    section = INSTALL.read_text().partition(f"\n{SECTION}\n")[2].partition("\n## ")[0]
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return str(text)


def make_namespace(behind: DefaultDeployment, name: str) -> None:
    api = behind.made.plane.api
    api.create(objects.namespace(name))
    wait_for(
        lambda: api.find("serviceaccounts", "default", name),
        TIMEOUT_S,
        f"pods can be created in {name}",
    )


def refusal(behind: DefaultDeployment, pod: Object) -> str:
    """Return kube-scheduler's message about an unschedulable pod."""
    about = pod["metadata"]
    status = behind.made.plane.api.get("pods", about["name"], about["namespace"])["status"]
    return " ".join(each.get("message", "") for each in status.get("conditions", ()))


def is_bound(behind: DefaultDeployment, pod: Object) -> bool:
    about = pod["metadata"]
    found = behind.made.plane.api.get("pods", about["name"], about["namespace"])
    return objects.node_of(found) is not None


def test_kustomization_adds_only_the_exempt_namespaces(
    behind: DefaultDeployment,
) -> None:
    def objects_of(folder: str) -> list[Object]:
        return list(yaml.safe_load_all(behind.made.shell.type(f"kubectl kustomize {folder}")))

    def arguments(things: list[Object]) -> list[str]:
        (deployment,) = (thing for thing in things if thing["kind"] == "Deployment")
        found: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        return found

    ours, plain = objects_of("exempt"), objects_of("manifests/overlays/default-scheduler")

    added = arguments(ours)[len(arguments(plain)) :]
    assert added == [f"--exempt-namespace={name}" for name in EXEMPT]
    del arguments(ours)[-len(added) :]
    assert ours == plain


def test_pods_of_exempt_namespaces_start_while_gangs_wait(
    behind: DefaultDeployment,
) -> None:
    api = behind.made.plane.api
    members = objects.pods(3, "waiting", "default", gang="waiting", **OURS)
    api.create(objects.pod_group("waiting", "default", 3), *members[:2])
    for each in members[:2]:
        wait_for(lambda it=each: refusal(behind, it), TIMEOUT_S, "a member waits")

    for namespace in EXEMPT:
        # It names an incomplete gang; in exempt namespaces there are no gangs.
        api.create(objects.pod_group("part", namespace, 3))
        assert behind.bind(objects.pod("part-0", namespace, gang="part", **OURS))
        assert behind.bind(objects.pod("agent", namespace, **OURS))
    assert not any(is_bound(behind, each) for each in members[:2])

    api.create(members[2])
    assert behind.made.nodes([each["metadata"]["name"] for each in members])


def test_without_a_leader_exempt_pods_are_bound_and_others_wait(
    behind: DefaultDeployment,
) -> None:
    api = behind.made.plane.api
    ordinary = objects.pod("leaderless", "default", **OURS)
    with lease_held_by_another(behind):
        api.create(ordinary)
        wait_for(
            lambda: "standby" in refusal(behind, ordinary), TIMEOUT_S, "others wait for a leader"
        )

        assert behind.bind(objects.pod("leaderless", EXEMPT[0], **OURS))
        assert not is_bound(behind, ordinary)

    assert behind.made.nodes(["leaderless"])


@contextmanager
def lease_held_by_another(behind: DefaultDeployment) -> Iterator[None]:
    """Set another holder of the lease, so that both replicas are standbys."""
    api = behind.made.plane.api
    leader, standby = behind.made.leader_and_standby()
    (lease,) = (
        each["metadata"]["name"]
        for each in api.list(LEASES, EXTENDER_NAMESPACE)
        if each["spec"].get("holderIdentity")
    )
    other = {"holderIdentity": "another", "leaseDurationSeconds": 3600}
    api.patch(LEASES, lease, {"spec": other}, EXTENDER_NAMESPACE)
    try:
        wait_for(
            lambda: not leader.container("extender").answers("/readyz"),
            TIMEOUT_S,
            "it leads no more",
        )
        assert not standby.container("extender").answers("/readyz")
        yield
    finally:
        released = {"holderIdentity": "", "leaseDurationSeconds": 1}
        api.patch(LEASES, lease, {"spec": released}, EXTENDER_NAMESPACE)


def test_without_replicas_all_pods_wait_until_one_replica_is_bound_manually(
    behind: DefaultDeployment,
) -> None:
    api, shell = behind.made.plane.api, behind.made.shell
    shell.type(f"kubectl scale --replicas=0 {DEPLOYMENT}")
    wait_for(lambda: not api.list("pods", EXTENDER_NAMESPACE), TIMEOUT_S, "no replica is left")
    waiting = [objects.pod("left-alone", place, **OURS) for place in (EXEMPT[0], "default")]
    try:
        api.create(*waiting)
        shell.type(f"kubectl scale --replicas=2 {DEPLOYMENT}")
        wait_for(
            lambda: len(api.list("pods", EXTENDER_NAMESPACE)) == 2, TIMEOUT_S, "two are pending"
        )
        pending = [*waiting, *api.list("pods", EXTENDER_NAMESPACE)]
        for pod in pending:
            wait_for(lambda it=pod: "/filter" in refusal(behind, it), TIMEOUT_S, "the call failed")
        assert not any(is_bound(behind, pod) for pod in pending)
    finally:
        bind_manually(behind, api.list("pods", EXTENDER_NAMESPACE)[0])

    for pod in waiting:
        assert behind.made.nodes([pod["metadata"]["name"]], pod["metadata"]["namespace"])
    assert len(behind.made.pods()) == 2
    assert behind.made.start_gang("after-none-was-left", "default-scheduler")


def bind_manually(behind: DefaultDeployment, pod: Object) -> None:
    (shown,) = re.findall(
        r"^\$ (kubectl create -f binding.yaml)$", INSTALL.read_text(), re.MULTILINE
    )
    text = (REPOSITORY / "manifests" / "examples" / "binding.yaml").read_text()
    for there, here in (("POD", pod["metadata"]["name"]), ("NODE", "node-0")):
        text = re.sub(rf"name: {there}$", f"name: {here}", text, flags=re.MULTILINE)
    (behind.made.shell.home / "binding.yaml").write_text(text)
    behind.made.shell.type(shown)
