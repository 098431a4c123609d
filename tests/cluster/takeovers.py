"""One side after the other loses the lead, again and again: how long, and at what price.

`python -m tests.nightly.cluster takeovers` plays rounds on its own control plane and prints a
table;
the tests play one round of each kind.
"""

from __future__ import annotations

import random
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests import objects

from .api import ApiError
from .arrivals import SIZE, Arrivals
from .rivals import Rivals, Side
from .waiting import wait_for

#: What must hold.
TORN_S = 5.0
LIMITS_S = {"SIGTERM": 3.0, "SIGKILL": 20.0, "SIGSTOP": 20.0, "cut off": 20.0}
KINDS = tuple(LIMITS_S)
#: How long we watch at most, to see by how much a promise was broken.
_PATIENCE_S = 90.0
_FROZEN_S = 30.0

_POOL = "gang-extender.test/takeovers"


@dataclass
class Round:
    """What one side's fall was like."""

    kind: str
    #: Until the other one answered that it leads, and until the next pod was seen on a node.
    takeover_s: float = 0.0
    start_s: float = 0.0
    #: Until the old leader, alive but cut off, knew that it leads no more.
    stopped_s: float | None = None
    torn_s: float = 0.0
    gangs: int = 0
    acts: int = 0
    #: Acts of whoever did not lead.
    strays: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """The promises that did not hold."""
        late = f"takeover took {self.takeover_s:.1f} s"
        torn = f"a gang stood in part for {self.torn_s:.1f} s"
        return [
            *([late] if self.takeover_s > LIMITS_S[self.kind] else []),
            *([torn] if self.torn_s > TORN_S else []),
            *(f"without leading: {stray}" for stray in self.strays),
        ]


def play(
    rivals: Rivals,
    kind: str,
    namespace: str,
    selector: dict[str, str],
    chance: random.Random | None = None,
) -> Round:
    """Play one round: gangs come all the time, and at a moment of *chance* the leader falls."""
    rivals.restore()
    rivals.leader()
    played = Round(kind)
    arrivals = Arrivals(rivals.plane, namespace, selector, rivals.scheduler_name)
    since = datetime.now(UTC)
    with arrivals:
        arrivals.observer.wait_for(2 * SIZE, _PATIENCE_S)
        # At any moment between two renewals, and in the life of a gang.
        threading.Event().wait((chance or random.Random()).uniform(0.0, 2.0))
        leader = rivals.leader()
        _FALLS[kind](rivals, leader, played, arrivals)
        arrivals.end(_PATIENCE_S)
        played.torn_s = arrivals.torn_s()
        played.gangs = len(arrivals.names)
    if rivals.is_labelled:
        successor = [rivals.other(leader).pod]
        wait_for(lambda: rivals.labelled() == successor, 20, "the leader alone is labelled")
    played.acts = rivals.referee.acts(since)
    played.strays = rivals.referee.strays(since)
    return played


def _kill(rivals: Rivals, leader: Side, played: Round, arrivals: Arrivals) -> None:
    fell_at = time.monotonic()
    leader.kill()
    _follow(rivals, leader, played, arrivals, fell_at)


def _end_in_order(rivals: Rivals, leader: Side, played: Round, arrivals: Arrivals) -> None:
    fell_at = time.monotonic()
    leader.tell(signal.SIGTERM)
    _follow(rivals, leader, played, arrivals, fell_at)
    wait_for(lambda: leader.has_ended, 30, "it has ended")
    leader.kill()


def _freeze(rivals: Rivals, leader: Side, played: Round, arrivals: Arrivals) -> None:
    fell_at = time.monotonic()
    leader.tell(signal.SIGSTOP)
    try:
        _follow(rivals, leader, played, arrivals, fell_at)
        wait_for(lambda: time.monotonic() > fell_at + _FROZEN_S, 60, "half a minute passes")
    finally:
        leader.tell(signal.SIGCONT)
    _see_it_stand_by(leader)
    # Long enough for whatever it still had in hand.
    arrivals.wait_for_a_start_after(time.monotonic() + 3, _PATIENCE_S)


def _cut_off(rivals: Rivals, leader: Side, played: Round, arrivals: Arrivals) -> None:
    fell_at = time.monotonic()
    leader.cable.cut()
    other = rivals.other(leader)
    try:
        wait_for(lambda: not leader.leads, _PATIENCE_S, "it leads no more")
        played.stopped_s = time.monotonic() - fell_at
        assert not other.leads, "the other leads before this one has stopped"
        _follow(rivals, leader, played, arrivals, fell_at)
    finally:
        leader.cable.mend()
    _see_it_stand_by(leader)
    arrivals.wait_for_a_start_after(time.monotonic() + 1, _PATIENCE_S)


_FALLS: dict[str, Callable[[Rivals, Side, Round, Arrivals], None]] = {
    "SIGKILL": _kill,
    "SIGTERM": _end_in_order,
    "SIGSTOP": _freeze,
    "cut off": _cut_off,
}


def _follow(
    rivals: Rivals, leader: Side, played: Round, arrivals: Arrivals, fell_at: float
) -> None:
    wait_for(lambda: rivals.other(leader).leads, _PATIENCE_S, "the other leads")
    leads_at = time.monotonic()
    played.takeover_s = leads_at - fell_at
    played.start_s = arrivals.wait_for_a_start_after(leads_at, _PATIENCE_S) - fell_at


def _see_it_stand_by(side: Side) -> None:
    """Wait until it says who leads instead; a kube-scheduler that lost its lease ends itself."""
    wait_for(lambda: side.extender.stands_by, _PATIENCE_S, "it stands by")
    if side.scheduler is not None:
        scheduler = side.scheduler
        wait_for(lambda: not scheduler.is_running, _PATIENCE_S, "its scheduler has ended")
        scheduler.kill()


@contextmanager
def pool(rivals: Rivals, node_count: int = 2) -> Iterator[dict[str, str]]:
    """Make nodes for the gangs of many rounds; gives the selector."""
    api, name = rivals.plane.api, rivals.scheduler_name
    names = [f"{name}-{index}" for index in range(node_count)]
    room = {"cpu": "1000", "memory": "1Ti", "pods": 1000}
    selector = {_POOL: name}
    api.create(*(objects.node(each, labels=selector, **room) for each in names))
    rivals.plane.wait_until_nodes_are_ready(names)
    yield selector
    api.delete_all("nodes", labels=f"{_POOL}={name}")


def rounds(rivals: Rivals, kinds: tuple[str, ...], count: int, seed: int) -> Iterator[Round]:
    """Play *count* rounds of each kind, the kinds in turn; *seed* draws when a leader falls."""
    chance = random.Random(seed)
    api = rivals.plane.api
    with pool(rivals) as selector:
        for number in range(count):
            for kind in kinds:
                words = kind.lower().replace(" ", "-")
                namespace = f"{rivals.scheduler_name}-{words}-{number}"
                api.create(objects.namespace(namespace))
                yield play(rivals, kind, namespace, selector, chance)
                for resource in (objects.POD_GROUPS, "pods"):
                    with suppress(ApiError):
                        api.delete_all(resource, namespace, grace_seconds=0)


def table(played: list[Round]) -> str:
    """The figures as Markdown, one row for each kind."""
    rows = [
        "| the leader | rounds | gangs | takeover min / median / max | next start, median / max |"
        " longest in part | acts judged | by a non-leader |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        these = [each for each in played if each.kind == kind]
        if these:
            took, start = [r.takeover_s for r in these], [r.start_s for r in these]
            rows.append(
                f"| {kind} | {len(these)} | {sum(r.gangs for r in these)}"
                f" | {min(took):.1f} / {statistics.median(took):.1f} / {max(took):.1f} s"
                f" | {statistics.median(start):.1f} / {max(start):.1f} s"
                f" | {max(r.torn_s for r in these):.2f} s | {sum(r.acts for r in these)}"
                f" | {sum(len(r.strays) for r in these)} |"
            )
    stopped = [each.stopped_s for each in played if each.stopped_s is not None]
    if stopped:
        rows += [
            "",
            f"Cut off, it stopped by itself after {min(stopped):.1f} to {max(stopped):.1f} s.",
        ]
    return "\n".join(rows)
