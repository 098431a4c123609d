"""The story of the demo: two gangs, one cluster, and an ordinary pod in between.

Every step waits for what it announces, so the story shows what happened, not what should have.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from extender.errors import ExtenderError
from extender.sim.cluster import Object, SimCluster

#: Gives the verdict on a gang as the operations port tells it; None before the first plan.
Verdicts: TypeAlias = Callable[[str], dict[str, Any] | None]
Say: TypeAlias = Callable[[str], None]

NODES, CPUS, GANG = 3, 4, 8
_PATIENCE_S = 20.0


class StoryBroken(ExtenderError):
    """Something the story announces did not happen."""


class Story:
    """Tells itself on a `SimCluster` that somebody schedules."""

    def __init__(self, cluster: SimCluster, verdicts: Verdicts, say: Say) -> None:
        self._cluster = cluster
        self._verdicts = verdicts
        self._say = say
        self._bound_at: dict[str, float] = {}
        cluster.listen(self._notice)

    def tell(self) -> None:
        """Tell it from the beginning to the end."""
        self._prepare()
        self._hold_an_incomplete_gang()
        self._start_it_whole()
        self._let_the_next_gang_wait()
        self._let_an_ordinary_pod_pass()
        self._make_room()

    def seats(self) -> dict[str, list[str]]:
        """Give the pods that run on each node."""
        seats: dict[str, list[str]] = {
            node["metadata"]["name"]: [] for node in self._cluster.all("Node")
        }
        for pod in self._cluster.all("Pod"):
            if pod["status"]["phase"] == "Running":
                seats[pod["spec"]["nodeName"]].append(pod["metadata"]["name"])
        return seats

    def _prepare(self) -> None:
        for index in range(NODES):
            self._cluster.create(_node(f"node-{index}", CPUS))
        for name in ("red", "blue"):
            self._cluster.create(_pod_group(name, GANG))
        self._say(
            f"{NODES} nodes with {CPUS} cpus each; gangs red and blue need {GANG} pods at once."
        )

    def _hold_an_incomplete_gang(self) -> None:
        self._create_members("red", 0, GANG - 3)
        verdict = self._wait_for_verdict("red", "NotEnoughMembers", members=GANG - 3)
        self._must(not self._running("red"), "nobody of red is bound yet")
        # Whether room is kept for the rest depends on who was quicker, the first plan or the pods.
        why = _why(verdict).replace("; room is kept for the rest", "")
        self._say(f"red has {GANG - 3} of {GANG} pods: none is bound. {why}")

    def _start_it_whole(self) -> None:
        self._create_members("red", GANG - 3, GANG)
        self._say(f"red is complete: {self._wait_for_start('red')}")

    def _let_the_next_gang_wait(self) -> None:
        self._create_members("blue", 0, GANG)
        verdict = self._wait_for_verdict("blue", "NotEnoughRoom", members=GANG)
        self._must(not self._running("blue"), "nobody of blue is bound yet")
        self._say(f"blue is complete too, but {NODES * CPUS - GANG} cpus are left: {_why(verdict)}")

    def _let_an_ordinary_pod_pass(self) -> None:
        self._cluster.create(_pod("web", None))
        self._wait(lambda: self._running("web"), "web is bound")
        self._say("web, an ordinary pod created after blue, starts at once.")

    def _make_room(self) -> None:
        for pod in self._running("red-"):
            self._cluster.change(pod, lambda it: it["status"].update(phase="Succeeded"))
        self._say(f"red is done, nobody touches blue: {self._wait_for_start('blue')}")

    def _create_members(self, gang: str, first: int, last: int) -> None:
        for index in range(first, last):
            self._cluster.create(_pod(f"{gang}-{index}", gang))

    def _wait_for_start(self, gang: str) -> str:
        self._wait(lambda: len(self._running(f"{gang}-")) == GANG, f"{gang} runs whole")
        times = [self._bound_at[pod["metadata"]["name"]] for pod in self._running(f"{gang}-")]
        spread_ms = (max(times) - min(times)) * 1000
        return f"all {GANG} pods start, the last {spread_ms:.0f} ms after the first."

    def _wait_for_verdict(self, gang: str, reason: str, members: int) -> dict[str, Any]:
        def told() -> dict[str, Any] | None:
            verdict = self._verdicts(gang)
            about = (verdict["reason"], verdict["members"]) if verdict else None
            return verdict if about == (reason, members) else None

        try:
            verdict: dict[str, Any] = self._wait(told, f"{gang} waits with {reason}")
        except StoryBroken as broken:
            raise StoryBroken(f"{broken}; its verdict is {self._verdicts(gang)}") from None
        return verdict

    def _wait(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            if answer := condition():
                return answer
            time.sleep(0.01)
        raise StoryBroken(f"the demo waited in vain: {what}")

    def _must(self, truth: bool, what: str) -> None:
        if not truth:
            raise StoryBroken(f"the demo is wrong: {what}")

    def _running(self, prefix: str) -> list[Object]:
        return [
            pod
            for pod in self._cluster.all("Pod")
            if pod["metadata"]["name"].startswith(prefix) and pod["status"]["phase"] == "Running"
        ]

    def _notice(self, _: str, thing: Object) -> None:
        if thing["kind"] == "Pod" and thing["spec"].get("nodeName"):
            self._bound_at.setdefault(thing["metadata"]["name"], time.monotonic())


def _why(verdict: dict[str, Any]) -> str:
    return f"{verdict['reason']}, {verdict['message']}."


def _node(name: str, cpus: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {},
        "status": {
            "allocatable": {"cpu": str(cpus), "memory": "16Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod_group(name: str, min_member: int) -> Object:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "demo"},
        "spec": {"minMember": min_member},
        "status": {},
    }


def _pod(name: str, gang: str | None) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "demo",
            "annotations": {"scheduling.k8s.io/group-name": gang} if gang else {},
        },
        "spec": {
            "schedulerName": "gang-scheduler",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Pending"},
    }
