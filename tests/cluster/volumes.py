"""A volume that is made only when the test says so: no provisioner runs beside it."""

from __future__ import annotations

from .api import Api, Object

CLAIMS = "persistentvolumeclaims"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


class SlowVolume:
    """One claim that kube-scheduler has to wait for, between filter and bind."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._class = f"{namespace}-slow"
        self._size = {"storage": "1Gi"}
        self.in_a_pod: Object = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}

    @property
    def storage_class(self) -> Object:
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": self._class},
            "provisioner": "gang-extender.test/nobody",
            "volumeBindingMode": "WaitForFirstConsumer",
        }

    @property
    def claim(self) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": self._namespace},
            "spec": {
                "storageClassName": self._class,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": self._size},
            },
        }

    def is_wanted(self) -> bool:
        """Whether kube-scheduler has chosen a node for its pod and waits for the volume."""
        claim = self._api.get(CLAIMS, "data", self._namespace)
        return SELECTED_NODE in claim["metadata"].get("annotations", {})

    def provisioned(self) -> Object:
        """The volume, as a provisioner would create it for the claim."""
        claim = self._api.get(CLAIMS, "data", self._namespace)
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self._class},
            "spec": {
                "storageClassName": self._class,
                "accessModes": ["ReadWriteOnce"],
                "capacity": self._size,
                "hostPath": {"path": "/nowhere"},
                "claimRef": {
                    "namespace": self._namespace,
                    "name": "data",
                    "uid": claim["metadata"]["uid"],
                },
            },
        }

    def bind(self) -> None:
        """Give the volume to the claim, as kube-controller-manager would."""
        done = {
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": self._class},
        }
        self._api.patch(CLAIMS, "data", done, self._namespace)
