"""Which victims of kube-scheduler may be preempted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from extender.cache.changes import Upsert
from extender.cache.reservation_table import Stage
from extender.evictions.preemption import Preemption
from extender.model.gang import Membership
from extender.model.pod import Pod, Status
from extender.model.queue import ROOT_QUEUE, Namespace, Queue, QueueState
from extender.model.reason import Problem, Reason
from extender.model.resources import Resources
from extender.planner.plan import Plan, QueueFigures, ShareFigures
from tests.builders import cache, member_of, node, pod, pod_group, seen, uid


def cpus(count: int) -> Resources:
    return Resources({"cpu": count * 1000})


class World:
    """One node, and a plan with the figures of two queues."""

    def __init__(self, *items: Any, **figures: tuple[int, int]) -> None:
        self.cluster = cache(node("n1"), *items)
        self.plan = Plan()
        self.count(**figures)
        #: What every queue may still use below its capability.
        self.most: Resources | None = None
        self.now = 0.0
        self.preemption = Preemption(self.cluster, lambda: self.plan, self.object, lambda: self.now)

    def object(self, queue: str, namespace: str, amounts: Resources) -> Problem | None:
        is_within = self.most is None or amounts.amount("cpu") <= self.most.amount("cpu")
        return None if is_within else Problem(Reason.QUEUE_AT_CAPABILITY, "it has all it may")

    def count(self, **figures: tuple[int, int]) -> None:
        """Make a plan with the current used and deserved amounts."""
        self.plan = Plan(
            generation=self.cluster.generation,
            queues={
                name: QueueFigures(name=name, weight=1, deserved=cpus(deserved), own=cpus(used))
                for name, (used, deserved) in figures.items()
            },
        )

    def ask(self, *victims: str, by: Pod | None = None, of: Membership | None = None) -> list[str]:
        """Return the victims on n1 that an ordinary pod, or *by*, may preempt."""
        chosen = {"n1": [uid(name) for name in victims]}
        answer = self.preemption.allowed_nodes(
            by or pod("boss"), of or seen("boss", "").membership, chosen
        )
        return [each.removeprefix("a-") for each in answer.get("n1", ())]


def running(count: int, **rest: Any) -> list[Any]:
    return [seen(f"p{index}", on="n1", **rest) for index in range(count)]


def test_a_surplus_member_may_be_preempted() -> None:
    assert World(pod_group(), *running(3)).ask("p0") == ["p0"]


def test_a_member_its_gang_needs_may_not_be_preempted() -> None:
    assert World(pod_group(), *running(2)).ask("p0") == []


def test_a_whole_gang_may_be_preempted() -> None:
    assert World(pod_group(), *running(2)).ask("p0", "p1") == ["p0", "p1"]


def test_a_gang_with_a_bind_in_progress_may_not_be_preempted() -> None:
    world = World(pod_group(), *running(2), seen("late"))
    world.cluster.reservations.reserve(pod("late"), member_of().key, "n1", 0.0)
    world.cluster.reservations.advance(uid("late"), Stage.BINDING)

    assert world.ask("p0", "p1") == []


def test_a_member_its_gang_needs_beside_pending_evictions_may_not_be_preempted() -> None:
    world = World(pod_group(), *running(4))
    world.cluster.pending_evictions.replace(
        {uid("p0"): member_of().key, uid("p1"): member_of().key}
    )

    assert world.ask("p2") == []
    world.cluster.pending_evictions.replace({})
    assert world.ask("p2") == ["p2"]


def test_the_running_members_of_a_gang_may_be_preempted_when_the_others_have_succeeded() -> None:
    done = seen("done", status=Status.SUCCEEDED)

    assert World(pod_group(min_member=3), *running(2), done).ask("p0", "p1") == ["p0", "p1"]


def test_the_only_member_of_a_needed_role_may_not_be_preempted() -> None:
    world = World(
        pod_group(min_by_role={"ps": 1, "worker": 1}),
        seen("ps", on="n1", role="ps"),
        *running(3, role="worker"),
    )

    assert world.ask("ps") == []
    assert world.ask("ps", "p0") == []
    assert world.ask("p0", "p1") == ["p0", "p1"], "one worker is enough"
    assert world.ask("p0", "p1", "p2") == []
    assert world.ask("ps", "p0", "p1", "p2") == ["ps", "p0", "p1", "p2"], "it leaves whole"


def test_a_pod_with_a_bind_in_progress_may_not_be_preempted_even_by_a_critical_pod() -> None:
    world = World(pod_group(min_member=1), seen("p0"))
    world.cluster.reservations.reserve(pod("p0"), member_of().key, "n1", 0.0)
    world.cluster.reservations.advance(uid("p0"), Stage.BINDING)

    assert world.ask("p0") == []
    assert world.ask("p0", by=pod("dns", namespace="kube-system")) == []


def test_a_pod_whose_bind_has_an_unknown_result_may_not_be_preempted() -> None:
    world = World(pod_group(), seen("p0", on="n1"), seen("p1"))
    world.cluster.reservations.reserve(pod("p1"), member_of().key, "n1", 0.0)
    world.cluster.reservations.advance(uid("p1"), Stage.UNKNOWN)

    assert world.ask("p1") == []


def test_a_pod_marked_as_not_preemptable_may_be_preempted_only_by_a_critical_pod() -> None:
    marked = seen("marked", "", on="n1", preemptable=False)
    foreign = seen("foreign", on="n1", ours=False, preemptable=False)
    world = World(marked, foreign, seen("other", "", on="n1"))

    assert world.ask("marked") == []
    assert world.ask("marked", "other") == []
    assert world.ask("marked", by=pod("dns", namespace="kube-system")) == ["marked"]
    assert world.ask("foreign") == ["foreign"], "it speaks of pods of ours"


def test_a_pod_with_a_waiting_bind_may_be_preempted_because_its_gang_has_not_started() -> None:
    world = World(pod_group(), seen("p0"), seen("p1"))
    for name in ("p0", "p1"):
        world.cluster.reservations.reserve(pod(name), member_of().key, "n1", 0.0)
        world.cluster.reservations.advance(uid(name), Stage.WAITING)

    assert world.ask("p0") == ["p0"]


def test_a_member_that_was_just_bound_may_not_be_preempted_before_the_watch_shows_it() -> None:
    world = World(pod_group(), seen("p0"), seen("p1"))
    for name in ("p0", "p1"):
        world.cluster.reservations.reserve(pod(name), member_of().key, "n1", 0.0)
        world.cluster.reservations.advance(uid(name), Stage.BOUND)

    assert world.ask("p0") == []
    assert world.ask("p0", "p1") == ["p0", "p1"], "it leaves whole"


def test_a_critical_pod_may_preempt_a_member_its_gang_needs() -> None:
    critical = pod("dns", namespace="kube-system")

    assert World(pod_group(), *running(2)).ask("p0", by=critical) == ["p0"]


def test_no_victim_is_allowed_for_a_member_of_a_gang_without_a_reservation() -> None:
    hopeless = {"by": pod("q0"), "of": member_of("second")}
    world = World(pod_group(), *running(3))
    assert world.ask("p0", **hopeless) == []

    world.cluster.reservations.reserve(pod("q0"), member_of("second").key, "n1", 0.0)
    assert world.ask("p0", **hopeless) == ["p0"]


def test_a_surplus_member_of_a_running_gang_may_preempt() -> None:
    world = World(pod_group(), *running(2), seen("other", "", on="n1"))

    assert world.ask("other", by=pod("p2"), of=member_of()) == ["other"]


#: What prevents an ordinary pod from starting whatever capacity is free.
NOT_ADMITTED = {
    "closed": [Queue(name="default", state=QueueState.CLOSED)],
    "closing": [Queue(name="default", state=QueueState.CLOSING)],
    "below a closed one": [
        Queue(name="default", parent="above"),
        Queue(name="above", state=QueueState.CLOSED),
    ],
    "below the root, and that is closed": [
        Queue(name="default"),
        Queue(name=ROOT_QUEUE, state=QueueState.CLOSED),
    ],
    "no queue": [Namespace(name="a", allowed=frozenset())],
}


@pytest.mark.parametrize("items", NOT_ADMITTED.values(), ids=NOT_ADMITTED)
def test_no_victim_is_allowed_for_a_pod_whose_queue_does_not_admit_it(items: list[Any]) -> None:
    world = World(*items, seen("other", "", on="n1"), seen("foreign", on="n1", ours=False))

    assert world.ask("other") == []
    assert world.ask("foreign") == []
    assert world.ask("other", by=pod("dns", namespace="kube-system")) == ["other"]
    assert world.ask("other", by=pod("foreign", ours=False)) == ["other"]


def test_no_victim_is_allowed_for_a_pod_that_is_invalid_or_has_an_invalid_group() -> None:
    unread = replace(seen("boss", "").membership, problem="too large")
    spoilt = pod_group("second", min_member=1, problem="minMember is negative")
    world = World(seen("other", "", on="n1"), spoilt, seen("q0", "second", on="n1"))

    assert world.ask("other", of=unread) == []
    assert world.ask("other", by=pod("q1"), of=member_of("second")) == []


def test_no_victim_of_another_queue_is_allowed_for_a_pod_whose_queue_is_at_its_capability() -> None:
    world = World(seen("other", "", on="n1"), seen("foreign", on="n1", ours=False))
    world.most = cpus(0)

    assert world.ask("foreign") == []
    assert world.ask("foreign", "other") == ["foreign", "other"], (
        "it takes capacity of its own queue"
    )
    world.most = cpus(1)
    assert world.ask("foreign") == ["foreign"]


def test_victims_are_allowed_for_a_pod_that_has_a_reservation_in_a_full_queue() -> None:
    world = World(seen("foreign", on="n1", ours=False))
    world.most = cpus(0)
    world.cluster.reservations.reserve(pod("boss"), seen("boss", "").membership.key, "n1", 0.0)

    assert world.ask("foreign") == ["foreign"]


def test_victims_that_are_already_terminating_are_not_evicted_again() -> None:
    world = World(pod_group(), *running(4))
    world.cluster.apply(Upsert(seen("p0", on="n1", status=Status.RELEASING)))

    assert world.ask("p0", "p1") == ["p1"]
    assert world.ask("p0") == [], "it is enough to wait"


def test_a_node_without_victims_is_not_a_candidate() -> None:
    assert World().ask() == []


def test_an_unknown_victim_is_left_to_kube_scheduler() -> None:
    assert World().ask("unknown") == ["unknown"]


class TestQueues:
    """A queue keeps its deserved share."""

    rich = pod_group(queue="rich", min_member=1)

    def world(self, *, reclaimable: bool = True, **figures: tuple[int, int]) -> World:
        queue = Queue(name="rich", reclaimable=reclaimable)
        return World(queue, self.rich, *running(3), **figures)

    def test_capacity_above_deserved_may_be_taken_for_a_queue_below_its_own(self) -> None:
        assert self.world(rich=(3, 2), default=(0, 2)).ask("p0") == ["p0"]

    def test_deserved_capacity_may_not_be_taken(self) -> None:
        assert self.world(rich=(3, 3), default=(0, 2)).ask("p0") == []
        assert self.world(rich=(3, 2), default=(0, 2)).ask("p0", "p1") == []

    def test_a_queue_at_its_deserved_share_may_not_take_from_another(self) -> None:
        assert self.world(rich=(3, 2), default=(2, 2)).ask("p0") == []

    def test_nothing_is_taken_from_a_queue_that_is_not_reclaimable(self) -> None:
        assert self.world(reclaimable=False, rich=(3, 2), default=(0, 2)).ask("p0") == []

    def test_nothing_is_taken_before_the_first_plan(self) -> None:
        assert self.world().ask("p0") == []

    def test_inside_a_queue_only_priority_decides(self) -> None:
        world = self.world(rich=(3, 3))

        assert world.ask("p0", by=pod("p9"), of=member_of()) == ["p0"]


def test_the_guarantee_of_a_namespace_in_a_queue_may_not_be_taken() -> None:
    world = World(pod_group(), *running(4))

    def has(number: int) -> list[str]:
        share = ShareFigures(
            queue="default", namespace="a", guarantee=cpus(2), allocated=cpus(number)
        )
        world.plan = Plan(shares={"default/a": share})
        return world.ask("p0", "p1", by=pod("boss", namespace="b"))

    assert has(3) == []
    assert has(4) == ["p0", "p1"]
    assert world.ask("p0", "p1") == ["p0", "p1"], "its own may"


def test_a_pod_on_a_node_that_is_not_managed_may_not_be_preempted_by_a_managed_pod() -> None:
    world = World(pod_group(), *running(3))
    world.cluster.apply(Upsert(node("n1", managed=False)))

    assert world.ask("p0") == []
    assert world.ask("p0", by=pod("foreign", ours=False)) == ["p0"]
