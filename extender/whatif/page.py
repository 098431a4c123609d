"""The what-if page of a running extender: its last plan, and the plan with the changes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from extender.errors import InvalidInput, InvalidQuantity
from extender.forecast.durations import DurationHistory
from extender.forecast.forecaster import MOST_S
from extender.forecast.lookahead import Lookahead, WorkLimit
from extender.kube.encode import dump
from extender.model.annotations import GROUP_NAME
from extender.model.gang import GangKey
from extender.model.resources import parse_quantity
from extender.model.snapshot import Snapshot
from extender.planner.plan import Plan
from extender.planner.policy import Policy
from extender.replay.compare import Difference
from extender.settings import Settings
from extender.status.history import CycleResult
from extender.text import shown
from extender.whatif.compare import (
    PlannedSnapshot,
    Reading,
    by_node,
    compare_plans,
    gang_outcome,
    submitted_gangs,
)
from extender.whatif.hypothesis import Hypothesis
from extender.whatif.manifests import Manifest, manifests_of
from extender.whatif.workloads import SubmittedManifests, submitted

#: Replaces the query of an address that is too long.
TOO_LONG = "too-long"
#: The fields of the query, in the order of the form.
FIELDS = (
    *("name", "namespace", "queue", "members", "least", "cpu", "memory", "others", "priority"),
    *("with", "without"),
)
MOST_MEMBERS = 1000
MOST_CHANGES = 10
_MOST_OTHERS = 8
_HIGHEST = 1_000_000_000
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_RESOURCE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9._/]{0,251}[A-Za-z0-9])?")
_LONGEST_QUEUE = 253
_NUMBER = re.compile(r"-?[0-9]{1,10}")


class WhatIfGang(NamedTuple):
    """A gang of identical pods."""

    name: str
    namespace: str
    #: "" for the queue of the namespace.
    queue: str
    members: int
    least: int
    #: The requests of each member by resource, as written.
    each: tuple[tuple[str, str], ...]
    #: None for the priority of pods without a class.
    priority: int | None


class WhatIfQuery(NamedTuple):
    """A what-if query; equal queries are computed once."""

    gang: WhatIfGang | None
    withs: tuple[str, ...]
    withouts: tuple[str, ...]


def read(given: Mapping[str, Sequence[str]]) -> WhatIfQuery | None:
    """Parse the fields of an address; None when there is no query."""
    if TOO_LONG in given:
        raise InvalidInput("the query is too long for an address; change less at once")
    fields = {name: " ".join(given.get(name, ())).strip() for name in FIELDS}
    withs, withouts = (_changes(name, fields[name]) for name in ("with", "without"))
    gang = _gang(fields)
    return WhatIfQuery(gang, withs, withouts) if gang or withs or withouts else None


def _changes(field: str, text: str) -> tuple[str, ...]:
    found = tuple(text.split())
    if len(found) > MOST_CHANGES:
        raise InvalidInput(
            f"{field}: {len(found)} changes are too many; write at most {MOST_CHANGES}"
        )
    return found


def _gang(fields: Mapping[str, str]) -> WhatIfGang | None:
    name = fields["name"]
    if not name:
        for field in ("members", "least", "cpu", "memory", "others", "priority", "queue"):
            if fields[field]:
                raise InvalidInput(f"{field} needs a gang with a name; add a name, such as train")
        return None
    _check("name", name, _NAME, "a-z, 0-9, - and .")
    namespace = fields["namespace"] or "default"
    _check("namespace", namespace, _NAMESPACE, "a-z, 0-9 and -")
    if len(fields["queue"]) > _LONGEST_QUEUE:
        raise InvalidInput(f"queue: the name of a queue has at most {_LONGEST_QUEUE} characters")
    members = _number("members", fields["members"] or "1", 1, MOST_MEMBERS)
    return WhatIfGang(
        name=name,
        namespace=namespace,
        queue=fields["queue"],
        members=members,
        least=_number("least", fields["least"] or str(members), 1, members),
        each=_amounts(fields),
        priority=_number("priority", fields["priority"], -_HIGHEST, _HIGHEST)
        if fields["priority"]
        else None,
    )


def _check(field: str, text: str, form: re.Pattern[str], letters: str) -> None:
    if not form.fullmatch(text):
        raise InvalidInput(
            f"{field}: {shown(text)} is not a valid {field}; write at most 63 of {letters}"
        )


def _number(field: str, text: str, least: int, most: int) -> int:
    if _NUMBER.fullmatch(text) and least <= int(text) <= most:
        return int(text)
    raise InvalidInput(f"{field}: {shown(text)} is not a number from {least} to {most}")


def _amounts(fields: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = {name: _amount(name, fields[name]) for name in ("cpu", "memory") if fields[name]}
    others = fields["others"].replace(",", " ").split()
    if len(others) > _MOST_OTHERS:
        raise InvalidInput(f"others: {len(others)} are too many; write at most {_MOST_OTHERS}")
    for each in others:
        name, has_amount, amount = each.partition("=")
        if not has_amount or not _RESOURCE.fullmatch(name):
            raise InvalidInput(
                f"others: {shown(each)} is not an amount; write it like nvidia.com/gpu=1"
            )
        found[name] = _amount(f"others: {name}", amount)
    return tuple(found.items())


def _amount(field: str, text: str) -> str:
    try:
        if parse_quantity(text) >= 0:
            return text
    except InvalidQuantity:
        pass
    raise InvalidInput(f"{field}: {shown(text)} is not an amount, such as 2 or 64Gi")


class SubmittedGang(NamedTuple):
    """The outcome of the gang of a query."""

    gang: str
    status: str
    #: Whether it would start, as a phrase.
    starts: str
    reason: str
    message: str
    #: The nodes of its members, "" when it does not start now.
    places: str
    #: When it would start if it waits, with the reason.
    estimate: str
    #: The gangs ahead of it, its victims, and what would let it start: titles and lines.
    lists: tuple[tuple[str, tuple[str, ...]], ...]


class WhatIfResult(NamedTuple):
    """The result of a what-if query."""

    #: The generation of the plan that is compared.
    cycle: int
    at: float
    asked: tuple[SubmittedGang, ...]
    changes: tuple[Difference, ...]
    #: Including changes that are not listed.
    change_count: int
    remarks: tuple[str, ...]


#: Plans the snapshot of a cycle without and with the changes; costs as much as two cycles.
RunWhatIf: TypeAlias = Callable[[CycleResult, Policy, WhatIfQuery], WhatIfResult]


def no_whatif(last: CycleResult, policy: Policy, query: WhatIfQuery) -> WhatIfResult:
    """Refuse the query: what-if is not available here."""
    raise InvalidInput("what-if is not available here; use gang-extender plan --live")


#: Above this it would delay scheduling for too long; the command has no such limit.
MOST_PODS = 20_000
#: The largest number of changes on a page.
SHOWN = 200
_FORM = "the form"


def whatif_runner(settings: Settings, history: DurationHistory) -> RunWhatIf:
    """Return the function that answers queries with the settings and durations of an extender."""
    reading = Reading.of(settings)
    scheduler = settings.scheduler_name[0]

    def run(last: CycleResult, policy: Policy, query: WhatIfQuery) -> WhatIfResult:
        snapshot = last.snapshot
        _check_size(snapshot)
        present = [*manifests_of(dump(snapshot), "the cluster")]
        new = SubmittedManifests()
        if query.gang is not None:
            _check_is_new(query.gang, present, snapshot)
            new = submitted(
                _manifests(query.gang, scheduler, _class_of(query.gang, snapshot)),
                present,
                namespace=query.gang.namespace,
                now=snapshot.now,
                schedulers=reading.schedulers,
            )
        hypothesis = Hypothesis(query.withs, query.withouts)
        found = compare_plans(present, new.manifests, hypothesis, reading, policy, snapshot.now)
        changes = found.differences or []
        return WhatIfResult(
            cycle=last.plan.generation,
            at=snapshot.now,
            asked=tuple(_asked_gangs(found.after, policy, history)),
            changes=tuple(changes[:SHOWN]),
            change_count=len(changes),
            remarks=(*new.remarks, *_deviations(last.plan, found.before.plan)),
        )

    return run


def _check_size(snapshot: Snapshot) -> None:
    pods = sum(len(gang.pods) for gang in snapshot.gangs.values())
    if pods > MOST_PODS:
        raise InvalidInput(
            f"{pods:,} pods are too many to plan twice for a page, which accepts at most"
            f" {MOST_PODS:,}; use gang-extender plan --live, which plans where it runs"
        )


def _check_is_new(gang: WhatIfGang, present: list[Manifest], snapshot: Snapshot) -> None:
    """Refuse existing names: the pods would become members of an existing gang."""
    key = f"{gang.namespace}/{gang.name}"
    if GangKey(key) in snapshot.gangs:
        raise InvalidInput(f"there is a gang {key} already; choose another name")
    names = {f"{gang.name}-{index}" for index in range(gang.members)}
    for _, each in present:
        metadata = each["metadata"]
        is_pod = each["kind"] == "Pod" and metadata.get("namespace") == gang.namespace
        if is_pod and metadata["name"] in names:
            raise InvalidInput(
                f"there is a pod {gang.namespace}/{metadata['name']} already; choose another name"
            )


def _class_of(gang: WhatIfGang, snapshot: Snapshot) -> str:
    """Return the class that gives the gang its priority, "" when it needs none.

    The classes of a snapshot are named by their numbers. When the namespace lists the classes that
    count, it is the listed class whose pods have this priority.
    """
    if gang.priority is None or gang.priority == snapshot.usual_priority:
        return ""
    namespace = snapshot.namespaces.get(gang.namespace)
    listed = namespace.classes or frozenset() if namespace is not None else frozenset[str]()
    pods = (pod for each in snapshot.gangs.values() for pod in each.pods if listed)
    found = {each.priority_class for each in pods if each.priority == gang.priority}
    return min(found & listed, default=f"priority-{gang.priority}")


def _manifests(gang: WhatIfGang, scheduler: str, priority_class: str) -> Iterator[Manifest]:
    """Yield the manifests of the gang: a PodGroup and its pods."""
    metadata: dict[str, Any] = {"name": gang.name, "namespace": gang.namespace}
    queue: dict[str, Any] = {"queue": gang.queue} if gang.queue else {}
    priority: dict[str, Any] = {}
    if priority_class:
        # A PodGroup has a priority only by its class.
        priority["priorityClassName"] = priority_class
        values = {"metadata": {"name": priority_class}, "value": gang.priority}
        version = "scheduling.k8s.io/v1"
        yield Manifest(_FORM, {"apiVersion": version, "kind": "PriorityClass", **values})
    yield Manifest(
        _FORM,
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": metadata,
            "spec": {"minMember": gang.least, **queue, **priority},
        },
    )
    container = {"name": "main", "resources": {"requests": dict(gang.each)}}
    spec = {"schedulerName": scheduler, "containers": [container], **priority}
    annotations = {"annotations": {GROUP_NAME: gang.name}}
    for index in range(gang.members):
        pod = {**metadata, **annotations, "name": f"{gang.name}-{index}"}
        yield Manifest(_FORM, {"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": spec})


def _asked_gangs(
    after: PlannedSnapshot, policy: Policy, history: DurationHistory
) -> Iterator[SubmittedGang]:
    limit = WorkLimit(seconds=MOST_S, spent=time.thread_time)
    lookahead = Lookahead(after.snapshot, after.plan, policy, history, limit)
    for key in submitted_gangs(after.snapshot):
        outcome = gang_outcome(after, key, policy)
        if outcome is None:
            continue
        placement, estimate = after.plan.placements.get(key), lookahead.estimate(key)
        yield SubmittedGang(
            gang=key,
            status=outcome.verdict.status.value,
            starts=outcome.starts,
            reason=outcome.verdict.reason.value,
            message=outcome.verdict.message,
            places=by_node(placement.placements.values()) if placement else "",
            estimate=estimate.message if estimate is not None else "",
            lists=tuple((title, tuple(lines)) for title, lines in outcome.lists),
        )


def _deviations(theirs: Plan, ours: Plan) -> Iterator[str]:
    """Yield a remark where the running plan differs, because objects do not contain all state."""
    other = [
        key
        for key, verdict in ours.verdicts.items()
        if key in theirs.verdicts and theirs.verdicts[key].status is not verdict.status
    ]
    if other:
        running, here = theirs.verdicts[other[0]].status, ours.verdicts[other[0]].status
        yield (
            f"the running plan decides differently on {len(other)} of the gangs ({other[0]} is"
            f" {running.value} there and {here.value} here): objects do not contain all of its"
            " state"
        )
