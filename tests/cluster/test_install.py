"""Installed word by word as the README says, it works: what was applied is what runs here.

A dry run cannot see a right that is bound in the wrong place or a lease that the role does not
name, and neither can a probe. So this cluster has nothing but what README's commands gave it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from extender.settings import Settings
from tests.test_readme import ROOT, commands

from . import objects
from .api import Object
from .applied import AppliedPod
from .conftest import planes
from .control_plane import ControlPlane
from .waiting import wait_for

LEASES = "leases.coordination.k8s.io/v1"
HOME = "gang-system"


@dataclass(frozen=True, slots=True)
class Installed:
    """A cluster with the applied pair, and the example gang handed to it."""

    plane: ControlPlane
    pod: AppliedPod

    def members(self) -> list[Object]:
        return self.plane.api.list("pods", "default", labels="batch.kubernetes.io/job-name=train")

    def refused(self) -> list[str]:
        """All that the pair asked of the API server and had no right to."""
        events = self.plane.audited(self.pod.user)
        refused = [e for e in events if e.get("responseStatus", {}).get("code") == 403]
        return [f"{event['verb']} {event['requestURI']}" for event in refused]


@pytest.fixture(scope="module")
def installed(
    control_plane_binaries: None,
    controllers_binary: None,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Installed]:
    *install, hand_in_a_gang = [c for c in commands() if c.startswith("kubectl apply")]
    with (
        ControlPlane(tmp_path_factory.mktemp("installed"), audit_reads=True) as plane,
        plane.controllers(),
    ):
        request.config.stash[planes].append(plane)
        plane.api.create(*(objects.node(f"node-{index}") for index in range(3)))
        for command in install:
            type_in(plane, command)
        with AppliedPod(plane, one_pod(plane)) as pod:
            type_in(plane, hand_in_a_gang)
            yield Installed(plane, pod)


def type_in(plane: ControlPlane, command: str) -> None:
    _, *words, path = command.split()
    plane.kubectl(*words, ROOT / path)


def one_pod(plane: ControlPlane) -> Object:
    """One of what kube-controller-manager made of the applied Deployment, past all admission."""
    pod, _ = wait_for(
        lambda: len(pods := plane.api.list("pods")) == 2 and pods,
        30,
        "the Deployment has its pods",
        seeing=lambda: [each["status"] for each in plane.api.list("replicasets.apps/v1")],
    )
    return pod


def test_the_example_gang_starts(installed: Installed) -> None:
    def nodes() -> list[str | None]:
        return [objects.node_of(member) for member in installed.members()]

    wait_for(
        lambda: len(nodes()) == 3 and all(nodes()),
        30,
        "3 members are bound",
        seeing=lambda: f"on nodes {nodes()}; refused: {sorted(set(installed.refused()))}",
    )


@pytest.mark.parametrize("scheduler", Settings().scheduler_name)
def test_a_gang_of_every_scheduler_name_that_we_serve_starts(
    installed: Installed, scheduler: str
) -> None:
    api, name = installed.plane.api, f"for-{scheduler}"
    api.create(
        objects.pod_group(name, "default", 2),
        *objects.pods(2, name, "default", gang=name, scheduler=scheduler),
    )

    def nodes() -> list[str | None]:
        return [objects.node_of(api.get("pods", f"{name}-{i}", "default")) for i in range(2)]

    wait_for(lambda: all(nodes()), 30, "2 members are bound", seeing=nodes)


def test_every_applied_probe_is_green(installed: Installed) -> None:
    probes = [container.probes() for container in installed.pod.containers]

    assert [len(asked) for asked in probes] == [2, 1]
    assert all(green for asked in probes for green in asked.values()), probes


def test_the_scheduler_leads_by_the_lease_that_its_configuration_names(
    installed: Installed,
) -> None:
    (applied,) = [
        thing
        for thing in installed.plane.api.list("configmaps", "gang-system")
        if "scheduler-config.yaml" in thing["data"]
    ]
    election = yaml.safe_load(applied["data"]["scheduler-config.yaml"])["leaderElection"]

    assert election["leaderElect"]
    name, namespace = election["resourceName"], election["resourceNamespace"]
    wait_for(
        lambda: installed.plane.api.get(LEASES, name, namespace)["spec"]["holderIdentity"],
        30,
        "somebody leads",
    )


def test_the_only_lease_is_the_schedulers(installed: Installed) -> None:
    leases = [lease["metadata"]["name"] for lease in installed.plane.api.list(LEASES, HOME)]

    assert leases == ["gang-scheduler"]


def test_the_account_of_the_pair_may_delete_pods_because_a_scheduler_may(
    installed: Installed,
) -> None:
    asked = ("auth", "can-i", "delete", "pods", f"--as={installed.pod.user}")

    assert installed.plane.kubectl(*asked).strip() == "yes"


def test_the_pair_has_every_right_that_it_asks_for(installed: Installed) -> None:
    def phase() -> str:
        group = installed.plane.api.get(objects.POD_GROUPS, "train", "default")
        return str(group.get("status", {}).get("phase"))

    # By then it has read, led, bound and told.
    wait_for(lambda: phase() == "Running", 30, "the gang is said to run", seeing=phase)

    assert installed.refused() == []
