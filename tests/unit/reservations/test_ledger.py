"""The reservations of pods and gangs, however filter, bind, plan and watch interleave."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from extender.cache.changes import Delete, Kind
from extender.cache.reservation_table import ANY_NODE, SETTLED_S, Stage
from extender.model.gang import GangKey
from extender.model.pod import Toleration
from extender.model.queue import Queue
from extender.model.resources import Resources
from extender.planner.plan import Plan
from extender.ports import WakeOrder
from extender.reservations.apply_plan import MOST_REFUSALS, SLICE
from tests.builders import GANG, ONE_CPU, node, pod, pod_group, seen, shape, uid
from tests.unit.reservations.world import NODES, OPEN, World

#: Fills a node.
BIG = shape(cpu=4)
QUICK = GangKey("a/quick")


def gang_of_two(**rest: Any) -> list[Any]:
    return [pod_group(), seen("p0", **rest), seen("p1", **rest)]


# Wake-ups


def test_a_member_refused_while_its_reservation_is_made_is_woken_within_a_second() -> None:
    world = World(*gang_of_two(), plan=Plan())
    world.between = lambda: world.ledger.refused(uid("p0"))
    world.turn()
    world.ledger.refused(uid("p1"))

    assert "p1" in world.wait(1.0)


def test_a_pod_with_a_reservation_that_is_refused_again_is_woken_again() -> None:
    world = World(*gang_of_two(), plan=Plan())
    world.ask("p0")
    assert world.turn() == ["p0"]
    world.clock.advance(0.1)
    world.ledger.refused(uid("p0"))

    assert world.wait(1.0) == ["p0"]


def test_a_member_that_took_over_a_placeholder_is_woken_like_any_other() -> None:
    world = World(pod_group(), plan=OPEN)
    assert world.ask("p0").nodes
    world.see(seen("p0"), seen("p1"))
    world.arrivals.settle()
    assert world.of("p1").stage is Stage.RESERVED
    world.see(seen("p1", refusal="0/2 nodes are available: 2 Insufficient cpu"))

    assert world.wait(1.0) == ["p1"]


def test_a_pod_that_does_not_come_to_filter_is_woken_before_its_reservation_expires() -> None:
    # kube-scheduler 1.28 does not retry a pod whose filter call got no answer, and its condition
    # says only that something went wrong.
    world = World(*gang_of_two(), plan=Plan())
    assert world.turn() == []

    assert world.wait(9.0) == []
    assert sorted(world.wait(2.0)) == ["p0", "p1"]
    assert world.of("p0").stage is Stage.RESERVED


@pytest.mark.parametrize(("is_busy", "seconds"), [(False, 3.0), (True, 15.0)])
def test_a_pod_that_kube_scheduler_may_still_retry_itself_is_not_woken(
    is_busy: bool, seconds: float
) -> None:
    """It works through its queue for longer while it is busy."""
    world = World(*gang_of_two(), plan=Plan())
    world.turn()
    world.is_busy = is_busy

    assert world.wait(seconds) == []


# Offers without the reserved node


def test_a_stale_nomination_swaps_reservations_and_ends_none() -> None:
    words = "0/2 nodes are available: 2 BehindInOrder: gangs ahead."
    world = World(
        pod_group(), seen("p0", shape=BIG), seen("p1", shape=BIG, nominated="n1", refusal=words)
    )
    world.turn()
    stale = world.of("p0").node

    fast = world.ask("p1", offered=[stale], shape=BIG, nominated=stale)

    assert list(fast.nodes) == [stale]
    assert sorted(world.places().values()) == NODES
    assert world.backs_off_for() == 0


@pytest.mark.parametrize(
    "worse",
    [
        {"cpu": 1},
        {"taints": ("gone",)},
        {"unschedulable": True},
        {"ready": False},
        {"managed": False},
    ],
    ids=["smaller", "tainted", "cordoned", "not ready", "not ours"],
)
def test_reservations_are_not_swapped_to_a_node_that_got_worse(worse: Any) -> None:
    world = World(*gang_of_two(shape=BIG))
    world.turn()
    mine, other = world.of("p0").node, world.of("p1").node
    world.see(node(mine, **worse))

    assert not world.ask("p0", offered=[other], shape=BIG).nodes

    assert world.places() == {"p0": mine, "p1": other}


def test_an_offer_of_full_nodes_keeps_the_reservation_and_nominates_the_pod() -> None:
    world = World(*gang_of_two(shape=BIG), nodes=["n1", "n2", "n3"])
    world.see(seen("old", "other", shape=BIG, on="n3"))
    world.turn()
    mine = world.of("p0").node
    assert world.ask("p1", offered=[world.of("p1").node], shape=BIG).nodes
    world.woken.clear()

    answer = world.ask("p0", offered=["n3"], shape=BIG)

    assert answer.outcome == "InsufficientCapacity"
    assert world.of("p0").node == mine
    assert [(order.name, order.node) for order in world.woken] == [("p0", mine)]
    assert world.backs_off_for() == 0


def test_a_nominated_node_that_is_not_offered_is_a_rejected_node_of_that_gang() -> None:
    world = World(*gang_of_two(shape=BIG))
    world.turn()
    mine, other = world.of("p0").node, world.of("p1").node
    assert world.ask("p1", offered=[other], shape=BIG).nodes
    assert not world.ask("p0", offered=[other], shape=BIG).nodes
    world.clock.advance(2)

    assert not world.ask("p0", offered=[other], shape=BIG).nodes

    assert world.cluster.rejected_nodes.expire() == {GANG: {mine}}
    assert world.backs_off_for() == 10


def test_kube_schedulers_samples_end_no_reservation() -> None:
    chance = Random(3)
    names = [f"m{index:03d}" for index in range(300)]
    world = World(nodes=names)
    gangs = [f"g{index:02d}" for index in range(15)]
    pods = [(gang, f"{gang}-{index}") for gang in gangs for index in range(20)]
    world.see(*(pod_group(gang, 20) for gang in gangs))
    world.see(*(seen(name, gang, shape=BIG) for gang, name in pods))
    world.turn()
    chance.shuffle(pods)
    assumed: set[str] = set()
    start = 0
    for gang, name in pods:
        sample = [each for each in names[start:] + names[:start] if each not in assumed][:100]
        start = (start + 100) % 300
        answer = world.ask(name, gang, sample, shape=BIG)
        assert len(answer.nodes) == 1, answer.outcome
        assumed.add(answer.nodes[0])
        world.ledger.mark_waiting(uid(name), answer.nodes[0])

    assert len(assumed) == 300
    assert not world.cluster.rejected_nodes.expire()


def test_the_rejected_nodes_of_one_gang_are_not_rejected_for_others() -> None:
    words = "0/2 nodes are available: 2 node(s) had volume node affinity conflict"
    world = World(*gang_of_two(shape=BIG, refusal=words))
    world.turn()
    world.wait(21)
    assert world.cluster.rejected_nodes.expire() == {GANG: {"n1", "n2"}}
    world.lose_pod("p0")
    world.lose_pod("p1")
    world.see(pod_group("quick"), seen("q0", "quick", shape=BIG), seen("q1", "quick", shape=BIG))

    world.turn()

    assert sorted(world.places(QUICK).values()) == NODES
    assert not world.cluster.rejected_nodes.expire(), "they are forgotten with their gang"


# Ordinary pods


def three_of_four_reserved(world: World) -> World:
    """Reserve three of the four slots of n1 for a gang."""
    for index in range(3):
        world.promise(f"p{index}", "n1")
    return world


def test_an_ordinary_pod_does_not_take_reserved_capacity_between_filter_and_bind() -> None:
    world = World(seen("a", ""), seen("b", ""), plan=OPEN)
    assert list(world.ask_single("a").nodes) == NODES
    assert list(world.ask_single("b").nodes) == NODES
    three_of_four_reserved(world)

    assert world.ledger.may_bind(uid("a"), "n1")
    world.ledger.mark_binding(uid("a"), "n1")

    assert not world.ledger.may_bind(uid("b"), "n1")
    assert world.ledger.may_bind(uid("b"), "n2")


def test_an_ordinary_pod_with_one_node_left_has_a_reservation_there() -> None:
    world = three_of_four_reserved(World(seen("a", ""), seen("b", ""), plan=OPEN))
    assert list(world.ask_single("a", ["n1"]).nodes) == ["n1"]
    assert world.of("a").node == "n1"

    assert world.ask_single("b", ["n1"]).outcome == "BehindInOrder"
    world.wait(21)
    assert world.table.of(uid("a")) is None, (
        "its volumes may take long, and its bind is checked again"
    )
    assert world.backs_off_for(GangKey("a/pod:a")) == 0


def test_a_pod_that_may_use_a_contested_node_blocks_it_until_its_node_is_known() -> None:
    world = three_of_four_reserved(World(seen("a", ""), seen("b", ""), plan=OPEN))
    assert list(world.ask_single("a").nodes) == NODES

    assert world.ask_single("b", ["n1"]).outcome == "BehindInOrder"
    world.ledger.mark_binding(uid("a"), "n2")
    assert world.ask_single("b", ["n1"]).nodes


def test_ordinary_pods_with_a_choice_avoid_each_others_nodes() -> None:
    world = three_of_four_reserved(World(seen("a", ""), seen("b", ""), plan=OPEN))
    assert list(world.ask_single("a").nodes) == NODES

    assert list(world.ask_single("b").nodes) == ["n2"]


def test_on_a_node_without_reservations_kube_schedulers_count_is_used() -> None:
    world = World(seen("old", "other", shape=BIG, on="n1"), seen("a", ""), plan=OPEN)

    assert world.ask_single("a", ["n1"]).nodes
    assert world.ledger.may_bind(uid("a"), "n1"), "the watch may be behind"


def test_capacity_of_a_binding_in_flight_is_not_given_to_another_pod() -> None:
    """A kube-scheduler that was just restarted does not count it there."""
    world = World(seen("a", "", shape=BIG), seen("b", "", shape=BIG), plan=OPEN)
    world.ask_single("a", shape=BIG)
    world.ledger.mark_binding(uid("a"), "n1")

    assert list(world.ask_single("b", shape=BIG).nodes) == ["n2"]
    assert not world.ledger.may_bind(uid("b"), "n1")


def test_an_ordinary_pod_is_not_bound_to_a_reserved_node_that_shrank_meanwhile() -> None:
    world = three_of_four_reserved(World(seen("a", ""), plan=OPEN))
    assert list(world.ask_single("a", ["n1"]).nodes) == ["n1"]

    world.see(node("n1", cpu=3))

    assert not world.ledger.may_bind(uid("a"), "n1")


def test_a_node_that_just_shrank_is_judged_by_the_extenders_count() -> None:
    world = World(seen("a", ""), seen("b", ""), seen("old", "other", on="n1"), plan=OPEN)
    assert list(world.ask_single("a").nodes) == NODES
    world.see(node("n1", cpu=1))

    assert not world.ledger.may_bind(uid("a"), "n1")
    assert list(world.ask_single("b").nodes) == ["n2"]
    world.wait(31)
    assert list(world.ask_single("b").nodes) == NODES, "by now kube-scheduler knows better"


@pytest.mark.parametrize(
    "worse",
    [{"taints": ("gone",)}, {"unschedulable": True}, {"managed": False}],
    ids=["tainted", "cordoned", "not ours"],
)
def test_no_pod_is_bound_to_a_node_that_was_closed_since_filter(worse: Any) -> None:
    world = World(seen("a", ""), plan=OPEN)
    assert list(world.ask_single("a").nodes) == NODES
    world.wait(21)
    assert world.table.of(uid("a")) is None

    world.see(node("n1", **worse))

    assert not world.ledger.may_bind(uid("a"), "n1")
    assert world.ledger.may_bind(uid("a"), "n2")


@pytest.mark.parametrize("state", [{"unschedulable": True}, {"ready": False}], ids=str)
def test_a_pod_that_kube_scheduler_would_place_on_a_poor_node_is_bound_there(state: Any) -> None:
    kind = shape(cpu=1, tolerations=(Toleration(operator="Exists"),))
    kind = kind if "unschedulable" in state else ONE_CPU
    world = World(seen("agent", "", shape=kind), node("n1", **state), plan=OPEN)
    assert list(world.ask_single("agent", ["n1"], shape=kind).nodes) == ["n1"]
    assert world.of("agent").node == "n1"

    assert world.ledger.may_bind(uid("agent"), "n1")


def test_an_ordinary_pod_counts_in_its_queue_from_filter_on() -> None:
    world = World(
        Queue(name="q", capability=Resources({"cpu": 2000})),
        *(seen(name, "", queue="q") for name in ("a", "b", "c")),
    )
    world.turn()
    assert world.ask_single("a", queue="q").nodes
    world.turn()
    assert world.ask_single("b", queue="q").nodes
    world.turn()

    assert not world.ask_single("c", queue="q").nodes


def test_an_admitted_pod_for_which_no_node_was_found_counts_no_longer() -> None:
    world = World(seen("a", ""), plan=OPEN)
    world.ask_single("a")
    assert world.of("a").node == ANY_NODE

    world.see(seen("a", "", refusal="0/2 nodes are available: 2 Insufficient memory"))

    assert world.table.of(uid("a")) is None


def test_a_pod_whose_volumes_take_long_is_checked_again_when_its_bind_comes() -> None:
    world = World(Queue(name="q", capability=Resources({"cpu": 1000})))
    world.see(*(seen(name, "", queue="q", created=world.clock.now() + 1) for name in ("a", "b")))
    world.turn()
    assert world.ask_single("a", queue="q").nodes
    world.wait(21)
    assert world.table.of(uid("a")) is None
    world.turn()
    assert world.ask_single("b", queue="q").nodes

    assert not world.ledger.may_bind(uid("a"), "n1")
    assert world.ledger.may_bind(uid("b"), "n1")


def test_an_ordinary_pod_that_finds_no_free_node_keeps_its_reservation() -> None:
    world = World(seen("web", ""), plan=OPEN)
    world.promise("web", "n2", GangKey("a/pod:web"))
    for index in range(4):
        world.promise(f"p{index}", "n1")

    assert world.ask_single("web", ["n1"]).outcome == "BehindInOrder"
    assert world.of("web").node == "n2"


# Queues


def test_filter_and_plan_do_not_use_the_same_remainder_of_a_capability() -> None:
    world = World(
        Queue(name="q", capability=Resources({"cpu": 4000})),
        pod_group("train", 1, queue="q"),
        pod_group("quick", 1, queue="q"),
    )
    world.turn()
    world.see(seen("p0", shape=BIG))

    world.turn(meanwhile=lambda: world.ask("q0", "quick", ["n2"], shape=BIG))

    assert world.places(QUICK) == {"q0": "n2"}
    assert world.places() == {}
    assert world.cycle.is_due(), "the refused gang is planned again"


def guaranteed() -> list[Any]:
    return [
        node("n1", cpu=10),
        Queue(name="q1"),
        Queue(name="q2"),
        Queue(name="q3", guarantee=Resources({"cpu": 4000})),
    ]


def test_two_queues_together_use_no_capacity_guaranteed_to_a_third() -> None:
    world = World(*guaranteed(), nodes=[])
    world.turn()

    passed = [
        world.ask_single(f"{queue}-{index}", ["n1"], queue=queue)
        for index in range(5)
        for queue in ("q1", "q2")
    ]

    assert sum(bool(answer.nodes) for answer in passed) == 6
    assert world.ask_single("theirs", ["n1"], queue="q3").nodes


def test_a_guarantee_holds_from_the_moment_a_node_is_deleted() -> None:
    world = World(
        node("n1", cpu=4),
        node("n2", cpu=4),
        Queue(name="q1"),
        Queue(name="q3", guarantee=Resources({"cpu": 2000})),
        nodes=[],
    )
    world.turn()
    world.cluster.apply(Delete(Kind.NODE, "n1"))

    passed = [bool(world.ask_single(f"p{number}", ["n2"], queue="q1").nodes) for number in range(4)]

    assert passed == [True, True, False, False]


def test_a_ceiling_applies_to_all_child_queues_before_the_next_plan() -> None:
    world = World(
        Queue(name="parent", capability=Resources({"cpu": 2000})),
        Queue(name="one", parent="parent"),
        Queue(name="two", parent="parent"),
    )
    world.turn()

    passed = [
        bool(world.ask_single(f"{queue}-{index}", queue=queue).nodes)
        for index in range(2)
        for queue in ("one", "two")
    ]

    assert passed == [True, True, False, False]


# Reservations


def test_no_reservation_is_made_on_a_node_that_was_tainted_meanwhile() -> None:
    world = World(*gang_of_two(shape=BIG))

    world.turn(meanwhile=lambda: world.see(node("n1", taints=("gone",))))

    assert world.places() == {}
    assert world.cycle.is_due()


@pytest.mark.parametrize(
    "change",
    [
        pod_group(min_member=3),
        pod_group(queue="other"),
        pod_group(uid="another"),
        seen("p0", gated=True),
        seen("p0", on="n2"),
    ],
    ids=["larger", "another queue", "made anew", "a member gated", "a member elsewhere"],
)
def test_no_reservation_is_made_for_a_gang_that_changed_meanwhile(change: Any) -> None:
    world = World(*gang_of_two(), Queue(name="other"))

    world.turn(meanwhile=lambda: world.see(change))

    assert world.places() == {}


def test_no_member_of_a_large_gang_is_admitted_before_all_have_reservations() -> None:
    size = 2 * SLICE + 1
    world = World(pod_group(min_member=size), nodes=[f"n{index}" for index in range(size)])
    world.see(*(seen(f"p{index}", shape=BIG) for index in range(size)))
    answers = []

    def ask() -> None:
        mine = world.table.of(uid("p0"))
        if mine is not None:
            answers.append(world.ask("p0", offered=[mine.node], shape=BIG).outcome)

    world.between = ask
    assert world.turn() == ["p0"]

    assert answers == ["InsufficientCapacity", "InsufficientCapacity"]
    assert len(world.places()) == size


def test_no_member_of_a_large_gang_is_woken_before_all_have_reservations() -> None:
    size = SLICE + 1
    world = World(pod_group(min_member=size), nodes=[f"n{index}" for index in range(size)])
    world.see(*(seen(f"p{index}", shape=BIG, refusal="no room") for index in range(size)))
    woken = []

    def look_after() -> None:
        world.ledger.check_due()
        woken.append(len(world.woken))

    world.between = look_after
    assert len(world.turn()) == size

    assert set(woken) == {0}


def test_a_large_gang_whose_last_slice_does_not_fit_releases_the_first() -> None:
    size = 2 * SLICE + 1
    world = World(pod_group(min_member=size), nodes=[f"n{index}" for index in range(size)])
    world.see(*(seen(f"p{index}", shape=BIG) for index in range(size)))

    def taint_a_node() -> None:
        if len(world.places()) == 2 * SLICE:
            free = {f"n{index}" for index in range(size)} - set(world.places().values())
            world.see(node(free.pop(), taints=("gone",)))

    world.between = taint_a_node
    world.turn()

    assert world.places() == {}


def test_a_gang_whose_placement_is_always_refused_backs_off() -> None:
    world = World(*gang_of_two())
    real = world.cluster.node
    world.cluster.node = lambda name: None  # type: ignore[method-assign]
    for _ in range(MOST_REFUSALS):
        world.turn()
        assert world.backs_off_for() == 0
        assert world.cycle.is_due()

    world.turn()
    assert world.backs_off_for() == 10

    world.cluster.node = real  # type: ignore[method-assign]
    world.turn(after_s=11)
    assert len(world.places()) == 2


# Ends


def test_a_member_busy_with_its_volumes_keeps_its_reservation_while_other_binds_wait() -> None:
    world = World(*gang_of_two())
    world.turn()
    for name in ("p0", "p1"):
        assert world.ask(name).nodes
    world.ledger.mark_waiting(uid("p0"), world.of("p0").node)

    world.wait(29)

    assert world.stages() == {"p0": Stage.WAITING, "p1": Stage.FILTERED}
    assert world.backs_off_for() == 0


def test_an_ordinary_pod_whose_reservation_expired_backs_off_for_a_second() -> None:
    """It may have been behind thousands in kube-scheduler's queue, and reserves little capacity."""
    key = GangKey("a/pod:a")
    world = World(seen("a", ""), plan=Plan())
    for pause_s in (1, 2, 4):
        world.promise("a", "n1", key)
        world.wait(20.5)
        assert world.table.of(uid("a")) is None
        assert world.backs_off_for(key) == pytest.approx(pause_s, abs=0.5)


def test_the_nomination_is_removed_with_an_expired_reservation() -> None:
    world = World(*gang_of_two(), plan=Plan())
    world.ask("p0")
    assert world.turn() == ["p0"]
    assert world.ask("p0").nodes, "and then kube-scheduler gives up"

    world.wait(23)

    assert {order.name: order.node for order in world.woken} == {"p0": "", "p1": ""}


def test_an_unused_reservation_expires_without_a_planning_cycle_and_listeners_are_told() -> None:
    world = World(*gang_of_two())
    notified: list[tuple[GangKey, float]] = []
    world.ledger.on_expired(lambda gang, pause_s: notified.append((gang, pause_s)))
    world.turn()

    world.wait(21)

    assert notified == [(GANG, 10.0)]
    assert world.places() == {}
    assert world.backs_off_for() > 0


def test_a_pod_whose_binding_is_in_flight_gets_no_other_node() -> None:
    world = World(*gang_of_two())
    world.turn()
    mine = world.of("p0").node
    other = next(name for name in NODES if name != mine)
    world.ledger.mark_waiting(uid("p0"), mine)
    world.ledger.mark_binding(uid("p0"), mine)

    assert not world.ask("p0", offered=[other]).nodes
    assert list(world.ask("p0").nodes) == [mine]
    assert world.of("p0").stage is Stage.BINDING


def test_each_stage_has_its_own_deadline() -> None:
    world = World(*gang_of_two())
    world.turn()
    world.wait(14)
    for name in ("p0", "p1"):
        world.ask(name)

    world.wait(14)
    assert world.stages() == {"p0": Stage.FILTERED, "p1": Stage.FILTERED}

    world.wait(8)
    assert world.places() == {}


def test_a_failed_binding_leaves_its_pod_a_reservation_that_expires() -> None:
    world = World(*gang_of_two())
    world.turn()
    world.ledger.mark_waiting(uid("p0"), "n1")
    world.ledger.mark_binding(uid("p0"), "n1")
    world.ledger.keep_reserved(uid("p0"), "n1")

    world.wait(26)

    assert world.places() == {}


def test_a_pod_known_only_from_filter_is_committed_with_its_capacity() -> None:
    world = World(plan=OPEN)
    world.ask_single("new")

    world.ledger.mark_binding(uid("new"), "n1")

    assert world.table.assumed_on("n1") == pod("new").requests


def test_a_check_that_fails_is_repeated_for_its_reservation() -> None:
    world = World(*gang_of_two(), plan=Plan())
    world.turn()
    notified: list[GangKey] = []

    def stumble(key: GangKey, pause_s: float) -> None:
        notified.append(key)
        raise RuntimeError("stumbled")

    world.ledger.on_expired(stumble)
    world.ledger.on_expired(lambda key, pause_s: notified.append(key))
    with pytest.raises(RuntimeError):
        world.wait(21)

    assert notified == [GANG, GANG], "a listener that fails does not affect the others"
    assert world.places() == {}


def test_a_wake_up_that_fails_is_tried_again() -> None:
    world = World(*gang_of_two(), plan=Plan())
    world.turn()
    failing = ["the first one"]

    def wake(orders: list[WakeOrder]) -> None:
        if failing:
            failing.clear()
            raise RuntimeError("stumbled")
        world.woken.extend(orders)

    world.wake = wake
    with pytest.raises(RuntimeError):
        world.wait(11.0)
    world.wait(8.0)

    assert {order.name for order in world.woken} == {"p0", "p1"}


def unknown_binding() -> World:
    """A gang of two. The outcome of the binding of its first member is unknown."""
    world = World(*gang_of_two())
    world.turn()
    for name in ("p0", "p1"):
        assert world.ask(name).nodes
    world.ledger.mark_binding(uid("p0"), world.of("p0").node)
    world.ledger.mark_unknown(uid("p0"), world.of("p0").node)
    return world


def test_a_binding_of_unknown_outcome_keeps_its_capacity_when_its_pod_retries() -> None:
    world = unknown_binding()
    node = world.of("p0").node

    world.ledger.mark_waiting(uid("p0"), node)
    world.ledger.release(uid("p0"))

    assert (world.of("p0").stage, world.of("p0").node) == (Stage.UNKNOWN, node)
    world.wait(SETTLED_S + 10)
    assert world.table.of(uid("p0")) is None, "but not for ever"


def test_a_binding_of_unknown_outcome_that_is_sent_again_is_binding_and_then_released() -> None:
    world = unknown_binding()
    node = world.of("p0").node

    world.ledger.mark_waiting(uid("p0"), node)
    world.ledger.mark_binding(uid("p0"), node)
    assert world.of("p0").stage is Stage.BINDING

    world.ledger.release(uid("p0"))
    assert world.table.of(uid("p0")) is None


def test_a_member_busy_with_its_volumes_keeps_its_reservation_beside_an_unknown_bind() -> None:
    world = unknown_binding()
    world.ledger.mark_waiting(uid("p0"), world.of("p0").node)

    world.wait(29)

    assert world.stages() == {"p0": Stage.UNKNOWN, "p1": Stage.FILTERED}


def test_a_gang_that_no_longer_backs_off_keeps_its_reservations() -> None:
    world = World(*gang_of_two())
    world.turn()

    world.ledger.back_off(GANG, 0.0)
    assert world.places().keys() == {"p0", "p1"}
    world.ledger.back_off(GANG, 5.0)
    assert world.places() == {}
