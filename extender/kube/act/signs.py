"""The leader's label, on pods of our own namespace.

It is written by the status of the pod, which takes labels and annotations too: who may patch whole
pods could change what they run.

Several extenders with a lease of their own may share a namespace, so an annotation beside the
label says whose leader it shows; a label without it was set by hand.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from extender.errors import ApiError
from extender.kube.act.leases import lease_name, namespace_of_this_pod
from extender.kube.api.client import MERGE, Access
from extender.kube.api.pipeline import pod_path
from extender.leadership.term import InTerm
from extender.ports import Mandate, Mark, Marks
from extender.settings import Settings

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


_decode = msgspec.json.Decoder(_Pods).decode


class ApiSigns:
    """The `Signs` of the real cluster."""

    def __init__(self, access: Access, settings: Settings, mandate: Mandate) -> None:
        self._access = access
        self._mandate = mandate
        self._pod = settings.pod_name
        self._namespace = settings.pod_namespace or namespace_of_this_pod()
        self._lease = lease_name(settings)
        self._wait_s = settings.lease_renew_s / 2

    def read(self) -> Marks:
        """Give the pods that carry it and follow no other lease than ours."""
        path = f"/api/v1/namespaces/{quote(self._namespace, safe='')}/pods{_SELECTED}"
        try:
            pods = _decode(self._access.request("GET", path, wait_s=self._wait_s)).items
        except msgspec.DecodeError as error:
            raise ApiError(f"the answer is no list of pods: {error}") from error
        found = [(each.metadata, (each.metadata.annotations or {}).get(LEADS)) for each in pods]
        return Marks(
            is_ours=any(meta.name == self._pod and by == self._lease for meta, by in found),
            others=tuple(
                Mark(meta.name, meta.resource_version)
                for meta, by in found
                if meta.name != self._pod and by in (None, self._lease)
            ),
        )

    def put_on(self, number: int) -> None:
        """Put it on our own pod."""
        self._write(self._pod, {LABEL: "true"}, {LEADS: self._lease}, number)

    def take_off(self, mark: Mark, number: int) -> None:
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
            mandate=InTerm(self._mandate, number),
        )
