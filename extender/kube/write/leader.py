"""The Lease of the leader and its label. The Lease is the only object written without a term."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from urllib.parse import quote

import msgspec

from extender.errors import ApiError, NotFound
from extender.kube.client import MERGE, ApiClient
from extender.kube.pipeline import pod_path
from extender.leader.fencing import FencingToken
from extender.model.annotations import LEADER, LEADS_BY
from extender.ports import Fencing, LabelledPod, LabelledPods, Lease
from extender.settings import Settings

#: The file with the namespace of the pod.
_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class _LeaseSpec(msgspec.Struct, rename="camel", kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _LeaseMeta(msgspec.Struct, rename="camel"):
    resource_version: str


class _RawLease(msgspec.Struct):
    metadata: _LeaseMeta
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


_decode_lease = msgspec.json.Decoder(_RawLease).decode


class ApiLeases:
    """The `Leases` of a real cluster: one Lease, and each call has a short timeout."""

    def __init__(self, client: ApiClient, settings: Settings) -> None:
        self._client = client
        self._namespace, _, self._name = lease_name(settings).partition("/")
        within = quote(self._namespace, safe="")
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{within}/leases"
        self._path = f"{self._collection}/{quote(self._name, safe='')}"
        # Half of the term, so that there is time for a second attempt.
        self._wait_s = settings.lease_renew_s / 2

    def read(self) -> Lease | None:
        """Return the current Lease; None when it does not exist."""
        try:
            return _lease(self._client.request("GET", self._path, wait_s=self._wait_s))
        except NotFound:
            return None

    def write(self, lease: Lease) -> Lease:
        """Write the Lease and return it as written; fields that others added are kept."""
        spec = {
            "holderIdentity": lease.holder,
            # Whole seconds, rounded up: after this time others may acquire the lease.
            "leaseDurationSeconds": max(1, ceil(lease.duration_s)),
            "acquireTime": lease.acquired or None,
            "renewTime": lease.renewed,
            "leaseTransitions": lease.transitions,
        }
        if lease.version:
            # The API server refuses the patch with 409 if the Lease has changed since.
            patch = {"metadata": {"resourceVersion": lease.version}, "spec": spec}
            body = self._client.request(
                "PATCH", self._path, patch, content_type=MERGE, wait_s=self._wait_s
            )
        else:
            new = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": spec,
            }
            body = self._client.request("POST", self._collection, new, wait_s=self._wait_s)
        return _lease(body)


def _lease(body: bytes) -> Lease:
    try:
        raw = _decode_lease(body)
    except msgspec.DecodeError as error:
        raise ApiError(f"the response is not a Lease: {error}") from error
    spec = raw.spec
    return Lease(
        holder=spec.holder_identity or "",
        duration_s=float(spec.lease_duration_seconds or 0),
        acquired=spec.acquire_time or "",
        renewed=spec.renew_time or "",
        transitions=spec.lease_transitions or 0,
        version=raw.metadata.resource_version,
    )


def lease_name(settings: Settings) -> str:
    """Return the Lease of the settings, as namespace/name."""
    namespace = settings.lease_namespace or settings.pod_namespace or namespace_of_this_pod()
    return f"{namespace}/{settings.lease_name or 'gang-extender'}"


def namespace_of_this_pod() -> str:
    """Return the namespace of our service account; `default` outside of a pod."""
    try:
        return _NAMESPACE.read_text("utf-8").strip()
    except OSError:
        return "default"


_SELECTED = f"?labelSelector={quote(f'{LEADER}=true', safe='')}"


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta


class _Pods(msgspec.Struct):
    items: list[_Pod]


_decode_pod = msgspec.json.Decoder(_Pods).decode


class ApiLeaderLabels:
    """The `LeaderLabels` of a real cluster."""

    def __init__(self, client: ApiClient, settings: Settings, fencing: Fencing) -> None:
        self._client = client
        self._fencing = fencing
        self._pod = settings.pod_name
        self._namespace = settings.pod_namespace or namespace_of_this_pod()
        self._lease = lease_name(settings)
        self._wait_s = settings.lease_renew_s / 2

    def read(self) -> LabelledPods:
        """Return the pods with the label, except those that belong to another lease."""
        path = f"/api/v1/namespaces/{quote(self._namespace, safe='')}/pods{_SELECTED}"
        try:
            pods = _decode_pod(self._client.request("GET", path, wait_s=self._wait_s)).items
        except msgspec.DecodeError as error:
            raise ApiError(f"the response is not a list of pods: {error}") from error
        found = [(each.metadata, (each.metadata.annotations or {}).get(LEADS_BY)) for each in pods]
        return LabelledPods(
            is_ours=any(meta.name == self._pod and by == self._lease for meta, by in found),
            others=tuple(
                LabelledPod(meta.name, meta.resource_version)
                for meta, by in found
                if meta.name != self._pod and by in (None, self._lease)
            ),
        )

    def put_on(self, number: int) -> None:
        """Set the label on our own pod."""
        self._write(self._pod, {LEADER: "true"}, {LEADS_BY: self._lease}, number)

    def take_off(self, other: LabelledPod, number: int) -> None:
        """Remove the label from another pod; 409 when that pod has changed since."""
        self._write(other.pod, {LEADER: None}, {LEADS_BY: None}, number, version=other.version)

    def withdraw(self, number: int) -> None:
        """Remove the label from our own pod."""
        self._write(self._pod, {LEADER: None}, {LEADS_BY: None}, number)

    def _write(
        self,
        pod: str,
        labels: dict[str, str | None],
        annotations: dict[str, str | None],
        number: int,
        *,
        version: str | None = None,
    ) -> None:
        metadata: dict[str, object] = {"labels": labels, "annotations": annotations}
        if version:
            metadata["resourceVersion"] = version
        self._client.request(
            "PATCH",
            pod_path(self._namespace, pod, "/status"),
            {"metadata": metadata},
            content_type=MERGE,
            wait_s=self._wait_s,
            fencing=FencingToken(self._fencing, number),
        )
