"""Which pod to ask: the one that leads, of those that our manifests label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from extender.cli.reach.kubectl import Kubectl
from extender.errors import BadInput
from extender.kube.act.signs import LABEL

Object = Mapping[str, Any]

OURS = "app.kubernetes.io/name=gang-extender"
_PORT_NAME = "ops"
_PORT = 8889


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """A pod that can be asked, and how its operations port is spoken to."""

    namespace: str
    name: str
    port: int = _PORT
    scheme: str = "http"


def find(kubectl: Kubectl, namespace: str) -> Leader:
    """Find the leading pod in *namespace*; `BadInput` says what was looked for.

    Nowhere else: whoever may label a pod of his own could otherwise answer for the extender.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods?labelSelector={quote(OURS)}"
    pods = _items(kubectl.read(path))
    if not pods:
        elsewhere = _elsewhere(kubectl)
        where = f"namespace {namespace} has no pod with the label {OURS}"
        mend = f"they are in {elsewhere}, so say" if elsewhere else "if it is in another, say"
        other = elsewhere.split(", ")[0] or "NAMESPACE"
        raise BadInput(f"{where}; {mend} --extender-namespace {other}")
    leader = choose(pods)
    if leader is None:
        states = ", ".join(sorted(f"{_name(pod)} {_phase(pod)}" for pod in pods))
        raise BadInput(
            f"no extender runs in namespace {namespace}: {states}; see"
            f" kubectl describe pods -n {namespace} -l {OURS}"
        )
    return leader


def choose(pods: Sequence[Object]) -> Leader | None:
    """Give the one to ask: with the leader's label, ready, and not about to go."""
    running = [pod for pod in pods if _phase(pod) == "Running"]
    if not running:
        return None
    best = min(
        running,
        key=lambda pod: (
            not _leads(pod),
            bool(pod["metadata"].get("deletionTimestamp")),
            not _is_ready(pod),
            _name(pod),
        ),
    )
    port, scheme = _operations(best)
    return Leader(
        namespace=best["metadata"]["namespace"], name=_name(best), port=port, scheme=scheme
    )


def _elsewhere(kubectl: Kubectl) -> str:
    """Name the namespaces that have such pods; whoever may not look there learns nothing."""
    try:
        found = _items(kubectl.read(f"/api/v1/pods?labelSelector={quote(OURS)}"))
    except BadInput:
        return ""
    return ", ".join(sorted({pod["metadata"]["namespace"] for pod in found}))


def _items(body: bytes) -> list[Object]:
    try:
        return list(msgspec.json.decode(body)["items"])
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError) as error:
        raise BadInput("kubectl reached something that is no API server") from error


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Unknown")


def _leads(pod: Object) -> bool:
    return (pod["metadata"].get("labels") or {}).get(LABEL) == "true"


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _operations(pod: Object) -> tuple[int, str]:
    """Read the port by its name, and by its probe whether it speaks TLS."""
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == _PORT_NAME:
                probe = (container.get("livenessProbe") or {}).get("httpGet") or {}
                return int(port["containerPort"]), str(probe.get("scheme") or "HTTP").lower()
    return _PORT, "http"
