"""Collects facts about a cluster, an extender and a configuration of kube-scheduler."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from extender.doctor import installation, scheduler_config
from extender.doctor.checks import is_read
from extender.doctor.facts import (
    Clocks,
    ClusterFacts,
    CrdFacts,
    Document,
    ExtenderDeployment,
    MissingPermission,
    NotChecked,
    SchedulerConfig,
)
from extender.doctor.rbac import Permission, needed
from extender.doctor.reader import ApiReader, Read, read_extender
from extender.errors import InvalidInput
from extender.kube.client import ApiClient
from extender.model.gang import VERSIONS
from extender.settings import Settings

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_GATE_ON = re.compile(r'^kubernetes_feature_enabled{name="(\w+)"[^}]*} 1$', re.MULTILINE)
_WORKERS = 8


def crd_facts(reader: ApiReader) -> tuple[CrdFacts, ...] | None:
    """Read the CustomResourceDefinitions of gangs and queues."""
    items = reader.items(_CRDS, "CustomResourceDefinitions")
    if items is None:
        return None
    return tuple(_kind(each["spec"]) for each in items if _is_ours(each["spec"]))


def _is_ours(spec: Document) -> bool:
    return is_read(spec["group"], spec["names"]["plural"])


def _kind(spec: Document) -> CrdFacts:
    served = [each for each in spec["versions"] if each.get("served")]
    read: Document = next((each for each in served if each["name"] == VERSIONS[spec["group"]]), {})
    return CrdFacts(
        spec["group"],
        spec["names"]["plural"],
        tuple(each["name"] for each in served),
        _fields(read),
        has_status="status" in (read.get("subresources") or {}),
    )


def _fields(version: Document) -> frozenset[str] | None:
    keeps = "x-kubernetes-preserve-unknown-fields"
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    spec = (schema.get("properties") or {}).get("spec") or {}
    if schema.get(keeps) or spec.get(keeps) or not version:
        return None
    return frozenset(spec.get("properties") or {})


def admission_policies(reader: ApiReader) -> frozenset[str] | None:
    """Return the ValidatingAdmissionPolicies; None also where the API server has no such kind."""
    items = reader.get(_POLICIES, "ValidatingAdmissionPolicies")
    if not items:
        return None
    return frozenset(each["metadata"]["name"] for each in items.get("items") or ())


def gates(reader: ApiReader) -> frozenset[str]:
    """Return the feature gates that are on, from the metrics of the API server."""
    metrics = reader.text("/metrics", "feature gates of the API server")
    return frozenset(_GATE_ON.findall(metrics or ""))


def missing_permissions(
    reader: ApiReader, installed: Sequence[ExtenderDeployment], facts: Sequence[CrdFacts]
) -> tuple[MissingPermission, ...]:
    """Review every permission that the extender's accounts need, and return the missing ones."""
    settings = list(
        dict.fromkeys(
            (each.user, each.namespace, permission)
            for each in installed
            for permission in needed(each, facts)
        )
    )
    with ThreadPoolExecutor(_WORKERS) as pool:
        allowed = list(pool.map(lambda each: _is_allowed(reader, *each), settings))
    return tuple(
        MissingPermission(user, permission.verb, permission.what, permission.namespace)
        for (user, _, permission), is_allowed in zip(settings, allowed, strict=True)
        if is_allowed is False
    )


def _is_allowed(reader: ApiReader, user: str, home: str, permission: Permission) -> bool | None:
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{home}"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": permission.as_attributes()},
    }
    answer = reader.review(_REVIEWS, f"the rights of {user}", review)
    return bool((answer.get("status") or {}).get("allowed")) if answer else None


_CLUSTER = "the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of facts."""

    #: Connects to the cluster; None to read no cluster.
    access: Callable[[], ApiClient] | None = None
    namespace: str = ""
    #: Files and their documents.
    configurations: Sequence[tuple[Path, Document]] = ()
    ca_file: Path | None = None
    cert_file: Path | None = None
    #: Connects to the operations port of the extender, and names it; None to skip it.
    ops: Callable[[], tuple[Read, str]] | None = None


def collect(sources: Sources, now: Callable[[], float] = time.time) -> ClusterFacts:
    """Read all sources; what could not be read is in `ClusterFacts.not_checked`."""
    facts = ClusterFacts(clocks=Clocks(here=now()))
    if sources.access is not None:
        facts = _cluster(facts, sources, sources.access, now)
    else:
        facts = replace(facts, configurations=_files(sources))
    not_readable: list[NotChecked] = list(facts.not_checked)
    callers = tuple(
        scheduler_config.callers(
            facts.configurations,
            lambda what, why: not_readable.append(NotChecked(what, why)),
            sources.ca_file,
            sources.cert_file,
        )
    )
    # Without the files of the hooks there is nothing to compare them with, and nothing is missed.
    not_checked = tuple(dict.fromkeys(not_readable)) if facts.hooks else facts.not_checked
    facts = replace(facts, callers=callers, not_checked=not_checked)
    return _extender(facts, sources)


def _files(sources: Sources, settings: Settings | None = None) -> tuple[SchedulerConfig, ...]:
    return tuple(
        SchedulerConfig.of(str(path), document, settings)
        for path, document in sources.configurations
    )


def _cluster(
    facts: ClusterFacts, sources: Sources, access: Callable[[], ApiClient], now: Callable[[], float]
) -> ClusterFacts:
    facts = replace(facts, configurations=_files(sources))
    try:
        client = access()
        reader = ApiReader(client, now)
    except InvalidInput as error:
        return replace(facts, not_checked=(NotChecked(_CLUSTER, str(error)),))
    facts = replace(facts, unprotected=client.warnings)
    if not reader.get("/version", _CLUSTER):
        if not reader.not_checked:
            reader.not_readable(
                _CLUSTER, "the server of the kubeconfig is not a Kubernetes API server"
            )
        return replace(facts, not_checked=tuple(reader.not_checked))
    found = installation.deployments(reader, sources.namespace)
    kinds = crd_facts(reader)
    installed = None if found is None else tuple(each.installed for each in found)
    found = found or []
    return replace(
        facts,
        is_cluster=True,
        configurations=(
            *installation.configurations(reader, found),
            *_named_files(reader, sources, found),
        ),
        schedulers=tuple(installation.schedulers(reader, found)),
        installed=installed,
        leases=tuple(installation.leases(reader, found)),
        services=tuple(installation.services(reader, found)),
        kinds=kinds,
        missing_permissions=missing_permissions(reader, installed or (), kinds or ()),
        server_gates=gates(reader),
        admission_policies=admission_policies(reader),
        hooks=tuple(installation.hook_files(reader, found)),
        clocks=replace(facts.clocks, here=now(), api_server_s=reader.ahead_s),
        not_checked=tuple(reader.not_checked),
    )


def _named_files(
    reader: ApiReader, sources: Sources, found: list[installation.FoundDeployment]
) -> tuple[SchedulerConfig, ...]:
    """Assign each file to the extender without a kube-scheduler in its pod, or else to any."""
    alone = [each.installed for each in found if not each.installed.is_pair]
    settings = next((each.settings for each in alone or [e.installed for e in found]), None)
    if not sources.configurations:
        for each in alone:
            reader.not_readable(
                f"the configuration of the kube-scheduler that calls {each.where}",
                "it is a file of a control-plane node; give it with --scheduler-config",
            )
    return _files(sources, settings)


def _extender(facts: ClusterFacts, sources: Sources) -> ClusterFacts:
    if sources.ops is None:
        return facts
    try:
        answer = read_extender(*sources.ops())
    except InvalidInput as error:
        unread = NotChecked("readiness of the extender", str(error))
        return replace(facts, not_checked=(*facts.not_checked, unread))
    not_checked = [*facts.not_checked]
    if answer.closed:
        not_checked.append(NotChecked("findings of the extender", answer.closed))
    if facts.installed == ():
        why = "no Deployment has the label app.kubernetes.io/name: gang-extender and runs `serve`"
        not_checked.append(NotChecked("the Deployment of the extender", why))
    return replace(
        facts,
        not_checked=tuple(not_checked),
        readiness=answer.readiness,
        findings=answer.findings,
        clocks=replace(facts.clocks, extender_s=answer.ahead_s),
    )
