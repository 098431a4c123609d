"""Runs the points: each is one fault at one call of one scene, checked by the record."""

from __future__ import annotations

import math
import queue
import random
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count, zip_longest
from pathlib import Path

import urllib3

from tests.cluster.api import ApiError
from tests.cluster.steal_time import steal_time
from tests.nightly.faults import partial_gangs
from tests.nightly.faults.breaches import Bounds
from tests.nightly.faults.fault_points import KILLS, Fault, FaultPoint, Script, faults_of
from tests.nightly.faults.planted import SHORT_SILENCE
from tests.nightly.faults.proxy import ProxyLoop
from tests.nightly.faults.record import Asked, CutOff, Record
from tests.nightly.faults.verdict import Verdict, judge

from .lane import BIND_TIMEOUT_S, Lane
from .scene_run import TIMEOUT_S, SceneRun, WrongEnd
from .scenes import Scene
from .time_breaches import GIVEN_UP, NO_END, NOT_JUDGED, SLOW, TRACEBACK, WRONG_END, are_all_of_time

#: Every call must be answered within kube-scheduler's timeout of a bind.
BOUNDS = Bounds(answer_s=BIND_TIMEOUT_S + 1.0, told_s={**Bounds().told_s, "bind": BIND_TIMEOUT_S})
#: Later occurrences of the same call in a scene are left out.
_MOST_OCCURRENCES = 12
#: The timeout with a planted fault, which shows soon.
PLANTED_TIMEOUT_S = 25.0
#: Share of all processors: if the host takes more, breaches of time limits are repeated, so often.
TOO_MUCH = 0.25
_REPEATS = 2
_NO_ENDS = (AssertionError, ApiError, urllib3.exceptions.HTTPError, OSError)
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Try:
    """One point of one scene; without a point, the scene without a fault."""

    scene: Scene
    point: FaultPoint | None = None
    #: The planted fault of the extender.
    plant: str = ""

    @property
    def is_only_killed(self) -> bool:
        """Return whether the fault is a kill, or none."""
        return self.point is None or self.point.fault in KILLS

    def __str__(self) -> str:
        without = f" ({self.plant})" if self.plant else ""
        return f"{self.scene.name}: {self.point or 'no fault'}{without}"


@dataclass(slots=True)
class Outcome:
    """The result of a try."""

    tried: Try
    #: Whether the call of the point was reached.
    was_met: bool
    took_s: float
    breaches: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    partial_s: float = 0.0
    ready_again_s: list[float] = field(default_factory=list)
    #: The share of all processors that the host took.
    taken: float = 0.0
    #: Breaches of earlier runs, while the host took too much.
    disturbed: list[str] = field(default_factory=list)


def run_undisturbed(lane: Lane, tried: Try, keep: Path | None = None) -> Outcome:
    """Run one scene, and repeat it if it was too slow while the host took the processors."""
    disturbed: list[str] = []
    while True:
        outcome = run_scene(lane, tried, keep)
        is_excused = outcome.taken > TOO_MUCH and are_all_of_time(outcome.breaches)
        if not outcome.breaches or not is_excused or len(disturbed) == _REPEATS:
            outcome.disturbed = disturbed
            return outcome
        disturbed.append(f"the host took {outcome.taken:.0%}: {'; '.join(outcome.breaches)}")


def run_scene(lane: Lane, tried: Try, keep: Path | None = None) -> Outcome:
    """Run one scene with its fault, and check the record; *keep* is for records of breaches."""
    is_silent = tried.point is not None and tried.point.fault is Fault.SILENT
    lane.use_plant(SHORT_SILENCE if is_silent else tried.plant)
    began, stolen = time.monotonic(), steal_time()
    lane.start_point(str(tried))
    log_size = lane.log_size()
    script = Script([tried.point] if tried.point else [])
    lane.arm(script)
    words: list[str] = []
    try:
        timeout_s = PLANTED_TIMEOUT_S if tried.plant else TIMEOUT_S
        tried.scene.play(SceneRun(lane, f"p{next(_numbers)}", script, timeout_s))
        lane.clean()
        lane.wait_until_quiet()
    except _NO_ENDS as why:
        words.append(f"{WRONG_END if isinstance(why, WrongEnd) else NO_END}: {why}")
        if tried.plant:
            # A leak shows although the scene has no end.
            with suppress(*_NO_ENDS):
                lane.clean()
                lane.wait_until_quiet()
    lane.disarm()
    record = lane.record.since_restart()
    verdict = judge(record, BOUNDS)
    if not words:
        words += not_judged(verdict)
    words += given_up(record)
    if tried.is_only_killed:
        words += slow(verdict)
    words += [f"{TRACEBACK}: {line[:300]}" for line in lane.tracebacks(log_size)]
    words += [
        str(each)
        for each in verdict.breaches
        if not (tried.scene.may_be_partial and each.rule == partial_gangs.RULE)
    ]
    outcome = Outcome(
        tried,
        not tried.point or tried.point in script.reached,
        time.monotonic() - began,
        words,
        script.counts(),
        verdict.longest_partial_s,
        [each.took_s for each in verdict.returns],
        _share(stolen, steal_time()),
    )
    if words:
        if keep is not None:
            record.save(keep / f"{re.sub(r'[^a-z0-9]+', '-', str(tried))}.jsonl")
        lane.reset()
    return outcome


def _share(before: tuple[int, int], after: tuple[int, int]) -> float:
    return (after[0] - before[0]) / max(1, after[1] - before[1])


def not_judged(verdict: Verdict) -> list[str]:
    """Return the rules that had nothing to check, which no scene should have."""
    return [f"{NOT_JUDGED}: {rule}" for rule in sorted(verdict.unjudged)]


def slow(verdict: Verdict) -> list[str]:
    """Return the kills after which the extender was not ready soon enough."""
    return [
        f"{SLOW}: {each.who} after {each.took_s:.1f} s"
        for each in verdict.returns
        if each.took_s > BOUNDS.ready_s
    ]


def given_up(record: Record) -> list[str]:
    """Return the binds that timed out in kube-scheduler: the extender must answer before."""
    asked = {each.call: each for each in record.of(Asked) if each.hook == "bind"}
    return [
        f"{GIVEN_UP}: {asked[end.call].uid} after {waited_s:.1f} s"
        for end in record.of(CutOff)
        if end.by_caller
        and end.call in asked
        and (waited_s := end.at - asked[end.call].at) > BIND_TIMEOUT_S - 0.5
    ]


def points_of(probed: Iterable[Outcome]) -> list[Try]:
    """Return every fault at every call of the scenes' runs without faults."""
    return [
        Try(outcome.tried.scene, FaultPoint(site, occurrence, fault))
        for outcome in probed
        for site, calls in sorted(outcome.calls.items())
        if site not in ("health-probe", "hook-other")
        for occurrence in range(1, min(calls, _MOST_OCCURRENCES) + 1)
        for fault in faults_of(site)
    ]


def choose(
    found: Sequence[Try],
    *,
    sites: Sequence[str] = (),
    faults: Sequence[str] = (),
    limit: int = 0,
    seed: int = 0,
) -> list[Try]:
    """Choose *limit* of them at random, evenly over the kinds of points.

    Each point has its own draw, so that a seed chooses the same ones in any order of *found*, and
    nearly the same if a scene has a call more or less.
    """

    def draw(what: object) -> float:
        return random.Random(f"{seed} {what}").random()

    kinds: dict[tuple[str, Fault], list[Try]] = defaultdict(list)
    for each in found:
        assert each.point is not None
        if _is_named(each.point.site, sites) and _is_named(each.point.fault, faults):
            kinds[each.point.site, each.point.fault].append(each)
    columns = [sorted(kinds[kind], key=draw) for kind in sorted(kinds, key=draw)]
    evenly = [each for row in zip_longest(*columns) for each in row if each is not None]
    chosen = sorted(evenly[: limit or len(evenly)], key=draw)
    # Points that need an extender with other timeouts come last: it is restarted only once.
    return sorted(chosen, key=lambda each: bool(each.point and each.point.fault is Fault.SILENT))


def _is_named(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or any(each in name for each in wanted)


OnOutcome = Callable[[Outcome, int, int], None]


class Lanes:
    """Several lanes in parallel, for a `with` block."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number
        self._running = ExitStack()
        self.lanes: list[Lane] = []

    def __enter__(self) -> Lanes:
        try:
            board = self._running.enter_context(ProxyLoop())
            made = [Lane(self._folder / f"lane-{index}", board) for index in range(self._number)]
            with ThreadPoolExecutor(self._number) as starting:
                begun = [starting.submit(lane.__enter__) for lane in made]
            for each in begun:
                if each.exception() is None:
                    self._running.push(each.result().__exit__)
            self.lanes = [each.result() for each in begun]
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._running.close()

    def run(
        self,
        tries: Sequence[Try],
        on_outcome: OnOutcome,
        *,
        keep: Path | None = None,
        until: float = math.inf,
    ) -> list[Outcome]:
        """Run the tries that can start before *until* on free lanes; call *on_outcome* for each."""
        waiting: queue.SimpleQueue[Try] = queue.SimpleQueue()
        for each in tries:
            waiting.put(each)
        done: list[Outcome] = []
        lock = threading.Lock()

        def work(lane: Lane) -> None:
            while time.monotonic() < until:
                try:
                    tried = waiting.get_nowait()
                except queue.Empty:
                    return
                outcome = run_undisturbed(lane, tried, keep)
                with lock:
                    done.append(outcome)
                    on_outcome(outcome, len(done), len(tries))

        with ThreadPoolExecutor(len(self.lanes)) as workers:
            try:
                for each in [workers.submit(work, lane) for lane in self.lanes]:
                    each.result()
            except BaseException:
                # On Ctrl-C, drop the rest.
                with suppress(queue.Empty):
                    while True:
                        waiting.get_nowait()
                raise
        return done


def print_outcome(outcome: Outcome, number: int, total: int) -> None:
    """Print repeats, breaches and progress."""
    for words in outcome.disturbed:
        print(f"[{number}/{total}] repeated: {outcome.tried}: {words}", flush=True)
    if outcome.breaches:
        print(f"[{number}/{total}] BREACH {outcome.tried}", flush=True)
        for words in outcome.breaches:
            print(f"    {words}", flush=True)
    elif number % 50 == 0 or number == total:
        print(f"[{number}/{total}]", file=sys.stderr, flush=True)
