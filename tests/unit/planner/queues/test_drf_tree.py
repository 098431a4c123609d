"""The tree of shares updates what changed, and equals a tree computed from the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from extender.model.queue import Queue
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.planner.plugin import Preemptor, VictimCandidate
from extender.planner.plugins import drf
from extender.planner.plugins.drf import Tree
from extender.planner.state import QueueUsage
from tests.builders import gang, nodes, queue, snapshot
from tests.steps import steps
from tests.strategies import examples
from tests.unit.planner.random_cases import CaseGenerator
from tests.unit.planner.test_cases import decide

POLICY = policy_parser.parse("""
actions: "allocate, reclaim"
tiers: [{plugins: [{name: gang}, {name: drf, enableHierarchy: true}, {name: predicates}]}]
""")


class CheckedTree(Tree):
    """Compares every answer with that of a newly made tree."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.session = session
        self.asked = {"place": 0, "prefers": 0}

    def place(self, queue: QueueUsage) -> tuple[Any, ...]:
        given = super().place(queue)
        assert given == Tree(self.session).place(queue)
        self.asked["place"] += 1
        return given

    def prefers(self, claim: Preemptor, candidate: VictimCandidate) -> bool:
        given = super().prefers(claim, candidate)
        assert given is Tree(self.session).prefers(claim, candidate)
        self.asked["prefers"] += 1
        return given


@pytest.fixture
def checked_trees(monkeypatch: pytest.MonkeyPatch) -> list[CheckedTree]:
    """Every tree of a plan, each of them checked."""
    trees: list[CheckedTree] = []

    def make(session: Any) -> CheckedTree:
        trees.append(CheckedTree(session))
        return trees[-1]

    monkeypatch.setattr(drf, "Tree", make)
    return trees


def calls(trees: list[CheckedTree], what: str) -> int:
    return sum(each.asked[what] for each in trees)


def test_an_updated_tree_answers_like_a_new_tree_in_generated_clusters(
    checked_trees: list[CheckedTree], tmp_path: Path
) -> None:
    made_up = [CaseGenerator(seed) for seed in range(examples(900))]
    trees = [each for each in made_up if each.policy == "hierarchical drf"]
    for each in trees:
        decide(each.case(), tmp_path, "volcano")

    assert calls(checked_trees, "place") > 2 * len(trees)
    assert calls(checked_trees, "prefers") > len(trees) // 2


def branch(name: str, path: str, weights: str) -> Queue:
    marks = {"volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights}
    return queue(name, annotations=marks)


def test_an_updated_tree_answers_like_a_new_tree_when_a_full_cluster_is_reclaimed(
    checked_trees: list[CheckedTree],
) -> None:
    queues = [
        branch("sci", "root/sci", "1/2"),
        branch("dev", "root/eng/dev", "1/4/1"),
        branch("prod", "root/eng/prod", "1/4/3"),
    ]
    gangs = [gang(f"a/r{n}", 1, on=["n1"], cpu=1, queue="sci") for n in range(12)]
    for n, name in enumerate(("dev", "prod", "sci") * 6):
        gangs.append(gang(f"b/w{n:02}", 1, cpu=1 + n % 2, memory=n % 3, queue=name, created=n))
    plan = make_plan(snapshot(nodes(2, cpu=12, memory=8), gangs, queues), POLICY)

    assert plan.placements
    assert plan.evictions
    assert calls(checked_trees, "place") > 20
    assert calls(checked_trees, "prefers") > 20


def work_of_trees(monkeypatch: pytest.MonkeyPatch, running: int) -> int:
    """Count the calls of the trees while twenty gangs start in a queue beside *running*."""
    gangs = [gang(f"a/r{n:03}", 1, on=["n1"], cpu=1, queue="theirs") for n in range(running)]
    gangs += [gang(f"b/w{n:03}", 1, cpu=1, queue="mine", created=9.0) for n in range(20)]
    space = nodes(1, cpu=2000, memory=1, pods=2000)
    count = [0]

    class CountedTree(Tree):
        def place(self, queue: QueueUsage) -> tuple[Any, ...]:
            places: list[tuple[Any, ...]] = []
            count[0] += steps(lambda: places.append(Tree.place(self, queue)))
            return places[0]

    with monkeypatch.context() as patch:
        patch.setattr(drf, "Tree", CountedTree)
        plan: Plan = make_plan(snapshot(space, gangs, [queue("mine"), queue("theirs")]), POLICY)
    assert len(plan.placements) == 20
    return count[0]


def test_gangs_of_an_unchanged_queue_are_added_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more = work_of_trees(monkeypatch, 400) - work_of_trees(monkeypatch, 200)

    # Adding up one gang once takes about 40 calls.
    assert more <= 60 * 200
