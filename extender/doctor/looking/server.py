"""What the API server itself has: kinds, policies, gates, and whom it lets do what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from extender.doctor.looking.eyes import Eyes
from extender.doctor.needs import NeededRight, needed
from extender.doctor.seen import Document, Installed, KindSeen, Lacking
from extender.doctor.traps.kinds import is_read
from extender.model.dialect import VERSIONS

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_GATE_ON = re.compile(r'^kubernetes_feature_enabled{name="(\w+)"[^}]*} 1$', re.MULTILINE)
_AT_ONCE = 8


def kinds(eyes: Eyes) -> tuple[KindSeen, ...] | None:
    """Read the CustomResourceDefinitions of gangs and queues."""
    told = eyes.items(_CRDS, "CustomResourceDefinitions")
    if told is None:
        return None
    return tuple(_kind(each["spec"]) for each in told if _is_ours(each["spec"]))


def _is_ours(spec: Document) -> bool:
    return is_read(spec["group"], spec["names"]["plural"])


def _kind(spec: Document) -> KindSeen:
    served = [each for each in spec["versions"] if each.get("served")]
    read: Document = next((each for each in served if each["name"] == VERSIONS[spec["group"]]), {})
    return KindSeen(
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


def admission_policies(eyes: Eyes) -> frozenset[str] | None:
    """Name the ValidatingAdmissionPolicies; None as well where the API server knows none yet."""
    told = eyes.get(_POLICIES, "ValidatingAdmissionPolicies")
    if not told:
        return None
    return frozenset(each["metadata"]["name"] for each in told.get("items") or ())


def gates(eyes: Eyes) -> frozenset[str]:
    """Name the feature gates that the API server has on, by its own series."""
    told = eyes.text("/metrics", "feature gates of the API server")
    return frozenset(_GATE_ON.findall(told or ""))


def lacking(
    eyes: Eyes, installed: Sequence[Installed], seen: Sequence[KindSeen]
) -> tuple[Lacking, ...]:
    """Ask for every account of ours and every right that it needs whether it has it."""
    asked = list(
        dict.fromkeys(
            (each.user, each.namespace, right) for each in installed for right in needed(each, seen)
        )
    )
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        allowed = list(pool.map(lambda each: _may(eyes, *each), asked))
    return tuple(
        Lacking(user, right.verb, right.what, right.namespace)
        for (user, _, right), may in zip(asked, allowed, strict=True)
        if may is False
    )


def _may(eyes: Eyes, user: str, home: str, right: NeededRight) -> bool | None:
    groups = ["system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{home}"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": right.as_wish()},
    }
    told = eyes.review(_REVIEWS, f"the rights of {user}", review)
    return bool((told.get("status") or {}).get("allowed")) if told else None
