"""Every right that the extender needs, by where it is granted; our manifests grant just these."""

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

_FOLLOWED = ("list", "watch")
#: Their queues are read; coscheduling has none.
_WITH_QUEUES = (VOLCANO, KUBE_BATCH_INCUBATOR, KUBE_BATCH)
_COORDINATION = "coordination.k8s.io"
#: What our own lease is called where nothing is said.
OWN_LEASE = "gang-extender"


class Permission(NamedTuple):
    """One verb on one resource, everywhere or in one namespace."""

    group: str
    resource: str
    verb: str
    #: Empty for everywhere.
    namespace: str = ""
    #: Of one object; empty for all.
    name: str = ""

    @property
    def what(self) -> str:
        """Name the resource as Kubernetes does: `podgroups.scheduling.volcano.sh/status`."""
        plural, slash, part = self.resource.partition("/")
        return f"{plural}{'.' if self.group else ''}{self.group}{slash}{part}"

    def as_wish(self) -> dict[str, Any]:
        """Give it as whoever decides who may do what is asked."""
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
    *_all([""], ["pods", "nodes", "namespaces", "resourcequotas"], _FOLLOWED),
    *_all(["scheduling.k8s.io"], ["priorityclasses"], _FOLLOWED),
    *_all(["policy"], ["poddisruptionbudgets"], _FOLLOWED),
    *_all([*VERSIONS], ["podgroups"], ["get", *_FOLLOWED]),
    *_all(_WITH_QUEUES, ["queues"], _FOLLOWED),
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
ASKS_WHO = (
    Permission("authentication.k8s.io", "tokenreviews", "create"),
    Permission("authorization.k8s.io", "subjectaccessreviews", "create"),
)


def of_own_lease(namespace: str, name: str = OWN_LEASE) -> tuple[Permission, ...]:
    """Give what `--lease own` needs."""
    return (
        Permission(_COORDINATION, "leases", "create", namespace),
        *(Permission(_COORDINATION, "leases", verb, namespace, name) for verb in ("get", "patch")),
    )


def of_schedulers_lease(namespace: str, name: str) -> tuple[Permission, ...]:
    """Give what `--lease scheduler` needs."""
    return (Permission(_COORDINATION, "leases", "get", namespace, name),)


def needed(each: ExtenderDeployment, kinds: Sequence[CrdFacts]) -> list[Permission]:
    """Give what *each* needs where *kinds* are installed; what does not exist is not missed."""
    return [
        *(right for right in (*EVERYWHERE, *WHOLE_PODGROUPS) if _is_missed(right, kinds)),
        *(ASKS_WHO if each.settings is not None and each.settings.needs_token else ()),
        *_in_its_namespace(each),
    ]


def _is_missed(right: Permission, kinds: Sequence[CrdFacts]) -> bool:
    if right.group not in VERSIONS:
        return True
    plural, _, part = right.resource.partition("/")
    found = [kind for kind in kinds if (kind.group, kind.plural) == (right.group, plural)]
    if plural != "podgroups" or right.verb != "patch":
        return bool(found)
    # The status is either a resource of its own or a part of the object.
    return any(kind.has_status is bool(part) for kind in found)


def _in_its_namespace(each: ExtenderDeployment) -> Iterator[Permission]:
    settings = each.settings
    if settings is None or settings.lease == "none":
        return
    namespace, name = lease_of(settings, each.namespace)
    of = of_own_lease if settings.lease == "own" else of_schedulers_lease
    yield from of(namespace, name)


def lease_of(settings: Settings, home: str) -> tuple[str, str]:
    """Give namespace and name of the lease that an extender in the namespace *home* goes by."""
    return settings.lease_namespace or home, settings.lease_name or OWN_LEASE


MISSING = Check(
    PERMISSION_MISSING,
    "the account that the extender acts as lacks a right: what needs it is not done",
    "the roles of our manifests, applied again",
)
CLOSED = Check(
    "TokenReviewForbidden",
    "with `--ops-auth tokenreview` the account must ask the API server who reads, and may not:"
    " metrics and pages are answered with 503, to everybody",
    "`kubectl apply -k manifests/ops-auth`, or `operationsAuth` of the chart",
)
RBAC = (MISSING, CLOSED)
_ASKS_WHO = frozenset(right.what for right in ASKS_WHO)


def of_rights(seen: ClusterFacts) -> Iterator[Problem]:
    """Name every right that an account of ours lacks."""
    for each in seen.lacking:
        if each.resource in _ASKS_WHO:
            yield CLOSED.at(
                f"serviceaccount {each.user}",
                f"it may not {each.verb} {each.resource}, so nobody can read metrics or pages",
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
