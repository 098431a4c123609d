"""The page of the configuration: settings, variables, annotations and labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from extender.model import annotations as names
from extender.settings import COMMAND_LINE_VARIABLES, PREFIX, Settings, flag
from tests.unit.docs.tables.parts import table

_POD, _GROUP, _QUEUE, _NAMESPACE = "Pod", "PodGroup", "Queue", "Namespace"
_NO_EFFECT = "belongs to a Volcano plugin that has no counterpart here; a remark names it"
#: By constant of `extender.model.annotations`: the kinds of object, the writer, and the meaning.
ANNOTATIONS: Mapping[str, tuple[str, str, str]] = {
    "GANG": (_POD, "user", "the gang of the pod; the first of the five keys counts"),
    "GROUP_NAME": (_POD, "user", "the same, as kube-batch and Volcano write it"),
    "VOLCANO_GROUP_NAME": (_POD, "user", "the same, as Volcano's job controller writes it"),
    "COSCHEDULING_GROUP": (_POD, "user", "the same, as coscheduling writes it"),
    "SIGS_GROUP": (_POD, "user", "the same, of coscheduling before it had a CRD"),
    "MIN_MEMBER": (_POD, "user", "the minimum of a gang without a PodGroup"),
    "GROUP_MIN_MEMBER": (_POD, "user", "the same, of kube-batch"),
    "VOLCANO_GROUP_MIN_MEMBER": (_POD, "user", "the same, of Volcano"),
    "SIGS_MIN_AVAILABLE": (_POD, "user", "the same, of coscheduling before it had a CRD"),
    "ROLE": (_POD, "user", "the role of the pod, for `minTaskMember`"),
    "TASK_PRIORITY": (_POD, "user", "the order of the members within their gang"),
    "PREEMPTABLE": (_POD, "user", '`"false"`: the pod is never evicted'),
    "STARTED_IN": (_POD, "extender", "the queue in which the pod was started"),
    "WOKEN": (_POD, "extender", "when the pod was last returned to kube-scheduler's active queue"),
    "DURATION": (
        f"{_POD}, {_GROUP}",
        "user",
        "how long the gang runs; [estimates](../what-if.md#estimates) and backfill read it",
    ),
    "SLA_WAITING_TIME": (_GROUP, "user", "after how long plugin `sla` enqueues the gang"),
    "SHORT_SLA_WAITING_TIME": (_GROUP, "user", "the same"),
    "REVOCABLE_ZONE": (_GROUP, "user", _NO_EFFECT),
    "MIN_AVAILABLE": (_GROUP, "user", _NO_EFFECT),
    "MAX_UNAVAILABLE": (_GROUP, "user", _NO_EFFECT),
    "COOLDOWN": (_GROUP, "user", _NO_EFFECT),
    "LEND_GUARANTEE": (_QUEUE, "administrator", '`"true"`: other queues may borrow its guarantee'),
    "HIERARCHY": (_QUEUE, "administrator", "the path of the queue, for `drf` with a hierarchy"),
    "HIERARCHY_WEIGHTS": (_QUEUE, "administrator", "the weights along that path"),
    "NODE_GROUPS": (_QUEUE, "administrator", _NO_EFFECT),
    "QUEUE_NAME": (
        f"{_NAMESPACE}, {_POD}",
        "administrator, user",
        "of a Namespace: its home queue; of a pod without a PodGroup: the queue of its gang",
    ),
    "ALLOWED_QUEUES": (_NAMESPACE, "administrator", "the queues that its gangs may use"),
    "ALLOWED_CLASSES": (_NAMESPACE, "administrator", "the priority classes that count"),
    "LIMIT": (_NAMESPACE, "administrator", "its limit in each queue"),
    "GUARANTEE": (_NAMESPACE, "administrator", "its guarantee in each queue"),
    "NAMESPACE_WEIGHT": (
        "ResourceQuota",
        "administrator",
        "among `spec.hard`: the weight of the namespace, for `drf` with `enableNamespaceOrder`",
    ),
    "LEADER": ("the extender's Pod", "extender", '`"true"` on the leader; a label'),
    "LEADS_BY": ("the extender's Pod", "extender", "the lease by which it leads"),
}
#: What the NetworkPolicies of the manifests read.
OF_MANIFESTS = (
    (
        "`gang-extender.io/monitoring`",
        _NAMESPACE,
        "administrator",
        '`"true"`: pods of this namespace may reach the operations port; a label',
    ),
)
#: Other names of the same annotation.
_ALIASES = frozenset({"HOME_QUEUE"})
_OF_COMMANDS: Mapping[str, str] = {
    f"{PREFIX}OPS_URL": "`--ops-url` of the commands that ask a running extender",
    f"{PREFIX}NAMESPACE": "`--extender-namespace` of these commands",
    f"{PREFIX}TOKEN_FROM": "`--token-from` of these commands",
}


def settings() -> str:
    """Write every setting with its default and its reason."""
    return table(
        ("setting", "default", "meaning"),
        (
            (f"`{flag(each.name)}`", _default(each.default), str(each.metadata["why"]))
            for each in fields(Settings)
        ),
    )


def variables() -> str:
    """Write the variables that are no settings."""
    return table(
        ("variable", "meaning"),
        ((f"`{each}`", _OF_COMMANDS[each]) for each in COMMAND_LINE_VARIABLES),
    )


def annotations() -> str:
    """Write every annotation and label that is read or written, with its object."""
    constants = {name: value for name, value in vars(names).items() if name.isupper()}
    assert ANNOTATIONS.keys() == constants.keys() - _ALIASES
    return table(
        ("name", "on", "written by", "meaning"),
        (*((f"`{constants[name]}`", *row) for name, row in ANNOTATIONS.items()), *OF_MANIFESTS),
    )


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(f"`{each}`" for each in value)
    if isinstance(value, float):
        return f"{value:g}"
    return f"`{value}`" if isinstance(value, str) and value else str(value)
