"""A victim that may not be evicted is replaced by another, even if the cluster does not change."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from itertools import accumulate, pairwise

import pytest

from extender.cache.changes import Upsert
from extender.evictions.runner import EvictionRunner
from extender.metrics import Metrics
from extender.model.pod import Requirement, Status
from extender.model.queue import Queue
from extender.model.snapshot import DisruptionBudget, Snapshot
from extender.planner import policy_parser
from extender.planner.plan import Plan
from extender.planner.planner import make_plan
from extender.ports import EvictOrder, EvictOutcome, EvictResult
from extender.status.history import GangHistory
from tests.builders import node, pod_group, seen, shape
from tests.doubles import RecordingAnnouncer, settled
from tests.scene import STORY_S
from tests.unit.reservations.world import World

BIG = shape(cpu=4)
#: Volcano's installer omits the plugin too; then only the final check knows the budgets.
WITHOUT_PDB = policy_parser.parse(policy_parser.DEFAULT_TEXT.replace("  - name: pdb\n", ""))


def budget(app: str, allowed: int = 0) -> DisruptionBudget:
    selector = (Requirement("app", "In", (app,)),)
    return DisruptionBudget(namespace="a", name=app, selector=selector, allowed=allowed)


class QuietCluster:
    """A cluster that never changes by itself, with the real planning cycle."""

    def __init__(self, victims: int, *, guarded: Sequence[int] = ()) -> None:
        names = [f"n{number}" for number in range(victims)]
        self.world = world = World(
            Queue(name="left"),
            Queue(name="right"),
            pod_group("need", 1, queue="right"),
            seen("q0", "need", shape=BIG),
            nodes=names,
        )
        for number, name in enumerate(names):
            app = f"db{number}" if number in guarded else "free"
            world.see(
                pod_group(f"l{number}", 1, queue="left"),
                seen(f"v{number}", f"l{number}", on=name, shape=BIG, labels={"app": app}),
            )
        for number in guarded:
            world.see(budget(f"db{number}"))
        #: Pods whose eviction the API server blocks.
        self.blocked: set[str] = set()
        self.asked: list[tuple[float, str]] = []
        self.history = GangHistory()
        self.runner = EvictionRunner(
            evictor=self,
            events=RecordingAnnouncer(),
            history=self.history,
            metrics=Metrics(),
            clock=world.clock,
            pending=world.cluster.pending_evictions,
        )
        self.runner.on_objection(world.cycle.request_cycle)
        world.make_plan = lambda snapshot: make_plan(snapshot, WITHOUT_PDB)
        world.protect = self.runner.protect  # type: ignore[method-assign]
        world.send = self.runner.send  # type: ignore[method-assign]
        world.report = self.report  # type: ignore[method-assign]
        self.began = world.clock.seconds

    def report(self, snapshot: Snapshot, plan: Plan) -> None:
        self.history.note(snapshot, plan)

    def evict(self, orders: Sequence[EvictOrder]) -> Sequence[Future[EvictOutcome]]:
        """Simulate the API server; an evicted pod begins to terminate."""
        outcomes = []
        for order in orders:
            self.asked.append((self.world.clock.seconds - self.began, order.name))
            if order.name in self.blocked:
                outcomes.append(EvictOutcome(EvictResult.BLOCKED, "the budget says no"))
                continue
            outcomes.append(EvictOutcome(EvictResult.LEAVING))
            shown = self.world.cluster.seen(order.uid)
            assert shown is not None
            number = order.name.removeprefix("v")
            self.world.see(
                seen(
                    order.name,
                    f"l{number}",
                    on=shown[0].node,
                    shape=BIG,
                    status=Status.RELEASING,
                    labels=shown[0].labels,
                )
            )
        return [settled(each) for each in outcomes]

    def pass_seconds(self, seconds: float) -> None:
        """Advance the time as the thread of the cycle does."""
        until = self.world.clock.seconds + seconds
        while self.world.clock.seconds < until:
            if self.world.cycle.is_due():
                self.world.cycle.run_once()
                self.world.clock.advance(0.005)  # a cycle takes a moment
            self.world.clock.advance(0.25)

    def names(self) -> list[str]:
        return [name for _, name in self.asked]


@pytest.mark.parametrize("victims", [2, 5, 20])
def test_another_pod_is_evicted_within_five_seconds_if_only_the_final_check_knows_the_budgets(
    victims: int,
) -> None:
    quiet = QuietCluster(victims, guarded=range(1, victims))
    quiet.pass_seconds(5)

    assert quiet.names() == ["v0"]


def test_pods_whose_eviction_is_always_blocked_do_not_keep_others_from_being_evicted() -> None:
    quiet = QuietCluster(20)
    quiet.blocked = {f"v{number}" for number in range(1, 20)}
    quiet.pass_seconds(10)

    assert "v0" in quiet.names()
    assert len(quiet.names()) == len(set(quiet.names())), "no pod was tried twice"


@pytest.mark.parametrize("refused_by", ["the final check", "the API server"])
def test_a_budget_that_covers_hundreds_of_pods_is_tried_once_and_not_per_pod(
    refused_by: str,
) -> None:
    quiet = QuietCluster(200, guarded=())
    covered = range(1, 200)
    for number in covered:
        quiet.world.see(
            seen(f"v{number}", f"l{number}", on=f"n{number}", shape=BIG, labels={"app": "db"})
        )
    if refused_by == "the API server":
        quiet.blocked = {f"v{number}" for number in covered}
    quiet.world.see(budget("db", allowed=0 if refused_by == "the final check" else 200))
    quiet.pass_seconds(5)

    assert "v0" in quiet.names()
    assert len(quiet.names()) <= 2


def test_a_pod_whose_eviction_is_always_refused_is_tried_less_often() -> None:
    quiet = QuietCluster(2)
    quiet.blocked = {"v0", "v1"}
    quiet.pass_seconds(STORY_S)

    times = [at for at, name in quiet.asked if name == "v0"]
    gaps = [round(later - at) for at, later in pairwise(times)]
    expected = [30, 60, 120, 240, 480, *[600] * 5]
    assert len(gaps) == sum(at < STORY_S for at in accumulate(expected))
    for least, gap in zip(expected, gaps, strict=False):
        assert least <= gap <= least + 7


def test_a_budget_that_begins_to_allow_a_disruption_is_used_within_five_seconds() -> None:
    quiet = QuietCluster(2, guarded=(0, 1))
    quiet.pass_seconds(600)
    assert quiet.asked == []

    changed = quiet.world.clock.seconds - quiet.began
    quiet.world.see(budget("db1", allowed=1))
    quiet.pass_seconds(5)

    assert quiet.names() == ["v1"]
    assert quiet.asked[0][0] - changed < 5


def test_a_new_node_is_used_although_all_victims_are_protected() -> None:
    quiet = QuietCluster(2, guarded=(0, 1))
    quiet.pass_seconds(60)
    quiet.world.cluster.apply(Upsert(node("new")))
    quiet.pass_seconds(5)

    assert quiet.asked == []
    assert quiet.world.of("q0").node == "new"
