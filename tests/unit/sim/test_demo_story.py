"""An act of the demo fails when what it claims did not happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest

from extender.demo.acts import job
from extender.demo.embedded import ObjectStatus
from extender.demo.story import Act, ActOutcome, ActRunner, PlacementLog
from extender.model.gang import GangKey, Phase
from extender.model.pod import PodUid
from extender.model.reason import Reason
from extender.model.resources import NOTHING
from extender.planner.plan import HeldCapacity, HoldReason
from extender.ports import ObjectReference
from extender.sim.api_server import ApiServer
from extender.sim.clock import VirtualClock
from extender.sim.workloads import Job, Workloads
from extender.web import documents
from extender.web.plan_documents import PlanDocuments
from tests import builders
from tests.scene import plan, snapshot, verdict


class FakeDemo:
    """A demo cluster without a scheduler."""

    def __init__(self) -> None:
        clock = VirtualClock()
        self.api = ApiServer(clock)
        self.workloads = Workloads(clock, self.api, "gang-scheduler")
        self._ticks = count(1)
        self.placements = PlacementLog(self.api, monotonic=lambda: float(next(self._ticks)))
        self.planned = plan(generation=1)
        self.evicted: Counter[str] = Counter()
        self.jobs: list[Job] = []
        self.submit = self.workloads.create
        self.end_all = self.workloads.forget_all

    def end(self, job: str) -> None: ...

    def plan(self) -> documents.Plan:
        return PlanDocuments(self.planned, snapshot()).plan()

    def set_policy(self, text: str) -> None: ...

    def bind(self, name: str, gang: str) -> None:
        self.api.put(builders.seen(name, gang, on="node-0"))


def run_act(play: Callable[[ActRunner], None], demo: FakeDemo | None = None) -> ActOutcome:
    runner = ActRunner(demo or FakeDemo(), lambda sentence: None, speed=100)
    runner.patience_s = 0.0
    return runner.run(Act("act", "title", play))


def test_a_false_claim_fails_the_act() -> None:
    outcome = run_act(lambda on: (on.claim(True, "so it is"), on.claim(False, "all is well"))[0])

    assert outcome.claims == ["so it is"]
    assert outcome.broken == "not true: all is well"


def test_an_announced_start_that_does_not_come_fails_the_act() -> None:
    outcome = run_act(lambda on: on.wait_for_start("red", 8))

    assert outcome.broken == "timed out: red runs with 8 pods"


def test_an_act_removes_its_gangs() -> None:
    demo = FakeDemo()

    def play(on: ActRunner) -> None:
        on.scene.submit(job("red", "lab", 2))
        assert (len(demo.api.pods), len(demo.api.groups)) == (2, 1)

    run_act(play, demo)

    assert (demo.api.pods, demo.api.groups) == ({}, {})


def test_two_gangs_on_nodes_at_once_are_noticed() -> None:
    demo = FakeDemo()
    demo.bind("red-0", "red")
    assert not demo.placements.were_together("red", "blue")

    demo.bind("blue-0", "blue")

    assert demo.placements.were_together("red", "blue")


def test_a_gang_that_lost_a_pod_is_noticed() -> None:
    demo = FakeDemo()
    for number in range(2):
        demo.bind(f"red-{number}", "red")
    assert demo.placements.fewest("red", 2) == 2

    demo.api.delete_pod(builders.pod("red-1").uid)

    assert demo.placements.fewest("red", 2) == 1
    assert demo.placements.on_nodes("red") == 1


def test_a_pod_group_is_no_pod_of_the_same_name() -> None:
    demo = FakeDemo()
    demo.api.put(builders.seen("red-0", "red", on="node-0", uid=PodUid("a/red-0")))
    demo.api.put(builders.pod_group("red-0"))

    demo.api.delete_group(GangKey("a/red-0"))

    assert demo.placements.on_nodes("red") == 1


def test_a_status_keeps_the_phase_and_is_written_only_to_the_same_pod_group() -> None:
    api = ApiServer(VirtualClock())
    status = ObjectStatus(api)
    api.put(builders.pod_group("red", uid="one"))
    subject = ObjectReference(kind="PodGroup", namespace="a", name="red", uid="one")

    status.write(subject, {"phase": "Inqueue"})
    assert status.write(subject, {"running": 1}).result() == {"phase": "Inqueue", "running": 1}
    assert api.groups[GangKey("a/red")].phase is Phase.INQUEUE

    api.put(builders.pod_group("red", uid="two"))
    assert status.write(subject, {"phase": "Running"}).result() is None
    assert api.groups[GangKey("a/red")].phase is Phase.PENDING


@pytest.mark.parametrize(
    ("kept_for", "admitted", "is_all_kept"),
    [
        (["demo/giant"], [], True),
        ([], [], False),
        (["demo/s9"], ["s9"], False),
        (["demo/giant", "demo/s9"], [], False),
        (["demo/giant"], ["s9"], False),
    ],
)
def test_capacity_held_for_an_admitted_gang_is_not_reserved_for_giant(
    kept_for: list[str], admitted: list[str], is_all_kept: bool
) -> None:
    demo = FakeDemo()
    demo.planned = plan(
        *(verdict(f"demo/{each}", Reason.ADMITTED) for each in admitted),
        held=[HeldCapacity(HoldReason.STARVING, each, NOTHING) for each in kept_for],
    )
    runner = ActRunner(demo, lambda sentence: None)

    assert runner.is_all_reserved_for("giant") == is_all_kept
