"""Namespaces whose policy does not mean what it says: names nobody has, shares nobody can keep.

A typo in a list is otherwise heard of when somebody waits, if at all: a queue that is misspelt in
`gang-extender.io/queues` is simply not allowed, and an at-least in it keeps nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from extender.findings.finding import NAMESPACE, QUEUE, Finding, NearNames, Problem
from extender.model.budgets import MOST_BUDGETS, MOST_WORDS
from extender.model.gang import GangKey
from extender.model.queue import (
    ALLOWED_CLASSES,
    ALLOWED_QUEUES,
    GUARANTEE,
    HOME_QUEUE,
    LIMIT,
    Namespace,
    NamespaceShare,
    Queue,
)
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
            "nothing of it starts (`QueueNotAllowed`)",
        ),
        QUEUE_UNKNOWN: Problem(
            "its list names queues that do not exist; the nearest names are given",
            "gangs that name them wait (`QueueNotFound`)",
        ),
        HOME_QUEUE_MISSING: Problem(
            "its home queue does not exist", "gangs that name no other wait (`QueueNotFound`)"
        ),
        PRIORITY_CLASS_UNKNOWN: Problem(
            "its list names priority classes that do not exist", "they give nobody a priority"
        ),
        SHARE_OF_UNKNOWN_QUEUE: Problem(
            "it has a share of a queue that does not exist", "the share limits and keeps nothing"
        ),
        SHARE_OF_FORBIDDEN_QUEUE: Problem(
            "it has a share of a queue it may not use", "the share limits and keeps nothing"
        ),
        GUARANTEE_ABOVE_LIMIT: Problem(
            "it has more of a queue at least than at most", "the at-least is cut"
        ),
        EXEMPT_GANG: Problem(
            "it is [exempt](default-scheduler.md#who-never-waits) and has PodGroups",
            "they make no gang: their pods start one by one",
        ),
        TOO_LARGE: Problem(
            "it has pods, PodGroups or PodDisruptionBudgets with more of something than anybody"
            " needs; one is named",
            "such a gang does not start (`PodGroupMissing`, `QueueNotFound`, `NotEnoughMembers`)"
            " unless it is only labels; what runs counts in full, and of the rest only so much is"
            " read",
        ),
        TOO_MANY_BUDGETS: Problem(
            "one pod of it may be covered by more PodDisruptionBudgets than anybody looks at",
            "none of the pods they may cover is asked to leave, whatever they allow",
        ),
    },
    QUEUE: {
        GUARANTEES_ABOVE_QUEUE: Problem(
            "namespaces have more of it at least, together, than it may have at most",
            "they are cut to that, and others of the queue get nothing",
        ),
        GUARANTEES_ABOVE_CLUSTER: Problem(
            "the same, and more than all nodes have", "whoever comes first has them"
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
    """Find what makes no sense on *namespaces*, all there are.

    *shares* are those that count. What nobody has seen yet is not held against anybody: without
    any of *classes*, or without nodes, nothing is compared with them.
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
    """Find the PodGroups that promise nothing because their namespace is exempt."""
    by_namespace: dict[str, list[str]] = {}
    for key in groups:
        namespace, _, name = key.partition("/")
        by_namespace.setdefault(namespace, []).append(name)
    return [
        Finding(
            NAMESPACE,
            namespace,
            EXEMPT_GANG,
            f"namespace {namespace} is exempt, so {_some(names)} there makes no gang and its pods"
            " start one by one; move it to a namespace that is not exempt",
        )
        for namespace, names in sorted(by_namespace.items())
    ]


def of_large_objects(large: Iterable[OverLimit]) -> list[Finding]:
    """Find the namespaces with objects that are larger than we read."""
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
    """Find the namespaces with more budgets for one pod than are looked at."""
    return [
        Finding(
            NAMESPACE,
            namespace,
            TOO_MANY_BUDGETS,
            f"namespace {namespace} has more PodDisruptionBudgets for one pod than are looked at"
            f" ({MOST_BUDGETS}, with {MOST_WORDS:,} words), so that pods which they may cover are"
            " not asked to leave; write fewer, or selectors that name different labels",
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
    """Find what one namespace has wrong, in one sentence for each reason."""
    who = f"namespace {namespace.name}"
    if namespace.problem:
        yield UNREADABLE, f"nothing of {who} can start: {namespace.problem}"
    if unknown := sorted((namespace.allowed or frozenset()) - queues.keys()):
        yield (
            QUEUE_UNKNOWN,
            f"{who} may use {_named(unknown, 'queue')}, which nobody wrote; mend the annotation"
            f" {ALLOWED_QUEUES} or create what it names{near.hints(unknown, queues)}",
        )
    if namespace.queue and namespace.queue not in queues:
        home = [namespace.queue]
        yield (
            HOME_QUEUE_MISSING,
            f"the home queue of {who} is {home[0]}, which nobody wrote; mend the annotation"
            f" {HOME_QUEUE} or create it{near.hints(home, queues)}",
        )
    if classes and (unknown := sorted((namespace.classes or frozenset()) - set(classes))):
        yield (
            PRIORITY_CLASS_UNKNOWN,
            f"{who} may use {_named(unknown, 'priority class')}, which nobody wrote; mend the"
            f" annotation {ALLOWED_CLASSES} or create what it names{near.hints(unknown, classes)}",
        )
    yield from _of_shares(namespace, queues, shares, near)


def _of_shares(
    namespace: Namespace,
    queues: Mapping[str, Queue],
    shares: Mapping[str, NamespaceShare],
    near: NearNames,
) -> Iterator[tuple[str, str]]:
    who, both = f"namespace {namespace.name}", f"{LIMIT} or {GUARANTEE}"
    unknown = [share.queue for share in namespace.shares if share.queue not in queues]
    if unknown:
        yield (
            SHARE_OF_UNKNOWN_QUEUE,
            f"{who} has a share of {_named(unknown, 'queue')}, which nobody wrote; mend its"
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
            f"{who} has a share of {_named(forbidden, 'queue')}, which it may not use; mend its"
            f" annotation {both}, or allow the queue by {ALLOWED_QUEUES}",
        )
    above = [
        f"{amount} {name} in queue {share.queue}, and at most {limit}"
        for share in namespace.shares
        for name, amount, limit in _above(share.guarantee, share.limit)
    ]
    if above:
        yield (
            GUARANTEE_ABOVE_LIMIT,
            f"{who} has at least {'; at least '.join(above)}; lower its annotation {GUARANTEE} or"
            f" raise {LIMIT}",
        )


def _together(
    queues: Mapping[str, Queue], shares: Mapping[str, NamespaceShare], cluster: Resources
) -> Iterator[Finding]:
    """Find what namespaces have at least of a queue together, and it could never keep."""
    least: dict[str, list[NamespaceShare]] = {}
    for share in shares.values():
        if share.guarantee and share.queue in queues:
            least.setdefault(share.queue, []).append(share)
    for queue, kept in least.items():
        promised = total(share.guarantee for share in kept)
        who = ", ".join(share.namespace for share in kept)
        said = f"have at least {{}} {{}} of queue {queue} together"
        for reason, limit, rest in (
            (
                GUARANTEES_ABOVE_QUEUE,
                stated(queues[queue].capability),
                "it may have at most {}; lower that or raise spec.capability",
            ),
            (
                GUARANTEES_ABOVE_CLUSTER,
                Resources({name: cluster.amount(name) for name in promised if cluster}),
                "the cluster has {}; lower it",
            ),
        ):
            for name, amount, most in _above(promised, limit)[:1]:
                words = f"by {GUARANTEE} {who} {said.format(amount, name)}, and {rest.format(most)}"
                yield Finding(QUEUE, queue, reason, words)


def _above(amounts: Resources, limit: Resources) -> list[tuple[str, str, str]]:
    """Name what of *amounts* is above what *limit* says of it, with both amounts."""
    return [
        (name, write_amount(name, amount), write_amount(name, limit[name]))
        for name, amount in sorted(amounts.items())
        if name in limit and amount > limit[name]
    ]


def _some(names: list[str]) -> str:
    """Name one PodGroup and count the others: there may be one for every job."""
    rest = f", like {len(names) - 1} more," if len(names) > 1 else ""
    return f"PodGroup {names[0]}{rest}"


def _named(names: list[str], noun: str) -> str:
    return f"{noun} {', '.join(names)}"
