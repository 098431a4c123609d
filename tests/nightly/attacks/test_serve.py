"""`gang-extender serve` keeps answering under attacks on its ports, and its memory does not grow.

Response times are measured elsewhere; here nothing may fail, end or grow. An attack runs for
seconds, until it has sent enough, and the extender has counted the refusal that it should cause.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from tests.bench.bench_hooks import Serving, resident_mb, serving, single_pod
from tests.bench.canned_api import Size, pod
from tests.cluster.components import answers
from tests.nightly.attacks.attackers import ON_HOOKS, ON_OPERATIONS, Done, under

SIZE = Size(nodes=200, pods=2000, waiting=0)
#: Filter calls between two checks.
CALLS = 50
#: The minimum duration of an attack, and the timeout. A call may take thirty seconds.
ATTACK_S, TIMEOUT_S = 5.0, 75.0
#: Bodies that are being read may take 64; the rest is the usual variation of a busy process.
GROWTH_MB = 128.0
#: An attack that sent so many bytes, or made so many connections, was active.
BYTES, CONNECTIONS = 3000, 1000

PORTS = {"hooks": ON_HOOKS, "operations": ON_OPERATIONS}
#: The reasons for which a port refuses each attack; some attacks are answered, not refused.
REASONS: dict[tuple[str, str], set[str]] = {
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
    ("operations", "unread answers"): {"full"},
    ("operations", "probes without pause"): set(),
    ("operations", "upgrades"): set(),
    ("operations", "half-closed peers"): set(),
}
#: Parallel attackers. Four slow ones would exceed the limit of connections, so that none of their
#: calls would time out.
SEVERAL, ONE = 4, 1


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    with serving(SIZE) as made:
        yield made


@pytest.fixture(scope="module")
def filter_call() -> bytes:
    sent = single_pod(json.loads(pod(SIZE, 0)))
    names = [f"node-{index:05d}" for index in range(SIZE.nodes)]
    return json.dumps({"Pod": sent, "Nodes": None, "NodeNames": names}).encode()


class RunningAttack:
    """One attack on each port that it applies to."""

    def __init__(self, served: Serving, what: str) -> None:
        self._extender = served.extender
        self._what = what
        self._ports = [port for port, attacks in PORTS.items() if what in attacks]
        self._reasons = [(port, each) for port in self._ports for each in REASONS[port, what]]
        self._before = {reason: self._refused(*reason) for reason in self._reasons}
        self._done: dict[str, Done] = {}

    def start(self, stack: ExitStack) -> None:
        """Run until *stack* is closed."""
        times = ONE if self._what == "a byte now and then" else SEVERAL
        for port, number in zip(PORTS, self._extender.ports, strict=True):
            if port in self._ports:
                attacking = under(PORTS[port][self._what], number, times)
                self._done[port] = stack.enter_context(attacking)

    def lacks(self) -> list[str]:
        """Return what has not happened yet."""
        idle = [
            f"{port}: {done}"
            for port, done in self._done.items()
            if done.sent < BYTES and done.connections < CONNECTIONS
        ]
        unanswered = [
            f"{port}: no connection was answered or closed, {done}"
            for port, done in self._done.items()
            if not REASONS[port, self._what] and not (done.received or done.ended)
        ]
        unrefused = [
            f"{port}: no call was refused as {reason}"
            for port, reason in self._reasons
            if self._refused(port, reason) == self._before[port, reason]
        ]
        return idle + unanswered + unrefused

    def _refused(self, port: str, reason: str) -> float:
        name = "gang_extender_calls_refused_total"
        return self._extender.metric(name, port=port, reason=reason)


def test_every_attack_has_its_reasons() -> None:
    assert {*REASONS} == {(port, what) for port, attacks in PORTS.items() for what in attacks}


@pytest.mark.parametrize("what", {**ON_HOOKS, **ON_OPERATIONS})
def test_extender_answers_and_does_not_grow(served: Serving, filter_call: bytes, what: str) -> None:
    attack = RunningAttack(served, what)
    before_mb, most_mb = resident_mb(served.extender), 0.0
    began, missing = time.monotonic(), ["an attack"]
    with closing(served.caller()) as caller, ExitStack() as stack:
        attack.start(stack)
        while missing:
            for _ in range(CALLS):
                assert json.loads(caller.ask("filter", filter_call))["Error"] == ""
            assert answers(f"{served.extender.ops_url}/healthz")
            most_mb = max(most_mb, resident_mb(served.extender))
            took_s = time.monotonic() - began
            missing = attack.lacks() if took_s > ATTACK_S else missing
            assert took_s < TIMEOUT_S, missing

    assert most_mb - before_mb < GROWTH_MB
    assert answers(f"{served.extender.ops_url}/readyz")
