"""Findings about namespaces: unknown names in their policy, and shares that cannot be met.

Without a finding a typo in a list shows only when a gang waits, if at all. A queue that is misspelt
in `gang-extender.io/queues` is not allowed, and a guarantee in it reserves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from extender.findings.finding import NAMESPACE, QUEUE, Finding, NearNames, Problem
from extender.model.annotations import ALLOWED_CLASSES, ALLOWED_QUEUES, GUARANTEE, HOME_QUEUE, LIMIT
from extender.model.budgets import MOST_BUDGETS, MOST_WORDS
from extender.model.gang import GangKey
from extender.model.queue import Namespace, NamespaceShare, Queue
from extender.model.resources import Resources, total, write_amount
from extender.model.snapshot import OverLimit
from extender.planner.quota import stated

UNREADABLE = "Unreadable"
QUEUE_UNKNOWN = "QueueUnknown"
HOME_QUEUE_MISSING = "HomeQueueMissing"
PRIORITY_CLASS_UNKNOWN = "PriorityClassUnknown"
SHARE_OF_UNKNOWN_QUEUE = "ShareOfUnknownQueue"
SHARE_OF_FORBIDDEN_QUEUE = "ShareOfForbiddenQueue"
GUARANTEE_ABOVE_LIMIT = "NamespaceGuaranteeAboveLimit"
GUARANTEES_ABOVE_QUEUE = "NamespaceGuaranteesAboveQueue"
GUARANTEES_ABOVE_CLUSTER = "NamespaceGuaranteesAboveCluster"
EXEMPT_GANG = "ExemptGang"
TOO_LARGE = "TooLarge"
TOO_MANY_BUDGETS = "TooManyBudgets"
#: By kind of object.
REASONS = {
    NAMESPACE: {
        UNREADABLE: Problem(
            "an annotation with limits or guarantees cannot be read",
            "none of its gangs starts (`QueueNotAllowed`)",
        ),
        QUEUE_UNKNOWN: Problem(
            "its list names queues that do not exist; the message suggests the nearest names",
            "gangs that name them wait (`QueueNotFound`)",
        ),
        HOME_QUEUE_MISSING: Problem(
            "its home queue does not exist", "gangs that name no other wait (`QueueNotFound`)"
        ),
        PRIORITY_CLASS_UNKNOWN: Problem(
            "its list names priority classes that do not exist", "they give no pod a priority"
        ),
        SHARE_OF_UNKNOWN_QUEUE: Problem(
            "it has a share of a queue that does not exist", "the share limits and reserves nothing"
        ),
        SHARE_OF_FORBIDDEN_QUEUE: Problem(
            "it has a share of a queue it may not use", "the share limits and reserves nothing"
        ),
        GUARANTEE_ABOVE_LIMIT: Problem(
            "its guarantee in a queue exceeds its limit", "the guarantee is cut"
        ),
        EXEMPT_GANG: Problem(
            "it is [exempt](../install.md#pods-that-never-wait) and has PodGroups",
            "they make no gang: their pods start one by one",
        ),
        TOO_LARGE: Problem(
            "it has pods, PodGroups or PodDisruptionBudgets beyond a size limit; the message names"
            " one",
            "such a gang does not start (`PodGroupMissing`, `QueueNotFound`, `NotEnoughMembers`)"
            " unless it only has too many labels; running pods count in full, and other objects are"
            " read up to the limit",
        ),
        TOO_MANY_BUDGETS: Problem(
            "more PodDisruptionBudgets than are checked may cover one of its pods",
            "none of the pods they may cover is evicted, whatever they allow",
        ),
    },
    QUEUE: {
        GUARANTEES_ABOVE_QUEUE: Problem(
            "the guarantees of namespaces in it exceed its capability together",
            "they are cut to that, and other namespaces of the queue get nothing",
        ),
        GUARANTEES_ABOVE_CLUSTER: Problem(
            "the same, and they exceed all nodes", "the first gangs to start get them"
        ),
    },
}


def of_namespaces(
    namespaces: Mapping[str, Namespace],
    queues: Mapping[str, Queue],
    shares: Mapping[str, NamespaceShare],
    classes: Collection[str],
    cluster: Resources,
) -> list[Finding]:
    """Return the findings about all *namespaces*.

    *shares* are the effective ones. Nothing is compared with *classes* or nodes before any of
    them is known.
    """
    near = NearNames()
    found = [
        Finding(NAMESPACE, namespace.name, reason, message)
        for namespace in namespaces.values()
        for reason, message in _of_one(namespace, queues, shares, classes, near)
    ]
    found += _together(queues, shares, cluster)
    return sorted(found, key=lambda each: (each.kind, each.name, each.reason))


def of_exempt_groups(groups: Iterable[GangKey]) -> list[Finding]:
    """Return the findings about PodGroups without effect because their namespace is exempt."""
    by_namespace: dict[str, list[str]] = {}
    for key in groups:
        namespace, _, name = key.partition("/")
        by_namespace.setdefault(namespace, []).append(name)
    return [
        Finding(
            NAMESPACE,
            namespace,
            EXEMPT_GANG,
            f"namespace {namespace} is exempt, so {_some(names)} there forms no gang and its pods"
            " start one by one; move it to a namespace that is not exempt",
        )
        for namespace, names in sorted(by_namespace.items())
    ]


def of_large_objects(large: Iterable[OverLimit]) -> list[Finding]:
    """Return the findings about namespaces with objects that exceed what is read."""
    by_namespace: dict[str, list[OverLimit]] = {}
    for each in large:
        by_namespace.setdefault(each.namespace, []).append(each)
    return [
        Finding(
            NAMESPACE,
            namespace,
            TOO_LARGE,
            f"{first.kind} {first.name} of namespace {namespace} has {first.what}"
            f"{_and_more(len(found) - 1)}; write fewer",
        )
        for namespace, found in sorted(by_namespace.items())
        for first in found[:1]
    ]


def of_crowded_budgets(crowded: Iterable[str]) -> list[Finding]:
    """Return the findings about namespaces with more budgets for one pod than are checked."""
    return [
        Finding(
            NAMESPACE,
            namespace,
            TOO_MANY_BUDGETS,
            f"namespace {namespace} has more PodDisruptionBudgets for one pod than are checked"
            f" ({MOST_BUDGETS}, with {MOST_WORDS:,} selector terms), so pods that they may cover"
            " are not evicted; write fewer, or selectors that name different labels",
        )
        for namespace in sorted(crowded)
    ]


def _and_more(count: int) -> str:
    if not count:
        return ""
    return f", and {count} more object{'s are' if count > 1 else ' is'} too large"


def _of_one(
    namespace: Namespace,
    queues: Mapping[str, Queue],
    shares: Mapping[str, NamespaceShare],
    classes: Collection[str],
    near: NearNames,
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with one namespace, one sentence for each reason."""
    subject = f"namespace {namespace.name}"
    if namespace.problem:
        yield UNREADABLE, f"no gang of {subject} can start: {namespace.problem}"
    if unknown := sorted((namespace.allowed or frozenset()) - queues.keys()):
        yield (
            QUEUE_UNKNOWN,
            f"{subject} may use unknown {_named(unknown, 'queue')}; fix the annotation"
            f" {ALLOWED_QUEUES} or create what it names{near.hints(unknown, queues)}",
        )
    if namespace.queue and namespace.queue not in queues:
        home = [namespace.queue]
        yield (
            HOME_QUEUE_MISSING,
            f"the home queue {home[0]} of {subject} does not exist; fix the annotation"
            f" {HOME_QUEUE} or create it{near.hints(home, queues)}",
        )
    if classes and (unknown := sorted((namespace.classes or frozenset()) - set(classes))):
        yield (
            PRIORITY_CLASS_UNKNOWN,
            f"{subject} may use unknown {_named(unknown, 'priority class')}; fix the"
            f" annotation {ALLOWED_CLASSES} or create what it names{near.hints(unknown, classes)}",
        )
    yield from _of_shares(namespace, queues, shares, near)


def _of_shares(
    namespace: Namespace,
    queues: Mapping[str, Queue],
    shares: Mapping[str, NamespaceShare],
    near: NearNames,
) -> Iterator[tuple[str, str]]:
    subject, both = f"namespace {namespace.name}", f"{LIMIT} or {GUARANTEE}"
    unknown = [share.queue for share in namespace.shares if share.queue not in queues]
    if unknown:
        yield (
            SHARE_OF_UNKNOWN_QUEUE,
            f"{subject} has a share of unknown {_named(unknown, 'queue')}; fix its"
            f" annotation {both}{near.hints(unknown, queues)}",
        )
    forbidden = [
        share.queue
        for share in namespace.shares
        if share.queue in queues and share.name not in shares
    ]
    if forbidden:
        yield (
            SHARE_OF_FORBIDDEN_QUEUE,
            f"{subject} has a share of {_named(forbidden, 'queue')}, which it may not use; fix its"
            f" annotation {both}, or allow the queue by {ALLOWED_QUEUES}",
        )
    above = [
        f"{amount} {name} in queue {share.queue} and limited to {limit}"
        for share in namespace.shares
        for name, amount, limit in _above(share.guarantee, share.limit)
    ]
    if above:
        yield (
            GUARANTEE_ABOVE_LIMIT,
            f"{subject} is guaranteed {'; guaranteed '.join(above)}; lower its annotation"
            f" {GUARANTEE} or raise {LIMIT}",
        )


def _together(
    queues: Mapping[str, Queue], shares: Mapping[str, NamespaceShare], cluster: Resources
) -> Iterator[Finding]:
    """Yield the guarantees of namespaces in a queue that cannot be met together."""
    guarantees: dict[str, list[NamespaceShare]] = {}
    for share in shares.values():
        if share.guarantee and share.queue in queues:
            guarantees.setdefault(share.queue, []).append(share)
    for queue, of_queue in guarantees.items():
        guaranteed = total(share.guarantee for share in of_queue)
        subject = ", ".join(share.namespace for share in of_queue)
        verb = f"are guaranteed {{}} {{}} of queue {queue} together"
        for reason, limit, rest in (
            (
                GUARANTEES_ABOVE_QUEUE,
                stated(queues[queue].capability),
                "its capability is {}; lower the guarantees or raise spec.capability",
            ),
            (
                GUARANTEES_ABOVE_CLUSTER,
                Resources({name: cluster.amount(name) for name in guaranteed if cluster}),
                "the cluster has {}; lower the guarantees",
            ),
        ):
            for name, amount, most in _above(guaranteed, limit)[:1]:
                words = (
                    f"by {GUARANTEE} {subject} {verb.format(amount, name)}, and {rest.format(most)}"
                )
                yield Finding(QUEUE, queue, reason, words)


def _above(amounts: Resources, limit: Resources) -> list[tuple[str, str, str]]:
    """Return each of *amounts* above its *limit*, with both amounts."""
    return [
        (name, write_amount(name, amount), write_amount(name, limit[name]))
        for name, amount in sorted(amounts.items())
        if name in limit and amount > limit[name]
    ]


def _some(names: list[str]) -> str:
    """Return one PodGroup and the number of the others: there may be one for every job."""
    rest = f", like {len(names) - 1} more," if len(names) > 1 else ""
    return f"PodGroup {names[0]}{rest}"


def _named(names: list[str], noun: str) -> str:
    return f"{noun} {', '.join(names)}"
