"""Running an act: it acts on the cluster, waits for conditions, and checks its claims.

Sentences follow events, never a clock. An act goes on when its condition holds, and fails when the
condition does not hold in time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from extender.cache.changes import Change, Delete, Kind, SeenPod, Upsert
from extender.errors import ExtenderError
from extender.sim.api_server import ApiServer
from extender.sim.workloads import Job
from extender.web import documents


class Moment(NamedTuple):
    """The number of pods of *gang* on nodes after a change."""

    at: float
    gang: str
    on_nodes: int


class PlacementLog:
    """Record every placement from the events of the cluster alone."""

    def __init__(self, api: ApiServer, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        #: The gang of each pod on a node, by uid.
        self._placed: dict[str, str] = {}
        self._moments: list[Moment] = []
        api.listen(self._handle)

    def clear(self) -> None:
        """Drop the recorded changes."""
        with self._lock:
            self._moments.clear()

    def moments(self, *gangs: str) -> list[Moment]:
        """Return each change of these gangs, in order."""
        with self._lock:
            return [each for each in self._moments if each.gang in gangs]

    def on_nodes(self, gang: str) -> int:
        """Return the number of pods of *gang* on nodes now."""
        with self._lock:
            return self._count(gang)

    def started_at(self, gang: str, count: int) -> float | None:
        """Return when *count* pods of *gang* were on nodes for the first time."""
        return next((each.at for each in self.moments(gang) if each.on_nodes >= count), None)

    def spread_ms(self, gang: str, count: int) -> float:
        """Return how long the first start took, from the first pod to the last of *count*."""
        first, last = self.moments(gang)[0].at, self.started_at(gang, count)
        return ((last or first) - first) * 1000

    def fewest(self, gang: str, count: int) -> int:
        """Return the smallest number of pods on nodes after it first had *count*."""
        started = self.started_at(gang, count)
        if started is None:
            return 0
        return min(each.on_nodes for each in self.moments(gang) if each.at >= started)

    def were_together(self, one: str, other: str) -> bool:
        """Return whether both had pods on nodes at the same time."""
        now = {one: 0, other: 0}
        for each in self.moments(one, other):
            now[each.gang] = each.on_nodes
            if all(now.values()):
                return True
        return False

    def _handle(self, change: Change) -> None:
        with self._lock:
            if isinstance(change, Delete):
                if change.kind is not Kind.POD:
                    return
                gang = self._placed.pop(change.key, "")
            elif isinstance(change, Upsert) and isinstance(change.item, SeenPod):
                uid, gang = change.item.pod.uid, change.item.membership.key.partition("/")[2]
                if not change.item.pod.node or uid in self._placed:
                    return
                self._placed[uid] = gang
            else:
                return
            if gang:
                self._moments.append(Moment(self._monotonic(), gang, self._count(gang)))

    def _count(self, gang: str) -> int:
        return sum(each == gang for each in self._placed.values())


#: The timeout of a condition, enough for a slow machine.
PATIENCE_S = 60.0
#: The time to read a sentence.
_READ_S = 1.8
_LOOK_S = 0.02
_Value = TypeVar("_Value")


class ClaimFailed(ExtenderError):
    """A claim of the story is false."""


class Scene(Protocol):
    """The cluster that an act runs on."""

    placements: PlacementLog

    @property
    def jobs(self) -> list[Job]:
        """Return the jobs that have not ended."""

    @property
    def evicted(self) -> Counter[str]:
        """Return the number of evicted pods by job."""

    def submit(self, *jobs: Job) -> None:
        """Create jobs, and their pods in turn."""

    def end(self, job: str) -> None:
        """Delete a job with all its pods."""

    def end_all(self) -> None:
        """Delete all jobs."""

    def plan(self) -> documents.Plan:
        """Return the last plan as the operations port serves it."""

    def set_policy(self, text: str) -> None:
        """Put another policy in force."""


class Act(NamedTuple):
    """One act: its name, its title and its script."""

    name: str
    title: str
    run: Callable[[ActRunner], None]


@dataclass(slots=True)
class ActOutcome:
    """The result of an act."""

    act: Act
    #: The claims that hold, in order.
    claims: list[str] = field(default_factory=list)
    #: Why it failed; "" when it did not.
    broken: str = ""


class ActRunner:
    """The operations of an act."""

    def __init__(self, scene: Scene, say: Callable[[str], None], speed: float = 1.0) -> None:
        self.scene = scene
        self.placements = scene.placements
        self.speed = speed
        self._say = say
        self._claims: list[str] = []
        #: Called while the story rests or waits.
        self.on_tick: Callable[[], None] = _nothing
        self.patience_s = PATIENCE_S

    def run(self, act: Act) -> ActOutcome:
        """Run an act, then delete all gangs."""
        self.placements.clear()
        self._claims = []
        outcome = ActOutcome(act, self._claims)
        try:
            # Before the first plan, filter asks pods to retry; no act is about that.
            self.wait(lambda: self.scene.plan().generation, "the first plan is made")
            act.run(self)
        except ClaimFailed as broken:
            outcome.broken = str(broken)
        self.on_tick = _nothing
        self.scene.end_all()
        return outcome

    def say(self, sentence: str) -> None:
        """Print a sentence, and wait for the time to read it."""
        self._say(sentence)
        self.rest(_READ_S)

    def rest(self, seconds: float) -> None:
        """Wait for *seconds* of the story."""
        until = time.monotonic() + self.scaled(seconds)
        while (left := until - time.monotonic()) > 0:
            self._tick(min(left, _LOOK_S))

    def scaled(self, seconds: float) -> float:
        """Return how long *seconds* of the story take at this speed."""
        return seconds / self.speed

    def wait(self, condition: Callable[[], _Value | None], what: str) -> _Value:
        """Wait for a condition, which *what* describes."""
        deadline = time.monotonic() + self.patience_s
        while True:
            if value := condition():
                return value
            if time.monotonic() > deadline:
                raise ClaimFailed(f"timed out: {what}")
            self._tick(_LOOK_S)

    def wait_for_start(self, gang: str, count: int) -> None:
        """Wait until *count* pods of *gang* are on nodes."""
        self.wait(lambda: self.placements.on_nodes(gang) >= count, f"{gang} runs with {count} pods")

    def wait_for_reason(self, gang: str, *reasons: str) -> documents.Gang:
        """Wait until the plan gives one of these reasons for *gang*."""

        def verdict() -> documents.Gang | None:
            found = self.verdict(gang)
            return found if found and found.reason in reasons else None

        return self.wait(verdict, f"{gang} waits with {' or '.join(reasons)}")

    def verdict(self, gang: str) -> documents.Gang | None:
        """Return the verdict of *gang* in the plan."""
        return next((each for each in self.scene.plan().gangs if each.name == gang), None)

    def is_all_reserved_for(self, gang: str) -> bool:
        """Return whether all free capacity is reserved for *gang*, and no other gang is admitted.

        A gang that was admitted earlier may still be bound, which does not overtake *gang*.
        """
        plan = self.scene.plan()
        beneficiaries = {each.beneficiary.rpartition("/")[2] for each in plan.held}
        return beneficiaries == {gang} and not any(each.reason == "Admitted" for each in plan.gangs)

    def claim(self, truth: bool, claimed: str) -> None:
        """Record *claimed* if it is true, else raise `ClaimFailed`."""
        if not truth:
            raise ClaimFailed(f"not true: {claimed}")
        self._claims.append(claimed)

    def _tick(self, seconds: float) -> None:
        time.sleep(seconds)
        self.on_tick()


def _nothing() -> None:
    pass
