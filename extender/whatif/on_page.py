"""What a page of a running extender asks: the cluster of its last plan, and as supposed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from extender.errors import BadInput
from extender.forecast.experience import Experience
from extender.forecast.forecaster import MOST_S
from extender.forecast.lookahead import Effort, Lookahead
from extender.model.gang import GangKey
from extender.model.snapshot import Snapshot
from extender.plan.decision import Plan
from extender.plan.policy.options import Policy
from extender.reporting.journal import Pass
from extender.settings import Settings
from extender.web.dump import dump
from extender.web.whatif.answer import AskedGang, Foreseen, Suppose
from extender.web.whatif.question import SupposedGang, Supposition
from extender.whatif.compared import PlannedMoment, asked_for, by_node, foretold
from extender.whatif.objects import Thing, told
from extender.whatif.submitted import Submitted, submitted
from extender.whatif.supposed import Supposed
from extender.whatif.weighed import Reading, weighed

#: Beyond this it would take too long where others are scheduled; a command has no such bound.
MOST_PODS = 20_000
#: Changes on a page.
SHOWN = 200
_HERE = "the form"


def supposing(settings: Settings, experience: Experience) -> Suppose:
    """Give who works out what-ifs for an extender that was started so, and learnt so much."""
    reading = Reading.of(settings)
    scheduler = settings.scheduler_name[0]

    def suppose(last: Pass, policy: Policy, asked: Supposition) -> Foreseen:
        seen = last.snapshot
        _check_size(seen)
        there = [*told(dump(seen), "the cluster")]
        new = Submitted()
        if asked.gang is not None:
            _check_is_new(asked.gang, there, seen)
            new = submitted(
                _things(asked.gang, scheduler, _class_of(asked.gang, seen)),
                there,
                namespace=asked.gang.namespace,
                now=seen.now,
                schedulers=reading.schedulers,
            )
        supposed = Supposed(asked.withs, asked.withouts)
        found = weighed(there, new.things, supposed, reading, policy, seen.now)
        changes = found.differing or []
        return Foreseen(
            cycle=last.plan.generation,
            at=seen.now,
            asked=tuple(_asked(found.after, policy, experience)),
            changes=tuple(changes[:SHOWN]),
            change_count=len(changes),
            remarks=(*new.remarks, *_doubts(last.plan, found.before.plan)),
        )

    return suppose


def _check_size(seen: Snapshot) -> None:
    pods = sum(len(gang.pods) for gang in seen.gangs.values())
    if pods > MOST_PODS:
        raise BadInput(
            f"{pods:,} pods are too many to be planned twice for a page, which takes up to"
            f" {MOST_PODS:,}; ask with gang-extender plan --live, which plans where it is typed"
        )


def _check_is_new(gang: SupposedGang, there: list[Thing], seen: Snapshot) -> None:
    """Refuse names that are taken: part of somebody else's gang would be ours."""
    key = f"{gang.namespace}/{gang.name}"
    if GangKey(key) in seen.gangs:
        raise BadInput(f"there is a gang {key} already; choose another name")
    own = {f"{gang.name}-{index}" for index in range(gang.members)}
    for _, each in there:
        about = each["metadata"]
        is_there = each["kind"] == "Pod" and about.get("namespace") == gang.namespace
        if is_there and about["name"] in own:
            raise BadInput(
                f"there is a pod {gang.namespace}/{about['name']} already; choose another name"
            )


def _class_of(gang: SupposedGang, seen: Snapshot) -> str:
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


def _things(gang: SupposedGang, scheduler: str, priority_class: str) -> Iterator[Thing]:
    """Write what somebody would create: a PodGroup, and its pods."""
    about: dict[str, Any] = {"name": gang.name, "namespace": gang.namespace}
    named: dict[str, Any] = {"queue": gang.queue} if gang.queue else {}
    ranked: dict[str, Any] = {}
    if priority_class:
        # Only by a class do groups have a priority.
        ranked["priorityClassName"] = priority_class
        rank = {"metadata": {"name": priority_class}, "value": gang.priority}
        version = "scheduling.k8s.io/v1"
        yield Thing(_HERE, {"apiVersion": version, "kind": "PriorityClass", **rank})
    yield Thing(
        _HERE,
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
        yield Thing(_HERE, {"apiVersion": "v1", "kind": "Pod", "metadata": own, "spec": spec})


def _asked(after: PlannedMoment, policy: Policy, experience: Experience) -> Iterator[AskedGang]:
    effort = Effort(seconds=MOST_S, spent=time.thread_time)
    ahead = Lookahead(after.snapshot, after.plan, policy, experience, effort)
    for key in asked_for(after.snapshot):
        said = foretold(after, key, policy)
        if said is None:
            continue
        ticket, estimate = after.plan.tickets.get(key), ahead.estimate(key)
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


def _doubts(theirs: Plan, ours: Plan) -> Iterator[str]:
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
