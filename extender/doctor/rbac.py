"""The permissions that the extender needs; our manifests grant exactly these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from extender.doctor.facts import (
    Check,
    ClusterFacts,
    CrdFacts,
    ExtenderDeployment,
    MissingPermission,
    Problem,
)
from extender.findings.finding import PERMISSION_MISSING
from extender.model.gang import KUBE_BATCH, KUBE_BATCH_INCUBATOR, VERSIONS, VOLCANO
from extender.settings import Settings

_WATCHED = ("list", "watch")
#: The groups with queues that are read; coscheduling has none.
_WITH_QUEUES = (VOLCANO, KUBE_BATCH_INCUBATOR, KUBE_BATCH)
_COORDINATION = "coordination.k8s.io"
#: The default name of the extender's own lease.
OWN_LEASE = "gang-extender"


class Permission(NamedTuple):
    """A verb on a resource, everywhere or in one namespace."""

    group: str
    resource: str
    verb: str
    #: Empty for everywhere.
    namespace: str = ""
    #: The name of one object; empty for all.
    name: str = ""

    @property
    def what(self) -> str:
        """Return the resource as Kubernetes writes it: `podgroups.scheduling.volcano.sh/status`."""
        plural, slash, part = self.resource.partition("/")
        return f"{plural}{'.' if self.group else ''}{self.group}{slash}{part}"

    def as_attributes(self) -> dict[str, Any]:
        """Return the resourceAttributes of a SubjectAccessReview."""
        plural, _, part = self.resource.partition("/")
        return {
            "verb": self.verb,
            "group": self.group,
            "resource": plural,
            "subresource": part,
            "namespace": self.namespace,
            "name": self.name,
        }


def _all(
    groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str]
) -> Iterator[Permission]:
    return (Permission(*each) for each in product(groups, resources, verbs))


#: In every deployment: the ClusterRole gang-extender.
EVERYWHERE = (
    *_all([""], ["pods", "nodes", "namespaces", "resourcequotas"], _WATCHED),
    *_all(["scheduling.k8s.io"], ["priorityclasses"], _WATCHED),
    *_all(["policy"], ["poddisruptionbudgets"], _WATCHED),
    *_all([*VERSIONS], ["podgroups"], ["get", *_WATCHED]),
    *_all(_WITH_QUEUES, ["queues"], _WATCHED),
    *_all([""], ["pods/binding", "pods/eviction"], ["create"]),
    *_all([""], ["pods"], ["get"]),
    *_all([""], ["pods/status"], ["patch"]),
    *_all([""], ["events"], ["create", "patch"]),
    *_all([*VERSIONS], ["podgroups/status"], ["patch"]),
    *_all([VOLCANO], ["queues"], ["get"]),
    *_all([VOLCANO], ["queues/status"], ["patch"]),
)
#: Where a CRD has no status subresource, as Volcano's own: the ClusterRole
#: gang-extender-whole-podgroups.
WHOLE_PODGROUPS = tuple(_all(_WITH_QUEUES, ["podgroups"], ["patch"]))
#: For `--ops-auth tokenreview`: the ClusterRole gang-extender-asks-who.
TOKEN_REVIEW = (
    Permission("authentication.k8s.io", "tokenreviews", "create"),
    Permission("authorization.k8s.io", "subjectaccessreviews", "create"),
)


def of_own_lease(namespace: str, name: str = OWN_LEASE) -> tuple[Permission, ...]:
    """Return what `--lease own` needs."""
    return (
        Permission(_COORDINATION, "leases", "create", namespace),
        *(Permission(_COORDINATION, "leases", verb, namespace, name) for verb in ("get", "patch")),
    )


def of_schedulers_lease(namespace: str, name: str) -> tuple[Permission, ...]:
    """Return what `--lease scheduler` needs."""
    return (Permission(_COORDINATION, "leases", "get", namespace, name),)


def needed(deployment: ExtenderDeployment, kinds: Sequence[CrdFacts]) -> list[Permission]:
    """Return what *deployment* needs where *kinds* are installed; a missing kind needs nothing."""
    return [
        *(
            permission
            for permission in (*EVERYWHERE, *WHOLE_PODGROUPS)
            if _applies(permission, kinds)
        ),
        *(
            TOKEN_REVIEW
            if deployment.settings is not None and deployment.settings.needs_token
            else ()
        ),
        *_in_its_namespace(deployment),
    ]


def _applies(permission: Permission, kinds: Sequence[CrdFacts]) -> bool:
    if permission.group not in VERSIONS:
        return True
    plural, _, part = permission.resource.partition("/")
    found = [kind for kind in kinds if (kind.group, kind.plural) == (permission.group, plural)]
    if plural != "podgroups" or permission.verb != "patch":
        return bool(found)
    # The status is either a subresource or a part of the object.
    return any(kind.has_status is bool(part) for kind in found)


def _in_its_namespace(deployment: ExtenderDeployment) -> Iterator[Permission]:
    settings = deployment.settings
    if settings is None or settings.lease == "none":
        return
    namespace, name = lease_of(settings, deployment.namespace)
    of = of_own_lease if settings.lease == "own" else of_schedulers_lease
    yield from of(namespace, name)


def lease_of(settings: Settings, home: str) -> tuple[str, str]:
    """Return namespace and name of the lease of an extender in the namespace *home*."""
    return settings.lease_namespace or home, settings.lease_name or OWN_LEASE


MISSING = Check(
    PERMISSION_MISSING,
    "the service account of the extender lacks a permission: what needs it is not done",
    "the roles of our manifests, applied again",
)
CLOSED = Check(
    "TokenReviewForbidden",
    "with `--ops-auth tokenreview` the service account must create TokenReviews and"
    " SubjectAccessReviews, and may not: metrics and pages answer 503 to every client",
    "`kubectl apply -k manifests/ops-auth`, or `operationsAuth` of the chart",
)
RBAC = (MISSING, CLOSED)
_TOKEN_REVIEW = frozenset(permission.what for permission in TOKEN_REVIEW)


def of_rights(facts: ClusterFacts) -> Iterator[Problem]:
    """Yield every permission that an account of the extender lacks."""
    for each in facts.missing_permissions:
        if each.resource in _TOKEN_REVIEW:
            yield CLOSED.at(
                f"serviceaccount {each.user}",
                f"it may not {each.verb} {each.resource}, so metrics and pages cannot be read",
                f"apply manifests/ops-auth; then `{_can_i(each)}` says yes",
            )
            continue
        where = f" in {each.namespace}" if each.namespace else ""
        yield MISSING.at(
            f"serviceaccount {each.user}",
            f"it may not {each.verb} {each.resource}{where}",
            f"apply our roles again; then `{_can_i(each)}` says yes",
        )


def _can_i(each: MissingPermission) -> str:
    resource, _, part = each.resource.partition("/")
    words = ["kubectl auth can-i", each.verb, resource]
    words += [f"--subresource={part}"] * bool(part)
    words += [f"-n {each.namespace}"] * bool(each.namespace)
    return " ".join([*words, f"--as={each.user}"])
