"""Stands in for the address of a Service, as kube-proxy makes it: it goes by the EndpointSlices."""

from __future__ import annotations

from typing import Self

from .api import Api, Object
from .kubelet import Kubelet
from .lookout import Lookout
from .replicas import Relay

SLICES = "endpointslices.discovery.k8s.io/v1"
LOOK_S = 0.1


class ClusterIp(Relay):
    """Leads every new connection to a ready endpoint of a Service; those there are stay.

    Who is an endpoint is up to kube-controller-manager, by the labels and readiness of pods.
    """

    def __init__(self, api: Api, service: Object, port: str, kubelet: Kubelet) -> None:
        super().__init__()
        self._api = api
        self._name: str = service["metadata"]["name"]
        self._namespace: str = service["metadata"]["namespace"]
        self._port = port
        self._kubelet = kubelet
        self._lookout = Lookout(self._look, LOOK_S)
        (number,) = (each["port"] for each in service["spec"]["ports"] if each["name"] == port)
        #: What people write into kube-scheduler's configuration, and what leads here instead.
        self.applied = f"{service['spec']['clusterIP']}:{number}"
        #: The names of the pods that new connections may lead to.
        self.endpoints: list[str] = []
        self._ports: list[int] = []

    @property
    def here(self) -> str:
        return f"127.0.0.1:{self.port}"

    def choose(self) -> int | None:
        return next(iter(self._ports), None)

    def __enter__(self) -> Self:
        self._lookout.__enter__()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        try:
            self._lookout.__exit__(*error)
        finally:
            super().__exit__(*error)

    def _look(self) -> None:
        labels = f"kubernetes.io/service-name={self._name}"
        slices = self._api.list(SLICES, self._namespace, labels=labels)
        found = [place for each in slices for place in self._places(each)]
        self._ports = [port for _, port in found]
        self.endpoints = [pod for pod, _ in found]

    def _places(self, told: Object) -> list[tuple[str, int]]:
        """The pods of a slice that are ready, each with its port on this machine."""
        numbers = [p["port"] for p in told.get("ports") or [] if p["name"] == self._port]
        pods = [
            self._kubelet.running.get(address)
            for each in told.get("endpoints") or []
            if each["conditions"]["ready"]
            for address in each["addresses"]
        ]
        return [(pod.name, pod.ports[number]) for pod in pods if pod for number in numbers]
