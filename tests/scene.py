"""A running cluster and a plan made by hand, for tests of pages, commands and statuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from extender.model.gang import VOLCANO, Gang, GangKey, Phase
from extender.model.node import NodeTable
from extender.model.pod import Pod, PodUid, Requirement, Status
from extender.model.queue import Queue
from extender.model.reason import Reason
from extender.model.snapshot import DisruptionBudget, Snapshot
from extender.planner.plan import Eviction, GangStatus, Plan, Verdict
from tests import builders
from tests.builders import NOW, node, pod, pod_group
from tests.strategies import PROFILE

#: The virtual time of a long run: ten minutes in a normal run, an hour in a nightly one.
STORY_S = 3600 if PROFILE == "nightly" else 600
QUEUES = (Queue(name="left", uid="q-l"), Queue(name="right", uid="q-r"))


def gang(
    name: str,
    members: int | Sequence[Pod] = 2,
    *,
    min_member: int | None = None,
    status: Status = Status.RUNNING,
    queue: str = "left",
    priority: int = 0,
    dialect: str = VOLCANO,
    **group: Any,
) -> Gang:
    """Make a gang `a/NAME` of equal pods `NAME-0`, `NAME-1`, …, or of the given ones."""
    if isinstance(members, int):
        on = "" if status is Status.PENDING else "n"
        members = [pod(f"{name}-{index}", on=on, status=status) for index in range(members)]
    uid = f"uid-group-{name}" if dialect else ""
    size = len(members) if min_member is None else min_member
    written = pod_group(name, size, **{"uid": uid, "dialect": dialect, "created": NOW, **group})
    return Gang(group=written, pods=tuple(members), queue=queue, priority=priority)


def node_table(cpus: Iterable[int] = (8,)) -> NodeTable:
    """Make empty nodes n0, n1, … with these cpus."""
    return builders.snapshot(node(f"n{index}", cpu=cpu) for index, cpu in enumerate(cpus)).nodes


def snapshot(
    *gangs: Gang,
    queues: Sequence[Queue] = QUEUES,
    budgets: Sequence[DisruptionBudget] = (),
    now: float = NOW,
    generation: int = 1,
    nodes: NodeTable | None = None,
    stuck: frozenset[PodUid] = frozenset(),
) -> Snapshot:
    made = builders.snapshot([], gangs, queues, budgets=budgets, now=now)
    return replace(made, nodes=nodes or node_table(), generation=generation, stuck=stuck)


def budget(name: str, allowed: int, **labels: str) -> DisruptionBudget:
    selector = tuple(Requirement(key, "In", (value,)) for key, value in labels.items())
    return DisruptionBudget(namespace="a", name=name, selector=selector, allowed=allowed)


def evictions(
    *victims: Gang, beneficiary: str = "a/needy", action: str = "reclaim", only: int | None = None
) -> list[Eviction]:
    """Make evictions of every member of *victims*, or of the first few of each."""
    return [
        Eviction(
            uid=each.uid,
            namespace=each.namespace,
            name=each.name,
            node=each.node,
            action=action,
            beneficiary=GangKey(beneficiary),
        )
        for victim in victims
        for each in victim.pods[:only]
    ]


def verdict(
    key: str,
    reason: Reason = Reason.RUNNING,
    standing: GangStatus | None = None,
    *,
    message: str = "it is so",
    phase: Phase | None = None,
    queue: str = "left",
    **rest: Any,
) -> Verdict:
    if standing is None:
        words = {
            Reason.RUNNING: GangStatus.RUNNING,
            Reason.ADMITTED: GangStatus.ADMITTED,
            Reason.COMPLETED: GangStatus.FINISHED,
        }
        standing = words.get(reason, GangStatus.WAITING)
    if phase is None:
        phase = Phase.RUNNING if standing is GangStatus.RUNNING else Phase.INQUEUE
    return Verdict(
        gang=GangKey(key),
        queue=queue,
        status=standing,
        reason=reason,
        message=message,
        phase=phase,
        **rest,
    )


def plan(*verdicts: Verdict, generation: int = 1, **rest: Any) -> Plan:
    return Plan(generation=generation, verdicts={each.gang: each for each in verdicts}, **rest)
