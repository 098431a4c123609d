"""What using kept room meanwhile comes to: `python -m tests.bench.bench_backfill`.

The scenario that comes with us for it, with and without, and where the long ones lied. And what a
plan costs where room is kept and everybody has a word or a deadline: `… bench_backfill cost`.
"""

from __future__ import annotations

import sys
import time
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
from tests.bench.bench_plan import Size, World

HEAD = (
    "| long ones | `backfill` | the giant waits | small ones wait, median | small ones that ended"
    " | cpu in use |\n|---|---|---|---|---|---|"
)
WITHOUT = policy_parser.parse("starvation: {backfill: 0s}")
HONEST, LIARS = "keep their word", "leave after half of it"
#: Line by line: what the long ones do, and how the policy has it.
LINES = [
    (long, word, policy)
    for long in (HONEST, LIARS)
    for word, policy in (("0s", WITHOUT), ("10m", policy_parser.DEFAULT))
]


def ran(long: str, policy: Policy) -> Result:
    """Let the scenario happen."""
    text = (resources.files("extender.sim") / "scenarios" / "backfill.yaml").read_text()
    scenario = scenarios.read(text, "backfill")
    if long is LIARS:
        jobs = scenarios.jobs_of(scenario)
        scenario.arrivals = []
        given = scenarios.ExternalInput(
            jobs=[replace(j, lasts_s=j.declared_s / 2 or j.lasts_s) for j in jobs]
        )
        return Simulation(scenario, policy, given).run()
    return Simulation(scenario, policy).run()


def row(long: str, word: str, outcome: Result) -> str:
    """Give the line of one run."""
    (giant,) = (run for run in outcome.runs if run.job.name.startswith("giant"))
    small = [run for run in outcome.runs if run.job.name.startswith("small")]
    waits = [run.first_started_at - run.created_at for run in small if run.first_started_at]
    started = giant.first_started_at
    wait = f"{started - giant.created_at:.0f} s" if started is not None else "for ever"
    ended, used = sum(run.ended_at is not None for run in small), outcome.used["cpu"].mean()
    figures = f"{wait} | {median(waits):.0f} s | {ended} of {len(small)} | {used:.1%}"
    return f"| {long} | `{word}` | {figures} |"


def crowded(*, with_words: bool) -> Snapshot:
    """Give 3,400 nodes, 100,000 pods that run, little room, and 1,000 gangs that waited long.

    *with_words* whoever runs says for how long, and whoever waits has a deadline.
    """
    world = World(Size(nodes=3_400, running=100_000, gangs=1_000, members=20, cpu=16))
    seen = world.cluster.snapshot(1_700.0)
    if not with_words:
        return seen
    gangs = {
        key: replace(
            each,
            group=replace(each.group, lasts_s=7_200.0),
            pods=tuple(replace(pod, deadline_s=0.0 if pod.node else 300.0) for pod in each.pods),
            memo=Memo(),
        )
        for key, each in seen.gangs.items()
    }
    return replace(seen, gangs=gangs)


def cost() -> str:
    """Say what a plan takes, with words and without, the second one of each."""
    told = []
    for with_words in (False, True):
        seen = crowded(with_words=with_words)
        for policy in (WITHOUT, policy_parser.DEFAULT):
            took = []
            for _ in range(4):
                before = time.thread_time()
                plan = make_plan(seen, policy)
                took.append(time.thread_time() - before)
            told.append(
                f"words {with_words}, backfill {policy.starvation.backfill_s:.0f} s:"
                f" {min(took[1:]) * 1000:.0f} ms, {len(plan.held_on_nodes)} nodes with room kept,"
                f" {len(plan.placements)} tickets"
            )
    return "\n".join(told)


if __name__ == "__main__":
    if sys.argv[1:] == ["cost"]:
        print(cost())
    else:
        print(HEAD)
        for long, word, policy in LINES:
            print(row(long, word, ran(long, policy)))
