"""What it costs to ask for a term before every bind: `python -m tests.bench.bench_mandate`.

Gangs are bound over real sockets at a server in the same process, by turns with a lease and
without one, so that both see the same hour. The time is the processor's: what else the machine
does meanwhile counts for nobody.
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
ASKS = 200_000


class Counting:
    """A mandate that counts how often it is asked."""

    def __init__(self) -> None:
        self.asks = 0

    def current(self) -> int:
        self.asks += 1
        return 1

    def holds(self, number: int) -> bool:
        self.asks += 1
        return True


def lasting() -> Term:
    """Begin a term as a leader has it."""
    term = Term(time.monotonic)
    term.begin(until=time.monotonic() + 3600)
    return term


async def bind_gangs(mandates: dict[str, Fencing], turns: int) -> dict[str, list[float]]:
    """Bind a gang with each mandate in turn; gives microseconds of processor time per bind."""
    took: dict[str, list[float]] = {name: [] for name in mandates}
    async with loopback_server() as server, connected(server) as pipeline:
        for turn in range(turns):
            for which, (name, mandate) in enumerate(mandates.items()):
                binds = Binds(server, ApiBinder(pipeline, fencing=mandate))
                orders = binds.gang(GANG, f"gang-{which}-{turn}")
                began = time.process_time()
                await binds.outcomes(*orders)
                took[name].append((time.process_time() - began) / GANG * 1e6)
    return took


async def main() -> None:
    """Print the figures."""
    for name, mandate in (("alone", AlwaysLeader()), ("with a lease", lasting())):
        timer = timeit.Timer(partial(mandate.holds, 1), timer=time.process_time)
        print(f"asking once, {name}: {min(timer.repeat(number=ASKS)) / ASKS * 1e9:.0f} ns")
    counting = Counting()
    await bind_gangs({"counting": counting}, 1)
    print(f"asked per bind, in a gang of {GANG}: {counting.asks / GANG:.2f} times")
    took = await bind_gangs({"alone": AlwaysLeader(), "with a lease": lasting()}, TURNS)
    for name, each in took.items():
        print(f"a bind, {name}: {statistics.median(each):.1f} us, the server's part included")


if __name__ == "__main__":
    play(main())
