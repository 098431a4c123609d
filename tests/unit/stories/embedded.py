"""The embedded cluster for stories: virtual time, and objects decoded as by the watches."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from extender.model.gang import GangKey
from extender.model.pod import PodUid
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import NO_PLAN, HoldReason, Plan
from extender.settings import Settings
from extender.sim.cluster import SimulatedCluster
from tests.manifests import Manifests

from .cluster import SCHEDULER, Object, Observation
from .story import Story

#: Longer than any backoff and than an idle planning loop delays a plan (a minute), and much
#: shorter than the default starvation time, so that no gang starves by it.
SETTLES_S = 90.0
#: The time within which a plan follows a change.
HEARS_S = 1.0


def policy_of(story: Story) -> str:
    """Return the policy file of a story."""
    patience = f'starvation: {{after: "{story.patience}"}}\n' if story.patience else ""
    return policy_parser.DEFAULT_TEXT + patience


class EmbeddedCluster:
    """One simulated cluster, empty at first."""

    namespace = "stories"
    mark = "here"

    def __init__(self, policy: str = policy_parser.DEFAULT_TEXT) -> None:
        settings = Settings(scheduler_name=(SCHEDULER,))
        self.world = SimulatedCluster(policy_parser.parse(policy), settings=settings)
        self.world.extender.on_cycle = self._planned
        self._plan: Plan = NO_PLAN
        self._things: dict[tuple[str, str], Object] = {}
        self._manifests = Manifests(self.world.api, self.world.time, [SCHEDULER])

    def create(self, *things: Object) -> None:
        for thing in things:
            admitted = deepcopy(thing)
            self._admit(admitted)
            made = self._manifests.create(admitted)
            self._things[made["kind"], made["metadata"]["name"]] = made

    def change(self, kind: str, name: str, change: Object) -> None:
        self._things[kind, name] = merged = _merged(self._things[kind, name], change)
        self._manifests.put(merged)

    def remove(self, kind: str, name: str) -> None:
        api, thing = self.world.api, self._things.pop((kind, name), None)
        if thing is None:
            return
        uid, key = PodUid(thing["metadata"]["uid"]), GangKey(f"{self.namespace}/{name}")
        if kind == "Node":
            api.delete_node(name)
        elif kind == "PodGroup":
            api.delete_group(key)
        elif uid in api.pods:  # an evicted pod is gone already
            api.delete_pod(uid)

    def wait_until_known(self) -> None:
        """Wait for a plan: watches do not lag here, but limits of queues come from the plan."""
        self.world.run(self.world.time.monotonic() + HEARS_S)

    def observe(self) -> Observation:
        start = f"{self.namespace}/"
        return Observation(
            pods={seen.pod.name: seen.pod.node for seen in self.world.api.pods.values()},
            reasons={
                key.removeprefix(start): verdict.reason.value
                for key, verdict in self._plan.verdicts.items()
            },
            kept=frozenset(
                each.beneficiary.removeprefix(start)
                for each in self._plan.held
                if each.reason is HoldReason.STARVING
            ),
        )

    def settle(self, is_expected: Callable[[Observation], bool]) -> Observation:
        """Let a fixed time pass."""
        self.world.run(self.world.time.monotonic() + SETTLES_S)
        return self.observe()

    def _planned(self, snapshot: Snapshot, plan: Plan) -> None:
        self._plan = plan

    def _admit(self, made: Object) -> None:
        """Fill in the fields that a kubelet or the API server sets."""
        if made["kind"] == "Node":
            made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        elif made["kind"] == "Pod":
            made["status"] = {"phase": "Pending"}
            named = made["spec"].get("priorityClassName")
            if named:
                made["spec"]["priority"] = self.world.api.classes[named].value


def _merged(thing: Object, change: Object) -> Object:
    """Merge as the API server does a merge patch: None takes a field away."""
    merged = dict(thing)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merged(merged.get(key) or {}, value)
        else:
            merged[key] = value
    return merged
