"""The real control plane as a cluster for stories, which also run on the embedded cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests import objects
from tests.unit.stories.cluster import Observation

from .api import Object, resource_of
from .components import http_json
from .control_plane import ControlPlane
from .train_gang import POOL, GangScheduler
from .waiting import wait_for

#: Timeout for the expected state; a story fails by comparison, not by it.
LIMIT_S = 120.0
#: The timeout after a step of the story has failed.
FAILED_S = 5.0
RESOURCES = {
    "Node": "nodes",
    "Pod": "pods",
    "PodGroup": objects.POD_GROUPS,
    "Queue": objects.QUEUES,
}
_NAMESPACED = ("Pod", "PodGroup")

#: A node label without meaning; changing it makes the extender plan again.
_NUDGE = "gang-extender.test/nudge"
_LONG = "which has waited long"


class RealCluster:
    """One namespace, with all nodes of the cluster; it is emptied after the `with` block."""

    def __init__(self, plane: ControlPlane, pair: GangScheduler, namespace: str) -> None:
        self._plane = plane
        self._api = plane.api
        self._extender = pair.extender
        self.namespace = namespace
        self.mark = namespace[-6:]
        #: Nodes and queues that the extender should know.
        self._known: dict[tuple[str, str], Object] = {}
        self._cluster_scoped: list[Object] = []
        self._nudges = 0
        self._limit_s = LIMIT_S

    def __enter__(self) -> RealCluster:
        # Nodes and gangs of another story would change the outcome.
        wait_for(
            lambda: self._is_empty(self._snapshot()),
            LIMIT_S,
            "the extender knows no object",
            seeing=self._snapshot,
        )
        return self

    def __exit__(self, *error: object) -> None:
        for resource in ("pods", objects.POD_GROUPS):
            self._api.delete_all(resource, self.namespace, grace_seconds=0)
        for thing in self._cluster_scoped:
            self._api.delete(resource_of(thing), thing["metadata"]["name"], grace_seconds=0)

    def create(self, *things: Object) -> None:
        for thing in things:
            if thing["kind"] == "Node":
                thing["metadata"]["labels"][POOL] = self.namespace
            self._api.create(thing)
            if "namespace" not in thing["metadata"]:
                self._cluster_scoped.append(thing)
            if thing["kind"] in ("Node", "Queue"):
                self._known[thing["kind"], thing["metadata"]["name"]] = thing

    def change(self, kind: str, name: str, change: Object) -> None:
        where = self.namespace if kind in _NAMESPACED else None
        part = "status" if "status" in change else ""
        changed = self._api.patch(RESOURCES[kind], name, change, where, subresource=part)
        if kind in ("Node", "Queue"):
            self._known[kind, name] = changed

    def remove(self, kind: str, name: str) -> None:
        where = self.namespace if kind in _NAMESPACED else None
        self._api.delete(RESOURCES[kind], name, where, grace_seconds=0)
        self._known.pop((kind, name), None)

    def wait_until_known(self) -> None:
        """Wait until nodes are ready, and the extender's last plan knows all nodes and queues."""
        nodes = [name for kind, name in self._known if kind == "Node"]
        self._plane.wait_until_nodes_are_ready(nodes, LIMIT_S)
        wanted = {key: _facts(thing) for key, thing in self._known.items()}

        def is_known() -> bool:
            seen = self._facts_of(self._snapshot())
            return all(seen.get(key) == facts for key, facts in wanted.items())

        wait_for(
            is_known,
            LIMIT_S,
            f"the extender knows {wanted}",
            seeing=lambda: self._facts_of(self._snapshot()),
        )

    def observe(self) -> Observation:
        return self._observe(self._page("plan"))

    def settle(self, is_expected: Callable[[Observation], bool]) -> Observation:
        """Wait until the state is as expected, also in a plan that was made after that.

        It does not raise: the comparison of outcomes reports the difference.
        """
        try:
            self._wait(is_expected, after=-1)
            before = self._page("plan")["generation"]
            self._nudge()
            self._wait(is_expected, after=before)
        except AssertionError:
            self._limit_s = FAILED_S
        return self.observe()

    def _wait(self, is_expected: Callable[[Observation], bool], after: int) -> None:
        def is_settled() -> bool:
            plan = self._page("plan")
            return plan["generation"] > after and is_expected(self._observe(plan))

        wait_for(is_settled, self._limit_s, "the state is as the story expects", every_s=0.05)

    def _nudge(self) -> None:
        """Make kube-scheduler and the extender reconsider all pods."""
        self._nudges += 1
        node = next(name for kind, name in self._known if kind == "Node")
        change = {"metadata": {"labels": {_NUDGE: str(self._nudges)}}}
        self._api.patch("nodes", node, change)

    def _observe(self, plan: Object) -> Observation:
        written = self._conditions()
        start = f"{self.namespace}/"
        here = [gang for gang in plan["gangs"] if gang["namespace"] == self.namespace]
        return Observation(
            pods={
                pod["metadata"]["name"]: objects.node_of(pod) or ""
                for pod in self._api.list("pods", self.namespace)
            },
            reasons={gang["name"]: _reason(gang, written) for gang in here},
            kept=frozenset(
                each["for"].removeprefix(start) for each in plan["held"] if _LONG in each["why"]
            ),
        )

    def _conditions(self) -> dict[str, str]:
        """Return the reason of each PodGroup's Unschedulable condition, or "nothing"."""
        groups = self._api.list(objects.POD_GROUPS, self.namespace)
        return {
            group["metadata"]["name"]: next(
                (
                    condition["reason"]
                    for condition in group.get("status", {}).get("conditions", ())
                    if condition["type"] == "Unschedulable" and condition["status"] == "True"
                ),
                "nothing",
            )
            for group in groups
        }

    def _snapshot(self) -> Object:
        return self._page("snapshot")

    def _page(self, page: str) -> Any:
        content = http_json("GET", f"{self._extender.ops_url}/api/v1/{page}")
        assert content is not None, f"the extender does not answer {page}"
        return content

    def _is_empty(self, snapshot: Object) -> bool:
        return not [
            each for each in snapshot["items"] if each["kind"] in ("Node", "PodGroup", "Pod")
        ]

    def _facts_of(self, snapshot: Object) -> dict[tuple[str, str], Object]:
        return {
            (each["kind"], each["metadata"]["name"]): _facts(each)
            for each in snapshot["items"]
            if each["kind"] in ("Node", "Queue")
        }


def _facts(thing: Object) -> Object:
    """Return the fields of a node or a queue that stories change."""
    spec, status = thing.get("spec", {}), thing.get("status", {})
    if thing["kind"] == "Node":
        return {"unschedulable": bool(spec.get("unschedulable"))}
    return {
        "weight": spec["weight"],
        "capability": spec.get("capability") or {},
        "lends": bool((spec.get("guarantee") or {}).get("lend")),
        "state": status.get("state") or "Open",
    }


def _reason(gang: Object, written: dict[str, str]) -> str:
    """Return the reason of a verdict, with the reason of the PodGroup's condition if it differs."""
    reason, condition = str(gang["reason"]), written.get(gang["name"])
    if condition is None or gang["verdict"] not in ("waiting", "invalid") or condition == reason:
        return reason
    return f"{reason} (but its condition says {condition})"
