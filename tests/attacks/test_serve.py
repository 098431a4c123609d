"""`gang-extender serve` under attack on both ports goes on answering, and stays as small as it was.

How quick it answers meanwhile is measured elsewhere; here nothing may fail, end or grow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.attacks import attackers
from tests.attacks.attackers import Attack, under
from tests.bench.bench_hooks import Serving, ordinary_pod, resident_mb, serving
from tests.bench.canned_api import Size, pod
from tests.cluster.components import answers

SIZE = Size(nodes=200, pods=2000, waiting=0)
CALLS = 200
#: Bodies that are being read may take 64; the rest is what a busy process breathes.
GROWTH_MB = 128.0


@pytest.fixture(scope="module")
def served() -> Iterator[Serving]:
    with serving(SIZE) as made:
        yield made


@pytest.fixture(scope="module")
def question() -> bytes:
    asked = ordinary_pod(json.loads(pod(SIZE, 0)))
    names = [f"node-{index:05d}" for index in range(SIZE.nodes)]
    return json.dumps({"Pod": asked, "Nodes": None, "NodeNames": names}).encode()


@pytest.mark.parametrize(
    ("port", "attack"),
    [
        *((0, each) for each in attackers.ON_HOOKS.values()),
        *((1, each) for each in attackers.ON_OPERATIONS.values()),
    ],
    ids=lambda it: ("hooks", "operations")[it] if isinstance(it, int) else it.__name__,
)
def test_it_goes_on_answering_and_stays_small(
    served: Serving, question: bytes, port: int, attack: Attack
) -> None:
    before_mb = resident_mb(served.extender)
    most_mb = 0.0
    with under(attack, served.extender.ports[port]), closing(served.caller()) as caller:
        for number in range(CALLS):
            assert json.loads(caller.ask("filter", question))["Error"] == ""
            if number % 50 == 0:
                assert answers(f"{served.extender.ops_url}/healthz")
                most_mb = max(most_mb, resident_mb(served.extender))

    assert most_mb - before_mb < GROWTH_MB
    assert answers(f"{served.extender.ops_url}/readyz")
