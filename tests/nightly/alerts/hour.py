"""An ordinary hour in virtual time, with a scrape every 15 seconds.

Gangs of two queues are created, run and end; the second queue reclaims its deserved share; a large
gang waits; in the middle a rolling update replaces the extender.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from extender.cache.changes import Upsert
from extender.metrics import Metrics
from extender.sim.api_server import WatchEvent
from tests.system.referee import Referee
from tests.system.world import World, key

from .watched_system import WatchedSystem

EVERY_S = 15
HOUR = 3600 // EVERY_S
#: The new replica is a standby; the old one ends; the new one leads.
UPDATE = (HOUR // 2, HOUR // 2 + 4, HOUR // 2 + 5)
#: Time before the hour, so that no timestamp is zero.
BEFORE_S = 240

#: Values by series, one for each scrape; None where there was none.
Series = dict[str, list[float | None]]


class Hour:
    """Simulates the hour; *fault* is called at every scrape with its number."""

    def __init__(self, seed: int, fault: Callable[[Hour, int], None] | None = None) -> None:
        self.world = World(kind=WatchedSystem)
        self.is_scheduling = True
        self._fault = fault
        self._random = random.Random(seed)
        #: How long each gang runs, and when a running one ends.
        self._durations: dict[str, float] = {}
        self._ends: dict[str, float] = {}
        self._made = 0
        self._samples: list[dict[str, float]] = []
        self._standby: Metrics | None = None
        self.name = "old"

    def run(self) -> Series:
        """Run the hour and return the samples."""
        world = self.world
        try:
            world.time.wall_is_off_by = BEFORE_S - world.time.now()
            for number in range(8):
                world.create_node(f"n{number}", cpu=8)
            for queue in ("batch", "research"):
                world.create_queue(queue, weight=1, created=world.time.now())
            world.deliver()
            world.run_cycle()
            for tick in range(HOUR):
                self._act(tick)
                world.advance(EVERY_S, busy=self.is_scheduling)
                self._scrape(tick)
            return self._as_series()
        finally:
            world.close()

    # Events

    def _act(self, tick: int) -> None:
        if self._fault is not None:
            self._fault(self, tick)
        now = self.world.time.monotonic()
        for name, lasts_s in list(self._durations.items()):
            if self.world.running(f"{name}-"):
                self._ends.setdefault(name, now + lasts_s)
            # Its time is over, or it was evicted.
            if self._ends.get(name, now + 1) <= now or not self.world.api.pods_of(key(name)):
                self.world.delete_gang(name)
                del self._durations[name]
        # The first queue uses the whole cluster until the other one has gangs.
        queue = "batch" if tick < HOUR // 4 else self._random.choice(["batch", "research"])
        if self._random.random() < 0.35:
            self._create(queue, self._random.choice([1, 2, 4, 8]))
        if tick == 3 * HOUR // 4:
            self._create("research", 16)
        if tick == UPDATE[0]:
            self._standby = Metrics()
            self._standby.leader.set(0)
            self._standby.cache_synced.set(1)
        if tick == UPDATE[2]:
            self._replace()

    def _create(self, queue: str, size: int) -> None:
        self._made += 1
        name = f"g{self._made}"
        self.world.create_gang(name, size, queue=queue, cpu=self._random.choice([1, 2, 4]))
        self._durations[name] = self._random.choice([60, 180, 420])

    def _replace(self) -> None:
        """Let a new extender take over; binds that wait in the old one are refused."""
        world = self.world
        old, world.system = world.system, WatchedSystem(world.time, world.api)
        old.close()
        world.referee = Referee(world.time, world.api, world.scheduler, world.system)
        world.api.on_bindings = world.referee.sent
        world.scheduler.restart()
        api = world.api
        api.to_extender.clear()
        there = (*api.nodes.values(), *api.queues.values(), *api.groups.values())
        for thing in (*there, *api.pods.values()):
            api.to_extender.append(WatchEvent(Upsert(thing), world.time.monotonic()))
        world.deliver_to_extender()
        world.run_cycle()
        self._standby, self.name = None, "new"

    # Scrapes

    def _scrape(self, tick: int) -> None:
        found: dict[str, float] = {}
        system = self.world.system
        assert isinstance(system, WatchedSystem)
        # During the update the old one has ended and the new one does not lead yet.
        if not UPDATE[1] <= tick < UPDATE[2]:
            found |= _read(system.scrape(), self.name)
        if self._standby is not None:
            found |= _read(generate_latest(self._standby.registry).decode(), "new")
        self._samples.append(found)

    def _as_series(self) -> Series:
        series: Series = defaultdict(lambda: [None] * len(self._samples))
        for index, found in enumerate(self._samples):
            for name, value in found.items():
                series[name][index] = value
        return dict(series)


def _read(text: str, instance: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {
                **sample.labels,
                "instance": instance,
                "job": "gang-extender",
                "namespace": "gang-system",
            }
            if sample.name.startswith("gang_extender_"):
                written = ",".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
                found[f"{sample.name}{{{written}}}"] = sample.value
    return found
