"""Random faults of all kinds on a real control plane, checked by an independent observer.

`python -m tests.nightly.cluster chaos` runs a script drawn from a seed (`chaos_script.py`) on its
own control plane, with two extenders and a lease. Every few minutes all faults pause, so that later
faults do not hide gangs that wait for ever, or leaks. In the end it ends all faults, waits until
nothing changes, and lets `tests/nightly/faults/verdict.py` check the record. The tests run half a
minute.
"""

from __future__ import annotations

import math
import os
import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from compileall import compile_dir
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from traceback import format_exception

from tests.cluster.api import Object
from tests.cluster.candidates import Candidates, behind_a_service
from tests.cluster.components import http_json
from tests.cluster.control_plane import API_SERVER, SCHEDULER, ControlPlane
from tests.cluster.extender_process import REPOSITORY
from tests.cluster.replicas import Service
from tests.cluster.steal_time import DISTURBED, StealMonitor
from tests.cluster.waiting import wait_for
from tests.nightly.faults.breaches import Bounds
from tests.nightly.faults.cluster_state import World, added
from tests.nightly.faults.excluded_spans import Spans
from tests.nightly.faults.observer import Observer
from tests.nightly.faults.proxy import Proxy, ProxyLoop
from tests.nightly.faults.record import RESTED, Change, Line, Promised, Record
from tests.nightly.faults.recorders import HookRecorder, name_hook
from tests.nightly.faults.stepped_clock import PLANTED
from tests.nightly.faults.verdict import Verdict, judge
from tests.nightly.faults.waits import waiting
from tests.nightly.faults.watch_decoder import amounts

from .chaos_administrators import Administrators
from .chaos_lane import LaneRunner
from .chaos_machines import Machines, SteppedReplica
from .chaos_script import LANES, NAMESPACES, NODES, Turn, rounds
from .chaos_tenants import Gang, Tenants

PROGRAMS = ("etcd", API_SERVER, "kwok", "kubectl", SCHEDULER)
#: A killed extender must be ready again within this time, at this cluster size.
READY_S = 5.0
#: The timeout of the end, and how long nothing may change before it.
_END_S = 180.0
_QUIET_S = 5.0
#: The time between two pauses.
_ROUND_S = 240.0
_BOUNDS = Bounds(patience_s=30.0)
#: Lines of the record: all faults ended for a pause, or changes did not end.
_REST = "rest"
_NO_REST = "changes never ended"
_NO_END = "changes never ended in the end"
_NO_REPORT = "{} reported no reservations in a pause"
#: Turns up to so long before a breach are printed with it.
_BEFORE_S = 10.0
LANE_NAMES = tuple(lane.name for lane in LANES)
_LAST = Gang(NAMESPACES[0], "last", 3, 3, 1, "default", "", 3600.0)
_LAST_KEY = f"{_LAST.namespace}/{_LAST.name}"


@dataclass
class Run:
    """The results of one run."""

    seed: int
    seconds: float
    record: Record
    verdict: Verdict
    played: list[Turn] = field(default_factory=list)
    takeovers_s: list[float] = field(default_factory=list)
    #: The share of all processors that the host took between two moments.
    stolen: Callable[[float, float], float] = lambda since, until: 0.0
    #: Failures besides the verdict.
    complaints: list[str] = field(default_factory=list)
    #: The disabled check of the extender, if any.
    planted: str = field(default_factory=lambda: os.environ.get(PLANTED, ""))
    lanes: Collection[str] = LANE_NAMES
    #: Turns of `played` that failed.
    failed: list[Turn] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """Return failures that do not depend on the machine."""
        return [*map(str, self.verdict.breaches), *self.complaints]

    @property
    def late(self) -> list[str]:
        """Return failures that a busy machine may cause."""
        late = [
            f"{pod} was ready again after {took_s:.1f} s{self.host(at, at + took_s)}"
            for pod, at, took_s in self.verdict.returns
            if took_s > READY_S
        ]
        return [*late, *([_NO_END] if _lines(self.record, _NO_END) else [])]

    def host(self, since: float, until: float) -> str:
        """Return a phrase about what the host took, if it is much."""
        taken = self.stolen(since, until)
        return f", while the host took {taken:.0%} of the processors" if taken > DISTURBED else ""


@dataclass(frozen=True, slots=True)
class ProxyUrl:
    """The URL of the proxy that kube-scheduler calls."""

    url: str


@contextmanager
def recorded_hooks(service: Service, record: Record) -> Iterator[ProxyUrl]:
    """Run a proxy before the Service that records every hook call and its result."""
    with ProxyLoop() as board:
        # It does not know which replica answered: the leader of that moment.
        witness = HookRecorder(record, who="")
        proxy = Proxy(name_hook, lambda: service.choose() or 1, witness=witness)
        board.run(proxy.listen())
        yield ProxyUrl(f"http://127.0.0.1:{proxy.port}")
        board.run(proxy.close())


@contextmanager
def cluster(folder: Path, record: Record) -> Iterator[Candidates]:
    """Run a control plane with nodes and two extenders whose clocks can be set."""
    # As in the image: a restarted extender does not compile its modules.
    compile_dir(REPOSITORY / "extender", quiet=1)
    with ControlPlane(folder) as plane:
        plane.install()
        Administrators(plane.api, plane.etcd, lambda *_: None).set_up(NAMESPACES)
        plane.wait_until_nodes_are_ready(list(NODES), 60)
        before = partial(recorded_hooks, record=record)
        with behind_a_service(plane, kind=SteppedReplica, before=before) as candidates:
            yield candidates


def run_script(
    candidates: Candidates,
    record: Record,
    seed: int,
    seconds: float,
    wanted: Collection[str] = LANE_NAMES,
    each_s: float = _ROUND_S,
) -> Run:
    """Run the script of *seed* in the *wanted* lanes, end all faults, and check the record."""
    since = datetime.now(UTC)
    plane = candidates.plane
    candidates.leader()
    with StealMonitor() as machine, Observer(plane.api, record, candidates.scheduler_name):
        tenants, administrators, machines = (LaneRunner(lane.name, record) for lane in LANES)
        lanes = (tenants, administrators, machines)
        actors = (
            Tenants(plane.api, candidates.scheduler_name, tenants.later),
            Administrators(plane.api, plane.etcd, administrators.later),
            Machines(candidates, record),
        )
        scripts = (lane.script(seed, seconds) if lane.name in wanted else [] for lane in LANES)
        parts = zip(*(rounds(script, seconds, each_s) for script in scripts), strict=True)
        complaints: list[str] = []
        for number, part in enumerate(parts):
            if number:
                complaints += pause(candidates, record, *actors[1:])
            left_s = min(each_s, seconds - number * each_s)
            for turns, playing, actor in zip(part, lanes, actors, strict=True):
                playing.start(turns, actor.acts, left_s)
            for playing in lanes:
                playing.join()
            if any(playing.error for playing in lanes):
                break
        record.line("calm")
        complaints += _end(candidates, record, *actors)
    # The record is checked even if a lane failed.
    complaints += [
        f"the turns of {playing.name} ended: {''.join(format_exception(playing.error))}"
        for playing in lanes
        if playing.error is not None
    ]
    writes = [f"without leading: {write}" for write in candidates.audit.writes_without_lease(since)]
    return Run(
        seed,
        seconds,
        record,
        judge(record, _BOUNDS),
        [turn for playing in lanes for turn in playing.played],
        actors[2].takeovers_s,
        machine.stolen_share,
        [*actors[2].complaints, *complaints, *writes, *ended_by_itself(plane)],
        lanes=wanted,
        failed=[turn for playing in lanes for turn in playing.failed],
    )


def pause(
    candidates: Candidates, record: Record, administrators: Administrators, machines: Machines
) -> Iterator[str]:
    """End all faults, wait until nothing changes, and yield what cannot be checked."""
    record.line(_REST)
    machines.restore()
    wait_for(administrators.restore, 60, "nodes and queues are as they were")
    if not _wait_until_quiet(record):
        record.line(_NO_REST)
        return
    leader = candidates.leader()
    if _record_reservations(leader.pod, leader.extender.ops_url, record):
        record.line(RESTED)
    else:
        yield _NO_REPORT.format(leader.pod)


def _end(
    candidates: Candidates,
    record: Record,
    tenants: Tenants,
    administrators: Administrators,
    machines: Machines,
) -> Iterator[str]:
    """End all faults, and yield what is wrong then."""
    machines.restore()
    wait_for(administrators.restore, 60, "nodes and queues are as they were")
    tenants.start_last(_LAST)
    try:
        wait_for(lambda: _status_of(record, _LAST_KEY) == _LAST.size, 60, "the last gang starts")
    except AssertionError as why:
        yield str(why)
    leader = candidates.leader()
    try:
        wait_for(lambda: leader.extender.waiting_binds == 0, 60, "no bind waits", every_s=0.5)
    except AssertionError as why:
        yield str(why)
    if not _wait_until_quiet(record):
        record.line(_NO_END)
    if not _record_reservations(leader.pod, leader.extender.ops_url, record):
        yield _NO_REPORT.format(leader.pod)
    record.line("over")


def _wait_until_quiet(record: Record) -> bool:
    """Wait until no pod will start or end, and for a while after that.

    The extender's figures can be compared with the cluster only while nothing changes. Returns
    whether changes ended.
    """

    def is_quiet() -> bool:
        latest = max((change.at for change in record.of(Change)), default=0.0)
        idle_s = record.now() - latest
        return idle_s > (_BOUNDS.patience_s if _is_moving(_world(record)) else _QUIET_S)

    try:
        wait_for(is_quiet, _END_S, "all is quiet", every_s=1.0)
    except AssertionError:
        return False
    return True


def _is_moving(world: World) -> bool:
    runs = any(pod.stands and pod.made.gang != _LAST_KEY for pod in world.pods.values())
    return runs or bool(waiting(world))


def _record_reservations(pod: str, ops_url: str, record: Record) -> bool:
    """Record the usage that the extender reports, when it agrees with the cluster or time is up.

    Returns whether it reported anything; otherwise the verdict has nothing to check.
    """
    reported = False

    def agrees() -> bool:
        nonlocal reported
        listed = http_json("GET", f"{ops_url}/api/v1/snapshot")
        if listed is None:
            return False
        taken = taken_by_node(listed["items"])
        record.note(Promised(at=record.now(), who=pod, taken=taken))
        reported = True
        world = _world(record)
        return all(_cpu(taken.get(node, {})) == _cpu(world.taken_on(node)) for node in NODES)

    with suppress(AssertionError):
        wait_for(agrees, 30, "reserved and used capacity agree", every_s=1.0)
    return reported


def taken_by_node(items: list[Object]) -> dict[str, dict[str, int]]:
    """Return the requests of the pods of a snapshot by node."""
    taken: dict[str, dict[str, int]] = {}
    for pod in items:
        node = pod["spec"].get("nodeName") if pod["kind"] == "Pod" else None
        if node and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            requests = [
                amounts(each["resources"]["requests"]) for each in pod["spec"]["containers"]
            ]
            taken[node] = added([taken.get(node, {}), *requests])
    return taken


def _cpu(taken: dict[str, int]) -> int:
    return taken.get("cpu", 0)


def _world(record: Record) -> World:
    world = World()
    for change in record.changes():
        world.take(change)
    return world


def _status_of(record: Record, gang: str) -> int:
    return sum(pod.stands for pod in _world(record).gangs[gang])


def ended_by_itself(plane: ControlPlane) -> Iterator[str]:
    """Yield tracebacks and worker restarts of extenders, which no turn causes."""
    for program in plane.programs:
        if isinstance(program, SteppedReplica):
            found = re.findall(r"^.*Traceback \(most recent.*$", program.log(), re.M)
            yield from (f"{program.name} wrote: {line[:300]}" for line in found)
            if program.worker_restarts:
                yield f"{program.name} lost its worker {program.worker_restarts} times"


def summary(run: Run) -> str:
    """Return a report of the run."""
    verdict, record = run.verdict, run.record
    kinds = Counter(turn.kind for turn in run.played)
    kinds.subtract(turn.kind for turn in run.failed)
    again = [each.took_s for each in verdict.returns]
    lines = [
        f"seed {run.seed}, {run.seconds:g} s: {_turns(run)}; {verdict.figures()}",
        "done: " + ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
        f"{_lines(record, RESTED)} of {_lines(record, _REST)} rests before the end judged",
        f"the API server was away for {Spans.of(record).total_s:.1f} s",
        f"for gangs in part {_excused(record)} did not count",
        f"the host took {run.stolen(-math.inf, math.inf):.0%} of the processors",
        f"ready again after SIGKILL: {_times(again)}",
        f"another leads after the leader's fall: {_times(run.takeovers_s)}",
        "",
        verdict.table(),
    ]
    for breach in verdict.breaches:
        host = run.host(breach.at - _BEFORE_S, breach.at)
        lines += ["", f"before {breach}{host}:", *_turns_before(record, breach.at)]
    broken = [*run.broken, *run.late]
    lines += ["", *(broken or ["all rules held"])]
    if broken:
        lines.append(
            f"again: python -m tests.nightly.cluster chaos"
            f" --seconds {run.seconds:g} --seed {run.seed}"
            + (f" --planted {run.planted}" if run.planted else "")
            + (f" --lanes {' '.join(run.lanes)}" if len(run.lanes) < len(LANES) else "")
        )
    return "\n".join(lines)


def _turns(run: Run) -> str:
    undone = f", {len(run.failed)} of them could not be done" if run.failed else ""
    return f"{len(run.played)} turns{undone}"


def _lines(record: Record, text: str) -> int:
    return sum(line.text == text for line in record.of(Line))


def _excused(record: Record) -> str:
    """Return how much of the run does not count for partial gangs."""
    carried = Spans.of(record, _BOUNDS.carrying, _BOUNDS.settle_s)
    lasted_s = record.ended_at - record.began_at
    counted_s = carried.counted_s(record.began_at, record.ended_at)
    return f"{lasted_s - counted_s:.1f} s of {lasted_s:.1f} s"


def _times(seconds: list[float]) -> str:
    if not seconds:
        return "not seen"
    middle = statistics.median(seconds)
    return f"{len(seconds)} times, median {middle:.1f} s, longest {max(seconds):.1f} s"


def _turns_before(record: Record, at: float) -> list[str]:
    return [
        f"  {line.at - at:+6.1f} s {line.text}"
        for line in record.of(Line)
        if -_BEFORE_S <= line.at - at <= 1.0
    ]
