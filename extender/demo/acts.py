"""All acts, in the order in which they are told."""

from __future__ import annotations

import time
from collections.abc import Mapping
from fractions import Fraction

from extender.demo import objects
from extender.demo.cluster import SimCluster
from extender.demo.story import Act, ActRunner
from extender.demo.workloads import DemoJob
from extender.planner import policy_parser

NODES, CPUS, MEMORY_GI = 4, 9, 18
QUEUES = ("lab", "ops")
#: A third of a node; so many fit.
THIRD: Mapping[str, str] = {"cpu": "3", "memory": "2Gi"}
SLOTS = NODES * 3


def build_nodes(cluster: SimCluster) -> None:
    """Create nodes and queues."""
    for index in range(NODES):
        cluster.create(objects.node(f"node-{index}", CPUS, f"{MEMORY_GI}Gi"))
    for name in QUEUES:
        cluster.create(objects.queue(name))


def impatient(after_s: float) -> str:
    """Write the default policy, but room is kept for whoever loses its turn for *after_s*."""
    after_ms = max(1, round(after_s * 1000))
    return f"{policy_parser.DEFAULT_TEXT}starvation:\n  after: {after_ms}ms\n"


_NEED = 8
_HALF = SLOTS // 2


def _deadlock(on: ActRunner) -> None:
    red, blue = (
        DemoJob(name=name, queue="lab", size=_NEED, min_member=_NEED, requests=THIRD)
        for name in ("red", "blue")
    )
    on.say(
        f"Gangs red and blue need {_NEED} pods each, all at once; {SLOTS} fit. Placed pod by pod"
        f" each would get {_HALF}, and neither could ever begin."
    )
    on.workloads.submit(red, blue)
    on.wait_for_start("red", _NEED)
    waits = on.wait_for_reason("blue", "InsufficientCapacity")
    on.claim(on.placements.on_nodes("blue") == 0, "blue occupies no node while red runs")
    spread = on.placements.spread_ms("red", _NEED)
    on.say(
        f"Their pods came by turns. Red starts whole, its last pod {spread:.0f} ms after its first."
    )
    why = waits["message"].partition(";")[
        0
    ]  # what is free now, and for whom, changes by the moment
    on.say(f"Blue occupies nothing and says why: {waits['reason']}, {why}.")
    on.workloads.end("red")
    on.wait_for_start("blue", _NEED)
    on.claim(not on.placements.were_together("red", "blue"), "never did both hold room at once")
    on.claim(on.workloads.evicted.total() == 0, "nobody had to leave")
    spread = on.placements.spread_ms("blue", _NEED)
    on.say(f"Red is done and blue starts by itself, its last pod {spread:.0f} ms after its first.")


DEADLOCK = Act(
    "deadlock",
    "two gangs that would block each other",
    "each started whole, neither held room the other needed",
    _deadlock,
)


_ALL_CPUS, _ALL_GI = NODES * CPUS, NODES * MEMORY_GI
_CPUS, _GI = 3, 4


def _fair_shares(on: ActRunner) -> None:
    full = {"cpu": str(_CPUS), "memory": f"{MEMORY_GI // 3}Gi"}
    on.workloads.submit(
        DemoJob(name="night", queue="lab", size=SLOTS, min_member=SLOTS, requests=full)
    )
    on.wait_for_start("night", SLOTS)
    sums = DemoJob(
        name="sums",
        queue="lab",
        size=SLOTS,
        min_member=1,
        requests={"cpu": f"{_CPUS}", "memory": "1Gi"},
    )
    index = DemoJob(
        name="index",
        queue="lab",
        size=16,
        min_member=1,
        requests={"cpu": "1", "memory": f"{_GI}Gi"},
    )
    on.workloads.submit(sums)
    on.workloads.submit(index)
    for name in ("sums", "index"):
        on.wait_for_reason(name, "InsufficientCapacity", "NotYourTurn")
    on.say(
        f"Everything is taken by night. Sums wants {sums.size} pods of {_CPUS} cpus, index, behind"
        f" it, {index.size} of {_GI} GiB: whoever is first could take nearly all."
    )
    on.workloads.end("night")
    on.wait(lambda: _is_settled(on), "sums and index have shared the room")
    cpus, memory = _shares(on)
    # Pods are indivisible: nobody can be nearer than one pod.
    one_pod = max(Fraction(_CPUS, _ALL_CPUS), Fraction(_GI, _ALL_GI))
    on.claim(
        abs(cpus - memory) <= one_pod,
        f"sums holds {float(cpus):.0%} of the cpus, index {float(memory):.0%} of the memory",
    )
    on.say(
        "Night is done. By dominant resource fairness sums gets"
        f" {on.placements.on_nodes('sums')} pods, {float(cpus):.0%} of all cpus, and index"
        f" {on.placements.on_nodes('index')}, {float(memory):.0%} of all memory."
    )


def _shares(on: ActRunner) -> tuple[Fraction, Fraction]:
    return (
        Fraction(on.placements.on_nodes("sums") * _CPUS, _ALL_CPUS),
        Fraction(on.placements.on_nodes("index") * _GI, _ALL_GI),
    )


def _is_settled(on: ActRunner) -> bool:
    """Ask whether no further pod of sums fits anywhere, and the plan lets nobody else in."""
    used = on.placements.on_nodes("sums") * _CPUS + on.placements.on_nodes("index")
    return used > _ALL_CPUS - _CPUS


FAIR_SHARES = Act(
    "fair-shares",
    "one needs cpus, the other memory",
    "both hold alike of what they need most",
    _fair_shares,
)


_SMALL = 3
_AT_ONCE = SLOTS // _SMALL
_EVERY_S = 0.8
#: Seconds of the story for which giant loses its turn; in a real cluster ten minutes.
_PATIENCE_S = 3.0


def _giant(on: ActRunner) -> None:
    small = _Crowd(on)
    on.on_tick = small.go_on
    on.wait(lambda: small.running() == _AT_ONCE, "small gangs fill the cluster")
    on.say(f"Small gangs of {_SMALL} pods never stop coming: when one ends, the next one starts.")
    on.workloads.submit(
        DemoJob(name="giant", queue="lab", size=SLOTS, min_member=SLOTS, requests=THIRD)
    )
    on.wait_for_reason("giant", "InsufficientCapacity", "NotYourTurn")
    ahead, patient_until = small.started(), time.monotonic() + on.scaled(_PATIENCE_S)
    on.say(f"Giant needs all {SLOTS} places at once, and there is no moment when all are free.")
    on.wait(lambda: small.started() >= ahead + 2, "small gangs start before giant")
    on.claim(not on.placements.moments("giant"), "small gangs ran first, giant never held a place")
    on.wait(lambda: time.monotonic() >= patient_until, "giant has lost its turn for long")
    try:
        on.set_policy(impatient(on.scaled(_PATIENCE_S) / 2))
        small.gives_way = True
        on.wait(lambda: on.is_all_reserved_for("giant"), "room is kept for giant")
        late = small.started()
        on.wait_for_start("giant", SLOTS)
    finally:
        on.set_policy(policy_parser.DEFAULT_TEXT)
    on.claim(small.started() == late, "once room was kept for giant, nobody overtook it")
    on.claim(small.waiting() > 0, "giant started although small gangs were still waiting")
    on.claim(on.workloads.evicted.total() == 0, "nobody had to leave for giant")
    on.say(
        f"It lost its turn for {_PATIENCE_S:.0f} s, so what became free was kept for it (after ten"
        " minutes by default). It runs, and nobody was evicted."
    )
    on.workloads.end("giant")
    on.wait(lambda: small.started() > late, "small gangs run again")
    on.claim(on.placements.on_nodes("giant") == 0, "small gangs went on after giant")
    on.say("Giant is done, and the small ones go on.")


class _Crowd:
    """The small gangs: one waits at any time, and one ends now and then."""

    def __init__(self, on: ActRunner) -> None:
        self._on = on
        self._sent: list[str] = []
        self._ended: set[str] = set()
        self._next_at = 0.0
        #: Room may stay free that is kept for giant; before, only what the next one takes at once.
        self.gives_way = False

    def go_on(self) -> None:
        """Send another if nobody waits; end the oldest if it has worked and the next may start."""
        if self.waiting() == 0:
            self._send_one()
        elif time.monotonic() >= self._next_at and self._is_settled():
            self._next_at = time.monotonic() + self._on.scaled(_EVERY_S)
            if oldest := next(iter(self._working()), None):
                self._ended.add(oldest)
                self._on.workloads.end(oldest)

    def started(self) -> int:
        """Count those that have begun."""
        return sum(map(self._has_started, self._sent))

    def running(self) -> int:
        """Count those that work."""
        return len(self._working())

    def waiting(self) -> int:
        """Count those that have not begun."""
        return len(self._sent) - self.started()

    def _is_settled(self) -> bool:
        """Ask whether the room of who ended last was taken, or is kept for giant."""
        is_full = self.running() == _AT_ONCE
        return is_full or (self.gives_way and self._on.is_all_reserved_for("giant"))

    def _working(self) -> list[str]:
        return [name for name in self._sent if self._has_started(name) and name not in self._ended]

    def _has_started(self, name: str) -> bool:
        return self._on.placements.started_at(name, _SMALL) is not None

    def _send_one(self) -> None:
        name = f"s{len(self._sent) + 1}"
        self._sent.append(name)
        self._on.workloads.submit(
            DemoJob(name=name, queue="lab", size=_SMALL, min_member=_SMALL, requests=THIRD)
        )


GIANT = Act(
    "giant",
    "a giant that does not starve",
    "it ran although small gangs never stopped coming",
    _giant,
)


# In the order of the alphabet: of two that are equally old it decides who stays.
_LAB = ("fold", "scan", "train", "tune")
_EACH = SLOTS // len(_LAB)
_DUE = SLOTS // 2


def _lending(on: ActRunner) -> None:
    for name in _LAB:
        on.workloads.submit(
            DemoJob(name=name, queue="lab", size=_EACH, min_member=_EACH, requests=THIRD)
        )
        on.wait_for_start(name, _EACH)
        on.rest(0.2)
    on.say(
        "Queues lab and ops are due half of the cluster each. Ops sleeps, so lab runs"
        f" {len(_LAB)} gangs on all of it."
    )
    on.workloads.submit(
        DemoJob(name="report", queue="ops", size=_DUE, min_member=_DUE, requests=THIRD)
    )
    on.wait_for_start("report", _DUE)
    left = {name: on.workloads.evicted[name] for name in _LAB if on.workloads.evicted[name]}
    stayed = [name for name in _LAB if name not in left]
    on.claim(
        all(count == _EACH for count in left.values()) and sum(left.values()) == _DUE,
        f"{len(left)} whole gangs of lab left, no pod more than ops was due",
    )
    on.claim(
        all(on.placements.fewest(name, 0.0, _EACH) == _EACH for name in stayed),
        "the others of lab never lost a pod",
    )
    on.say(
        f"Ops wakes: report needs {_DUE} pods, its due. {_and(left).capitalize()} leave whole,"
        f" {_and(stayed)} never lose a pod, report starts whole."
    )
    for name in left:
        on.wait_for_reason(name, "QueueOverDeserved", "InsufficientCapacity", "NotYourTurn")
    on.say(f"{_and(left).capitalize()} wait for room that nobody else is due.")
    on.workloads.end("report")
    for name in left:
        on.wait_for_start(name, _EACH)
    on.claim(on.workloads.evicted.total() == _DUE, "whoever left came back when ops slept again")
    on.say(f"Report is done, ops sleeps again, and {_and(left)} are back.")


def _and(names: dict[str, int] | list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


LENDING = Act(
    "lending",
    "a queue takes back what it lent",
    "whole gangs left, as few as it took, and came back",
    _lending,
)


ACTS = {each.name: each for each in (DEADLOCK, FAIR_SHARES, LENDING, GIANT)}
