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


DONE = seen("done", status=Status.SUCCEEDED)


@pytest.mark.parametrize(
    ("items", "asked", "allowed"),
    [
        ((pod_group(), *running(3)), ["p0"], True),
        ((pod_group(), *running(2)), ["p0"], False),
        ((pod_group(), *running(2)), ["p0", "p1"], True),
        ((pod_group(min_member=3), *running(2), DONE), ["p0", "p1"], True),
        ((), [], False),
        ((), ["unknown"], True),
    ],
    ids=[
        *("surplus", "needed", "a whole gang", "the rest beside one that succeeded"),
        *("no victims", "left to kube-scheduler"),
    ],
)
def test_victims_may_be_surplus_or_a_whole_gang(
    items: tuple[Any, ...], asked: list[str], allowed: bool
) -> None:
    assert World(*items).ask(*asked) == (asked if allowed else [])


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


CRITICAL = pod("dns", namespace="kube-system")


@pytest.mark.parametrize(
    ("stage", "alone", "together", "by_critical"),
    [
        (Stage.WAITING, True, True, True),  # its gang has not started
        (Stage.BINDING, False, False, False),
        (Stage.UNKNOWN, False, False, False),
        (Stage.BOUND, False, True, True),  # the watch does not show it yet
    ],
)
def test_a_pod_with_a_bind_may_be_preempted_by_the_stage_of_the_bind(
    stage: Stage, alone: bool, together: bool, by_critical: bool
) -> None:
    world = World(pod_group(), seen("p0"), seen("p1"))
    for name in ("p0", "p1"):
        world.cluster.reservations.reserve(pod(name), member_of().key, "n1", 0.0)
        world.cluster.reservations.advance(uid(name), stage)

    assert (world.ask("p0") == ["p0"]) is alone
    assert (world.ask("p0", "p1") == ["p0", "p1"]) is together
    assert (world.ask("p0", by=CRITICAL) == ["p0"]) is by_critical


def test_a_pod_marked_as_not_preemptable_may_be_preempted_only_by_a_critical_pod() -> None:
    marked = seen("marked", "", on="n1", preemptable=False)
    foreign = seen("foreign", on="n1", ours=False, preemptable=False)
    world = World(marked, foreign, seen("other", "", on="n1"))

    assert world.ask("marked") == []
    assert world.ask("marked", "other") == []
    assert world.ask("marked", by=CRITICAL) == ["marked"]
    assert world.ask("foreign") == ["foreign"], "it speaks of pods of ours"


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
    assert world.ask("other", by=CRITICAL) == ["other"]
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


@pytest.mark.parametrize(
    ("figures", "asked", "allowed"),
    [
        ({"rich": (3, 2), "default": (0, 2)}, ["p0"], True),
        ({"rich": (3, 3), "default": (0, 2)}, ["p0"], False),
        ({"rich": (3, 2), "default": (0, 2)}, ["p0", "p1"], False),
        ({"rich": (3, 2), "default": (2, 2)}, ["p0"], False),
        ({}, ["p0"], False),
    ],
    ids=[
        "above deserved, for a queue below its own",
        "deserved",
        "more than is above deserved",
        "for a queue at its deserved share",
        "before the first plan",
    ],
)
def test_a_queue_keeps_its_deserved_share(
    figures: dict[str, tuple[int, int]], asked: list[str], allowed: bool
) -> None:
    group = pod_group(queue="rich", min_member=1)
    world = World(Queue(name="rich"), group, *running(3), **figures)

    assert world.ask(*asked) == (asked if allowed else [])
    inside = world.ask(*asked, by=pod("p9"), of=member_of())
    assert inside == asked, "inside a queue only priority decides"


def test_nothing_is_taken_from_a_queue_that_is_not_reclaimable() -> None:
    queue, group = Queue(name="rich", reclaimable=False), pod_group(queue="rich", min_member=1)
    world = World(queue, group, *running(3), rich=(3, 2), default=(0, 2))

    assert world.ask("p0") == []


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
