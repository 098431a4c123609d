"""Tells a story on a stage: does what it says, step by step, and notes how everybody ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import objects
from .cluster import Look, Object, Stage
from .story import OF_THE_CLUSTER, Outcome, Step, Story


@dataclass(slots=True)
class Actor:
    """A gang, or pods that are alike and in none."""

    name: str
    #: How its pods are made.
    facts: Mapping[str, Any]
    least: int = 1
    made: int = 0
    is_plain: bool = False


def tell(story: Story, stage: Stage) -> list[Outcome]:
    """Tell *story* and give the outcome of each of its steps."""
    return _Telling(story, stage).outcomes()


class _Telling:
    def __init__(self, story: Story, stage: Stage) -> None:
        self._story = story
        self._stage = stage
        self._cast: dict[str, Actor] = {}
        #: Actor -> how it ended in each step so far.
        self._past: dict[str, tuple[str, ...]] = {}
        #: What an actor is called in the story -> what it is called on the stage.
        self._called: dict[str, str] = {}
        self._do: Mapping[str, Callable[[Any], None]] = {
            "node": lambda facts: stage.create(*objects.nodes(facts, stage.mark)),
            "queue": lambda facts: stage.create(objects.queue(facts, stage.mark)),
            "class": lambda facts: stage.create(objects.priority_class(facts, stage.mark)),
            "edit": self._edit,
            "state": self._state,
            "cordon": lambda name: self._change_node(name, {"unschedulable": True}),
            "uncordon": lambda name: self._change_node(name, {"unschedulable": None}),
            "gang": lambda facts: self._create_gangs([facts]),
            "gangs": self._create_gangs,
            "pods": self._create_pods,
            "group": lambda name: self._create_group(self._cast[name]),
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
                self._stage.hear()
            is_heard = verb not in OF_THE_CLUSTER
            self._do[verb](facts)
        if not is_heard:
            self._stage.hear()
        look = self._stage.settle(lambda look: self._named(look)[0] == step.then)
        named, self._called = self._named(look)
        for name in self._cast:
            self._past[name] = (*self._past.get(name, ()), self._end(name, look))
        return named

    # ── how everybody ends ────────────────────────────────────────────────────────────────

    def _named(self, look: Look) -> tuple[Outcome, dict[str, str]]:
        """Give how everybody ends, called as in the story; and who is called what."""
        ends = {name: self._end(name, look) for name in self._cast}
        called = {name: name for name in self._cast}
        for alike in self._story.alike:
            there = [name for name in alike if name in self._cast]
            # Those who have the same past are told apart by what became of them now.
            there_now = sorted(there, key=lambda it: (*self._past.get(it, ()), ends[it], it))
            called.update(zip(there, there_now, strict=True))
        return {name: ends[actual] for name, actual in called.items()}, called

    def _end(self, name: str, look: Look) -> str:
        actor = self._cast[name]
        pods = {pod: node for pod, node in look.pods.items() if pod.rpartition("-")[0] == name}
        waiting = [pod for pod, node in pods.items() if not node]
        if not pods:
            return "gone"
        key = f"pod:{min(waiting)}" if actor.is_plain and waiting else name
        kept = ", room is kept" if name in look.kept else ""
        reason = look.reasons.get(key, "(nothing is said of it)")
        seated = len(pods) - len(waiting)
        if not seated:
            return f"waits {reason}{kept}"
        is_short = bool(waiting) if actor.is_plain else seated < actor.least
        of = f" of {len(pods)}" if waiting else ""
        return f"runs {seated}{of}{f' {reason}' if is_short else ''}{kept}"

    # ── what concerns the cluster ─────────────────────────────────────────────────────────

    def _edit(self, facts: Object) -> None:
        spec = objects.queue(facts, self._stage.mark)["spec"]
        self._stage.change("Queue", self._marked(facts["name"]), {"spec": spec})

    def _state(self, facts: Object) -> None:
        change = {"status": {"state": facts["is"]}}
        self._stage.change("Queue", self._marked(facts["queue"]), change)

    def _change_node(self, name: str, spec: Object) -> None:
        self._stage.change("Node", self._marked(name), {"spec": spec})

    def _marked(self, name: str) -> str:
        return objects.marked(name, self._stage.mark)

    # ── what concerns tenants ─────────────────────────────────────────────────────────────

    def _create_gangs(self, every: Sequence[Object]) -> None:
        """Create PodGroups first, then pods: one of each gang, then the second of each, and on."""
        actors = [self._enter(facts) for facts in every]
        for actor in actors:
            if actor.facts.get("group", True):
                self._create_group(actor)
        most = max(actor.facts["members"] for actor in actors)
        for number in range(most):
            for actor in actors:
                if number < actor.facts["members"]:
                    self._create_pod(actor)

    def _create_pods(self, facts: Object) -> None:
        actor = self._enter(facts, is_plain=True)
        for _ in range(facts["count"]):
            self._create_pod(actor)

    def _enter(self, facts: Object, *, is_plain: bool = False) -> Actor:
        least = 1 if is_plain else facts.get("least", facts["members"])
        actor = self._cast[facts["name"]] = Actor(facts["name"], facts, least, is_plain=is_plain)
        self._called[actor.name] = actor.name
        return actor

    def _create_group(self, actor: Actor) -> None:
        stage = self._stage
        stage.create(
            objects.group(actor.name, actor.least, actor.facts, stage.namespace, stage.mark)
        )

    def _create_pod(self, actor: Actor) -> None:
        stage, name = self._stage, f"{actor.name}-{actor.made}"
        gang = None if actor.is_plain else actor.name
        is_gated = actor.made < actor.facts.get("gated", 0)
        actor.made += 1
        stage.create(
            objects.pod(name, gang, actor.facts, stage.namespace, stage.mark, is_gated=is_gated)
        )

    def _more(self, facts: Object) -> None:
        for _ in range(facts["members"]):
            self._create_pod(self._cast[self._called[facts["gang"]]])

    def _set_least(self, facts: Object) -> None:
        actor = self._cast[self._called[facts["gang"]]]
        actor.least = facts["to"]
        self._stage.change("PodGroup", actor.name, {"spec": {"minMember": actor.least}})

    def _ungate(self, name: str) -> None:
        actor = self._cast[self._called[name]]
        for number in range(actor.facts["gated"]):
            self._stage.change("Pod", f"{actor.name}-{number}", {"spec": {"schedulingGates": None}})

    def _delete(self, name: str) -> None:
        actor = self._cast[self._called[name]]
        for number in range(actor.made):
            self._stage.remove("Pod", f"{actor.name}-{number}")
        if not actor.is_plain:
            self._stage.remove("PodGroup", actor.name)

    def _lose(self, name: str) -> None:
        """Take a node away, and do what Kubernetes' own controllers do about its pods."""
        node = self._marked(name)
        on_it = [pod for pod, place in self._stage.look().pods.items() if place == node]
        self._stage.remove("Node", node)
        for pod in on_it:
            self._stage.remove("Pod", pod)
