"""Volumes that delay pods: one is provisioned when the test says so, one is on no test node."""

from __future__ import annotations

from .api import Api, Object

CLAIMS = "persistentvolumeclaims"
SELECTED_NODE = "volume.kubernetes.io/selected-node"


class SlowVolume:
    """A claim that kube-scheduler waits for between filter and bind."""

    def __init__(self, api: Api, namespace: str, name: str = "data") -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._class = f"{namespace}-{name}"
        self._size = {"storage": "1Gi"}
        self.in_a_pod: Object = {"name": "data", "persistentVolumeClaim": {"claimName": name}}

    @property
    def storage_class(self) -> Object:
        return {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": self._class},
            "provisioner": "gang-extender.test/none",
            "volumeBindingMode": "WaitForFirstConsumer",
        }

    @property
    def claim(self) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "storageClassName": self._class,
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": self._size},
            },
        }

    def is_wanted(self) -> bool:
        """Return whether kube-scheduler has chosen a node for its pod and waits for the volume."""
        claim = self._api.get(CLAIMS, self._name, self._namespace)
        return SELECTED_NODE in claim["metadata"].get("annotations", {})

    def provisioned(self) -> Object:
        """Return the volume, as a provisioner would create it for the claim."""
        claim = self._api.get(CLAIMS, self._name, self._namespace)
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
                    "name": self._name,
                    "uid": claim["metadata"]["uid"],
                },
            },
        }

    def bind(self) -> None:
        """Bind the claim to the volume, as kube-controller-manager does."""
        done = {
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": self._class},
        }
        self._api.patch(CLAIMS, self._name, done, self._namespace)


class FarVolume:
    """A bound claim whose volume is on a node that does not exist."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._name = f"{namespace}-far"
        self._size = {"storage": "1Gi"}
        self.in_a_pod: Object = {"name": "data", "persistentVolumeClaim": {"claimName": "far"}}

    @property
    def volume(self) -> Object:
        elsewhere = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["elsewhere"]}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self._name},
            "spec": {
                "storageClassName": self._name,
                "accessModes": ["ReadWriteMany"],
                "capacity": self._size,
                "local": {"path": "/nowhere"},
                "nodeAffinity": {
                    "required": {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}
                },
                "claimRef": {"namespace": self._namespace, "name": "far"},
            },
        }

    @property
    def claim(self) -> Object:
        done = {"pv.kubernetes.io/bind-completed": "yes"}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "far", "namespace": self._namespace, "annotations": done},
            "spec": {
                "storageClassName": self._name,
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": self._size},
                "volumeName": self._name,
            },
        }
