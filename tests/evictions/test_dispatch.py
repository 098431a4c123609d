"""Sets of victims go out whole, one at a time for each gang that needs room."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from extender.evictions.dispatch import BLOCKED_S, REFUSED_S, UNSEEN_S, Dispatch
from extender.evictions.reprieves import Reprieves
from extender.metrics import Metrics
from extender.model.gang import Gang, GangKey
from extender.model.pod import PodUid, Status
from extender.model.snapshot import Snapshot
from extender.plan.decision import Eviction, Plan
from extender.ports import EvictOutcome, EvictResult
from extender.reporting.journal import Journal
from tests.evictions.scene import (
    RecordingAnnouncer,
    RecordingEvictor,
    VirtualClock,
    budget,
    evictions,
    gang,
    pod,
    snapshot,
    verdict,
)

NEEDY = gang("needy", 2, status=Status.PENDING, queue="right")
OLD = gang("old", 2)


@dataclass
class Bench:
    """Dispatch with everything around them recorded."""

    dry_run: bool = False
    evictor: RecordingEvictor = field(default_factory=RecordingEvictor)
    announcer: RecordingAnnouncer = field(default_factory=RecordingAnnouncer)
    journal: Journal = field(default_factory=Journal)
    metrics: Metrics = field(default_factory=Metrics)
    clock: VirtualClock = field(default_factory=VirtualClock)
    pokes: int = 0

    def __post_init__(self) -> None:
        self.dispatch = Dispatch(
            evictor=self.evictor,
            announcer=self.announcer,
            journal=self.journal,
            metrics=self.metrics,
            clock=self.clock,
            reprieves=Reprieves(rerun_s=60),
            dry_run=self.dry_run,
        )
        self.dispatch.on_objection(self._poke)

    def _poke(self) -> None:
        self.pokes += 1

    def carry_out(self, *gangs: Gang, wanted: list[Eviction], **seen: Any) -> Snapshot:
        now = snapshot(*gangs, now=self.clock.now(), **seen)
        self.dispatch.carry_out(now, Plan(evictions=tuple(wanted)))
        return now

    def counted(self, action: str, outcome: str) -> float:
        return self.metrics.evictions.labels(action, outcome)._value.get()


def test_a_set_goes_out_once_although_every_plan_names_it() -> None:
    bench = Bench()
    for _ in range(3):
        bench.carry_out(OLD, NEEDY, wanted=evictions(OLD))

    assert bench.evictor.names() == ["old-0", "old-1"]
    assert bench.counted("reclaim", "evicted") == 2


def test_other_victims_are_not_asked_for_while_a_set_is_on_its_way() -> None:
    bench = Bench()
    other = gang("other", 2)
    bench.carry_out(OLD, other, NEEDY, wanted=evictions(OLD))
    half = gang("old", [pod("old-0", Status.RELEASING), pod("old-1")])
    bench.carry_out(half, other, NEEDY, wanted=evictions(other))

    assert bench.evictor.names() == ["old-0", "old-1"]


def test_the_next_set_may_go_once_the_first_is_seen_to_leave() -> None:
    bench = Bench()
    other = gang("other", 2)
    bench.carry_out(OLD, other, NEEDY, wanted=evictions(OLD))
    bench.carry_out(gang("old", 2, status=Status.RELEASING), other, NEEDY, wanted=evictions(other))

    assert bench.evictor.names() == ["old-0", "old-1", "other-0", "other-1"]


def test_a_set_that_nobody_sees_leave_does_not_block_for_ever() -> None:
    bench = Bench()
    bench.carry_out(OLD, NEEDY, wanted=evictions(OLD))
    bench.clock.pass_(UNSEEN_S + 1)
    bench.carry_out(OLD, NEEDY, wanted=evictions(OLD))

    assert len(bench.evictor.orders) == 4


def test_nobody_is_asked_to_leave_for_two_gangs_at_once() -> None:
    bench = Bench()
    third = gang("third", 1, status=Status.PENDING, queue="right")
    twice = evictions(OLD) + evictions(OLD, beneficiary="a/third")
    bench.carry_out(OLD, NEEDY, third, wanted=twice)

    assert bench.evictor.names() == ["old-0", "old-1"]


def test_a_gang_may_leave_whole_for_two_others_together() -> None:
    bench = Bench()
    third = gang("third", 1, status=Status.PENDING, queue="right")
    large = gang("old", 3, min_member=2)
    surplus = evictions(large, only=1)
    rest = [each for each in evictions(large, beneficiary="a/third") if each.name != "old-0"]
    bench.carry_out(large, NEEDY, third, wanted=surplus + rest)

    assert bench.evictor.names() == ["old-0", "old-1", "old-2"]


def test_a_set_with_one_victim_that_may_not_go_does_not_go_at_all_and_the_plan_hears_why() -> None:
    bench = Bench()
    guarded = gang("guarded", [pod("guarded-0", labels={"app": "db"})])
    wanted = evictions(OLD, guarded)
    seen = bench.carry_out(OLD, guarded, NEEDY, wanted=wanted, budgets=[budget("db", 0, app="db")])

    assert bench.evictor.orders == []
    assert bench.counted("reclaim", "refused") == 1
    assert bench.dispatch.protect(seen).protected == {
        PodUid("uid-guarded-0"): "PodDisruptionBudget a/db allows 0 disruptions, not 1"
    }
    bench.clock.pass_(REFUSED_S)
    assert bench.dispatch.protect(snapshot(now=bench.clock.now())).protected == {}


def test_a_blocked_victim_is_spared_and_another_plan_is_asked_for() -> None:
    bench = Bench()
    bench.evictor.outcomes["old-1"] = EvictOutcome(EvictResult.BLOCKED, "the budget says no")
    seen = bench.carry_out(OLD, NEEDY, wanted=evictions(OLD))

    assert bench.pokes == 1
    assert bench.dispatch.protect(seen).protected == {PodUid("uid-old-1"): "the budget says no"}
    assert bench.counted("reclaim", "blocked") == 1
    bench.clock.pass_(BLOCKED_S)
    assert bench.dispatch.protect(snapshot(now=bench.clock.now())).protected == {}


def test_the_rest_of_a_set_is_awaited_after_one_was_blocked() -> None:
    bench = Bench()
    other = gang("other", 2)
    bench.evictor.outcomes["old-1"] = EvictOutcome(EvictResult.BLOCKED, "no")
    bench.carry_out(OLD, other, NEEDY, wanted=evictions(OLD))
    bench.carry_out(OLD, other, NEEDY, wanted=evictions(other))
    left = gang("old", [pod("old-1")])
    bench.carry_out(left, other, NEEDY, wanted=evictions(other))

    assert bench.evictor.names() == ["old-0", "old-1", "other-0", "other-1"]


def test_everybody_concerned_is_told_once_and_not_per_pod() -> None:
    bench = Bench()
    bench.carry_out(OLD, NEEDY, wanted=evictions(OLD))

    assert bench.announcer.said() == [("old", "Evict")]
    assert bench.announcer.notices[0].message == (
        "2 of 2 running members leave: queue right takes back its due from queue left for a/needy"
    )
    assert [line.text for line in bench.journal.story(GangKey("a/needy"))] == [
        "reclaim asks 2 pods to leave for it, of a/old"
    ]
    assert [line.word for line in bench.journal.story(GangKey("a/old"))] == ["Evict"]


def test_the_pod_itself_is_told_for_whom_it_leaves() -> None:
    bench = Bench()
    needy = gang("needy", 1, status=Status.PENDING, queue="left", priority=100)
    bench.carry_out(OLD, needy, wanted=evictions(OLD, action="preempt"))

    assert {order.why for order in bench.evictor.orders} == {"a/needy has priority 100 over 0"}


def test_a_dry_run_reports_and_evicts_nobody() -> None:
    bench = Bench(dry_run=True)
    for _ in range(3):
        bench.carry_out(OLD, NEEDY, wanted=evictions(OLD))

    assert bench.evictor.orders == []
    assert bench.announcer.said() == [("old", "WouldEvict")]
    assert bench.counted("reclaim", "dry-run") == 2


def test_a_gang_that_came_back_is_left_alone_for_a_while() -> None:
    bench = Bench()
    bench.carry_out(OLD, NEEDY, wanted=evictions(OLD))
    back = snapshot(OLD, NEEDY, now=bench.clock.now())
    bench.journal.note(back, Plan(verdicts={GangKey("a/old"): verdict("a/old")}))

    assert set(bench.dispatch.protect(back).protected) == {"uid-old-0", "uid-old-1"}
    bench.clock.pass_(61)
    later = snapshot(OLD, NEEDY, now=bench.clock.now())
    assert bench.dispatch.protect(later).protected == {}
