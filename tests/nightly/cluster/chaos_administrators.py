"""The turns of administrators in a chaos run: nodes and queues are deleted and changed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tests import objects
from tests.cluster.api import Api, ApiError, Object
from tests.cluster.components import Etcd

from .chaos_lane import Later
from .chaos_script import NODE_CPU, NODES, PRIORITIES, QUEUES, Facts

_TAINT = {"key": "gang-extender.test/chaos", "effect": "NoSchedule"}


class Administrators:
    """Carries out the turns of administrators; closed queues and nodes are opened again later."""

    def __init__(self, api: Api, etcd: Etcd, later: Later) -> None:
        self._api = api
        self._etcd = etcd
        self._later = later
        self.acts: dict[str, Callable[[Facts], None]] = {
            "node lost": self._lose,
            "node cordoned": self._cordon,
            "node tainted": self._taint,
            "node resized": self._resize,
            "queue edited": self._edit,
            "queue closed": self._close,
            "etcd compacted": self._compact,
        }

    def set_up(self, namespaces: tuple[str, ...]) -> None:
        self._api.create(
            *(objects.namespace(name) for name in namespaces),
            *(objects.node(name, cpu=str(NODE_CPU)) for name in NODES),
            *(objects.queue(name) for name in QUEUES[1:]),
            *(
                objects.priority_class(name, 10 * 100**rank)
                for rank, name in enumerate(PRIORITIES[1:])
            ),
        )

    def restore(self) -> bool:
        """Restore all nodes and queues."""
        for name in NODES:
            if self._api.find("nodes", name) is None:
                self._api.create(objects.node(name, cpu=str(NODE_CPU)))
            self._patch_node(name, {"unschedulable": None, "taints": None})
            self._set_capacity(name, NODE_CPU)
        for name in QUEUES[1:]:
            self._api.patch(objects.QUEUES, name, {"spec": {"capability": None}})
            self._state(name, "Open")
        return True

    def _lose(self, facts: Facts) -> None:
        """Delete a node and its pods."""
        name = facts["node"]
        self._api.delete("nodes", name)
        for pod in self._api.list("pods", fields=f"spec.nodeName={name}"):
            about = pod["metadata"]
            self._api.delete("pods", about["name"], about["namespace"], grace_seconds=0)
        self._later(facts["for_s"], lambda: self._recreate(name))

    def _recreate(self, name: str) -> None:
        # Pods that were bound to it meanwhile would be deleted by the node lifecycle controller.
        for pod in self._api.list("pods", fields=f"spec.nodeName={name}"):
            about = pod["metadata"]
            self._api.delete("pods", about["name"], about["namespace"], grace_seconds=0)
        with suppress(ApiError):
            self._api.create(objects.node(name, cpu=str(NODE_CPU)))

    def _cordon(self, facts: Facts) -> None:
        self._patch_node(facts["node"], {"unschedulable": True})
        self._later(
            facts["for_s"], lambda: self._patch_node(facts["node"], {"unschedulable": None})
        )

    def _taint(self, facts: Facts) -> None:
        self._patch_node(facts["node"], {"taints": [_TAINT]})
        self._later(facts["for_s"], lambda: self._patch_node(facts["node"], {"taints": None}))

    def _patch_node(self, name: str, spec: Object) -> None:
        self._api.patch("nodes", name, {"spec": spec})

    def _resize(self, facts: Facts) -> None:
        self._set_capacity(facts["node"], facts["cpu"])
        self._later(facts["for_s"], lambda: self._set_capacity(facts["node"], NODE_CPU))

    def _set_capacity(self, name: str, cpu: int) -> None:
        capacity = {"cpu": str(cpu)}
        status = {"status": {"allocatable": capacity, "capacity": capacity}}
        self._api.patch("nodes", name, status, subresource="status")

    def _edit(self, facts: Facts) -> None:
        spec = {"weight": facts["weight"], "capability": {"cpu": str(facts["cpu"])}}
        self._api.patch(objects.QUEUES, facts["queue"], {"spec": spec})

    def _close(self, facts: Facts) -> None:
        self._state(facts["queue"], "Closed")
        self._later(facts["for_s"], lambda: self._state(facts["queue"], "Open"))

    def _state(self, name: str, state: str) -> None:
        self._api.patch(objects.QUEUES, name, {"status": {"state": state}}, subresource="status")

    def _compact(self, facts: Facts) -> None:
        with suppress(TypeError, AssertionError):  # it does not answer
            self._etcd.compact()
