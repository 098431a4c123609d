"""Measures takeovers: the leader fails in several ways, while gangs are created all the time.

`python -m tests.nightly.cluster takeovers` runs many rounds on its own control plane and prints a
table; the cluster tests run one round of each kind.
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
from .candidates import Candidate, Candidates
from .gang_stream import SIZE, GangStream
from .waiting import wait_for

#: The guarantees.
PARTIAL_S = 5.0
LIMITS_S = {"SIGTERM": 3.0, "SIGKILL": 20.0, "SIGSTOP": 20.0, "cut off": 20.0}
KINDS = tuple(LIMITS_S)
#: The timeout of each wait, long enough to measure by how much a guarantee was missed.
_TIMEOUT_S = 90.0
_FROZEN_S = 30.0

_POOL = "gang-extender.test/takeovers"


@dataclass
class Round:
    """The measurements of one takeover."""

    kind: str
    #: Seconds until the other leads, and until the next pod is bound.
    takeover_s: float = 0.0
    start_s: float = 0.0
    #: Seconds until the old leader, disconnected but running, stops leading.
    stopped_s: float | None = None
    partial_s: float = 0.0
    gangs: int = 0
    writes: int = 0
    #: Writes by a replica that did not lead.
    writes_without_lease: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """Return the guarantees that did not hold."""
        late = f"takeover took {self.takeover_s:.1f} s"
        partial = f"a gang was bound in part for {self.partial_s:.1f} s"
        return [
            *([late] if self.takeover_s > LIMITS_S[self.kind] else []),
            *([partial] if self.partial_s > PARTIAL_S else []),
            *(f"without leading: {stray}" for stray in self.writes_without_lease),
        ]


def run_round(
    candidates: Candidates,
    kind: str,
    namespace: str,
    selector: dict[str, str],
    fails_after_s: float = 0.0,
) -> Round:
    """Run one round: gangs are created all the time, and the leader fails *fails_after_s* later."""
    candidates.start_all()
    candidates.leader()
    played = Round(kind)
    arrivals = GangStream(candidates.plane, namespace, selector, candidates.scheduler_name)
    since = datetime.now(UTC)
    with arrivals:
        arrivals.observer.wait_for(2 * SIZE, _TIMEOUT_S)
        threading.Event().wait(fails_after_s)
        leader = candidates.leader()
        _FAILURES[kind](candidates, leader, played, arrivals)
        arrivals.end(_TIMEOUT_S)
        played.partial_s = arrivals.partial_s()
        played.gangs = len(arrivals.names)
    if candidates.is_labelled:
        successor = [candidates.other(leader).pod]
        wait_for(lambda: candidates.labelled() == successor, 20, "the leader alone is labelled")
    played.writes = candidates.audit.count_writes(since)
    played.writes_without_lease = candidates.audit.writes_without_lease(since)
    return played


def _kill(candidates: Candidates, leader: Candidate, played: Round, arrivals: GangStream) -> None:
    failed_at = time.monotonic()
    leader.kill()
    _measure_takeover(candidates, leader, played, arrivals, failed_at)


def _terminate(
    candidates: Candidates, leader: Candidate, played: Round, arrivals: GangStream
) -> None:
    failed_at = time.monotonic()
    leader.send_signal(signal.SIGTERM)
    _measure_takeover(candidates, leader, played, arrivals, failed_at)
    wait_for(lambda: leader.has_ended, 30, "it has ended")
    leader.kill()


def _freeze(candidates: Candidates, leader: Candidate, played: Round, arrivals: GangStream) -> None:
    failed_at = time.monotonic()
    leader.send_signal(signal.SIGSTOP)
    try:
        _measure_takeover(candidates, leader, played, arrivals, failed_at)
        wait_for(lambda: time.monotonic() > failed_at + _FROZEN_S, 60, "half a minute has passed")
    finally:
        leader.send_signal(signal.SIGCONT)
    _wait_until_standby(leader)
    # Long enough for requests that it had begun.
    arrivals.wait_for_a_start_after(time.monotonic() + 3, _TIMEOUT_S)


def _cut_off(
    candidates: Candidates, leader: Candidate, played: Round, arrivals: GangStream
) -> None:
    failed_at = time.monotonic()
    leader.link.cut()
    other = candidates.other(leader)
    try:
        wait_for(lambda: not leader.leads, _TIMEOUT_S, "it leads no more")
        played.stopped_s = time.monotonic() - failed_at
        assert not other.leads, "the other leads before this one has stopped"
        _measure_takeover(candidates, leader, played, arrivals, failed_at)
    finally:
        leader.link.restore()
    _wait_until_standby(leader)
    arrivals.wait_for_a_start_after(time.monotonic() + 1, _TIMEOUT_S)


_FAILURES: dict[str, Callable[[Candidates, Candidate, Round, GangStream], None]] = {
    "SIGKILL": _kill,
    "SIGTERM": _terminate,
    "SIGSTOP": _freeze,
    "cut off": _cut_off,
}


def _measure_takeover(
    candidates: Candidates, leader: Candidate, played: Round, arrivals: GangStream, failed_at: float
) -> None:
    wait_for(lambda: candidates.other(leader).leads, _TIMEOUT_S, "the other leads")
    leads_at = time.monotonic()
    played.takeover_s = leads_at - failed_at
    played.start_s = arrivals.wait_for_a_start_after(leads_at, _TIMEOUT_S) - failed_at


def _wait_until_standby(candidate: Candidate) -> None:
    """Wait until it reports standby; a kube-scheduler that lost its lease ends itself."""
    wait_for(lambda: candidate.extender.is_standby, _TIMEOUT_S, "it stands by")
    if candidate.scheduler is not None:
        scheduler = candidate.scheduler
        wait_for(lambda: not scheduler.is_running, _TIMEOUT_S, "its scheduler has ended")
        scheduler.kill()


@contextmanager
def pool(candidates: Candidates, node_count: int = 2) -> Iterator[dict[str, str]]:
    """Create nodes for the gangs of many rounds; yield their selector."""
    api, name = candidates.plane.api, candidates.scheduler_name
    names = [f"{name}-{index}" for index in range(node_count)]
    capacity = {"cpu": "1000", "memory": "1Ti", "pods": 1000}
    selector = {_POOL: name}
    api.create(*(objects.node(each, labels=selector, **capacity) for each in names))
    candidates.plane.wait_until_nodes_are_ready(names)
    yield selector
    api.delete_all("nodes", labels=f"{_POOL}={name}")


def rounds(
    candidates: Candidates, kinds: tuple[str, ...], count: int, seed: int
) -> Iterator[Round]:
    """Run *count* rounds of each kind, in turn; *seed* determines when each leader fails."""
    api = candidates.plane.api
    with pool(candidates) as selector:
        for number in range(count):
            for kind in kinds:
                words = kind.lower().replace(" ", "-")
                namespace = f"{candidates.scheduler_name}-{words}-{number}"
                api.create(objects.namespace(namespace))
                # At any moment between two renewals of the lease, and between two binds of a gang.
                # Each round has its own draw: other rounds, and --kinds, do not change it.
                fails_after_s = random.Random(f"{seed} {kind} {number}").uniform(0.0, 2.0)
                yield run_round(candidates, kind, namespace, selector, fails_after_s)
                for resource in (objects.POD_GROUPS, "pods"):
                    with suppress(ApiError):
                        api.delete_all(resource, namespace, grace_seconds=0)


def table(played: list[Round]) -> str:
    """Return the figures as a Markdown table, one row for each kind."""
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
                f" | {max(r.partial_s for r in these):.2f} s | {sum(r.writes for r in these)}"
                f" | {sum(len(r.writes_without_lease) for r in these)} |"
            )
    stopped = [each.stopped_s for each in played if each.stopped_s is not None]
    if stopped:
        rows += [
            "",
            f"Cut off, it stopped by itself after {min(stopped):.1f} to {max(stopped):.1f} s.",
        ]
    return "\n".join(rows)
