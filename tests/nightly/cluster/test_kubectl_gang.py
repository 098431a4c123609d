"""`kubectl gang`: kubectl finds the plugin, and the plugin finds the leader's pod."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import objects
from tests.cluster.api import Object
from tests.cluster.binaries import ensure
from tests.cluster.control_plane import ControlPlane
from tests.cluster.extender_process import REPOSITORY, Extender
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.cluster.waiting import wait_for

from .forwarding import LEADER, STANDBY, ForwardingKubelet, extender_pod, scripts


@dataclass(frozen=True)
class Workstation:
    """A user's environment: kubectl, the extender's commands and a kubeconfig."""

    plane: ControlPlane
    extender: Extender
    environment: dict[str, str]

    def type(self, *words: str, role: str = "admin") -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, "KUBECONFIG": str(self.plane.kubeconfig(role))}
        return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120)


@pytest.fixture(scope="module")
def shell(
    control_plane_binaries: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Workstation]:
    folder = tmp_path_factory.mktemp("shell")
    tools = scripts(folder / "bin")
    found = ensure("kubectl", "kwok")
    with ControlPlane(folder / "plane") as plane:
        plane.install()
        with plane.extender() as extender:
            kubelet = ForwardingKubelet(
                found["kwok"],
                folder,
                plane.logs,
                kubeconfig=plane.kubeconfig("kwok"),
                # No port is forwarded for the standby.
                forwards={LEADER: extender.ports[1]},
            )
            plane.programs.append(kubelet)
            with kubelet:
                plane.api.create(
                    kubelet.node("kubelet"),
                    extender_pod(STANDBY),
                    extender_pod(LEADER, leads=True),
                    gang("train"),
                )
                for name in (STANDBY, LEADER):
                    status = {
                        "phase": "Running",
                        "conditions": [{"type": "Ready", "status": "True"}],
                    }
                    plane.api.patch(
                        "pods", name, {"status": status}, EXTENDER_NAMESPACE, subresource="status"
                    )
                yield Workstation(
                    plane,
                    extender,
                    {
                        "HOME": str(folder),
                        "PATH": f"{tools}:{found['kubectl'].parent}:{os.environ['PATH']}",
                        "PYTHONPATH": str(REPOSITORY),
                    },
                )


def gang(name: str) -> Object:
    return objects.pod_group(name, "default", min_member=3)


def test_kubectl_finds_the_plugin(shell: Workstation) -> None:
    listed = shell.type("kubectl", "plugin", "list").stdout
    helped = shell.type("kubectl", "gang", "explain", "--help").stdout

    assert "/kubectl-gang\n" in listed
    assert helped.startswith("Usage: kubectl gang explain [OPTIONS] GANG\n")


def test_explain_works_through_the_api_server_without_flags(shell: Workstation) -> None:
    wait_for(
        lambda: shell.type("kubectl", "gang", "explain", "train").returncode == 0,
        120,
        "the gang is known",
        seeing=lambda: shell.type("kubectl", "gang", "explain", "train").stderr,
    )
    ran = shell.type("kubectl", "gang", "explain", "podgroup/train")

    assert ran.stdout.startswith("default/train  waiting")
    assert "NotEnoughMembers: has 0 of at least 3 members" in ran.stdout
    assert ran.stderr == ""


def test_gangs_are_listed_as_json(shell: Workstation) -> None:
    ran = shell.type("kubectl", "gang", "gangs", "-A", "-o", "json")

    assert ran.returncode == 0, ran.stderr
    assert "train" in [each["name"] for each in json.loads(ran.stdout)["items"]]


def test_missing_permission_is_named_and_the_documented_role_is_enough(shell: Workstation) -> None:
    ran = shell.type("gang-extender", "queues", role="bind-only-extender")

    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert 'cannot list resource "pods"' in ran.stderr
    shell.plane.api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "asks", "namespace": EXTENDER_NAMESPACE},
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
                {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"]},
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "asks", "namespace": EXTENDER_NAMESPACE},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "Role",
                "name": "asks",
            },
            "subjects": [
                {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "User",
                    "name": "bind-only-extender",
                }
            ],
        },
    )

    wait_for(
        lambda: shell.type("gang-extender", "queues", role="bind-only-extender").returncode == 0,
        60,
        "the permissions are enough",
        seeing=lambda: shell.type("gang-extender", "queues", role="bind-only-extender").stderr,
    )


def test_missing_context_is_one_message(shell: Workstation) -> None:
    ran = shell.type("kubectl", "gang", "queues", "--context", "nowhere")

    assert ran.returncode == 2
    assert ran.stderr == 'gang-extender: kubectl: context "nowhere" does not exist\n'


def test_unreachable_api_server_is_one_message(shell: Workstation, tmp_path: Path) -> None:
    text = (
        shell.plane.kubeconfig()
        .read_text()
        .replace(shell.plane.apiserver.url, "https://127.0.0.1:1")
    )
    (tmp_path / "config").write_text(text)
    ran = shell.type("kubectl", "gang", "queues", f"--kubeconfig={tmp_path / 'config'}")

    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "The connection to the server 127.0.0.1:1 was refused" in ran.stderr


def test_kubectl_completes_commands_and_names(shell: Workstation) -> None:
    words = shell.type("kubectl", "__complete", "gang", "ex").stdout.splitlines()
    names = shell.type("kubectl", "__complete", "gang", "explain", "tr").stdout.splitlines()

    assert words[0].partition("\t")[0] == "explain"
    assert (names[0], names[-1]) == ("train", ":4")
