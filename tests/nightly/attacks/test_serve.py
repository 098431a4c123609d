"""`gang-extender serve` under attack on its ports goes on answering, and stays as small as it was.

How quick it answers meanwhile is measured elsewhere; here nothing may fail, end or grow. An attack
goes on for seconds, until it has done something by its own account and has struck the bound that is
there for it by ours.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.bench.bench_hooks import Serving, ordinary_pod, resident_mb, serving
from tests.bench.canned_api import Size, pod
from tests.cluster.components import answers
from tests.nightly.attacks.attackers import ON_HOOKS, ON_OPERATIONS, Done, under

SIZE = Size(nodes=200, pods=2000, waiting=0)
#: Filters between one look at the whole and the next.
CALLS = 50
#: So long at least; what has not struck its bound by the latest never does. A call may take thirty.
ATTACK_S, LATEST_S = 5.0, 75.0
#: Bodies that are being read may take 64; the rest is what a busy process breathes.
GROWTH_MB = 128.0
#: An attacker who has brought so many bytes, or connections, has not slept.
BYTES, CONNECTIONS = 3000, 1000

PORTS = {"hooks": ON_HOOKS, "operations": ON_OPERATIONS}
#: As what a port refuses each attack; who is answered, or leaves by himself, is refused as nothing.
BOUNDS: dict[tuple[str, str], set[str]] = {
    ("hooks", "endless headers"): {"head"},
    ("hooks", "endless path"): {"head"},
    ("hooks", "many headers"): {"head"},
    ("hooks", "endless body"): {"body"},
    ("hooks", "large bodies never finished"): {"memory", "full"},
    ("hooks", "a byte now and then"): {"slow"},
    ("hooks", "a crowd"): {"left"},
    ("hooks", "a filter behind a bind"): {"impatient"},
    ("hooks", "binds from a browser"): {"browser", "host", "media_type"},
    ("hooks", "upgrades"): {"no_hook"},
    ("hooks", "half-closed peers"): set(),
    ("operations", "endless headers"): {"head"},
    ("operations", "endless path"): {"head"},
    ("operations", "many headers"): {"head"},
    ("operations", "a byte now and then"): {"slow"},
    ("operations", "a crowd"): {"left"},
    ("operations", "a crowd that asks and leaves"): {"crowd"},
    ("operations", "snapshots"): set(),
    ("operations", "answers nobody reads"): {"full"},
    ("operations", "probes without pause"): set(),
    ("operations", "upgrades"): set(),
    ("operations", "half-closed peers"): set(),
}
#: Attackers at a time. Four who drip would put each other out for being too many, and none of their
#: calls would ever grow old.
SEVERAL, DRIPPING = 4, 1


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    with serving(SIZE) as made:
        yield made


@pytest.fixture(scope="module")
def question() -> bytes:
    asked = ordinary_pod(json.loads(pod(SIZE, 0)))
    names = [f"node-{index:05d}" for index in range(SIZE.nodes)]
    return json.dumps({"Pod": asked, "Nodes": None, "NodeNames": names}).encode()


class Assault:
    """One attack on every port that it is meant for."""

    def __init__(self, served: Serving, what: str) -> None:
        self._extender = served.extender
        self._what = what
        self._ports = [port for port, attacks in PORTS.items() if what in attacks]
        self._bounds = [(port, each) for port in self._ports for each in BOUNDS[port, what]]
        self._before = {bound: self._refused(*bound) for bound in self._bounds}
        self._done: dict[str, Done] = {}

    def begin(self, stack: ExitStack) -> None:
        """Go on until the *stack* is unwound."""
        times = DRIPPING if self._what == "a byte now and then" else SEVERAL
        for port, number in zip(PORTS, self._extender.ports, strict=True):
            if port in self._ports:
                attacking = under(PORTS[port][self._what], number, times)
                self._done[port] = stack.enter_context(attacking)

    def lacks(self) -> list[str]:
        """Say what has not happened yet."""
        idle = [
            f"{port}: {done}"
            for port, done in self._done.items()
            if done.sent < BYTES and done.connections < CONNECTIONS
        ]
        unheard = [
            f"{port}: nobody is answered or put out, {done}"
            for port, done in self._done.items()
            if not BOUNDS[port, self._what] and not (done.heard or done.ended)
        ]
        unstruck = [
            f"{port}: nobody is refused as {reason}"
            for port, reason in self._bounds
            if self._refused(port, reason) == self._before[port, reason]
        ]
        return idle + unheard + unstruck

    def _refused(self, port: str, reason: str) -> float:
        name = "gang_extender_calls_refused_total"
        return self._extender.metric(name, port=port, reason=reason)


def test_every_attack_has_its_bounds() -> None:
    assert {*BOUNDS} == {(port, what) for port, attacks in PORTS.items() for what in attacks}


@pytest.mark.parametrize("what", {**ON_HOOKS, **ON_OPERATIONS})
def test_it_goes_on_answering_and_stays_small(served: Serving, question: bytes, what: str) -> None:
    assault = Assault(served, what)
    before_mb, most_mb = resident_mb(served.extender), 0.0
    began, lacking = time.monotonic(), ["an attack"]
    with closing(served.caller()) as caller, ExitStack() as stack:
        assault.begin(stack)
        while lacking:
            for _ in range(CALLS):
                assert json.loads(caller.ask("filter", question))["Error"] == ""
            assert answers(f"{served.extender.ops_url}/healthz")
            most_mb = max(most_mb, resident_mb(served.extender))
            took_s = time.monotonic() - began
            lacking = assault.lacks() if took_s > ATTACK_S else lacking
            assert took_s < LATEST_S, lacking

    assert most_mb - before_mb < GROWTH_MB
    assert answers(f"{served.extender.ops_url}/readyz")
