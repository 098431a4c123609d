"""One look at everything that was named: a cluster, an extender, a configuration."""

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
from extender.doctor.reader import ApiReader, Read, ask
from extender.errors import InvalidInput
from extender.kube.client import ApiClient
from extender.model.gang import VERSIONS

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_GATE_ON = re.compile(r'^kubernetes_feature_enabled{name="(\w+)"[^}]*} 1$', re.MULTILINE)
_AT_ONCE = 8


def crd_facts(eyes: ApiReader) -> tuple[CrdFacts, ...] | None:
    """Read the CustomResourceDefinitions of gangs and queues."""
    told = eyes.items(_CRDS, "CustomResourceDefinitions")
    if told is None:
        return None
    return tuple(_kind(each["spec"]) for each in told if _is_ours(each["spec"]))


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
    whole = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    spec = (whole.get("properties") or {}).get("spec") or {}
    if whole.get(keeps) or spec.get(keeps) or not version:
        return None
    return frozenset(spec.get("properties") or {})


def admission_policies(eyes: ApiReader) -> frozenset[str] | None:
    """Name the ValidatingAdmissionPolicies; None as well where the API server knows none yet."""
    told = eyes.get(_POLICIES, "ValidatingAdmissionPolicies")
    if not told:
        return None
    return frozenset(each["metadata"]["name"] for each in told.get("items") or ())


def gates(eyes: ApiReader) -> frozenset[str]:
    """Name the feature gates that the API server has on, by its own series."""
    told = eyes.text("/metrics", "feature gates of the API server")
    return frozenset(_GATE_ON.findall(told or ""))


def lacking(
    eyes: ApiReader, installed: Sequence[ExtenderDeployment], seen: Sequence[CrdFacts]
) -> tuple[MissingPermission, ...]:
    """Ask for every account of ours and every right that it needs whether it has it."""
    asked = list(
        dict.fromkeys(
            (each.user, each.namespace, right) for each in installed for right in needed(each, seen)
        )
    )
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        allowed = list(pool.map(lambda each: _may(eyes, *each), asked))
    return tuple(
        MissingPermission(user, right.verb, right.what, right.namespace)
        for (user, _, right), may in zip(asked, allowed, strict=True)
        if may is False
    )


def _may(eyes: ApiReader, user: str, home: str, right: Permission) -> bool | None:
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{home}"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": right.as_wish()},
    }
    told = eyes.review(_REVIEWS, f"the rights of {user}", review)
    return bool((told.get("status") or {}).get("allowed")) if told else None


_CLUSTER = "the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where to look."""

    #: Gives the way to the cluster; None when nobody shall look there.
    access: Callable[[], ApiClient] | None = None
    namespace: str = ""
    #: Of which file, read.
    configurations: Sequence[tuple[Path, Document]] = ()
    ca_file: Path | None = None
    cert_file: Path | None = None
    #: Finds the operations port of the extender, and says where that is; None when nobody shall.
    ops: Callable[[], tuple[Read, str]] | None = None


def collect(wanted: Sources, now: Callable[[], float] = time.time) -> ClusterFacts:
    """Look everywhere; what could not be seen is in `Seen.unseen`."""
    seen = ClusterFacts(clocks=Clocks(here=now()))
    if wanted.access is not None:
        seen = _cluster(seen, wanted, wanted.access, now)
    else:
        seen = replace(seen, configurations=_assumed(wanted))
    missed: list[NotChecked] = list(seen.unseen)
    callers = tuple(
        scheduler_config.callers(
            seen.configurations,
            lambda what, why: missed.append(NotChecked(what, why)),
            wanted.ca_file,
            wanted.cert_file,
        )
    )
    # Without the other side there is nothing to compare them with, and nothing is missed.
    unseen = tuple(dict.fromkeys(missed)) if seen.hooks else seen.unseen
    seen = replace(seen, callers=callers, unseen=unseen)
    return _extender(seen, wanted)


def _assumed(wanted: Sources) -> tuple[SchedulerConfig, ...]:
    return tuple(
        SchedulerConfig(where=str(path), document=document, is_assumed=True)
        for path, document in wanted.configurations
    )


def _cluster(
    seen: ClusterFacts, wanted: Sources, access: Callable[[], ApiClient], now: Callable[[], float]
) -> ClusterFacts:
    try:
        way = access()
        eyes = ApiReader(way, now)
    except InvalidInput as error:
        missed = NotChecked(_CLUSTER, str(error))
        return replace(seen, configurations=_assumed(wanted), unseen=(missed,))
    seen = replace(seen, unprotected=way.warnings)
    if not eyes.get("/version", _CLUSTER):
        if not eyes.unseen:
            eyes.miss(_CLUSTER, "what the kubeconfig names is not a Kubernetes API server")
        return replace(seen, configurations=_assumed(wanted), unseen=tuple(eyes.unseen))
    found = installation.deployments(eyes, wanted.namespace)
    kinds = crd_facts(eyes)
    installed = None if found is None else tuple(each.installed for each in found)
    found = found or []
    return replace(
        seen,
        is_cluster=True,
        configurations=(
            *installation.configurations(eyes, found),
            *_named(eyes, wanted, found),
        ),
        schedulers=tuple(installation.schedulers(eyes, found)),
        installed=installed,
        leases=tuple(installation.leases(eyes, found)),
        services=tuple(installation.services(eyes, found)),
        kinds=kinds,
        lacking=lacking(eyes, installed or (), kinds or ()),
        server_gates=gates(eyes),
        admission_policies=admission_policies(eyes),
        hooks=tuple(installation.hook_files(eyes, found)),
        clocks=replace(seen.clocks, here=now(), api_server_s=eyes.ahead_s),
        unseen=tuple(eyes.unseen),
    )


def _named(
    eyes: ApiReader, wanted: Sources, found: list[installation.FoundDeployment]
) -> tuple[SchedulerConfig, ...]:
    """Give each file to the extender that has no kube-scheduler beside it, or else to any."""
    alone = [each.installed for each in found if not each.installed.is_pair]
    asked = next((each.settings for each in alone or [e.installed for e in found]), None)
    if not wanted.configurations:
        for each in alone:
            eyes.miss(
                f"the configuration of the kube-scheduler that asks {each.where}",
                "it is a file of a control-plane node; give it with --scheduler-config",
            )
    if asked is None:
        return _assumed(wanted)
    return tuple(
        SchedulerConfig(where=str(path), document=document, settings=asked)
        for path, document in wanted.configurations
    )


def _extender(seen: ClusterFacts, wanted: Sources) -> ClusterFacts:
    if wanted.ops is None:
        return seen
    try:
        told = ask(*wanted.ops())
    except InvalidInput as error:
        missed = NotChecked("what the extender says", str(error))
        return replace(seen, unseen=(*seen.unseen, missed))
    if told.closed:
        missed = NotChecked("what the extender finds", told.closed)
        seen = replace(seen, unseen=(*seen.unseen, missed))
    if seen.installed == ():
        why = "no Deployment has the label app.kubernetes.io/name: gang-extender and runs `serve`"
        missed = NotChecked("how the extender that answers is deployed", why)
        seen = replace(seen, unseen=(*seen.unseen, missed))
    return replace(
        seen,
        said=told.said,
        findings=told.findings,
        clocks=replace(seen.clocks, extender_s=told.ahead_s),
    )
