"""Effect of backfill on reserved capacity: `python -m tests.bench.bench_backfill`.

The scenario `backfill` of the product, with and without backfill, and with wrong durations of the
long gangs. `… bench_backfill cost` measures a plan with reserved capacity in which every gang
declares a duration or has a deadline.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import resources
from statistics import median

from extender.model.memo import Memo
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.planner import make_plan
from extender.planner.policy import Policy
from extender.sim import scenario as scenarios
from extender.sim.cluster import Simulation
from extender.sim.result import Result
from tests.bench.bench_plan import FilledCluster, Size, timed

HEAD = (
    "| long gangs | `backfill` | large gang waits | small gangs wait, median | small gangs finished"
    " | cpu in use |\n|---|---|---|---|---|---|"
)
WITHOUT = policy_parser.parse("starvation: {backfill: 0s}")
EXACT, EARLY = "run as long as declared", "end after half of it"
#: The rows: what the long gangs do, the setting, and its policy.
ROWS = [
    (long, setting, policy)
    for long in (EXACT, EARLY)
    for setting, policy in (("0s", WITHOUT), ("10m", policy_parser.DEFAULT))
]


def run(long: str, policy: Policy) -> Result:
    """Simulate the scenario."""
    text = (resources.files("extender.sim") / "scenarios" / "backfill.yaml").read_text()
    scenario = scenarios.read(text, "backfill")
    if long is EARLY:
        jobs = scenarios.jobs_of(scenario)
        scenario.arrivals = []
        given = scenarios.ExternalInput(
            jobs=[replace(j, lasts_s=j.declared_s / 2 or j.lasts_s) for j in jobs]
        )
        return Simulation(scenario, policy, given).run()
    return Simulation(scenario, policy).run()


def row(long: str, setting: str, result: Result) -> str:
    """Return the row of one run."""
    (giant,) = (each for each in result.runs if each.job.name.startswith("giant"))
    small = [each for each in result.runs if each.job.name.startswith("small")]
    waits = [each.first_started_at - each.created_at for each in small if each.first_started_at]
    started = giant.first_started_at
    wait = f"{started - giant.created_at:.0f} s" if started is not None else "for ever"
    ended, used = sum(each.ended_at is not None for each in small), result.used["cpu"].mean()
    figures = f"{wait} | {median(waits):.0f} s | {ended} of {len(small)} | {used:.1%}"
    return f"| {long} | `{setting}` | {figures} |"


def crowded(*, with_durations: bool) -> Snapshot:
    """Return 3,400 almost full nodes, 100,000 running pods, and 1,000 gangs that wait long.

    *with_durations*, running gangs declare a duration and waiting pods have a deadline.
    """
    filled = FilledCluster(Size(nodes=3_400, running=100_000, gangs=1_000, members=20, cpu=16))
    snapshot = filled.cluster.snapshot(1_700.0)
    if not with_durations:
        return snapshot
    gangs = {
        key: replace(
            each,
            group=replace(each.group, lasts_s=7_200.0),
            pods=tuple(replace(pod, deadline_s=0.0 if pod.node else 300.0) for pod in each.pods),
            memo=Memo(),
        )
        for key, each in snapshot.gangs.items()
    }
    return replace(snapshot, gangs=gangs)


def cost() -> str:
    """Return the time of a plan with and without durations, of each the best but the first."""
    rows = []
    for with_durations in (False, True):
        snapshot = crowded(with_durations=with_durations)
        for policy in (WITHOUT, policy_parser.DEFAULT):
            took = []
            for _ in range(4):
                plan, ms = timed(lambda: make_plan(snapshot, policy))  # noqa: B023 (called at once)
                took.append(ms)
            rows.append(
                f"durations {with_durations}, backfill {policy.starvation.backfill_s:.0f} s:"
                f" {min(took[1:]):.0f} ms, {len(plan.held_on_nodes)} nodes with reserved capacity,"
                f" {len(plan.placements)} placements"
            )
    return "\n".join(rows)


if __name__ == "__main__":
    if sys.argv[1:] == ["cost"]:
        print(cost())
    else:
        print(HEAD)
        for long, setting, policy in ROWS:
            print(row(long, setting, run(long, policy)))
