"""How an act is told: it acts on the cluster, waits for what it announces, and claims what it saw.

Sentences follow what happened, never a clock: an act goes on when its condition is seen, and is
broken when that does not come in time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from extender.demo import objects
from extender.demo.cluster import Object, SimCluster
from extender.demo.workloads import DemoWorkloads
from extender.errors import ExtenderError


class Moment(NamedTuple):
    """After a change: so many pods of *gang* were on nodes."""

    at: float
    gang: str
    on_nodes: int


class PlacementLog:
    """Writes down every change as the cluster makes it, and asks nobody else."""

    def __init__(
        self, cluster: SimCluster, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._placed: dict[str, set[str]] = {}
        self._moments: list[Moment] = []
        cluster.listen(self._handle)

    def clear(self) -> None:
        """Begin anew: what was is not asked for again."""
        with self._lock:
            self._moments.clear()

    def moments(self, *gangs: str) -> list[Moment]:
        """Give every change of these gangs, in order."""
        with self._lock:
            return [each for each in self._moments if each.gang in gangs]

    def on_nodes(self, gang: str) -> int:
        """Count the pods of *gang* that are on nodes now."""
        with self._lock:
            return len(self._placed.get(gang, ()))

    def started_at(self, gang: str, least: int) -> float | None:
        """Say when *least* pods of *gang* were on nodes for the first time."""
        return next((each.at for each in self.moments(gang) if each.on_nodes >= least), None)

    def spread_ms(self, gang: str, least: int) -> float:
        """Say how long its first start took, from the first pod to the last of the minimum."""
        first, last = self.moments(gang)[0].at, self.started_at(gang, least)
        return ((last or first) - first) * 1000

    def fewest(self, gang: str, since: float, least: int) -> int:
        """Say how few pods it had at the worst moment after it first had *least*."""
        began = self.started_at(gang, least)
        if began is None:
            return 0
        return min(each.on_nodes for each in self.moments(gang) if each.at >= max(began, since))

    def were_together(self, one: str, other: str) -> bool:
        """Ask whether there was a moment at which both had pods on nodes."""
        now = {one: 0, other: 0}
        for each in self.moments(one, other):
            now[each.gang] = each.on_nodes
            if all(now.values()):
                return True
        return False

    def _handle(self, verb: str, thing: Object) -> None:
        if thing["kind"] != "Pod" or not thing["spec"].get("nodeName"):
            return
        gang, uid = objects.gang_of(thing), thing["metadata"]["uid"]
        with self._lock:
            seated = self._placed.setdefault(gang, set())
            before = len(seated)
            (seated.discard if verb == "DELETED" else seated.add)(uid)
            if len(seated) != before:
                self._moments.append(Moment(self._monotonic(), gang, len(seated)))


#: However slow a machine is, what is announced comes within that.
PATIENCE_S = 60.0
#: To read a sentence.
_READ_S = 1.8
_LOOK_S = 0.02
_Seen = TypeVar("_Seen")


class ClaimFailed(ExtenderError):
    """Something the story announces did not happen."""


class Scene(Protocol):
    """Where a story is told."""

    cluster: SimCluster
    workloads: DemoWorkloads
    placements: PlacementLog

    def plan(self) -> dict[str, Any]:
        """Give the last plan as the operations port tells it."""

    def set_policy(self, text: str) -> None:
        """Put another policy in force."""


class Act(NamedTuple):
    """One act: what it is called, what it shows, and how it goes."""

    name: str
    title: str
    #: What it proves, for the summary.
    claim: str
    run: Callable[[ActRunner], None]


@dataclass(slots=True)
class ActOutcome:
    """What became of an act."""

    act: Act
    #: What was claimed and seen to be true, in order.
    claims: list[str] = field(default_factory=list)
    #: Why it did not come out as told; empty when it did.
    broken: str = ""


class ActRunner:
    """What an act may do."""

    def __init__(self, scene: Scene, say: Callable[[str], None], speed: float = 1.0) -> None:
        self.cluster = scene.cluster
        self.workloads = scene.workloads
        self.placements = scene.placements
        self.plan = scene.plan
        self.set_policy = scene.set_policy
        self.speed = speed
        self._say = say
        self._claims: list[str] = []
        #: What goes on while the story rests or waits.
        self.on_tick: Callable[[], None] = _nothing
        #: Set by whoever wants no more of it.
        self.stopping = threading.Event()
        self.patience_s = PATIENCE_S

    def run(self, act: Act) -> ActOutcome:
        """Tell an act to its end, and leave the cluster empty."""
        self.placements.clear()
        self.workloads.evicted.clear()
        self._claims = []
        outcome = ActOutcome(act, self._claims)
        try:
            # Who asks before the first plan is told to come back; no act is about that.
            self.wait(lambda: self.plan().get("generation", 1), "the first plan is made")
            act.run(self)
        except ClaimFailed as broken:
            outcome.broken = str(broken)
        self.on_tick = _nothing
        self.workloads.end_all()
        return outcome

    def say(self, sentence: str) -> None:
        """Say what happened, and leave time to read it."""
        self._say(sentence)
        self.rest(_READ_S)

    def rest(self, seconds: float) -> None:
        """Let so much time of the story pass."""
        until = time.monotonic() + self.scaled(seconds)
        while (left := until - time.monotonic()) > 0:
            self._tick(min(left, _LOOK_S))

    def scaled(self, seconds: float) -> float:
        """Give how long *seconds* of the story are on a clock."""
        return seconds / self.speed

    def wait(self, condition: Callable[[], _Seen | None], what: str) -> _Seen:
        """Wait for a condition; *what* says what is announced."""
        deadline = time.monotonic() + self.patience_s
        while True:
            if seen := condition():
                return seen
            if time.monotonic() > deadline:
                raise ClaimFailed(f"waited in vain: {what}")
            self._tick(_LOOK_S)

    def wait_for_start(self, gang: str, least: int) -> None:
        """Wait until so many pods of *gang* are on nodes."""
        self.wait(lambda: self.placements.on_nodes(gang) >= least, f"{gang} runs with {least} pods")

    def wait_for_reason(self, gang: str, *reasons: str) -> dict[str, Any]:
        """Wait until the plan says that *gang* waits for one of these reasons."""

        def told() -> dict[str, Any] | None:
            found = self.verdict(gang)
            return found if found and found["reason"] in reasons else None

        return self.wait(told, f"{gang} waits with {' or '.join(reasons)}")

    def verdict(self, gang: str) -> dict[str, Any] | None:
        """Give what the plan says of *gang*."""
        return next((each for each in self.plan()["gangs"] if each["name"] == gang), None)

    def queue(self, name: str) -> dict[str, Any]:
        """Give what the plan says of a queue."""
        return next((each for each in self.plan()["queues"] if each["name"] == name), {})

    def is_all_reserved_for(self, gang: str) -> bool:
        """Ask whether what is free is kept for *gang* alone, and nobody else is on the way.

        Who was let in before may still take the last of its places, and overtakes nobody.
        """
        plan = self.plan()
        beneficiaries = {each["for"].rpartition("/")[2] for each in plan["held"]}
        return beneficiaries == {gang} and not any(
            each["reason"] == "Admitted" for each in plan["gangs"]
        )

    def claim(self, truth: bool, claimed: str) -> None:
        """Hold the story to what it says."""
        if not truth:
            raise ClaimFailed(f"not so: {claimed}")
        self._claims.append(claimed)

    def _tick(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise KeyboardInterrupt
        self.on_tick()


def _nothing() -> None:
    pass
