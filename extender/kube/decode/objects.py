"""Nodes, namespaces, priority classes, disruption budgets and quotas: from JSON to the model."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import msgspec

from extender import yaml_loader as documents
from extender.errors import InvalidInput, InvalidQuantity
from extender.kube.decode.decoder import MinimalMeta
from extender.kube.decode.limits import MOST_AFFINITY, MOST_SELECTED, limit_kinds, weight_of
from extender.kube.decode.raw import (
    Labels,
    Quantities,
    RawMeta,
    RawNamespaceMeta,
    RawNodeMeta,
    RawPodCondition,
    RawRequirement,
)
from extender.kube.decode.shapes import requirement
from extender.model.annotations import (
    ALLOWED_CLASSES,
    ALLOWED_QUEUES,
    GUARANTEE,
    HOME_QUEUE,
    LIMIT,
    NAMESPACE_WEIGHT,
)
from extender.model.node import Node, Taint
from extender.model.pod import NO_LABELS, Requirement
from extender.model.queue import Namespace, NamespaceShare, PriorityClass
from extender.model.resources import NOTHING, Resources
from extender.model.snapshot import DisruptionBudget, ResourceQuota
from extender.text import as_text, shown

_EXAMPLE = "'{research: {cpu: 8}}'"
#: The bound of a quoted error: an annotation may have 256 KiB, and every verdict repeats the error.
_LONGEST = 300


def read_shares(
    namespace: str, annotations: Mapping[str, str]
) -> tuple[tuple[NamespaceShare, ...], str]:
    """Return the shares of a namespace and, if an annotation cannot be read, the problem.

    A typo must not bypass a limit: with a problem no gang of the namespace starts.
    """
    if LIMIT not in annotations and GUARANTEE not in annotations:
        return (), ""
    problems: list[str] = []
    by_annotation: dict[str, Mapping[str, Resources]] = {}
    for annotation in (LIMIT, GUARANTEE):
        try:
            by_annotation[annotation] = _by_queue(annotations.get(annotation, ""))
        except InvalidInput as error:
            by_annotation[annotation] = {}
            problems.append(
                f"the annotation {annotation} of namespace {namespace} cannot be read:"
                f" {str(error)[:_LONGEST]};"
                f" write it like {_EXAMPLE}"
            )
    limits, guarantees = by_annotation[LIMIT], by_annotation[GUARANTEE]
    shares = tuple(
        NamespaceShare(
            queue=queue,
            namespace=namespace,
            limit=limits.get(queue, NOTHING),
            guarantee=guarantees.get(queue, NOTHING).positive(),
        )
        for queue in sorted({*limits, *guarantees})
    )
    return shares, "; ".join(problems)


def _by_queue(text: str) -> Mapping[str, Resources]:
    try:
        document = documents.load(text)
    except InvalidInput as error:
        raise InvalidInput(f"it is neither YAML nor JSON ({error})") from error
    found = {}
    for queue, amounts in _mapping(document, "it", "queues to amounts").items():
        found[queue] = _amounts(_mapping(amounts, f"the value of {queue}", "names to amounts"))
    return found


def _mapping(value: Any, what: str, of: str) -> dict[str, Any]:
    """Return *value* as a mapping; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidInput(f"{what} is not a mapping of {of}")
    return value


def _amounts(written: Mapping[str, Any]) -> Resources:
    for name, text in written.items():
        if not isinstance(text, str | int | float):
            raise InvalidInput(f"{name}: {shown(text)} is not a quantity")
    amounts = Resources.parse(written)
    for name, amount in amounts.items():
        if amount < 0:
            raise InvalidInput(
                f"{name} is {as_text(written[name])}, and amounts must not be negative"
            )
    return amounts


class RawTaint(msgspec.Struct, gc=False):
    """One taint."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class RawNodeSpec(msgspec.Struct, gc=False):
    """spec of a node."""

    unschedulable: bool | None = None
    taints: list[RawTaint] | None = None


class RawNodeStatus(msgspec.Struct, gc=False):
    """status of a node."""

    allocatable: Quantities | None = None
    conditions: list[RawPodCondition] | None = None


class RawNode(msgspec.Struct, gc=False):
    """A Node."""

    metadata: RawNodeMeta
    spec: RawNodeSpec = msgspec.field(default_factory=RawNodeSpec)
    status: RawNodeStatus = msgspec.field(default_factory=RawNodeStatus)


class RawNamespace(msgspec.Struct, gc=False):
    """A Namespace."""

    metadata: RawNamespaceMeta


class RawPriorityClass(msgspec.Struct, rename="camel", gc=False):
    """A PriorityClass."""

    metadata: RawMeta
    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


class RawSelector(msgspec.Struct, rename="camel", gc=False):
    """A label selector."""

    match_labels: Labels | None = None
    match_expressions: list[RawRequirement] | None = None


class RawBudgetSpec(msgspec.Struct, rename="camel", gc=False):
    """spec of a PodDisruptionBudget."""

    selector: RawSelector | None = None
    min_available: int | str | None = None


class RawBudgetStatus(msgspec.Struct, rename="camel", gc=False):
    """status of a PodDisruptionBudget."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, Any] | None = None


class RawBudget(msgspec.Struct, gc=False):
    """A PodDisruptionBudget."""

    metadata: RawMeta
    spec: RawBudgetSpec = msgspec.field(default_factory=RawBudgetSpec)
    status: RawBudgetStatus = msgspec.field(default_factory=RawBudgetStatus)


class RawQuotaSpec(msgspec.Struct, rename="camel", gc=False):
    """spec of a ResourceQuota."""

    hard: Quantities | None = None
    scopes: list[str] | None = None
    scope_selector: dict[str, Any] | None = None


class RawQuotaStatus(msgspec.Struct, gc=False):
    """status of a ResourceQuota."""

    hard: Quantities | None = None
    used: Quantities | None = None


class RawQuota(msgspec.Struct, gc=False):
    """A ResourceQuota."""

    metadata: RawMeta
    spec: RawQuotaSpec = msgspec.field(default_factory=RawQuotaSpec)
    status: RawQuotaStatus = msgspec.field(default_factory=RawQuotaStatus)


def to_node(raw: RawNode, ours: Set[tuple[str, str]] = frozenset()) -> Node:
    """Return a node; an amount that cannot be read counts as 0.

    A node is *ours* if it has one of the given labels, as in Volcano, or if none are given.
    """
    conditions = raw.status.conditions or ()
    labels = raw.metadata.labels or NO_LABELS
    return Node(
        name=raw.metadata.name,
        allocatable=_readable(limit_kinds(raw.status.allocatable or {})),
        labels=labels,
        taints=tuple(
            Taint(each.key, each.value or "", each.effect) for each in raw.spec.taints or ()
        ),
        unschedulable=bool(raw.spec.unschedulable),
        ready=any(each.type == "Ready" and each.status == "True" for each in conditions),
        managed=not ours or not ours.isdisjoint(labels.items()),
    )


def _readable(quantities: Mapping[str, str | int | float]) -> Resources:
    amounts = {}
    for name, quantity in quantities.items():
        try:
            amount = Resources.parse({name: quantity})[name]
        except InvalidQuantity:
            continue
        amounts[name] = max(0, amount)
    return Resources(amounts)


def to_namespace(raw: RawNamespace) -> Namespace:
    """Return a namespace with the policy of its annotations."""
    written = raw.metadata.annotations
    annotations = written.by_name() if written else {}
    shares, problem = read_shares(raw.metadata.name, annotations)
    return Namespace(
        name=raw.metadata.name,
        uid=raw.metadata.uid,
        queue=annotations.get(HOME_QUEUE, "").strip(),
        allowed=_names(annotations.get(ALLOWED_QUEUES)),
        classes=_names(annotations.get(ALLOWED_CLASSES)),
        shares=shares,
        problem=problem,
    )


def unreadable_namespace(meta: MinimalMeta, why: str) -> Namespace:
    """Return a placeholder for a namespace that cannot be read: its old policy must not apply."""
    problem = f"namespace {meta.name} cannot be read: {why}; an administrator must correct it"
    return Namespace(name=meta.name, uid=meta.uid, problem=problem)


def _names(written: str | None) -> frozenset[str] | None:
    """Return the names of a comma-separated list; None without a list."""
    if written is None:
        return None
    return frozenset(name.strip() for name in written.split(",") if name.strip())


def to_priority_class(raw: RawPriorityClass) -> PriorityClass:
    """Return a priority class."""
    return PriorityClass(
        name=raw.metadata.name,
        value=raw.value,
        is_default=bool(raw.global_default),
        may_preempt=raw.preemption_policy != "Never",
    )


def to_budget(raw: RawBudget) -> DisruptionBudget:
    """Return a disruption budget."""
    minimum = raw.spec.min_available
    selector, excess = _selector(raw.spec.selector)
    return DisruptionBudget(
        namespace=raw.metadata.namespace,
        name=raw.metadata.name,
        selector=selector,
        allowed=raw.status.disruptions_allowed,
        least=minimum if isinstance(minimum, int) and 0 < minimum < 2**31 else None,
        part=minimum if isinstance(minimum, str) else "",
        disrupted=frozenset(raw.status.disrupted_pods or ()),
        excess=excess,
    )


def to_quota(raw: RawQuota) -> ResourceQuota:
    """Return a quota with the limits of its status, which the API server enforces."""
    return ResourceQuota(
        namespace=raw.metadata.namespace or "default",
        name=raw.metadata.name,
        hard=_readable(raw.status.hard or {}).without(NAMESPACE_WEIGHT),
        used=_readable(raw.status.used or {}).without(NAMESPACE_WEIGHT),
        is_scoped=bool(raw.spec.scopes or raw.spec.scope_selector),
        weight=_readable(raw.spec.hard or {}).amount(NAMESPACE_WEIGHT) or 1,
    )


def _selector(raw: RawSelector | None) -> tuple[tuple[Requirement, ...], str]:
    """Return the selector of a budget, and a phrase if it is too large.

    Of a selector that is too large, only the beginning is used. So it may select other pods of its
    namespace too, but no protected pod is left out.
    """
    if raw is None:
        # No selector selects nothing; an empty one selects everything.
        return (Requirement("", "In"),), ""
    labels = sorted((raw.match_labels or {}).items())
    read = [Requirement(key, "In", (value,)) for key, value in labels[:MOST_SELECTED]]
    expressions = raw.match_expressions or ()
    count, weight_left = len(labels), MOST_AFFINITY
    for each in expressions:
        count, weight_left = count + 1, weight_left - weight_of((each,))
        if count <= MOST_SELECTED and weight_left >= 0:
            read.append(requirement(each))
    if len(read) == count:
        return tuple(read), ""
    return tuple(read), "more labels, expressions and values in its selector than are read"
