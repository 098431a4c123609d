"""Too much of everything costs little, keeps nothing, and names who wrote it; at unit speed.

What it does beside arriving pods is measured by `python -m tests.cluster siege --attack load`.
"""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extender.kube.decode import pods, watched
from extender.metrics import Metrics
from extender.model.dialect import VOLCANO
from extender.model.gang import GangKey
from extender.model.reason import Reason
from extender.plan.planner import make_plan
from extender.plan.policy import policies
from extender.plan.verdict.remedies import remedies
from tests.builders import cluster, gang, nodes
from tests.cache.building import GANG, group, pod
from tests.cluster import siege
from tests.kube import json_objects as make
from tests.promises.world import OPEN, World

REPOSITORY = Path(__file__).parents[1]
BILLION = 1_000_000_000
#: All annotations of an object together may have 256 KiB.
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
    """How much what is made keeps, beyond the list itself."""
    make_things()  # what is made once for all
    tracemalloc.start()
    try:
        kept = make_things()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept
    return size


def test_a_gang_of_a_billion_is_refused_and_planned_without_counting_to_it() -> None:
    world = World(group(min_member=BILLION), pod("p0"), pod("p1"), plan=OPEN)

    def ask_and_plan() -> list[Any]:
        return [world.ask("p0"), world.turn()]

    assert kept_bytes(ask_and_plan) < 1_000_000
    assert world.ask("p0").outcome == Reason.NOT_ENOUGH_MEMBERS.value
    assert world.kept == []
    verdict = world.published.plan.verdicts[GANG]
    assert verdict.min_member == BILLION
    assert f"{BILLION:,}" in verdict.message or str(BILLION) in verdict.message


def test_what_would_help_a_gang_of_a_billion_is_not_tried_out() -> None:
    large = gang("a/train", 2, cpu=1, least=BILLION)
    state = cluster(nodes(2), [large])
    plan = make_plan(state)

    def ask() -> list[Any]:
        return [remedies(state, plan, policies.DEFAULT, large.key)]

    assert kept_bytes(ask) < 1_000_000
    ((sentence,),) = ask()
    assert sentence == ("999999998 more pods that name a/train; not tried, for they are too many")


def test_a_gang_of_a_billion_keeps_no_other_from_starting() -> None:
    world = World(group(min_member=BILLION), pod("p0"), plan=OPEN)
    world.see(group("small"), pod("q0", "small"), pod("q1", "small"))
    world.turn()

    assert set(world.places(GangKey("a/small"))) == {"q0", "q1"}


@pytest.mark.parametrize("key", READ)
def test_of_a_long_annotation_hardly_anything_is_kept(key: str) -> None:
    written = [
        json.dumps(make.pod(f"p{number}", annotations={key: f"{LONG}{number}"})).encode()
        for number in range(20)
    ]

    def read() -> list[Any]:
        return [
            pods.to_pod(pods.pod(each), schedulers=frozenset({"gang-scheduler"}))
            for each in written
        ]

    assert kept_bytes(read) < 200_000


def test_of_a_podgroup_with_long_annotations_and_a_long_queue_hardly_anything_is_kept() -> None:
    codec = watched.groups(VOLCANO)
    things = []
    for number in range(20):
        thing = make.group(f"g{number}", queue=f"{LONG}{number}")
        thing["metadata"]["annotations"] = {f"w{each}": "x" * 20 for each in range(8000)}
        things.append(json.dumps(thing).encode())

    assert kept_bytes(lambda: [codec.item(each) for each in things]) < 200_000


def test_the_page_quotes_lines_of_the_log_and_series_that_there_are() -> None:
    page = (REPOSITORY / "docs" / "performance.md").read_text()
    table = page.partition("### Too much of everything")[2].partition("That a billion")[0]
    quoted = re.findall(r"`([^`]+)`", table)
    lines = [each for each in quoted if " " in each and not each.startswith("make ")]
    code = "".join(each.read_text() for each in (REPOSITORY / "extender").rglob("*.py"))
    written = {family.name for family in Metrics().registry.collect()}

    assert len(lines) == 3
    assert [line for line in lines if f'"{line}"' not in code] == []
    series = {each.removesuffix("_total") for each in quoted if each.startswith("gang_extender_")}
    assert len(series) == 3
    assert series <= written


def test_the_page_counts_the_attacks() -> None:
    page = (REPOSITORY / "docs" / "performance.md").read_text()

    assert f"each of {len(siege.attacks())} attacks" in page
