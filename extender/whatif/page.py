"""What a page of a running extender asks: the cluster of its last plan, and as supposed."""

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

#: In the place of an address that is too long to be read.
TOO_LONG = "too-long"
#: Everything that an address may say, in the order of the form.
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
    """A gang of pods that are alike."""

    name: str
    namespace: str
    #: Empty leaves it to the namespace.
    queue: str
    members: int
    least: int
    #: What each member asks for, by resource, as it was written.
    each: tuple[tuple[str, str], ...]
    #: None is that of those who name no class.
    priority: int | None


class WhatIfQuery(NamedTuple):
    """All that is supposed at once; those that are alike are asked once."""

    gang: WhatIfGang | None
    withs: tuple[str, ...]
    withouts: tuple[str, ...]


def read(given: Mapping[str, Sequence[str]]) -> WhatIfQuery | None:
    """Read the fields of an address; None when it supposes nothing."""
    if TOO_LONG in given:
        raise InvalidInput("what is asked is too long for an address; suppose less at once")
    typed = {name: " ".join(given.get(name, ())).strip() for name in FIELDS}
    withs, withouts = (_changes(name, typed[name]) for name in ("with", "without"))
    gang = _gang(typed)
    return WhatIfQuery(gang, withs, withouts) if gang or withs or withouts else None


def _changes(field: str, text: str) -> tuple[str, ...]:
    found = tuple(text.split())
    if len(found) > MOST_CHANGES:
        raise InvalidInput(
            f"{field}: {len(found)} changes are too many; write up to {MOST_CHANGES}"
        )
    return found


def _gang(typed: Mapping[str, str]) -> WhatIfGang | None:
    name = typed["name"]
    if not name:
        for field in ("members", "least", "cpu", "memory", "others", "priority", "queue"):
            if typed[field]:
                raise InvalidInput(
                    f"{field} is said of a gang without a name; name it, such as train"
                )
        return None
    _check("name", name, _NAME, "a-z, 0-9, - and .")
    namespace = typed["namespace"] or "default"
    _check("namespace", namespace, _NAMESPACE, "a-z, 0-9 and -")
    if len(typed["queue"]) > _LONGEST_QUEUE:
        raise InvalidInput(f"queue: the name of a queue has up to {_LONGEST_QUEUE} characters")
    members = _number("members", typed["members"] or "1", 1, MOST_MEMBERS)
    return WhatIfGang(
        name=name,
        namespace=namespace,
        queue=typed["queue"],
        members=members,
        least=_number("least", typed["least"] or str(members), 1, members),
        each=_amounts(typed),
        priority=_number("priority", typed["priority"], -_HIGHEST, _HIGHEST)
        if typed["priority"]
        else None,
    )


def _check(field: str, text: str, form: re.Pattern[str], letters: str) -> None:
    if not form.fullmatch(text):
        raise InvalidInput(f"{field}: {shown(text)} cannot be one; write up to 63 of {letters}")


def _number(field: str, text: str, least: int, most: int) -> int:
    if _NUMBER.fullmatch(text) and least <= int(text) <= most:
        return int(text)
    raise InvalidInput(f"{field}: {shown(text)} is not a number from {least} to {most}")


def _amounts(typed: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    found = {name: _amount(name, typed[name]) for name in ("cpu", "memory") if typed[name]}
    others = typed["others"].replace(",", " ").split()
    if len(others) > _MOST_OTHERS:
        raise InvalidInput(f"others: {len(others)} are too many; write up to {_MOST_OTHERS}")
    for each in others:
        name, is_said, amount = each.partition("=")
        if not is_said or not _RESOURCE.fullmatch(name):
            raise InvalidInput(
                f"others: {shown(each)} is no amount; write it like nvidia.com/gpu=1"
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


class AskedGang(NamedTuple):
    """What would become of the gang that is asked about."""

    gang: str
    standing: str
    #: Whether it would start, in words.
    starts: str
    reason: str
    message: str
    #: Where its members would go, empty if nowhere now.
    places: str
    #: When it would start if it waits, and on what ground.
    estimate: str
    #: Who is ahead of it, who would leave for it, what would let it start: titles and lines.
    lists: tuple[tuple[str, tuple[str, ...]], ...]


class WhatIfResult(NamedTuple):
    """What would be, were it as supposed."""

    #: Of the plan whose cluster is asked about.
    cycle: int
    at: float
    asked: tuple[AskedGang, ...]
    changes: tuple[Difference, ...]
    #: With those that are not named.
    change_count: int
    remarks: tuple[str, ...]


#: Plans the cluster of a pass once as it is and once as supposed; costs as much as two passes.
RunWhatIf: TypeAlias = Callable[[CycleResult, Policy, WhatIfQuery], WhatIfResult]


def no_whatif(last: CycleResult, policy: Policy, asked: WhatIfQuery) -> WhatIfResult:
    """Say that nobody here works anything out."""
    raise InvalidInput("nothing can be supposed here; ask with gang-extender plan --live")


#: Beyond this it would take too long where others are scheduled; a command has no such bound.
MOST_PODS = 20_000
#: Changes on a page.
SHOWN = 200
_FORM = "the form"


def whatif_runner(settings: Settings, experience: DurationHistory) -> RunWhatIf:
    """Give who works out what-ifs for an extender that was started so, and learnt so much."""
    reading = Reading.of(settings)
    scheduler = settings.scheduler_name[0]

    def suppose(last: CycleResult, policy: Policy, asked: WhatIfQuery) -> WhatIfResult:
        seen = last.snapshot
        _check_size(seen)
        there = [*manifests_of(dump(seen), "the cluster")]
        new = SubmittedManifests()
        if asked.gang is not None:
            _check_is_new(asked.gang, there, seen)
            new = submitted(
                _manifests(asked.gang, scheduler, _class_of(asked.gang, seen)),
                there,
                namespace=asked.gang.namespace,
                now=seen.now,
                schedulers=reading.schedulers,
            )
        supposed = Hypothesis(asked.withs, asked.withouts)
        found = compare_plans(there, new.manifests, supposed, reading, policy, seen.now)
        changes = found.differences or []
        return WhatIfResult(
            cycle=last.plan.generation,
            at=seen.now,
            asked=tuple(_asked_gangs(found.after, policy, experience)),
            changes=tuple(changes[:SHOWN]),
            change_count=len(changes),
            remarks=(*new.remarks, *_deviations(last.plan, found.before.plan)),
        )

    return suppose


def _check_size(seen: Snapshot) -> None:
    pods = sum(len(gang.pods) for gang in seen.gangs.values())
    if pods > MOST_PODS:
        raise InvalidInput(
            f"{pods:,} pods are too many to be planned twice for a page, which takes up to"
            f" {MOST_PODS:,}; ask with gang-extender plan --live, which plans where it is typed"
        )


def _check_is_new(gang: WhatIfGang, there: list[Manifest], seen: Snapshot) -> None:
    """Refuse names that are taken: part of somebody else's gang would be ours."""
    key = f"{gang.namespace}/{gang.name}"
    if GangKey(key) in seen.gangs:
        raise InvalidInput(f"there is a gang {key} already; choose another name")
    own = {f"{gang.name}-{index}" for index in range(gang.members)}
    for _, each in there:
        about = each["metadata"]
        is_there = each["kind"] == "Pod" and about.get("namespace") == gang.namespace
        if is_there and about["name"] in own:
            raise InvalidInput(
                f"there is a pod {gang.namespace}/{about['name']} already; choose another name"
            )


def _class_of(gang: WhatIfGang, seen: Snapshot) -> str:
    """Name the class that gives the gang its priority, empty where it needs none to have it.

    Those that are there are called by their numbers. Where the namespace lists what counts, it is
    the one of the list by which pods are known to have this priority.
    """
    if gang.priority is None or gang.priority == seen.usual_priority:
        return ""
    known = seen.namespaces.get(gang.namespace)
    listed = known.classes or frozenset() if known is not None else frozenset[str]()
    pods = (pod for each in seen.gangs.values() for pod in each.pods if listed)
    found = {each.priority_class for each in pods if each.priority == gang.priority}
    return min(found & listed, default=f"priority-{gang.priority}")


def _manifests(gang: WhatIfGang, scheduler: str, priority_class: str) -> Iterator[Manifest]:
    """Write what somebody would create: a PodGroup, and its pods."""
    about: dict[str, Any] = {"name": gang.name, "namespace": gang.namespace}
    named: dict[str, Any] = {"queue": gang.queue} if gang.queue else {}
    ranked: dict[str, Any] = {}
    if priority_class:
        # Only by a class do groups have a priority.
        ranked["priorityClassName"] = priority_class
        rank = {"metadata": {"name": priority_class}, "value": gang.priority}
        version = "scheduling.k8s.io/v1"
        yield Manifest(_FORM, {"apiVersion": version, "kind": "PriorityClass", **rank})
    yield Manifest(
        _FORM,
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": about,
            "spec": {"minMember": gang.least, **named, **ranked},
        },
    )
    container = {"name": "main", "resources": {"requests": dict(gang.each)}}
    spec = {"schedulerName": scheduler, "containers": [container], **ranked}
    marks = {"annotations": {"scheduling.k8s.io/group-name": gang.name}}
    for index in range(gang.members):
        own = {**about, **marks, "name": f"{gang.name}-{index}"}
        yield Manifest(_FORM, {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": spec})


def _asked_gangs(
    after: PlannedSnapshot, policy: Policy, experience: DurationHistory
) -> Iterator[AskedGang]:
    effort = WorkLimit(seconds=MOST_S, spent=time.thread_time)
    ahead = Lookahead(after.snapshot, after.plan, policy, experience, effort)
    for key in submitted_gangs(after.snapshot):
        said = gang_outcome(after, key, policy)
        if said is None:
            continue
        ticket, estimate = after.plan.placements.get(key), ahead.estimate(key)
        yield AskedGang(
            gang=key,
            standing=said.verdict.standing.value,
            starts=said.starts,
            reason=said.verdict.reason.value,
            message=said.verdict.message,
            places=by_node(ticket.placements.values()) if ticket else "",
            estimate=estimate.words if estimate is not None else "",
            lists=tuple((title, tuple(lines)) for title, lines in said.lists),
        )


def _deviations(theirs: Plan, ours: Plan) -> Iterator[str]:
    """Say where the plan itself decided otherwise: some of what it knew is nowhere written."""
    other = [
        key
        for key, verdict in ours.verdicts.items()
        if key in theirs.verdicts and theirs.verdicts[key].standing is not verdict.standing
    ]
    if other:
        there, here = theirs.verdicts[other[0]].standing, ours.verdicts[other[0]].standing
        yield (
            f"the plan itself decides otherwise about {len(other)} of the gangs ({other[0]} is"
            f" {there.value} there and {here.value} here): not all that it knows is written in"
            " objects"
        )
