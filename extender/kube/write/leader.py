"""The Lease of the leader, read and written: the only thing that is written without a term."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from urllib.parse import quote

import msgspec

from extender.errors import ApiError, NotFound
from extender.kube.client import MERGE, ApiClient
from extender.kube.pipeline import pod_path
from extender.leader.fencing import FencingToken
from extender.ports import Fencing, LabelledPod, LabelledPods, Lease
from extender.settings import Settings

#: Where a pod finds the name of its namespace.
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
    """The `Leases` of the real cluster: one Lease, each call answered soon or not at all."""

    def __init__(self, access: ApiClient, settings: Settings) -> None:
        self._access = access
        self._namespace, _, self._name = lease_name(settings).partition("/")
        within = quote(self._namespace, safe="")
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{within}/leases"
        self._path = f"{self._all}/{quote(self._name, safe='')}"
        # There must be time for another try.
        self._wait_s = settings.lease_renew_s / 2

    def read(self) -> Lease | None:
        """Give it as it is now, None when it does not exist."""
        try:
            return _lease(self._access.request("GET", self._path, wait_s=self._wait_s))
        except NotFound:
            return None

    def write(self, lease: Lease) -> Lease:
        """Write it and give it as written; what others added to it stays."""
        spec = {
            "holderIdentity": lease.holder,
            # Whole seconds, and never fewer than we act upon: others may take it then.
            "leaseDurationSeconds": max(1, ceil(lease.duration_s)),
            "acquireTime": lease.acquired or None,
            "renewTime": lease.renewed,
            "leaseTransitions": lease.transitions,
        }
        if lease.version:
            # The API server refuses it with 409 if anybody has written since.
            patch = {"metadata": {"resourceVersion": lease.version}, "spec": spec}
            body = self._access.request(
                "PATCH", self._path, patch, content_type=MERGE, wait_s=self._wait_s
            )
        else:
            new = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self._name, "namespace": self._namespace},
                "spec": spec,
            }
            body = self._access.request("POST", self._all, new, wait_s=self._wait_s)
        return _lease(body)


def _lease(body: bytes) -> Lease:
    try:
        raw = _decode_lease(body)
    except msgspec.DecodeError as error:
        raise ApiError(f"the answer is no Lease: {error}") from error
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
    """Name the Lease that counts, as namespace/name."""
    namespace = settings.lease_namespace or settings.pod_namespace or namespace_of_this_pod()
    return f"{namespace}/{settings.lease_name or 'gang-extender'}"


def namespace_of_this_pod() -> str:
    """Give the namespace in which we run, as far as anybody told us."""
    try:
        return _NAMESPACE.read_text("utf-8").strip()
    except OSError:
        return "default"


LABEL = "gang-extender.io/leader"
LEADS = "gang-extender.io/leads-by"
_SELECTED = f"?labelSelector={quote(f'{LABEL}=true', safe='')}"


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
    """The `Signs` of the real cluster."""

    def __init__(self, access: ApiClient, settings: Settings, mandate: Fencing) -> None:
        self._access = access
        self._mandate = mandate
        self._pod = settings.pod_name
        self._namespace = settings.pod_namespace or namespace_of_this_pod()
        self._lease = lease_name(settings)
        self._wait_s = settings.lease_renew_s / 2

    def read(self) -> LabelledPods:
        """Give the pods that carry it and follow no other lease than ours."""
        path = f"/api/v1/namespaces/{quote(self._namespace, safe='')}/pods{_SELECTED}"
        try:
            pods = _decode_pod(self._access.request("GET", path, wait_s=self._wait_s)).items
        except msgspec.DecodeError as error:
            raise ApiError(f"the answer is no list of pods: {error}") from error
        found = [(each.metadata, (each.metadata.annotations or {}).get(LEADS)) for each in pods]
        return LabelledPods(
            is_ours=any(meta.name == self._pod and by == self._lease for meta, by in found),
            others=tuple(
                LabelledPod(meta.name, meta.resource_version)
                for meta, by in found
                if meta.name != self._pod and by in (None, self._lease)
            ),
        )

    def put_on(self, number: int) -> None:
        """Put it on our own pod."""
        self._write(self._pod, {LABEL: "true"}, {LEADS: self._lease}, number)

    def take_off(self, mark: LabelledPod, number: int) -> None:
        """Take it off another; 409 when somebody has written to that pod since."""
        self._write(mark.pod, {LABEL: None}, {LEADS: None}, number, version=mark.version)

    def withdraw(self, number: int) -> None:
        """Take it off our own pod."""
        self._write(self._pod, {LABEL: None}, {LEADS: None}, number)

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
        self._access.request(
            "PATCH",
            pod_path(self._namespace, pod, "/status"),
            {"metadata": metadata},
            content_type=MERGE,
            wait_s=self._wait_s,
            mandate=FencingToken(self._mandate, number),
        )
