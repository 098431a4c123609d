"""Oversized objects cost little time and memory, and messages about them stay short.

The effect on arriving pods is measured by `python -m tests.nightly.cluster siege --attack load`.
"""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extender.kube.decode import pods, resources
from extender.model.gang import VOLCANO, GangKey
from extender.model.reason import Reason
from extender.model.resources import Resources
from extender.model.snapshot import Snapshot
from extender.planner import policy_parser
from extender.planner.explain.explain import explain, remedies
from extender.planner.planner import make_plan
from tests import objects
from tests.builders import GANG, gang, node, nodes, pod as member, pod_group, seen, shape, snapshot
from tests.unit.planner.explain_output import shown
from tests.unit.reservations.world import OPEN, World

REPOSITORY = Path(__file__).parents[2]
BILLION = 1_000_000_000
#: All annotations of an object together are limited to 256 KiB.
LONG = "9" * 250_000
READ = (
    "gang-extender.io/gang",
    "gang-extender.io/min-member",
    "scheduling.volcano.sh/queue-name",
    "volcano.sh/task-spec",
    "volcano.sh/task-priority",
    "volcano.sh/preemptable",
)


def kept_bytes(make_things: Callable[[], list[Any]]) -> int:
    """Return how many bytes the made objects keep, beyond the list itself."""
    make_things()  # fills caches
    tracemalloc.start()
    try:
        kept = make_things()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept
    return size


def test_a_gang_of_a_billion_pods_is_refused_and_planned_in_constant_time() -> None:
    world = World(pod_group(min_member=BILLION), seen("p0"), seen("p1"), plan=OPEN)

    def ask_and_plan() -> list[Any]:
        return [world.ask("p0"), world.turn()]

    assert kept_bytes(ask_and_plan) < 1_000_000
    assert world.ask("p0").outcome == Reason.NOT_ENOUGH_MEMBERS.value
    assert world.kept == []
    verdict = world.published.plan.verdicts[GANG]
    assert verdict.min_member == BILLION
    assert f"{BILLION:,}" in verdict.message or str(BILLION) in verdict.message


def test_no_remedies_are_searched_for_a_gang_of_a_billion_pods() -> None:
    large = gang("a/train", 2, cpu=1, min_member=BILLION)
    state = snapshot(nodes(2), [large])
    plan = make_plan(state)

    def ask() -> list[Any]:
        return [remedies(state, plan, policy_parser.DEFAULT, large.key)]

    assert kept_bytes(ask) < 1_000_000
    ((sentence,),) = ask()
    assert sentence == ("999999998 more pods that name a/train; not tried: they are too many")


def test_a_gang_of_a_billion_pods_does_not_block_others() -> None:
    world = World(pod_group(min_member=BILLION), seen("p0"), plan=OPEN)
    world.see(pod_group("small"), seen("q0", "small"), seen("q1", "small"))
    world.turn()

    assert set(world.places(GangKey("a/small"))) == {"q0", "q1"}


@pytest.mark.parametrize("key", READ)
def test_a_long_annotation_takes_hardly_any_memory(key: str) -> None:
    written = [
        json.dumps(objects.stored_pod(f"p{number}", annotations={key: f"{LONG}{number}"})).encode()
        for number in range(20)
    ]

    def read() -> list[Any]:
        return [
            pods.to_pod(pods.pod(each), schedulers=frozenset({"gang-scheduler"}))
            for each in written
        ]

    assert kept_bytes(read) < 200_000


@pytest.mark.parametrize("prefix", ["w", "volcano.sh/", "gang-extender.io/", "sla-waiting-time"])
def test_many_annotations_and_a_long_queue_of_a_podgroup_take_hardly_any_memory(
    prefix: str,
) -> None:
    codec = resources.groups(VOLCANO)
    things = []
    for number in range(20):
        thing = objects.pod_group(f"g{number}", queue=f"{LONG}{number}")
        thing["metadata"]["annotations"] = {f"{prefix}{each:x}": "x" * 20 for each in range(8000)}
        things.append(json.dumps(thing).encode())

    assert kept_bytes(lambda: [codec.item(each) for each in things]) < 200_000


@pytest.mark.parametrize("resource", ["podgroups", "queues", "namespaces", "poddisruptionbudgets"])
def test_unused_annotations_are_not_decoded_into_strings(resource: str) -> None:
    """While a decoder makes 17,000 strings, no other thread runs, hooks included."""
    codec = next(
        each.decoder
        for each in resources.resources(frozenset({"gang-scheduler"}))
        if each.path.endswith(f"/{resource}")
    )
    marks = {f"volcano.sh/{each:x}": "" for each in range(17_000)}
    written = json.dumps({"metadata": {"name": "x", "namespace": "a", "annotations": marks}})
    line = f'{{"type":"ADDED","object":{written}}}'.encode()
    codec.line(line)  # fills caches

    tracemalloc.start()
    try:
        read = codec.line(line)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert read.change is not None
    assert most < 20_000


MANY = 500


@pytest.fixture(scope="module")
def mixed_gang() -> Snapshot:
    """Make a gang in which every member has another shape, in a cluster too small for it."""
    pods = [member(f"p-{n}", shape(cpu=1 + n / 1000)) for n in range(MANY)]
    return snapshot(nodes(20), [gang("a/mixed", pods=pods)])


def test_a_gang_with_many_pod_shapes_names_some_and_counts_the_others(mixed_gang: Snapshot) -> None:
    plan = make_plan(mixed_gang)
    told = explain(mixed_gang, plan, policy_parser.DEFAULT, GangKey("a/mixed"))

    assert told is not None
    assert told.verdict.message.startswith("needs 1 x 1 cpu and 1 x 1001m cpu and 1 x ")
    assert "and 497 other members" in told.verdict.message
    assert (len(told.needs), told.needs_count) == (10, MANY)
    assert told.remedies == (f"capacity for {MANY} more members of {MANY} sizes",)
    assert f"needs nodes for members of {MANY - 10} more sizes" in shown(mixed_gang, "a/mixed")


def test_a_message_has_a_limited_length() -> None:
    names = {f"example.com/{'x' * 60}-{n}": 1 for n in range(50)}
    greedy = replace(shape(cpu=1), requests=Resources({"cpu": 1000, "pods": 1, **names}))
    state = snapshot(nodes(2), [gang("a/greedy", pods=[member("p", greedy)])])

    (verdict,) = make_plan(state).verdicts.values()

    assert len(verdict.message) == 1000
    assert verdict.message.endswith(" …")


def test_only_the_most_common_shortages_are_named() -> None:
    """Each node lacks another of twelve resources, and eight nodes lack two."""
    names = [f"example.com/r{n}" for n in range(12)]
    greedy = replace(
        shape(cpu=1), requests=Resources({"cpu": 1000, "pods": 1, **dict.fromkeys(names, 1)})
    )
    all_of_it = {"cpu": 4000, "pods": 10, **dict.fromkeys(names, 1)}
    lacking = [
        replace(node(f"n{n}"), allocatable=Resources({**all_of_it, name: 0}))
        for n, name in enumerate([*names, names[0]])
    ]
    state = snapshot(lacking, [gang("a/greedy", pods=[member("p", greedy)])])

    told = explain(state, make_plan(state), policy_parser.DEFAULT, GangKey("a/greedy"))

    assert told is not None
    found = dict(told.needs[0].obstacles)
    assert found.pop(f"short of {names[0]}") == 2
    assert found.pop("short of something else") == 4
    assert [*found.values()] == [1] * 7
