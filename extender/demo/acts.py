"""The acts of the demo, in order."""

from __future__ import annotations

import time
from collections.abc import Mapping
from fractions import Fraction

from extender.demo.embedded import NAMESPACE
from extender.demo.story import Act, ActRunner
from extender.model.node import Node
from extender.model.pod import Shape
from extender.model.queue import Queue
from extender.model.resources import Resources
from extender.planner import policy_parser
from extender.sim.api_server import ApiServer
from extender.sim.workloads import Job

NODES, CPUS, MEMORY_GI = 4, 9, 18
QUEUES = ("lab", "ops")
#: The requests of a pod that takes a third of a node, and how many such pods fit.
THIRD: Mapping[str, str] = {"cpu": "3", "memory": "2Gi"}
SLOTS = NODES * 3


def build_nodes(api: ApiServer) -> None:
    """Create nodes and queues."""
    allocatable = Resources.parse({"cpu": str(CPUS), "memory": f"{MEMORY_GI}Gi", "pods": "110"})
    for index in range(NODES):
        api.put(Node(name=f"node-{index}", allocatable=allocatable))
    for name in QUEUES:
        api.put(Queue(name=name, uid=name))


def job(
    name: str,
    queue: str,
    size: int,
    requests: Mapping[str, str] = THIRD,
    *,
    least: int | None = None,
    lasts_s: float | None = None,
) -> Job:
    """Return a job of *size* pods, at least *least* of them at once; mostly all."""
    return Job(
        namespace=NAMESPACE,
        name=name,
        queue=queue,
        size=size,
        min_member=size if least is None else least,
        shape=Shape(requests=Resources.parse({**requests, "pods": "1"})),
        lasts_s=lasts_s,
    )


def impatient(after_s: float) -> str:
    """Return the default policy, but with reservations for gangs that starve for *after_s*."""
    after_ms = max(1, round(after_s * 1000))
    return f"{policy_parser.DEFAULT_TEXT}starvation:\n  after: {after_ms}ms\n"


_NEED = 8
_HALF = SLOTS // 2


def _deadlock(on: ActRunner) -> None:
    red, blue = (job(name, "lab", _NEED) for name in ("red", "blue"))
    on.say(
        f"Gangs red and blue need {_NEED} pods each, all at once; {SLOTS} fit. Placed pod by pod,"
        f" each would get {_HALF}, and neither could ever start."
    )
    on.scene.submit(red, blue)
    on.wait_for_start("red", _NEED)
    verdict = on.wait_for_reason("blue", "InsufficientCapacity")
    on.claim(on.placements.on_nodes("blue") == 0, "blue occupies no node while red runs")
    spread = on.placements.spread_ms("red", _NEED)
    on.say(f"Their pods were created in turn. Red starts whole, within {spread:.0f} ms.")
    # The part after the semicolon depends on what is free at this moment.
    why = verdict.message.partition(";")[0]
    on.say(f"Blue occupies nothing, and the plan gives the reason: {verdict.reason}, {why}.")
    on.scene.end("red")
    on.wait_for_start("blue", _NEED)
    on.claim(
        not on.placements.were_together("red", "blue"),
        "red and blue were never on nodes at the same time",
    )
    on.claim(on.scene.evicted.total() == 0, "no pod was evicted")
    spread = on.placements.spread_ms("blue", _NEED)
    on.say(f"Red is done, and blue starts whole, within {spread:.0f} ms.")


DEADLOCK = Act(
    "deadlock",
    "two gangs that would block each other",
    _deadlock,
)


_ALL_CPUS, _ALL_GI = NODES * CPUS, NODES * MEMORY_GI
_CPUS, _GI = 3, 4


def _fair_shares(on: ActRunner) -> None:
    full = {"cpu": str(_CPUS), "memory": f"{MEMORY_GI // 3}Gi"}
    on.scene.submit(job("night", "lab", SLOTS, full))
    on.wait_for_start("night", SLOTS)
    sums = job("sums", "lab", SLOTS, {"cpu": f"{_CPUS}", "memory": "1Gi"}, least=1)
    index = job("index", "lab", 16, {"cpu": "1", "memory": f"{_GI}Gi"}, least=1)
    on.scene.submit(sums)
    on.scene.submit(index)
    for name in ("sums", "index"):
        on.wait_for_reason(name, "InsufficientCapacity", "BehindInOrder")
    on.say(
        f"Night uses everything. Sums wants {sums.size} pods of {_CPUS} cpus, and index, behind it,"
        f" {index.size} of {_GI} GiB: the first in line could take nearly all."
    )
    on.scene.end("night")
    on.wait(lambda: _is_settled(on), "sums and index share the cluster")
    cpus, memory = _shares(on)
    # Pods are indivisible, so shares are equal up to one pod.
    one_pod = max(Fraction(_CPUS, _ALL_CPUS), Fraction(_GI, _ALL_GI))
    on.claim(
        abs(cpus - memory) <= one_pod,
        f"sums uses {float(cpus):.0%} of the cpus, index {float(memory):.0%} of the memory",
    )
    on.say(
        "Night is done. By dominant resource fairness, sums gets"
        f" {on.placements.on_nodes('sums')} pods, {float(cpus):.0%} of all cpus, and index"
        f" {on.placements.on_nodes('index')}, {float(memory):.0%} of all memory."
    )


def _shares(on: ActRunner) -> tuple[Fraction, Fraction]:
    return (
        Fraction(on.placements.on_nodes("sums") * _CPUS, _ALL_CPUS),
        Fraction(on.placements.on_nodes("index") * _GI, _ALL_GI),
    )


def _is_settled(on: ActRunner) -> bool:
    """Return whether no further pod of sums fits any node."""
    used = on.placements.on_nodes("sums") * _CPUS + on.placements.on_nodes("index")
    return used > _ALL_CPUS - _CPUS


FAIR_SHARES = Act(
    "fair-shares",
    "one gang needs cpus, the other memory",
    _fair_shares,
)


_SMALL = 3
_AT_ONCE = SLOTS // _SMALL
_EVERY_S = 0.8
#: Seconds of the story for which giant starves; in a real cluster ten minutes.
_PATIENCE_S = 3.0


def _giant(on: ActRunner) -> None:
    small = _Crowd(on)
    on.on_tick = small.go_on
    on.wait(lambda: small.running() == _AT_ONCE, "small gangs fill the cluster")
    on.say(f"Small gangs of {_SMALL} pods never stop coming: when one ends, the next one starts.")
    on.scene.submit(job("giant", "lab", SLOTS))
    on.wait_for_reason("giant", "InsufficientCapacity", "BehindInOrder")
    ahead, patient_until = small.started(), time.monotonic() + on.scaled(_PATIENCE_S)
    on.say(f"Giant needs all {SLOTS} places at once, and they are never all free.")
    on.wait(lambda: small.started() >= ahead + 2, "small gangs start before giant")
    on.claim(not on.placements.moments("giant"), "small gangs ran first, and giant was on no node")
    on.wait(lambda: time.monotonic() >= patient_until, "giant starves for long enough")
    try:
        on.scene.set_policy(impatient(on.scaled(_PATIENCE_S) / 2))
        small.gives_way = True
        on.wait(lambda: on.is_all_reserved_for("giant"), "capacity is reserved for giant")
        late = small.started()
        on.wait_for_start("giant", SLOTS)
    finally:
        on.scene.set_policy(policy_parser.DEFAULT_TEXT)
    on.claim(small.started() == late, "after the reservation for giant no gang overtook it")
    on.claim(small.waiting() > 0, "giant started while small gangs were waiting")
    on.claim(on.scene.evicted.total() == 0, "no pod was evicted for giant")
    on.say(
        f"It starved for {_PATIENCE_S:.0f} s, so freed capacity was reserved for it (after ten"
        " minutes by default). It runs, and no pod was evicted."
    )
    on.scene.end("giant")
    on.wait(lambda: small.started() > late, "small gangs run again")
    on.claim(on.placements.on_nodes("giant") == 0, "small gangs went on after giant")
    on.say("Giant is done, and the small gangs go on.")


class _Crowd:
    """The small gangs: one waits at any time, and one ends at intervals."""

    def __init__(self, on: ActRunner) -> None:
        self._on = on
        self._submitted: list[str] = []
        self._ended: set[str] = set()
        self._next_at = 0.0
        #: Go on while capacity that is reserved for giant stays free.
        self.gives_way = False

    def go_on(self) -> None:
        """Submit a gang if none waits; end the oldest if the next one can start."""
        if self.waiting() == 0:
            self._submit()
        elif time.monotonic() >= self._next_at and self._is_settled():
            self._next_at = time.monotonic() + self._on.scaled(_EVERY_S)
            if oldest := next(iter(self._working()), None):
                self._ended.add(oldest)
                self._on.scene.end(oldest)

    def started(self) -> int:
        """Return the number of gangs that started."""
        return sum(map(self._has_started, self._submitted))

    def running(self) -> int:
        """Return the number of gangs that work."""
        return len(self._working())

    def waiting(self) -> int:
        """Return the number of gangs that did not start."""
        return len(self._submitted) - self.started()

    def _is_settled(self) -> bool:
        """Return whether the last freed capacity is used again, or reserved for giant."""
        is_full = self.running() == _AT_ONCE
        return is_full or (self.gives_way and self._on.is_all_reserved_for("giant"))

    def _working(self) -> list[str]:
        return [
            name for name in self._submitted if self._has_started(name) and name not in self._ended
        ]

    def _has_started(self, name: str) -> bool:
        return self._on.placements.started_at(name, _SMALL) is not None

    def _submit(self) -> None:
        name = f"s{len(self._submitted) + 1}"
        self._submitted.append(name)
        self._on.scene.submit(job(name, "lab", _SMALL))


GIANT = Act(
    "giant",
    "a giant that does not starve",
    _giant,
)


# In alphabetical order, which decides between gangs of the same age.
_LAB = ("fold", "scan", "train", "tune")
_EACH = SLOTS // len(_LAB)
_DESERVED = SLOTS // 2


def _lending(on: ActRunner) -> None:
    for name in _LAB:
        on.scene.submit(job(name, "lab", _EACH))
        on.wait_for_start(name, _EACH)
        on.rest(0.2)
    on.say(
        "Queues lab and ops deserve half of the cluster each. Ops is asleep, so lab borrows its"
        f" half and runs {len(_LAB)} gangs."
    )
    on.scene.submit(job("report", "ops", _DESERVED))
    on.wait_for_start("report", _DESERVED)
    evicted = dict(on.scene.evicted)
    stayed = [name for name in _LAB if name not in evicted]
    on.claim(
        all(count == _EACH for count in evicted.values()) and sum(evicted.values()) == _DESERVED,
        f"{len(evicted)} whole gangs of lab were evicted, no pod more than ops deserves",
    )
    on.claim(
        all(on.placements.fewest(name, _EACH) == _EACH for name in stayed),
        "the other gangs of lab lost no pod",
    )
    on.say(
        f"Ops wakes up: report needs {_DESERVED} pods, what ops deserves."
        f" {_and(evicted).capitalize()} are evicted whole, {_and(stayed)} lose no pod, and report"
        " starts whole."
    )
    for name in evicted:
        on.wait_for_reason(name, "QueueOverDeserved", "InsufficientCapacity", "BehindInOrder")
    on.say(f"{_and(evicted).capitalize()} wait for capacity that no other queue deserves.")
    on.scene.end("report")
    for name in evicted:
        on.wait_for_start(name, _EACH)
    on.claim(
        on.scene.evicted.total() == _DESERVED,
        "the evicted gangs came back when ops slept again",
    )
    on.say(f"Report is done, ops sleeps again, and {_and(evicted)} are back.")


def _and(names: dict[str, int] | list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


LENDING = Act(
    "lending",
    "a queue reclaims what it lent",
    _lending,
)


ACTS = {each.name: each for each in (DEADLOCK, FAIR_SHARES, LENDING, GIANT)}
