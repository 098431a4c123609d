"""The cluster IP of a Service, by its EndpointSlices as kube-proxy does it."""

from __future__ import annotations

from typing import Self

from tests.cluster.api import Api, Object
from tests.cluster.polling import Poller
from tests.cluster.replicas import PortForward

from .kubelet import Kubelet

SLICES = "endpointslices.discovery.k8s.io/v1"
POLL_S = 0.1


class ClusterIp(PortForward):
    """Forwards every new connection to a ready endpoint of a Service; open connections stay.

    kube-controller-manager decides which pods are endpoints, by their labels and readiness.
    """

    def __init__(self, api: Api, service: Object, port: str, kubelet: Kubelet) -> None:
        super().__init__()
        self._api = api
        self._name: str = service["metadata"]["name"]
        self._namespace: str = service["metadata"]["namespace"]
        self._port = port
        self._kubelet = kubelet
        self._poller = Poller(self._poll, POLL_S)
        (number,) = (each["port"] for each in service["spec"]["ports"] if each["name"] == port)
        #: The address in the applied kube-scheduler configuration, which `here` replaces.
        self.applied = f"{service['spec']['clusterIP']}:{number}"
        #: The names of the pods that new connections may reach.
        self.endpoints: list[str] = []
        self._ports: list[int] = []

    @property
    def here(self) -> str:
        return f"127.0.0.1:{self.port}"

    def choose(self) -> int | None:
        return next(iter(self._ports), None)

    def __enter__(self) -> Self:
        self._poller.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        try:
            self._poller.__exit__(*error)
        finally:
            super().__exit__(*error)

    def _poll(self) -> None:
        labels = f"kubernetes.io/service-name={self._name}"
        slices = self._api.list(SLICES, self._namespace, labels=labels)
        found = [found for each in slices for found in self._ready_ports(each)]
        self._ports = [port for _, port in found]
        self.endpoints = [pod for pod, _ in found]

    def _ready_ports(self, slice_: Object) -> list[tuple[str, int]]:
        """Return the ready pods of a slice, each with its local port."""
        numbers = [p["port"] for p in slice_.get("ports") or [] if p["name"] == self._port]
        pods = [
            self._kubelet.running.get(address)
            for each in slice_.get("endpoints") or []
            if each["conditions"]["ready"]
            for address in each["addresses"]
        ]
        return [(pod.name, pod.ports[number]) for pod in pods if pod for number in numbers]
