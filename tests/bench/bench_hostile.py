"""What one tenant can make the planner work: `python -m tests.bench.bench_hostile`.

Each row is a cluster written to be expensive, planned twice: as it is met first, and again when
nothing but the time has changed. CPU is the thread's own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from extender.model.pod import HostPort, NodeTerm, Requirement, Shape
from extender.model.snapshot import DisruptionBudget, Snapshot
from extender.planner.plan import GangStatus
from extender.planner.planner import make_plan
from tests.bench.bench_plan import timed
from tests.builders import amounts, gang, node, nodes, pod, snapshot

BUDGET_MS = 1_000


def ports(count: int = 100) -> Snapshot:
    """Let 26 pods run on each of 50 nodes and 26 wait, each with so many ports of its own."""
    kinds = [
        Shape(
            requests=amounts(cpu=0.1, pods=1),
            host_ports=tuple(HostPort(1000 + count * number + each) for each in range(count)),
        )
        for number in range(52)
    ]
    running = [
        gang(f"a/{row}-{number}", pods=[pod(f"{row}-{number}", kinds[number], on=row)], on=[row])
        for number in range(26)
        for row in (f"n{place}" for place in range(1, 51))
    ]
    waiting = [
        gang(f"a/wait-{number}", pods=[pod(f"wait-{number}", kinds[number])])
        for number in range(26, 52)
    ]
    return snapshot(nodes(50, cpu=64), [*running, *waiting])


def budgets(count: int, selector: Callable[[str], tuple[Requirement, ...]]) -> Snapshot:
    """Let as many single pods run on a full node, each with a budget, and one gang want it all."""
    running = [
        gang(f"a/g{number}", 1, on=["n"], cpu=0.001, each={"labels": {"i": str(number)}})
        for number in range(count)
    ]
    kept = [
        DisruptionBudget(namespace="a", name=f"b{number}", selector=selector(str(number)))
        for number in range(count)
    ]
    urgent = gang("a/urgent", 1, cpu=4, priority=9)
    return snapshot([node("n", cpu=4, pods=99_999)], [*running, urgent], budgets=kept)


def affinities(gangs: int, terms: int) -> Snapshot:
    """Let gangs ask for one of very many labels, each with a shape of its own."""
    wanted = tuple(NodeTerm((Requirement("k", "In", (str(each),)),)) for each in range(terms))
    waiting = [
        gang(
            f"a/g{number}",
            1,
            cpu=1,
            memory=1 + number / 100,
            affinity=wanted,
            preferred=tuple((1, term) for term in wanted),
        )
        for number in range(gangs)
    ]
    members = [node(f"n{row:04}", labels={"k": str(row)}) for row in range(2000)]
    return snapshot(members, waiting)


def single_pods(count: int, shapes: int) -> Snapshot:
    """Let very many gangs of one pod wait in one queue."""
    waiting = [
        gang(f"a/g{n:05}", 1, cpu=1 + n % shapes / 1000, memory=11 - n % shapes / 1000)
        for n in range(count)
    ]
    return snapshot(nodes(500), waiting)


def small_ones(places: int, wanted: int) -> Snapshot:
    """Let ten gangs fill nodes with a hundred small pods each, and one gang want nodes whole."""
    on = [f"n{place + 1}" for place in range(places) for _ in range(10)]
    running = [gang(f"a/g{number}", len(on), min_member=1, on=on, cpu=0.5) for number in range(10)]
    urgent = gang("a/urgent", wanted, cpu=50, priority=9)
    return snapshot(nodes(places, cpu=50), [*running, urgent])


def _own(number: str) -> tuple[Requirement, ...]:
    return (Requirement("i", "In", (number,)),)


def _none(number: str) -> tuple[Requirement, ...]:
    return (Requirement("i", "NotIn", (number,)),)


ROWS: dict[str, Callable[[], Snapshot]] = {
    "52 kinds of pods with 100 host ports each": ports,
    "the same with 256": lambda: ports(256),
    "4000 pods with a budget each": lambda: budgets(4000, _own),
    "4000 budgets that insist on no label": lambda: budgets(4000, _none),
    "one affinity of 20000 terms": lambda: affinities(1, 20_000),
    "20 affinities of 1000 terms": lambda: affinities(20, 1_000),
    "8 pods of a node each, over 100 small ones": lambda: small_ones(20, 8),
    "32 of them": lambda: small_ones(40, 32),
    "200 of them": lambda: small_ones(200, 200),
    "10000 gangs of one pod": lambda: single_pods(10_000, 1),
    "10000 gangs of one pod, no two alike": lambda: single_pods(10_000, 10_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    chosen = parser.parse_args()
    table = Table(box=None, pad_edge=False)
    for name in ("cluster", "first ms", "again ms", "budget", "fit", "wait"):
        table.add_column(name, justify="left" if name == "cluster" else "right")
    for name, made in ROWS.items():
        if chosen.only not in name:
            continue
        snapshot = made()
        _, first = timed(lambda: make_plan(snapshot))  # noqa: B023 (called at once)
        later = replace(snapshot, now=snapshot.now + 1)
        plan, again = timed(lambda: make_plan(later))  # noqa: B023 (called at once)
        standings = [verdict.status for verdict in plan.verdicts.values()]
        table.add_row(
            name,
            f"{first:.0f}",
            f"{again:.0f}",
            str(BUDGET_MS),
            str(standings.count(GangStatus.ADMITTED)),
            str(standings.count(GangStatus.WAITING)),
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
