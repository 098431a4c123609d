"""Namespaces exempted as docs/default-scheduler.md says, behind the cluster's kube-scheduler.

What is applied is the kustomization of that page, in place of the overlay that it names.
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

from .behind import DEPLOYMENT, PAGE, Behind, install_commands, installed
from .installation import empty_cluster
from .typed import commands

SECTION = "## Exempting a namespace"
EXEMPT = ("monitoring", "ingress")
LEASES = "leases.coordination.k8s.io/v1"
OURS = {"scheduler": "default-scheduler", "cpu": "10m"}
LONG_S = 120


@pytest.fixture(scope="module")
def behind(
    control_plane_binaries: None,
    controllers_binary: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Behind]:
    with empty_cluster(tmp_path_factory.mktemp("exempting")) as made:
        folder = made.shell.home / "exempt"
        folder.mkdir()
        (folder / "kustomization.yaml").write_text(shown())
        applies, waits = commands(PAGE, SECTION)
        _, *rest = install_commands()
        assert waits in rest
        with installed(made, (applies, *rest)) as running:
            for name in EXEMPT:
                make_namespace(running, name)
            yield running


def shown() -> str:
    """The kustomization of the page."""
    section = PAGE.read_text().partition(f"\n{SECTION}\n")[2].partition("\n## ")[0]
    (text,) = re.findall(r"^```yaml\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return str(text)


def make_namespace(behind: Behind, name: str) -> None:
    api = behind.made.plane.api
    api.create(objects.namespace(name))
    wait_for(
        lambda: api.find("serviceaccounts", "default", name), LONG_S, f"pods may be made in {name}"
    )


def told(behind: Behind, pod: Object) -> str:
    """What kube-scheduler says of a pod that it could not place."""
    about = pod["metadata"]
    status = behind.made.plane.api.get("pods", about["name"], about["namespace"])["status"]
    return " ".join(each.get("message", "") for each in status.get("conditions", ()))


def is_bound(behind: Behind, pod: Object) -> bool:
    about = pod["metadata"]
    found = behind.made.plane.api.get("pods", about["name"], about["namespace"])
    return objects.node_of(found) is not None


def test_what_is_applied_is_the_overlay_with_the_namespaces_and_nothing_else(
    behind: Behind,
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


def test_pods_of_exempt_namespaces_start_while_gangs_wait_and_gangs_start_beside_them(
    behind: Behind,
) -> None:
    api = behind.made.plane.api
    members = objects.pods(3, "waiting", "default", gang="waiting", **OURS)
    api.create(objects.pod_group("waiting", "default", 3), *members[:2])
    for each in members[:2]:
        wait_for(lambda it=each: told(behind, it), LONG_S, "a member waits")

    for namespace in EXEMPT:
        # Of a gang that is not there yet; in these namespaces nothing is one.
        api.create(objects.pod_group("part", namespace, 3))
        assert behind.bind(objects.pod("part-0", namespace, gang="part", **OURS))
        assert behind.bind(objects.pod("agent", namespace, **OURS))
    assert not any(is_bound(behind, each) for each in members[:2])

    api.create(members[2])
    assert behind.made.nodes([each["metadata"]["name"] for each in members])


def test_while_nobody_of_ours_leads_they_are_bound_through_the_service_and_others_wait(
    behind: Behind,
) -> None:
    api = behind.made.plane.api
    ordinary = objects.pod("leaderless", "default", **OURS)
    with somebody_else_leading(behind):
        api.create(ordinary)
        wait_for(lambda: "standby" in told(behind, ordinary), LONG_S, "others wait for a leader")

        assert behind.bind(objects.pod("leaderless", EXEMPT[0], **OURS))
        assert not is_bound(behind, ordinary)

    assert behind.made.nodes(["leaderless"])


@contextmanager
def somebody_else_leading(behind: Behind) -> Iterator[None]:
    """Give the lease to one that is not there, so that both of ours stand by."""
    api = behind.made.plane.api
    leader, standby = behind.made.leader_and_standby()
    (lease,) = (
        each["metadata"]["name"]
        for each in api.list(LEASES, EXTENDER_NAMESPACE)
        if each["spec"].get("holderIdentity")
    )
    theirs = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}
    api.patch(LEASES, lease, {"spec": theirs}, EXTENDER_NAMESPACE)
    try:
        wait_for(
            lambda: not leader.container("extender").answers("/readyz"), LONG_S, "it leads no more"
        )
        assert not standby.container("extender").answers("/readyz")
        yield
    finally:
        given_back = {"holderIdentity": "", "leaseDurationSeconds": 1}
        api.patch(LEASES, lease, {"spec": given_back}, EXTENDER_NAMESPACE)


def test_when_none_is_left_they_wait_too_until_one_of_ours_is_bound_by_hand(
    behind: Behind,
) -> None:
    api, shell = behind.made.plane.api, behind.made.shell
    shell.type(f"kubectl scale --replicas=0 {DEPLOYMENT}")
    wait_for(lambda: not api.list("pods", EXTENDER_NAMESPACE), LONG_S, "none is left")
    waiting = [objects.pod("left-alone", place, **OURS) for place in (EXEMPT[0], "default")]
    try:
        api.create(*waiting)
        shell.type(f"kubectl scale --replicas=2 {DEPLOYMENT}")
        wait_for(lambda: len(api.list("pods", EXTENDER_NAMESPACE)) == 2, LONG_S, "two are wanted")
        everybody = [*waiting, *api.list("pods", EXTENDER_NAMESPACE)]
        for pod in everybody:
            wait_for(lambda it=pod: "/filter" in told(behind, it), LONG_S, "it asked nobody")
        assert not any(is_bound(behind, pod) for pod in everybody)
    finally:
        bind_by_hand(behind, api.list("pods", EXTENDER_NAMESPACE)[0])

    for pod in waiting:
        assert behind.made.nodes([pod["metadata"]["name"]], pod["metadata"]["namespace"])
    assert len(behind.made.pods()) == 2
    assert behind.made.start_gang("after-none-was-left", "default-scheduler")


def bind_by_hand(behind: Behind, pod: Object) -> None:
    (shown,) = re.findall(r"^\$ (kubectl create -f binding.yaml)$", PAGE.read_text(), re.MULTILINE)
    text = (REPOSITORY / "manifests" / "examples" / "binding.yaml").read_text()
    for there, here in (("POD", pod["metadata"]["name"]), ("NODE", "node-0")):
        text = re.sub(rf"name: {there}$", f"name: {here}", text, flags=re.MULTILINE)
    (behind.made.shell.home / "binding.yaml").write_text(text)
    behind.made.shell.type(shown)
