"""A kubelet (kwok) that forwards ports, for pods whose programs run on this machine.

The API server reaches it as any kubelet: at the address and port in the status of the Node, over
TLS.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import yaml

from tests import objects
from tests.cluster.api import Object
from tests.cluster.components import STAGES, answers
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.processes import Program
from tests.cluster.users import EXTENDER_NAMESPACE

STANDBY, LEADER = "gang-extender-0", "gang-extender-1"


class ForwardingKubelet(Program):
    """Forwards *forwards*, ports by pod of `gang-system`, to local ports."""

    port_count = 1

    def __init__(
        self, binary: Path, folder: Path, logs: Path, *, kubeconfig: Path, forwards: dict[str, int]
    ) -> None:
        super().__init__("forwarding-kubelet", logs)
        self._binary = binary
        self._folder = folder
        self._kubeconfig = kubeconfig
        rules = [_rule(pod, port) for pod, port in forwards.items()]
        (folder / "forwards.yaml").write_text(yaml.safe_dump_all(rules))

    def command(self) -> list[str | Path]:
        return [
            self._binary,
            f"--kubeconfig={self._kubeconfig}",
            "--manage-nodes-with-label-selector=gang-extender.test/none=true",
            f"--server-address=127.0.0.1:{self.ports[0]}",
            f"--config={self._folder / 'forwards.yaml'}",
            # It manages no nodes, but does not start without stages.
            *(f"--config={stage}" for stage in sorted(STAGES.glob("*.yaml"))),
        ]

    def is_ready(self) -> bool:
        return answers(f"http://127.0.0.1:{self.ports[0]}/healthz")

    def node(self, name: str) -> Object:
        """Return its Node, with its address for the API server."""
        made = objects.node(name)
        made["status"] |= {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.ports[0]}},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        return made


def _rule(pod: str, port: int) -> Object:
    target = {"address": "127.0.0.1", "port": port}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "PortForward",
        "metadata": {"name": pod, "namespace": "gang-system"},
        "spec": {"forwards": [{"ports": [8889], "target": target}]},
    }


def scripts(folder: Path) -> Path:
    """Write the commands of the package as an installation does, from pyproject.toml."""
    folder.mkdir()
    about = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    for name, entry in about["project"]["scripts"].items():
        module, _, function = entry.partition(":")
        command = folder / name
        command.write_text(f"#!{sys.executable}\nfrom {module} import {function}\n{function}()\n")
        command.chmod(0o755)
    return folder


def extender_pod(name: str, *, leads: bool = False) -> Object:
    labels = {"app.kubernetes.io/name": "gang-extender"}
    if leads:
        labels["gang-extender.io/leader"] = "true"
    made = objects.pod(name, EXTENDER_NAMESPACE, nodeName="kubelet")
    made["metadata"]["labels"] = labels
    # As in our manifests; the namespace admits no others.
    made["spec"]["securityContext"] = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    made["spec"]["containers"][0] |= {
        "ports": [{"name": "ops", "containerPort": 8889}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return made
