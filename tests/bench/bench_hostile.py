"""Work that one tenant can cause in the planner: `python -m tests.bench.bench_hostile`.

Each row is a cluster that is expensive to plan. It is planned twice: for the first time, and again
after only the time has changed. CPU is that of the thread.
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
    """Return 50 nodes with 26 pods each and 26 waiting pods, all with *count* own host ports."""
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
    """Return a full node with *count* single pods, a budget for each, and an urgent gang."""
    running = [
        gang(f"a/g{number}", 1, on=["n"], cpu=0.001, each={"labels": {"i": str(number)}})
        for number in range(count)
    ]
    pdbs = [
        DisruptionBudget(namespace="a", name=f"b{number}", selector=selector(str(number)))
        for number in range(count)
    ]
    urgent = gang("a/urgent", 1, cpu=4, priority=9)
    return snapshot([node("n", cpu=4, pods=99_999)], [*running, urgent], budgets=pdbs)


def affinities(gangs: int, terms: int) -> Snapshot:
    """Return gangs of different shapes with an affinity of *terms* labels."""
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
    """Return *count* waiting gangs of one pod in one queue."""
    waiting = [
        gang(f"a/g{n:05}", 1, cpu=1 + n % shapes / 1000, memory=11 - n % shapes / 1000)
        for n in range(count)
    ]
    return snapshot(nodes(500), waiting)


def small_pods(places: int, wanted: int) -> Snapshot:
    """Return nodes with a hundred small pods each, of ten gangs, and a gang of whole nodes."""
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
    "4000 budgets that exclude a label": lambda: budgets(4000, _none),
    "one affinity of 20000 terms": lambda: affinities(1, 20_000),
    "20 affinities of 1000 terms": lambda: affinities(20, 1_000),
    "8 pods of a whole node, 100 small ones on each": lambda: small_pods(20, 8),
    "32 of them": lambda: small_pods(40, 32),
    "200 of them": lambda: small_pods(200, 200),
    "10000 gangs of one pod": lambda: single_pods(10_000, 1),
    "10000 gangs of one pod, 10000 shapes": lambda: single_pods(10_000, 10_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name contains this")
    chosen = parser.parse_args()
    table = Table(box=None, pad_edge=False)
    for name in ("cluster", "first ms", "again ms", "budget", "fit", "wait"):
        table.add_column(name, justify="left" if name == "cluster" else "right")
    for name, make in ROWS.items():
        if chosen.only not in name:
            continue
        snapshot = make()
        _, first = timed(lambda: make_plan(snapshot))  # noqa: B023 (called at once)
        later = replace(snapshot, now=snapshot.now + 1)
        plan, again = timed(lambda: make_plan(later))  # noqa: B023 (called at once)
        statuses = [verdict.status for verdict in plan.verdicts.values()]
        table.add_row(
            name,
            f"{first:.0f}",
            f"{again:.0f}",
            str(BUDGET_MS),
            str(statuses.count(GangStatus.ADMITTED)),
            str(statuses.count(GangStatus.WAITING)),
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
