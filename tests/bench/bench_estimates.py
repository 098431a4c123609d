"""Error and cost of estimates: `python -m tests.bench.bench_estimates`.

Every gang is estimated once, in the first cycle of a period of virtual time in which it waits.
Durations are learnt from earlier gangs of its name, as in production. With `declared`, every gang
declares how long it will run, correctly.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from importlib import resources
from statistics import median

import msgspec

from extender.forecast.durations import DurationHistory
from extender.forecast.estimate import Estimate
from extender.forecast.lookahead import Lookahead, WorkLimit
from extender.model.gang import GangKey
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.plan import GangStatus, Plan
from extender.planner.planner import make_plan
from extender.sim import scenario as scenarios
from extender.sim.cluster import Simulation
from extender.sim.result import percentile
from extender.sim.workloads import JobRun
from tests.bench.bench_plan import FilledCluster, Size

SMALL = ("deadlock", "greedy-queue", "mixed-drf", "node-loss", "starving-giant", "backfill")
DECLARED = "declared"
#: Virtual time between two cycles with estimates.
_EVERY_S = 120.0
#: The same in a scenario of thousands of gangs, of which only some are estimated.
_LARGE_EVERY_S = {"ml-day": 1800.0}
HEAD = (
    "| scenario | durations | estimated | with a time | not before | unknown "
    "| error, median | error, 95 % | waited, median |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


@dataclass
class Estimator:
    """Estimates each waiting gang once."""

    durations: DurationHistory = field(default_factory=DurationHistory)
    every_s: float = _EVERY_S
    estimates: dict[GangKey, Estimate] = field(default_factory=dict)
    next_at: float = 0.0

    def planned(self, snapshot: Snapshot, plan: Plan) -> None:
        waits = [key for key, v in plan.verdicts.items() if v.status is GangStatus.WAITING]
        new = [key for key in waits if key not in self.estimates]
        if not new or snapshot.now < self.next_at:
            return
        self.next_at = snapshot.now + self.every_s
        # As many plans as in production, but without a limit of time: the same on every machine.
        ahead = Lookahead(snapshot, plan, policy_parser.DEFAULT, self.durations, WorkLimit())
        self.estimates |= {key: each for key in new if (each := ahead.estimate(key)) is not None}

    def ran(self, run: JobRun) -> None:
        if run.ended_at is not None and run.first_started_at is not None:
            self.durations.record(run.job.key, run.job.queue, run.job.lasts_s)


def row(name: str, *, declared: bool = False) -> str:
    """Return the row of one scenario."""
    text = (resources.files("extender.sim") / "scenarios" / f"{name}.yaml").read_text()
    scenario = scenarios.read(text, name)
    if declared:
        streams = [msgspec.structs.replace(each, declared=True) for each in scenario.arrivals]
        scenario = msgspec.structs.replace(scenario, arrivals=streams)
    simulation = Simulation(scenario, policy_parser.DEFAULT)
    estimator = Estimator(every_s=_LARGE_EVERY_S.get(name, _EVERY_S))
    simulation.cluster.workloads.on_change = estimator.ran
    count = simulation.cluster.extender.on_cycle

    def planned(snapshot: Snapshot, plan: Plan) -> None:
        count(snapshot, plan)
        estimator.planned(snapshot, plan)

    simulation.cluster.extender.on_cycle = planned
    outcome = simulation.run()
    offset = simulation.cluster.time.now() - simulation.cluster.time.monotonic()
    started = {
        run.job.key: run.first_started_at + offset
        for run in outcome.runs
        if run.first_started_at is not None
    }
    known = {key: each for key, each in estimator.estimates.items() if key in started}
    errors = sorted(abs(e.at - started[key]) for key, e in known.items() if e.at is not None)
    later = sum(each.at is None and each.not_before is not None for each in known.values())
    waited = [started[key] - each.now for key, each in known.items()]
    cells = (
        f"`{name}`",
        DECLARED if declared else "learnt",
        str(len(known)),
        str(len(errors)),
        str(later),
        str(len(known) - len(errors) - later),
        f"{median(errors):.0f} s" if errors else "-",
        f"{percentile(errors, 95):.0f} s" if errors else "-",
        f"{median(waited):.0f} s" if waited else "-",
    )
    return f"| {' | '.join(cells)} |"


def cost() -> str:
    """Return the time of one lookahead with 500 nodes and 1,000 waiting gangs."""
    filled = FilledCluster(Size(nodes=500, running=10_000, gangs=1_000, members=20, cpu=4))
    snapshot = filled.cluster.snapshot(1_000.0)
    plan, durations = make_plan(snapshot, policy_parser.DEFAULT), DurationHistory()
    for key, gang in snapshot.gangs.items():
        durations.record(key, gang.queue, 60.0 if gang.on_nodes else 600.0)
    waits = [key for key, v in plan.verdicts.items() if v.status is GangStatus.WAITING]
    limit = WorkLimit(seconds=1.0, spent=time.thread_time)
    before = time.thread_time()
    ahead = Lookahead(snapshot, plan, policy_parser.DEFAULT, durations, limit)
    answers = [ahead.estimate(key) for key in waits]
    took = time.thread_time() - before
    known = sum(each is not None and each.at is not None for each in answers)
    return (
        f"500 nodes, {len(waits)} waiting gangs: {took:.2f} s of CPU for all, "
        f"{ahead.steps} plans, {known} with a time"
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["cost"]:
        print(cost())
    else:
        print(HEAD)
        for each in [name for name in sys.argv[1:] if name != DECLARED] or SMALL:
            print(row(each, declared=DECLARED in sys.argv[1:]), flush=True)
