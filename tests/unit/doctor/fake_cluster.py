"""A fake API server: it has the objects of our overlays, and answers like the real one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from extender.doctor.collect import Sources, collect
from extender.doctor.facts import ClusterFacts, Document
from extender.errors import NoResponse

from .cases import HERE, OVERLAYS

MANIFESTS = OVERLAYS.parent
HOME = "/api/v1/namespaces/gang-system"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gang-system/leases"
DEPLOYMENTS = "/apis/apps/v1/deployments"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
SCHEDULERS = "/api/v1/namespaces/kube-system/pods"
#: The time of this API server is that of the cases.
DATE = formatdate(HERE, usegmt=True)


@cache
def _documents(file: Path) -> list[Document]:
    return [*yaml.safe_load_all(file.read_text())]


def written(*files: Path) -> list[Document]:
    return [deepcopy(each) for file in files for each in _documents(file)]


def listed(*items: Document) -> Document:
    return {"kind": "List", "items": list(items)}


@dataclass
class Reply:
    """A response as urllib3 returns it."""

    status: int
    data: bytes
    headers: dict[str, str] = field(default_factory=lambda: {"date": DATE})


@dataclass
class FakeCluster:
    """Serves documents by path; a number is the status of a refusal."""

    held: dict[str, Any]
    #: Permissions that the account lacks, as `create pods/eviction`.
    denied: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    #: Warnings about an unprotected connection.
    warnings: tuple[str, ...] = ()

    def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        read_s: float,
    ) -> Reply:
        self.asked.append(f"{method} {path}")
        if path == REVIEWS and REVIEWS not in self.held:
            wish = body["spec"]["resourceAttributes"]
            part = f"/{wish['subresource']}" if wish["subresource"] else ""
            may = f"{wish['verb']} {wish['resource']}{part}" not in self.denied
            # Our roles grant nothing in other namespaces.
            may = may and wish["namespace"] in ("", "gang-system")
            return Reply(201, json.dumps({"status": {"allowed": may}}).encode())
        found = self.held.get(path, 404)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, int):
            what = path.rpartition("/")[2]
            said = f'{what} is forbidden: User "eve" cannot list resource "{what}" in API group ""'
            return Reply(found, json.dumps({"message": said}).encode())
        return Reply(200, found.encode() if isinstance(found, str) else json.dumps(found).encode())

    def collect(self, **wanted: Any) -> ClusterFacts:
        """Collect the facts of this cluster once."""
        access: Any = lambda: self  # noqa: E731 - it stands in for an `Access`
        return collect(Sources(access=access, **wanted), lambda: HERE)


def pod(name: str, labels: Document, ready: str = "True") -> Document:
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}}


def fake_cluster(overlay: str = "second-scheduler") -> FakeCluster:
    """Make a cluster in which that overlay runs without a problem."""
    folder = OVERLAYS / overlay
    (deployment,) = written(folder / "deployment.yaml")
    (service,) = written(folder / "service.yaml")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    leader = {**labels, "gang-extender.io/leader": "true"}
    name = "gang-scheduler" if overlay == "second-scheduler" else "gang-extender"
    lease = {
        "kind": "Lease",
        "spec": {
            "holderIdentity": "a_1",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-11-16T11:59:59.000000Z",
        },
    }
    policies = written(*sorted((MANIFESTS / "admission").glob("[!k]*.yaml")))
    held = {
        "/version": {"gitVersion": "v1.36.4"},
        "/metrics": 'kubernetes_feature_enabled{name="WatchList",stage="BETA"} 1\n',
        DEPLOYMENTS: listed(deployment),
        f"{HOME}/pods": listed(pod("a", leader), pod("b", labels)),
        f"{HOME}/services": listed(service),
        f"{LEASE}/{name}": lease,
        SCHEDULERS: listed(),
        CRDS: listed(*written(*sorted((MANIFESTS / "crds").glob("[!k]*.yaml")))),
        POLICIES: listed(*(each for each in policies if each["kind"].endswith("Policy"))),
    }
    config = folder / "scheduler-config.yaml"
    if config.exists():
        data = {"scheduler-config.yaml": config.read_text()}
        held[f"{HOME}/configmaps/gang-scheduler-config"] = {"kind": "ConfigMap", "data": data}
    return FakeCluster(held)


GONE = NoResponse("GET /version: no answer from the API server: refused")
