"""Cost of checking the term before every bind: `python -m tests.bench.bench_fencing`.

Gangs are bound over real sockets by a server in the same process, in turns with a lease and without
one, so that both run under the same conditions. CPU time is measured, so that other processes do
not count.
"""

from __future__ import annotations

import statistics
import time
import timeit
from functools import partial

from extender.kube.write.bind import ApiBinder
from extender.leader.fencing import Term
from extender.ports import AlwaysLeader, Fencing
from tests.api_server import connected, loopback_server, play
from tests.unit.kube.write.test_bind import Binds

GANG = 200
TURNS = 30
CHECKS = 200_000


class Counting:
    """Counts its checks."""

    def __init__(self) -> None:
        self.checks = 0

    def current(self) -> int:
        self.checks += 1
        return 1

    def holds(self, number: int) -> bool:
        self.checks += 1
        return True


def long_term() -> Term:
    """Begin a term that does not end during the measurement."""
    term = Term(time.monotonic)
    term.begin(until=time.monotonic() + 3600)
    return term


async def bind_gangs(fencings: dict[str, Fencing], turns: int) -> dict[str, list[float]]:
    """Bind a gang with each fencing in turn; return microseconds of CPU per bind."""
    took: dict[str, list[float]] = {name: [] for name in fencings}
    async with loopback_server() as server, connected(server) as pipeline:
        for turn in range(turns):
            for which, (name, fencing) in enumerate(fencings.items()):
                binds = Binds(server, ApiBinder(pipeline, fencing=fencing))
                orders = binds.gang(GANG, f"gang-{which}-{turn}")
                began = time.process_time()
                await binds.outcomes(*orders)
                took[name].append((time.process_time() - began) / GANG * 1e6)
    return took


async def main() -> None:
    """Print the figures."""
    fencings = {"without a lease": AlwaysLeader(), "with a lease": long_term()}
    for name, fencing in fencings.items():
        timer = timeit.Timer(partial(fencing.holds, 1), timer=time.process_time)
        print(f"a check {name}: {min(timer.repeat(number=CHECKS)) / CHECKS * 1e9:.0f} ns")
    counting = Counting()
    await bind_gangs({"counting": counting}, 1)
    print(f"checks per bind, in a gang of {GANG}: {counting.checks / GANG:.2f}")
    took = await bind_gangs(fencings, TURNS)
    for name, each in took.items():
        print(f"a bind {name}: {statistics.median(each):.1f} us, including the server")


if __name__ == "__main__":
    play(main())
