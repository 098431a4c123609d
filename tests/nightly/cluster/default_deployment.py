"""The deployment behind the cluster's own kube-scheduler, installed with the documented commands.

As in docs/install.md: the extender first, then the new configuration of kube-scheduler.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.cluster.api import Object
from tests.cluster.components import Scheduler
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.users import EXTENDER_NAMESPACE
from tests.nightly.cluster.applied import AppliedPod
from tests.nightly.cluster.cluster_ip import ClusterIp

from .installation import Installation
from .shell import commands

INSTALL = REPOSITORY / "docs" / "install.md"
DEPLOYMENT = "-n gang-system deployment/gang-extender"


@dataclass(frozen=True, slots=True)
class DefaultDeployment:
    """The installation, the address of its Service, and the cluster's own kube-scheduler."""

    made: Installation
    address: ClusterIp
    scheduler: Scheduler
    #: The configuration of that kube-scheduler.
    config: str

    def bind(self, pod: Object) -> str:
        """Create a pod, wait until it is bound, and return its node."""
        about = pod["metadata"]
        self.made.plane.api.create(pod)
        (node,) = self.made.nodes([about["name"]], about["namespace"])
        return node

    def metric(self, pod: AppliedPod, series: str) -> float:
        """Return one metric, written with its labels, of one replica."""
        text = pod.container("extender").read("/metrics")
        found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0


def install_commands() -> list[str]:
    """Return the documented commands; the first applies the overlay."""
    typed = commands(INSTALL, "## Default scheduler")
    assert typed[0] == "kubectl apply -k manifests/overlays/default-scheduler"
    return typed


@contextmanager
def installed(made: Installation, typed: Sequence[str]) -> Iterator[DefaultDeployment]:
    """Run the commands, and configure the cluster's kube-scheduler to call the extender."""
    with made.plane.scheduler():
        for command in typed:
            made.shell.type(command)
    service = made.plane.api.get("services", "gang-extender", EXTENDER_NAMESPACE)
    with ClusterIp(made.plane.api, service, "hooks", made.kubelet) as address:
        config = scheduler_config(made, address)
        with made.plane.scheduler(config) as scheduler:
            yield DefaultDeployment(made, address, scheduler, config)


def scheduler_config(made: Installation, address: ClusterIp) -> str:
    """Return the configuration of docs/install.md, with local paths and addresses."""
    command = "gang-extender scheduler-config --deployment default-scheduler --url https://"
    assert f"`{command}10.96.0.77:8888`" in INSTALL.read_text()
    config = made.shell.type(f"{command}{address.applied}")
    for there, here in (
        ("/etc/kubernetes/scheduler.conf", made.plane.kubeconfig("scheduler")),
        ("/etc/kubernetes/gang-extender", made.shell.home / "tls"),
        (address.applied, address.here),
    ):
        assert there in config
        config = config.replace(there, str(here))
    return config
