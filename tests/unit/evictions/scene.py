"""A small cluster written down in a few words, for tests of what we do about a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from extender.model.dialect import VOLCANO
from extender.model.gang import Gang, GangKey, Phase, PodGroup
from extender.model.node import Node, NodeFacts, NodeTable
from extender.model.pod import Pod, PodUid, Requirement, Shape, Status
from extender.model.queue import Queue
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.model.snapshot import DisruptionBudget, Snapshot
from extender.plan.decision import Eviction, Plan, Standing, Verdict
from tests.builders import NOW
from tests.strategies import PROFILE

#: How much virtual time a long story takes: ten minutes at a landing, an hour in a nightly run.
STORY_S = 3600 if PROFILE == "nightly" else 600
ONE_CPU = Shape(requests=Resources({"cpu": 1000, "pods": 1}))
DIMENSIONS = ("cpu", "memory", "pods")


def pod(name: str, status: Status = Status.RUNNING, namespace: str = "a", **rest: Any) -> Pod:
    """A pod of one cpu, on node `n` unless it is pending."""
    rest.setdefault("node", "" if status is Status.PENDING else "n")
    rest.setdefault("shape", ONE_CPU)
    return Pod(uid=PodUid(f"uid-{name}"), namespace=namespace, name=name, status=status, **rest)


def gang(
    name: str,
    members: int | Sequence[Pod] = 2,
    *,
    min_member: int | None = None,
    status: Status = Status.RUNNING,
    queue: str = "left",
    priority: int = 0,
    dialect: str = VOLCANO,
    created: float = NOW,
    **group: Any,
) -> Gang:
    """A gang `a/NAME` of equal pods `NAME-0`, `NAME-1`, …, or of the given ones."""
    pods = (
        [pod(f"{name}-{index}", status) for index in range(members)]
        if isinstance(members, int)
        else members
    )
    return Gang(
        group=PodGroup(
            namespace="a",
            name=name,
            min_member=len(pods) if min_member is None else min_member,
            uid=f"uid-group-{name}" if dialect else "",
            dialect=dialect,
            created=created,
            **group,
        ),
        pods=tuple(pods),
        queue=queue,
        priority=priority,
    )


def node_table(cpus: Iterable[int] = (8,)) -> NodeTable:
    """Empty nodes with so many cpus each."""
    room = np.array([[cpu * 1000, 64 << 30, 110] for cpu in cpus], dtype=np.int64)
    nodes = tuple(
        Node(
            name=f"n{index}",
            allocatable=Resources(zip(DIMENSIONS, row.tolist(), strict=True)),
        )
        for index, row in enumerate(room)
    )
    return NodeTable(
        facts=NodeFacts(nodes, {node.name: index for index, node in enumerate(nodes)}),
        dimensions=DIMENSIONS,
        allocatable=room,
        used=np.zeros_like(room),
        releasing=np.zeros_like(room),
    )


def snapshot(
    *gangs: Gang,
    queues: Sequence[Queue] = (Queue(name="left", uid="q-l"), Queue(name="right", uid="q-r")),
    budgets: Sequence[DisruptionBudget] = (),
    now: float = NOW,
    generation: int = 1,
    nodes: NodeTable | None = None,
    stuck: frozenset[PodUid] = frozenset(),
) -> Snapshot:
    return Snapshot(
        generation=generation,
        now=now,
        nodes=nodes or node_table(),
        gangs={each.key: each for each in sorted(gangs, key=lambda each: each.key)},
        queues={queue.name: queue for queue in queues},
        budgets=tuple(budgets),
        stuck=stuck,
    )


def budget(name: str, allowed: int, **labels: str) -> DisruptionBudget:
    selector = tuple(Requirement(key, "In", (value,)) for key, value in labels.items())
    return DisruptionBudget(namespace="a", name=name, selector=selector, allowed=allowed)


def evictions(
    *victims: Gang, beneficiary: str = "a/needy", action: str = "reclaim", only: int | None = None
) -> list[Eviction]:
    """Ask every member of *victims* to leave, or the first few of each."""
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
    standing: Standing | None = None,
    *,
    message: str = "it is so",
    phase: Phase | None = None,
    queue: str = "left",
    **rest: Any,
) -> Verdict:
    if standing is None:
        words = {
            Reason.RUNNING: Standing.RUNNING,
            Reason.ADMITTED: Standing.ADMITTED,
            Reason.COMPLETED: Standing.FINISHED,
        }
        standing = words.get(reason, Standing.WAITING)
    if phase is None:
        phase = Phase.RUNNING if standing is Standing.RUNNING else Phase.INQUEUE
    return Verdict(
        gang=GangKey(key),
        queue=queue,
        standing=standing,
        reason=reason,
        message=message,
        phase=phase,
        **rest,
    )


def plan(*verdicts: Verdict, generation: int = 1, **rest: Any) -> Plan:
    return Plan(generation=generation, verdicts={each.gang: each for each in verdicts}, **rest)
