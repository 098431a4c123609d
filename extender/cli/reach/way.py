"""The way to the extender: what was said wins, then the cluster, then loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from extender.cli.ask import DEFAULT_URL, Address, check, is_open
from extender.cli.printed.terminal import tell
from extender.cli.reach import kubeconfig, leader, token
from extender.cli.reach.kubectl import Kubectl
from extender.cli.reach.whereabouts import Whereabouts
from extender.errors import BadInput

_LOOPBACK = Address(DEFAULT_URL)


@contextmanager
def reached(where: Whereabouts, *, quietly: bool = False) -> Iterator[Address]:
    """Give an address that leads to the extender while the block lasts.

    `BadInput` says where we looked and what would help. *quietly* leaves out on which of several
    ways we went.
    """
    if where.ops_url:
        url = check(where.ops_url, "--ops-url", DEFAULT_URL)
        yield Address(url, token=token.read(where, url))
        return
    told = token.read(where)
    found = _in_the_cluster(where, quietly)
    if found is None:
        yield replace(_LOOPBACK, token=told)
        return
    kubectl, pod = found
    with kubectl.forward(pod.namespace, pod.name, pod.port) as port:
        # Whoever answers here is the pod that the API server led us to, whatever its certificate.
        url = f"{pod.scheme}://127.0.0.1:{port}"
        yield Address(url, f"pod {pod.namespace}/{pod.name}", is_vouched_for=True, token=told)


def _in_the_cluster(where: Whereabouts, quietly: bool) -> tuple[Kubectl, leader.Leader] | None:
    """Find the leader; None when it is loopback that should be asked."""
    kubectl = Kubectl(where.kubeconfig, where.context)
    try:
        if not kubeconfig.is_there(where.kubeconfig):
            named = f"kubeconfig {where.kubeconfig} does not exist"
            unnamed = "there is no kubeconfig by $KUBECONFIG or at ~/.kube/config"
            raise BadInput(named if where.kubeconfig else unnamed)
        return kubectl, leader.find(kubectl, where.home)
    except BadInput as error:
        # Whoever named a cluster does not want to hear of another one.
        if where.names_a_cluster:
            raise
        if not is_open(DEFAULT_URL):
            raise BadInput(
                f"no extender was found: {error}; and nobody listens at {DEFAULT_URL}; name the"
                " cluster with --kubeconfig or --context, or the port with --ops-url"
            ) from error
        # In a pod loopback is where one looks first, and nobody has to be told.
        if kubeconfig.is_written() and not quietly:
            tell(f"gang-extender: {error}; asking {DEFAULT_URL} instead")
        return None
