"""Small clusters in a few words, planned for real, and the output of `explain` for a gang."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from extender.cli.explain import print_explanation
from extender.cli.output import Terminal
from extender.model.gang import Gang, GangKey
from extender.model.queue import Queue
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.explain.explain import explain
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from extender.web.plan_documents import PlanDocuments
from tests.builders import NOW, amounts, node, pod, shape, snapshot
from tests.scene import gang


def cpu(cores: float) -> Resources:
    return amounts(cpu=cores)


def waiting(name: str = "train", *cores: float, **rest: Any) -> Gang:
    members = [pod(f"{name}-{n}", shape=shape(cpu=c)) for n, c in enumerate(cores)]
    return gang(name, members, **rest)


def running(name: str, nodes: Iterable[str], cores: float = 1, **rest: Any) -> Gang:
    members = [pod(f"{name}-{n}", on=on, shape=shape(cpu=cores)) for n, on in enumerate(nodes)]
    return gang(name, members, **rest)


def queues(**left: Any) -> list[Queue]:
    return [Queue(name="left", **left), Queue(name="right")]


def family(**above: Any) -> list[Queue]:
    return [Queue(name="above", **above), Queue(name="left", parent="above"), Queue(name="right")]


def seen(
    *gangs: Gang,
    cpus: Sequence[int] = (8,),
    among: Sequence[Queue] = (Queue(name="left"), Queue(name="right")),
    unready: Sequence[str] = (),
    cordoned: Sequence[str] = (),
) -> Snapshot:
    """A cluster in which running members use their nodes."""
    members = [
        node(
            f"n{index}",
            cpu=cores,
            ready=f"n{index}" not in unready,
            unschedulable=f"n{index}" in cordoned,
            # The node controller adds this taint.
            taints=["node.kubernetes.io/unreachable="] if f"n{index}" in unready else (),
        )
        for index, cores in enumerate(cpus)
    ]
    return snapshot(members, gangs, among, now=NOW)


def shown(
    before: Snapshot, key: str = "a/train", policy: Policy = policy_parser.DEFAULT
) -> list[str]:
    """Plan *before* and give what `gang-extender explain` prints about a gang, line by line."""
    decided = make_plan(before, policy)
    told = explain(before, decided, policy, GangKey(key))
    assert told is not None
    document = PlanDocuments(decided, before).explanation(
        told, now=0.0, reason_since=None, story=()
    )
    terminal = Terminal()
    with terminal.capture() as printed:
        print_explanation(document, terminal)
    return [line.rstrip() for line in printed.get().splitlines()]


def said(before: Snapshot, key: str = "a/train", policy: Policy = policy_parser.DEFAULT) -> str:
    """Give the reason and the sentence."""
    return shown(before, key, policy)[1]


def would_start_with(
    before: Snapshot, key: str = "a/train", policy: Policy = policy_parser.DEFAULT
) -> list[str]:
    """Give the lines below that title."""
    lines = shown(before, key, policy)
    if "would start with" not in lines:
        return []
    below = lines[lines.index("would start with") + 1 :]
    return [line.strip() for line in below if line.startswith("  ")]
