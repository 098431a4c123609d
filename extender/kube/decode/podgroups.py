"""PodGroups and Queues of all families of CRDs that we read.

Volcano's fields are a superset of the others. An object that cannot be used is kept, with a problem
that says why, so that its owner can see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import msgspec

from extender.durations import parse_duration
from extender.errors import InvalidQuantity
from extender.kube.decode.decoder import MinimalMeta
from extender.kube.decode.limits import (
    MOST_ROLES,
    excess_of_members,
    excess_of_names,
    excess_of_text,
    limit_kinds,
    shorten,
    shorten_name,
)
from extender.kube.decode.pods import NO_GANG, invalid_duration
from extender.kube.decode.raw import Quantities, RawGroupMeta, RawQueueMeta
from extender.model.annotations import (
    COOLDOWN,
    DURATION,
    LEND_GUARANTEE,
    MAX_UNAVAILABLE,
    MIN_AVAILABLE,
    NODE_GROUPS,
    REVOCABLE_ZONE,
)
from extender.model.gang import Phase, PodGroup
from extender.model.pod import NO_LABELS, SYSTEM_NAMESPACE
from extender.model.queue import Queue, QueueState
from extender.model.resources import NOTHING, Resources

#: A longer annotation is dropped.
_LONGEST = 256
#: Annotations of plugins of Volcano without a counterpart here: tdm, cdp; nodegroup.
_UNUSED_ANNOTATIONS = (REVOCABLE_ZONE, MIN_AVAILABLE, MAX_UNAVAILABLE, COOLDOWN)
_UNUSED_QUEUE_ANNOTATIONS = (NODE_GROUPS,)
#: A quota counts requests under this prefix too; a node has no capacity for the other two.
_REQUESTED = "requests."
_NOT_ON_NODES = (_REQUESTED, "limits.", "count/")
_PHASES = {phase.value: phase for phase in Phase} | {
    # Coscheduling's phases.
    "Finished": Phase.COMPLETED,
    "Scheduled": Phase.RUNNING,
}


class RawGroupSpec(msgspec.Struct, rename="camel", gc=False):
    """spec of a PodGroup."""

    min_member: int | None = None
    min_task_member: dict[str, int] | None = None
    min_resources: Quantities | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    network_topology: dict[str, Any] | None = None
    sub_group_policy: list[Any] | None = None


class RawGroupStatus(msgspec.Struct, gc=False):
    """status of a PodGroup."""

    phase: str | None = None


class RawGroup(msgspec.Struct, gc=False):
    """A PodGroup."""

    metadata: RawGroupMeta
    spec: RawGroupSpec = msgspec.field(default_factory=RawGroupSpec)
    status: RawGroupStatus = msgspec.field(default_factory=RawGroupStatus)


class RawGuarantee(msgspec.Struct, gc=False):
    """spec.guarantee of a Queue; *lend* is our extension."""

    resource: Quantities | None = None
    lend: bool | None = None


class RawQueueSpec(msgspec.Struct, rename="camel", gc=False):
    """spec of a Queue; the last four are Volcano's and have no effect."""

    weight: int | None = None
    capability: Quantities | None = None
    deserved: Quantities | None = None
    guarantee: RawGuarantee | None = None
    reclaimable: bool | None = None
    priority: int | None = None
    parent: str | None = None
    dequeue_strategy: Any = None
    affinity: Any = None
    extend_clusters: Any = None
    type: Any = None


class RawQueueStatus(msgspec.Struct, gc=False):
    """status of a Queue."""

    state: str | None = None


class RawQueue(msgspec.Struct, gc=False):
    """A Queue."""

    metadata: RawQueueMeta
    spec: RawQueueSpec = msgspec.field(default_factory=RawQueueSpec)
    status: RawQueueStatus = msgspec.field(default_factory=RawQueueStatus)


def to_group(raw: RawGroup, dialect: str, exempt: frozenset[str] = frozenset()) -> PodGroup:
    """Return a PodGroup of *dialect*; in an *exempt* namespace it has no minimum."""
    group = _as_written(raw, dialect)
    if group.namespace in exempt or group.namespace == SYSTEM_NAMESPACE:
        return _without_minimum(group)
    return group


def _without_minimum(group: PodGroup) -> PodGroup:
    """Return a group with its identity and queue alone, so that its pods do not wait."""
    return replace(
        group,
        min_member=min(1, group.min_member),
        min_by_role={},
        min_resources=None,
        min_limits=NOTHING,
        problem="",
        remark="; ".join(filter(None, (NO_GANG, group.remark))),
        exempt=True,
    )


def _as_written(raw: RawGroup, dialect: str) -> PodGroup:
    meta, spec = raw.metadata, raw.spec
    minimum, limits = _of_nodes(spec.min_resources or {}), _of_quotas(spec.min_resources or {})
    excess = _excess(spec, minimum, limits)
    min_resources, problem = _amounts(limit_kinds(minimum), "minResources")
    min_limits, _ = _amounts(limit_kinds(limits), "minResources")
    roles = islice((spec.min_task_member or {}).items(), MOST_ROLES)
    by_role = {shorten_name(role): least for role, least in roles if least}
    problem = f"it has {excess}; write fewer" if excess else problem
    if spec.min_member is not None and not 0 <= spec.min_member < 2**31:
        problem = f"minMember is {spec.min_member}; write a number from 0 to 2147483647"
    if any(least < 0 for least in by_role.values()):
        problem = "a number in minTaskMember is negative"
    problem = problem or _unsupported(spec)
    return PodGroup(
        namespace=meta.namespace or "default",
        name=meta.name,
        min_member=1 if spec.min_member is None else max(0, min(spec.min_member, 2**31)),
        uid=meta.uid,
        min_by_role=by_role,
        min_resources=min_resources if minimum else None,
        min_limits=min_limits,
        queue=shorten_name(spec.queue or ""),
        priority_class=shorten_name(spec.priority_class_name or ""),
        created=meta.created,
        phase=_PHASES.get(raw.status.phase or "", Phase.PENDING),
        is_phaseless=not raw.status.phase,
        lasts_s=parse_duration(_duration(meta)) or 0.0,
        annotations=_annotations(meta),
        dialect=dialect,
        problem=problem and f"PodGroup {meta.namespace or 'default'}/{meta.name}: {problem}",
        remark=_remark(spec, meta),
        excess=excess or _implausible(spec),
    )


def _implausible(spec: RawGroupSpec) -> str:
    """Return a phrase with a value that is kept but exceeds what makes sense."""
    return (
        excess_of_members(spec.min_member)
        or excess_of_text("a queue name", spec.queue or "")
        or excess_of_text("a priority class name", spec.priority_class_name or "")
    )


def _excess(spec: RawGroupSpec, minimum: Quantities, limits: Quantities) -> str:
    if len(spec.min_task_member or ()) > MOST_ROLES:
        return f"more than {MOST_ROLES} roles in minTaskMember"
    where = " in minResources"
    return excess_of_names(minimum, where) or excess_of_names(limits, where)


def _unsupported(spec: RawGroupSpec) -> str:
    """Return the field that we do not support, if the gang must not start without its effect."""
    topology = spec.network_topology
    if topology is not None and topology.get("mode") != "soft":  # Volcano defaults to hard
        return "networkTopology of mode hard is not supported here; remove it, or set mode soft"
    return "subGroupPolicy is not supported here; remove it" if spec.sub_group_policy else ""


def _remark(spec: RawGroupSpec, meta: RawGroupMeta) -> str:
    """Return a remark with the fields and annotations that have no effect here."""
    topology = spec.network_topology
    unused = ["networkTopology of mode soft"] if topology and topology.get("mode") == "soft" else []
    unused += [f"annotation {name}" for name in _set_names(meta, _UNUSED_ANNOTATIONS)]
    verb = "has" if len(unused) == 1 else "have"
    duration = _duration(meta)
    remarks = [invalid_duration(duration)] if duration and parse_duration(duration) is None else []
    remarks += [f"{' and '.join(unused)} {verb} no effect here"] if unused else []
    return "; ".join(remarks)


def _duration(meta: RawGroupMeta) -> str:
    return _all_annotations(meta).get(DURATION, "")


def _set_names(meta: RawGroupMeta | RawQueueMeta, names: Sequence[str]) -> list[str]:
    values = _all_annotations(meta)
    return [name for name in names if name in values]


def unreadable_group(meta: MinimalMeta, why: str, dialect: str) -> PodGroup:
    """Return a placeholder for a PodGroup that cannot be read."""
    namespace = meta.namespace or "default"
    return PodGroup(
        namespace=namespace,
        name=meta.name,
        uid=meta.uid,
        dialect=dialect,
        problem=f"PodGroup {namespace}/{meta.name} cannot be read: {why}",
    )


def to_queue(raw: RawQueue) -> Queue:
    """Return a Queue; without a state it is open, because only Volcano's controller writes one."""
    meta, spec = raw.metadata, raw.spec
    guaranteed = spec.guarantee.resource if spec.guarantee else None
    capability, no_capability = _amounts(spec.capability, "capability")
    deserved, no_deserved = _amounts(spec.deserved, "deserved")
    guarantee, no_guarantee = _amounts(guaranteed, "guarantee")
    weight = 1 if spec.weight is None else spec.weight
    problem = no_capability or no_deserved or no_guarantee
    if weight < 0:
        problem = f"its weight is {weight}; write 1 or more"
    return Queue(
        name=meta.name,
        weight=max(0, weight),
        capability=capability,
        guarantee=guarantee,
        lends_guarantee=_lends(raw),
        deserved=deserved,
        priority=spec.priority or 0,
        reclaimable=spec.reclaimable is not False,
        parent=shorten_name(spec.parent or ""),
        state=_state(raw.status.state),
        created=meta.created,
        uid=meta.uid,
        annotations=_annotations(meta),
        problem=problem,
        ignored_fields=_unused_fields(raw),
    )


def _unused_fields(raw: RawQueue) -> tuple[str, ...]:
    """Return the fields and annotations of a Queue without effect; some are defaults of the CRD."""
    spec = raw.spec
    unused = {
        "spec.dequeueStrategy": spec.dequeue_strategy not in (None, "", "traverse"),
        # Our CRD prunes unknown parts of it, so it may be empty.
        "spec.affinity": spec.affinity is not None,
        "spec.extendClusters": spec.extend_clusters,
        "spec.type": spec.type,
    }
    fields = [name for name, is_set in unused.items() if is_set]
    return (
        *fields,
        *(f"annotation {name}" for name in _set_names(raw.metadata, _UNUSED_QUEUE_ANNOTATIONS)),
    )


def _lends(raw: RawQueue) -> bool:
    """Return whether other queues may borrow the unused part of a Queue's guarantee.

    Volcano's own CRD drops the field, so there it is an annotation. The field takes precedence.
    """
    lends = raw.spec.guarantee.lend if raw.spec.guarantee else None
    if lends is not None:
        return lends
    return _all_annotations(raw.metadata).get(LEND_GUARANTEE) == "true"


def unreadable_queue(meta: MinimalMeta, why: str) -> Queue:
    """Return a placeholder for a Queue that cannot be read."""
    return Queue(name=meta.name, uid=meta.uid, problem=f"it cannot be read: {why}")


def _state(word: str | None) -> QueueState:
    if not word:
        return QueueState.OPEN
    known: Mapping[str, Any] = QueueState._value2member_map_
    return QueueState(word) if word in known else QueueState.UNKNOWN


def _of_nodes(quantities: Quantities) -> Quantities:
    """Return the node resources of quantities that may use the names of a ResourceQuota.

    Volcano's controllers write the same amount under every name that a quota could limit. A queue
    has no capacity of `count/pods` or `limits.cpu`, so a gang that requires it would never start.
    """
    requested = {
        name.removeprefix(_REQUESTED): amount
        for name, amount in quantities.items()
        if name.startswith(_REQUESTED)
    }
    plain = {n: amount for n, amount in quantities.items() if not n.startswith(_NOT_ON_NODES)}
    return {**requested, **plain}


def _of_quotas(quantities: Quantities) -> Quantities:
    """Return the quantities that use no node capacity, and that only a ResourceQuota limits."""
    return {name: a for name, a in quantities.items() if name.startswith(("limits.", "count/"))}


def _amounts(
    quantities: Mapping[str, str | int | float] | None, name: str
) -> tuple[Resources, str]:
    if not quantities:
        return NOTHING, ""
    try:
        amounts = Resources.parse(quantities)
    except InvalidQuantity as error:
        return NOTHING, f"{name} cannot be read: {shorten(error)}"
    if any(amount < 0 for amount in amounts.values()):
        return NOTHING, f"an amount in {name} is negative"
    return amounts, ""


def _annotations(meta: RawGroupMeta | RawQueueMeta) -> Mapping[str, str]:
    short = {key: value for key, value in _all_annotations(meta).items() if len(value) <= _LONGEST}
    return short or NO_LABELS


def _all_annotations(meta: RawGroupMeta | RawQueueMeta) -> Mapping[str, str]:
    return meta.annotations.by_name() if meta.annotations else NO_LABELS
