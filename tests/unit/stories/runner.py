"""Runs a story on a cluster, step by step, and records the outcome of every workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import objects
from .cluster import Object, Observation, StoryCluster
from .story import OF_THE_CLUSTER, Outcome, Step, Story


@dataclass(slots=True)
class Workload:
    """A gang, or equal pods without a gang."""

    name: str
    #: The entry of the story that creates it.
    facts: Mapping[str, Any]
    least: int = 1
    made: int = 0
    is_plain: bool = False


def run_story(story: Story, cluster: StoryCluster) -> list[Outcome]:
    """Run *story* and return the outcomes of its steps."""
    return _StoryRun(story, cluster).outcomes()


class _StoryRun:
    def __init__(self, story: Story, cluster: StoryCluster) -> None:
        self._story = story
        self._cluster = cluster
        self._workloads: dict[str, Workload] = {}
        #: Workload -> its outcome in each step so far.
        self._past: dict[str, tuple[str, ...]] = {}
        #: Name in the story -> name on the cluster.
        self._names: dict[str, str] = {}
        self._do: Mapping[str, Callable[[Any], None]] = {
            "node": lambda facts: cluster.create(*objects.nodes(facts, cluster.mark)),
            "queue": lambda facts: cluster.create(objects.queue(facts, cluster.mark)),
            "class": lambda facts: cluster.create(objects.priority_class(facts, cluster.mark)),
            "edit": self._edit,
            "state": self._state,
            "cordon": lambda name: self._change_node(name, {"unschedulable": True}),
            "uncordon": lambda name: self._change_node(name, {"unschedulable": None}),
            "gang": lambda facts: self._create_gangs([facts]),
            "gangs": self._create_gangs,
            "pods": self._create_pods,
            "group": lambda name: self._create_group(self._workloads[name]),
            "more": self._more,
            "least": self._set_least,
            "ungate": self._ungate,
            "delete": self._delete,
            "lose": self._lose,
        }

    def outcomes(self) -> list[Outcome]:
        return [self._outcome(step) for step in self._story.steps]

    def _outcome(self, step: Step) -> Outcome:
        is_heard = True
        for verb, facts in step.do:
            if verb not in OF_THE_CLUSTER and not is_heard:
                self._cluster.wait_until_known()
            is_heard = verb not in OF_THE_CLUSTER
            self._do[verb](facts)
        if not is_heard:
            self._cluster.wait_until_known()
        observation = self._cluster.settle(lambda seen: self._named(seen)[0] == step.then)
        named, self._names = self._named(observation)
        for name in self._workloads:
            self._past[name] = (*self._past.get(name, ()), self._end(name, observation))
        return named

    # ── outcomes ────────────────────────────────────────────────────────────────

    def _named(self, observation: Observation) -> tuple[Outcome, dict[str, str]]:
        """Return the outcomes by names of the story, and the name on the cluster of each."""
        ends = {name: self._end(name, observation) for name in self._workloads}
        names = {name: name for name in self._workloads}
        for alike in self._story.alike:
            there = [name for name in alike if name in self._workloads]
            # Equal gangs with the same past are distinguished by their present outcome.
            there_now = sorted(there, key=lambda it: (*self._past.get(it, ()), ends[it], it))
            names.update(zip(there, there_now, strict=True))
        return {name: ends[actual] for name, actual in names.items()}, names

    def _end(self, name: str, observation: Observation) -> str:
        workload = self._workloads[name]
        pods = {
            pod: node for pod, node in observation.pods.items() if pod.rpartition("-")[0] == name
        }
        waiting = [pod for pod, node in pods.items() if not node]
        if not pods:
            return "gone"
        key = f"pod:{min(waiting)}" if workload.is_plain and waiting else name
        kept = ", capacity is reserved" if name in observation.kept else ""
        reason = observation.reasons.get(key, "(no verdict)")
        scheduled = len(pods) - len(waiting)
        if not scheduled:
            return f"waits {reason}{kept}"
        is_short = bool(waiting) if workload.is_plain else scheduled < workload.least
        of = f" of {len(pods)}" if waiting else ""
        return f"runs {scheduled}{of}{f' {reason}' if is_short else ''}{kept}"

    # ── changes by the administrator ─────────────────────────────────────────────────────────

    def _edit(self, facts: Object) -> None:
        spec = objects.queue(facts, self._cluster.mark)["spec"]
        self._cluster.change("Queue", self._marked(facts["name"]), {"spec": spec})

    def _state(self, facts: Object) -> None:
        change = {"status": {"state": facts["is"]}}
        self._cluster.change("Queue", self._marked(facts["queue"]), change)

    def _change_node(self, name: str, spec: Object) -> None:
        self._cluster.change("Node", self._marked(name), {"spec": spec})

    def _marked(self, name: str) -> str:
        return objects.marked(name, self._cluster.mark)

    # ── changes by tenants ─────────────────────────────────────────────────────────────

    def _create_gangs(self, every: Sequence[Object]) -> None:
        """Create PodGroups first, then pods: the first of each gang, then the second of each."""
        workloads = [self._enter(facts) for facts in every]
        for workload in workloads:
            if workload.facts.get("group", True):
                self._create_group(workload)
        most = max(workload.facts["members"] for workload in workloads)
        for number in range(most):
            for workload in workloads:
                if number < workload.facts["members"]:
                    self._create_pod(workload)

    def _create_pods(self, facts: Object) -> None:
        workload = self._enter(facts, is_plain=True)
        for _ in range(facts["count"]):
            self._create_pod(workload)

    def _enter(self, facts: Object, *, is_plain: bool = False) -> Workload:
        least = 1 if is_plain else facts.get("least", facts["members"])
        workload = self._workloads[facts["name"]] = Workload(
            facts["name"], facts, least, is_plain=is_plain
        )
        self._names[workload.name] = workload.name
        return workload

    def _create_group(self, workload: Workload) -> None:
        cluster = self._cluster
        cluster.create(
            objects.group(
                workload.name, workload.least, workload.facts, cluster.namespace, cluster.mark
            )
        )

    def _create_pod(self, workload: Workload) -> None:
        cluster, name = self._cluster, f"{workload.name}-{workload.made}"
        gang = None if workload.is_plain else workload.name
        is_gated = workload.made < workload.facts.get("gated", 0)
        workload.made += 1
        cluster.create(
            objects.pod(
                name, gang, workload.facts, cluster.namespace, cluster.mark, is_gated=is_gated
            )
        )

    def _more(self, facts: Object) -> None:
        for _ in range(facts["members"]):
            self._create_pod(self._workloads[self._names[facts["gang"]]])

    def _set_least(self, facts: Object) -> None:
        workload = self._workloads[self._names[facts["gang"]]]
        workload.least = facts["to"]
        self._cluster.change("PodGroup", workload.name, {"spec": {"minMember": workload.least}})

    def _ungate(self, name: str) -> None:
        workload = self._workloads[self._names[name]]
        for number in range(workload.facts["gated"]):
            self._cluster.change(
                "Pod", f"{workload.name}-{number}", {"spec": {"schedulingGates": None}}
            )

    def _delete(self, name: str) -> None:
        workload = self._workloads[self._names[name]]
        for number in range(workload.made):
            self._cluster.remove("Pod", f"{workload.name}-{number}")
        if not workload.is_plain:
            self._cluster.remove("PodGroup", workload.name)

    def _lose(self, name: str) -> None:
        """Delete a node, and its pods as the controllers of Kubernetes do."""
        node = self._marked(name)
        on_it = [pod for pod, place in self._cluster.observe().pods.items() if place == node]
        self._cluster.remove("Node", node)
        for pod in on_it:
            self._cluster.remove("Pod", pod)
