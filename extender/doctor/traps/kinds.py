"""Traps of the kinds in which gangs and queues are written, and of what guards them."""

from __future__ import annotations

from collections.abc import Iterator

from extender.doctor.seen import KindSeen, Seen
from extender.doctor.trap import Caught, Severity, Trap
from extender.model.dialect import COSCHEDULING, VERSIONS, VOLCANO

#: Without these a gang is none, and a queue all alike.
_NEEDED = {"podgroups": frozenset({"minMember"}), "queues": frozenset({"weight"})}
#: Fields that we read where the CRD has them, beside those.
_READ = {
    "podgroups": frozenset({"queue", "priorityClassName", "minTaskMember", "minResources"}),
    "queues": frozenset(
        {"capability", "deserved", "guarantee", "reclaimable", "parent", "priority"}
    ),
}
#: What a cluster can have us read, in the order in which we tell.
PLURALS = ("podgroups", "queues")

#: Of the policies in manifests/admission.
POLICIES = frozenset(
    {
        "gang-extender-pod-groups",
        "gang-extender-pod-sizes",
        "gang-extender-queues",
        "gang-extender-started-in",
        "gang-extender-without-effect",
    }
)

KIND_MISSING = Trap(
    "KindMissing",
    "no PodGroup, or no Queue, can be written: gangs have no minimum, or all share one queue",
    "`kubectl apply -k manifests/crds`",
)
KIND_OF_ANOTHER_VERSION = Trap(
    "KindOfAnotherVersion",
    "the kind is installed in versions that we do not read: its gangs look like pods without a"
    " group",
    "a CustomResourceDefinition that serves the version we read",
)
KIND_LACKS_FIELDS = Trap(
    "KindLacksFields",
    "the API server drops a field without which a gang is none: `minMember`, or the `weight` of a"
    " queue",
    "a newer CustomResourceDefinition; ours are in `manifests/crds`",
)
KIND_LACKS_NEWER_FIELDS = Trap(
    "KindLacksNewerFields",
    "the API server drops fields that we read, without a word: what they say has no effect",
    "a newer CustomResourceDefinition; ours are in `manifests/crds`",
    Severity.HINT,
)
NO_ADMISSION_POLICIES = Trap(
    "NoAdmissionPolicies",
    "senseless Queues and PodGroups are accepted and said afterwards, and a tenant can edit where"
    " a pod was started",
    "`kubectl apply -k manifests/admission`",
    Severity.HINT,
)

TRAPS = (
    KIND_MISSING, KIND_OF_ANOTHER_VERSION, KIND_LACKS_FIELDS, KIND_LACKS_NEWER_FIELDS,
    NO_ADMISSION_POLICIES,
)  # fmt: skip


def of_kinds(seen: Seen) -> Iterator[Caught]:
    """Find what is missing of the kinds that we read."""
    if seen.kinds is not None:
        for plural in PLURALS:
            if not any(each.plural == plural for each in seen.kinds):
                name = f"{plural}.{VOLCANO}"
                yield KIND_MISSING.at(f"crd/{name}", "no CustomResourceDefinition of any dialect")
        for each in seen.kinds:
            yield from _of_kind(each)
    if seen.admission_policies is not None and (absent := POLICIES - seen.admission_policies):
        yield NO_ADMISSION_POLICIES.at(
            "the cluster",
            f"no ValidatingAdmissionPolicy {', '.join(sorted(absent))}",
            "kubectl apply -k manifests/admission",
        )


def _of_kind(kind: KindSeen) -> Iterator[Caught]:
    wanted, where = VERSIONS[kind.group], f"crd/{kind.name}"
    if wanted not in kind.versions:
        yield KIND_OF_ANOTHER_VERSION.at(
            where,
            f"it serves {', '.join(kind.versions) or 'nothing'}, and we read {wanted}",
            f"let it serve {wanted}"
            + ("; ours does: kubectl apply -k manifests/crds" if kind.group == VOLCANO else ""),
        )
        return
    if kind.fields is None:
        return
    if lacks := _NEEDED[kind.plural] - kind.fields:
        yield KIND_LACKS_FIELDS.at(where, f"its spec has no {', '.join(sorted(lacks))}")
    # The others never had them, and nobody of theirs expects them.
    if kind.group == VOLCANO and (lacks := _READ[kind.plural] - kind.fields):
        yield KIND_LACKS_NEWER_FIELDS.at(where, f"its spec has no {', '.join(sorted(lacks))}")


def is_read(group: str, plural: str) -> bool:
    """Ask whether we read that kind; coscheduling has no queues."""
    return group in VERSIONS and plural in PLURALS and (group, plural) != (COSCHEDULING, "queues")
