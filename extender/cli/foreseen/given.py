"""What a scenario takes from files beside it: a saved cluster, and a recorded trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from extender.cache.changes import SeenPod
from extender.cli.saved import objects
from extender.cli.show import count
from extender.errors import BadInput
from extender.model.node import Node
from extender.model.queue import Queue
from extender.sim import scenario as scenarios
from extender.sim.scenario import Given, Scenario
from extender.sim.traces import reading as traces
from extender.sim.traces.reading import TraceWish
from extender.text.plain import shown
from extender.whatif.objects import Objects

#: What Kubernetes' own programs have for themselves.
_CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


def taken(scenario: Scenario, folder: Path) -> tuple[Given, list[str]]:
    """Read the files that *scenario* names, as seen from *folder*; remarks are for people."""
    given, remarks = Given(), list[str]()
    if scenario.snapshot is not None:
        given, remark = _saved(_beside(folder, scenario.snapshot))
        remarks.append(remark)
    if scenario.trace is not None:
        given, remark = _traced(scenario, scenario.trace, folder, given)
        remarks.append(remark)
    return given, remarks


def _beside(folder: Path, file: str) -> Path:
    if not file or "\0" in file:  # which no system call takes
        raise BadInput(f"{shown(file)} is no name of a file; give the one to read")
    return folder / file


def _saved(path: Path) -> tuple[Given, str]:
    changes = objects.read([str(path)], frozenset()).changes
    pods = sum(isinstance(change.item, SeenPod) for change in changes)
    kept = [change for change in changes if isinstance(change.item, Node | Queue)]
    cluster = Objects(changes=kept).snapshot()
    nodes = {node.name: replace(node, taints=()) for node in _usable(cluster.nodes.nodes)}
    # Not those that are there without being written, such as the default queue.
    queues = {change.item.name for change in kept if isinstance(change.item, Queue)}
    told = f"{path}: {count(len(nodes), 'node')} and {count(len(queues), 'queue')}"
    if away := len(cluster.nodes.nodes) - len(nodes):
        told += f"; left out: {count(away, 'node')} shut or of the control plane"
    if pods:
        told += f"; left out: {count(pods, 'pod')}, because a simulation begins empty"
    return Given(nodes=nodes, queues=cluster.queues), told


def _usable(nodes: Iterable[Node]) -> Iterable[Node]:
    """Give those that pods of a scenario may use, which say nothing of what they tolerate."""
    for node in nodes:
        if not node.is_shut and not any(taint.key in _CONTROL_PLANE for taint in node.taints):
            yield node


def _traced(scenario: Scenario, wish: TraceWish, folder: Path, given: Given) -> tuple[Given, str]:
    path = _beside(folder, wish.file)
    trace = traces.read(wish, path, scenarios.span_s(scenario))
    queues = dict(given.queues)
    if wish.queue is None:
        # Whoever is in the trace has a queue, if only one like all the others.
        queues = {name: Queue(name=name) for name in trace.queues} | queues
    return replace(given, queues=queues, jobs=trace.jobs), f"{path}: {trace.sentence()}"
